//! nginx and PHP-FPM, whose workers are replaced after some requests, under clients of our own at a fixed rate.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use reqtrace_tests::load;
use reqtrace_tests::nginx::Nginx;
use reqtrace_tests::php_fpm::{self, PhpFpm};
use reqtrace_tests::process::until;

use super::paced::{Asked, Counted, For, ask};
use super::service::{BEFORE_RESTART, CONNECTIONS, Round, Service};

const LIMIT: Duration = Duration::from_secs(10);
/// Requests of a connection to nginx.
const KEPT: u32 = 100;
/// Requests of a worker of PHP-FPM.
const RECYCLED: u32 = 50;

/// A web server with an access log.
trait Web: Send {
    /// Clients of it.
    fn ask(&self, long: For<'_>) -> Counted;
    fn logged(&self) -> Result<u64>;
}

/// Waits until so many are logged.
fn logged(web: &impl Web, before: u64, answered: u64) -> Result<u64> {
    until(LIMIT, "the access log", || {
        let logged = web.logged()? - before;
        Ok((logged >= answered).then_some(logged))
    })
}

fn steady(web: &impl Web, requests: u64) -> Result<Round> {
    let before = web.logged()?;
    let counted = web.ask(For::Requests(requests));
    ensure!(
        counted
            == Counted {
                answered: requests,
                broken: 0
            },
        "{counted:?} of {requests}"
    );
    Ok(Round {
        least: requests,
        most: requests,
        served: Some(logged(web, before, requests)?),
        cut_off: 0,
    })
}

/// A load goes on while `change` is made, and some time before and after.
fn beside(
    ask: impl FnOnce(For<'_>) -> Counted + Send,
    change: impl FnOnce() -> Result<()>,
) -> Result<Round> {
    let over = AtomicBool::new(false);
    let counted = thread::scope(|scope| {
        let over = &over;
        let ends = load::Ends(over);
        let asking = scope.spawn(move || ask(For::Until(over)));
        thread::sleep(BEFORE_RESTART);
        let changed = change();
        if changed.is_ok() {
            thread::sleep(BEFORE_RESTART);
        }
        drop(ends);
        let counted = asking.join();
        changed.map(|()| counted.unwrap_or_default())
    })?;
    debug_assert!(over.load(Ordering::Relaxed), "the load has ended");
    ensure!(
        counted.answered > 0,
        "nothing was answered around a restart"
    );
    Ok(Round {
        least: counted.answered,
        most: counted.answered + counted.broken,
        served: None,
        cut_off: CONNECTIONS.into(),
    })
}

/// nginx.
pub(super) struct NginxLoad {
    server: Nginx,
    rate: u32,
}

impl NginxLoad {
    pub(super) fn start(program: &Path, rate: u32) -> Result<Self> {
        let server = Nginx::start_program(program, 2, "", "")?;
        fs::write(server.documents().join("page.html"), "x".repeat(1_000))?;
        Ok(Self { server, rate })
    }
}

/// Asks over a connection that is kept for some requests.
fn http_client(port: u16) -> impl FnMut() -> Asked {
    let mut kept: Option<(TcpStream, u32)> = None;
    move || {
        let (mut stream, used) = match kept.take() {
            Some(kept) => kept,
            None => match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                Ok(stream) => (stream, 0),
                Err(_) => return Asked::NotSent,
            },
        };
        let is_last = used + 1 == KEPT;
        let more = if is_last { "Connection: close\r\n" } else { "" };
        let head = format!("GET /page.html HTTP/1.1\r\nHost: soak\r\n{more}\r\n");
        let sent = stream
            .set_read_timeout(Some(LIMIT))
            .and_then(|()| stream.write_all(head.as_bytes()));
        match sent.and_then(|()| answer(&mut stream)) {
            Ok(()) => {
                kept = (!is_last).then_some((stream, used + 1));
                Asked::Answered
            }
            Err(_) => Asked::Broken,
        }
    }
}

/// A whole answer with a body of 1,000 bytes.
fn answer(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut all = Vec::new();
    let mut part = [0; 4_096];
    loop {
        let count = stream.read(&mut part)?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        all.extend_from_slice(&part[..count]);
        let end = all.windows(4).position(|four| four == b"\r\n\r\n");
        if end.is_some_and(|end| all.len() >= end + 4 + 1_000) {
            let is_good = all.starts_with(b"HTTP/1.1 200");
            return is_good
                .then_some(())
                .ok_or_else(|| ErrorKind::InvalidData.into());
        }
    }
}

impl Web for NginxLoad {
    fn ask(&self, long: For<'_>) -> Counted {
        let port = self.server.port();
        ask(CONNECTIONS, self.rate, long, || http_client(port))
    }

    fn logged(&self) -> Result<u64> {
        self.server.logged()
    }
}

impl Service for NginxLoad {
    fn steady(&mut self, requests: u64) -> Result<Round> {
        steady(self, requests)
    }

    fn restart(&mut self) -> Result<Round> {
        let (port, rate) = (self.server.port(), self.rate);
        beside(
            |long| ask(CONNECTIONS, rate, long, || http_client(port)),
            || self.server.restart(),
        )
    }

    fn pid(&self) -> u32 {
        self.server.pid()
    }
}

/// PHP-FPM.
pub(super) struct PhpFpmLoad {
    server: PhpFpm,
    rate: u32,
    script: String,
}

impl PhpFpmLoad {
    pub(super) fn start(program: &Path, rate: u32) -> Result<Self> {
        let pool = format!("pm.max_requests = {RECYCLED}");
        let server = PhpFpm::start_program(program, 2, &pool)?;
        let code = "for ($i = 0, $x = ''; $i < 200; $i++) $x = md5($x . $i); usleep(300); echo $x;";
        let script = server.script("work.php", code)?.display().to_string();
        Ok(Self {
            server,
            rate,
            script,
        })
    }
}

fn fcgi_client(socket: PathBuf, script: String) -> impl FnMut() -> Asked {
    move || match UnixStream::connect(&socket) {
        Err(_) => Asked::NotSent,
        Ok(stream) => match php_fpm::ask(&stream, &script) {
            Ok(_) => Asked::Answered,
            Err(_) => Asked::Broken,
        },
    }
}

impl Web for PhpFpmLoad {
    fn ask(&self, long: For<'_>) -> Counted {
        ask(CONNECTIONS, self.rate, long, || {
            fcgi_client(self.server.socket(), self.script.clone())
        })
    }

    fn logged(&self) -> Result<u64> {
        self.server.logged()
    }
}

impl Service for PhpFpmLoad {
    fn steady(&mut self, requests: u64) -> Result<Round> {
        steady(self, requests)
    }

    fn restart(&mut self) -> Result<Round> {
        let (socket, script, rate) = (self.server.socket(), self.script.clone(), self.rate);
        beside(
            move |long| {
                ask(CONNECTIONS, rate, long, || {
                    fcgi_client(socket.clone(), script.clone())
                })
            },
            || self.server.restart(),
        )
    }

    fn pid(&self) -> u32 {
        self.server.pid()
    }
}
