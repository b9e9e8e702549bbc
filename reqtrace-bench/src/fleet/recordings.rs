//! Recordings of the example services, each under another load: a folder in; ten files, made where they are not there, out.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use reqtrace_tests::hyper::{self, Load};
use reqtrace_tests::jobs::Running;
use reqtrace_tests::limited::Limited;
use reqtrace_tests::load::beside;
use reqtrace_tests::process::Child;
use reqtrace_tests::reqtrace;
use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::{tasks, workspace};

use super::plan::{Kind, SHOP};

/// A recording.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Of its file.
    pub(super) name: &'static str,
    /// The service that it is of.
    pub(super) service: &'static str,
    /// Which of that.
    pub(super) kind: Kind,
    load: Under,
}

/// Who is traced, and under which load.
#[derive(Clone, Copy, Debug)]
enum Under {
    /// Customers, and how long each waits between two orders, ms.
    Shop(u32, u32),
    /// The same; half of the CPU time that it takes is given.
    ShortShop(u32, u32),
    /// The same of a build whose payments take longer.
    BadShop(u32, u32),
    /// Customers.
    Bakery(u32),
    Tasks,
    Axum,
    Tonic,
}

const fn wanted(name: &'static str, service: &'static str, kind: Kind, load: Under) -> Wanted {
    Wanted {
        name,
        service,
        kind,
        load,
    }
}

/// All of them.
pub(super) const ALL: [Wanted; 10] = [
    wanted("shop", SHOP, Kind::Well, Under::Shop(6, 20)),
    wanted("shop-few", SHOP, Kind::Well, Under::Shop(3, 8)),
    wanted("shop-many", SHOP, Kind::Well, Under::Shop(12, 40)),
    wanted("shop-short", SHOP, Kind::Short, Under::ShortShop(6, 20)),
    wanted("shop-bad", SHOP, Kind::Bad, Under::BadShop(6, 20)),
    wanted("bakery", "bakery", Kind::Well, Under::Bakery(4)),
    wanted("bakery-many", "bakery", Kind::Well, Under::Bakery(8)),
    wanted("tasks", "jobs", Kind::Well, Under::Tasks),
    wanted("axum", "front", Kind::Well, Under::Axum),
    wanted("tonic", "rpc", Kind::Well, Under::Tonic),
];

/// A recording that is there.
#[derive(Clone, Debug)]
pub(super) struct There {
    pub(super) wanted: Wanted,
    pub(super) path: PathBuf,
    /// Nobody had made it before.
    pub(super) is_new: bool,
}

/// All recordings in this folder. Those that are not there are made, of so many seconds.
///
/// # Errors
///
/// When one cannot be made, which needs root.
pub(super) fn all(folder: &Path, seconds: u32) -> Result<Vec<There>> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let one = |wanted: Wanted| {
        let path = folder.join(format!("{}.rec", wanted.name));
        let is_new = !path.is_file();
        if is_new {
            eprintln!("recording {}: {seconds} s", wanted.name);
            let made = make(wanted, &path, seconds);
            if made.is_err() {
                // It would be taken for a good one the next time.
                let _ = std::fs::remove_file(&path);
            }
            made.with_context(|| format!("the recording {}", wanted.name))?;
        }
        Ok(There {
            wanted,
            path,
            is_new,
        })
    };
    ALL.into_iter().map(one).collect()
}

fn make(wanted: Wanted, to: &Path, seconds: u32) -> Result<()> {
    // A load begins before the recording and ends after it.
    let long = seconds + 60;
    match wanted.load {
        Under::Shop(customers, pause_ms) => {
            let shop = Shop::open()?;
            let _load = shop.start_load_for(customers, long, pause_ms)?;
            record(&shop::profile(), shop.pid(), to, seconds)
        }
        Under::BadShop(customers, pause_ms) => {
            let shop = Shop::open_slower("payment")?;
            let _load = shop.start_load_for(customers, long, pause_ms)?;
            record(&shop::profile(), shop.pid(), to, seconds)
        }
        Under::ShortShop(customers, pause_ms) => {
            let shop = Shop::open()?;
            let limit = Limited::loose()?;
            limit.take(shop.pid())?;
            let _load = shop.start_load_for(customers, long, pause_ms)?;
            limit.tighten()?;
            record(&shop::profile(), shop.pid(), to, seconds)
        }
        Under::Bakery(customers) => {
            let program = workspace::bakery()?;
            let mut command = Command::new(&program);
            command.args(["serve", "--listen", "127.0.0.1:0", "--bakers", "3"]);
            let (bakery, address) = hyper::listening(command)?;
            let mut load = Command::new(&program);
            load.args(["load", "--connect", &address, "--orders", MANY])
                .args(["--customers", &customers.to_string()]);
            let profile = workspace::root().join("examples/bakery/bakery.toml");
            under(load, &profile, &bakery, to, seconds)
        }
        Under::Tasks => {
            let (server, address) = tasks::server("multi")?;
            let failed = Mutex::new(None);
            let load = || {
                if let Err(error) = ask_tasks(&address) {
                    failed
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .get_or_insert(error);
                    thread::sleep(Duration::from_millis(100));
                }
            };
            beside(load, || {
                record(&tasks::profile("http.toml"), server.pid(), to, seconds)
            })?;
            let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
            failed.map_or(Ok(()), |error| Err(error.context("the load failed")))
        }
        Under::Axum => {
            let (server, address) = hyper::serve("axum", "multi")?;
            let load = load_of_web(&address, "http1", [4, 1])?;
            under(load, Path::new("axum"), &server, to, seconds)
        }
        Under::Tonic => {
            let (server, address) = hyper::serve("tonic", "multi")?;
            let load = load_of_web(&address, "grpc", [2, 2])?;
            under(load, Path::new("tonic"), &server, to, seconds)
        }
    }
}

/// A client of the example tasks: one request after the other on a connection, each of 1 ms.
fn ask_tasks(address: &str) -> Result<()> {
    const REQUESTS: usize = 50;
    let mut stream = BufReader::new(TcpStream::connect(address)?);
    for _ in 0..REQUESTS {
        write!(stream.get_mut(), "GET /1 HTTP/1.1\r\nhost: tasks\r\n\r\n")?;
        let (mut line, mut length) = (String::new(), 0);
        while stream.read_line(&mut line)? > 2 {
            if let Some(bytes) = line.strip_prefix("content-length: ") {
                length = bytes.trim().parse()?;
            }
            line.clear();
        }
        stream.read_exact(&mut vec![0; length])?;
        thread::sleep(Duration::from_millis(4));
    }
    Ok(())
}

/// More than are asked for while a recording is made.
const MANY: &str = "10000000";

fn load_of_web(
    address: &str,
    protocol: &'static str,
    [connections, streams]: [u64; 2],
) -> Result<Command> {
    hyper::command(
        address,
        Load {
            protocol,
            connections,
            streams,
            requests: 10_000_000,
            more: &["--kind", "sleeps", "--pause", "20"],
        },
    )
}

/// Records a server under a load that is stopped then.
fn under(load: Command, profile: &Path, server: &Running, to: &Path, seconds: u32) -> Result<()> {
    let folder = workspace::scratch()?;
    let mut load = Child::start(load, folder.path(), "load")?;
    record(profile, server.pid(), to, seconds)?;
    ensure!(
        load.status()?.is_none(),
        "the load ended before the recording did: {}",
        load.output(reqtrace_tests::process::Stream::Err)
    );
    // It is killed with its handle.
    Ok(())
}

/// Records as an agent with `blame` traces: no samples, and user stacks only where the profile asks for functions.
fn record(profile: &Path, pid: u32, to: &Path, seconds: u32) -> Result<()> {
    let mut command = reqtrace::command(["--blame", "-K", "--cpu-rate", "0"])?;
    command
        .args(["--max-overhead", "100", "--profile"])
        .arg(profile)
        .args(["-p", &pid.to_string()])
        .arg("--record")
        .arg(to)
        .arg(seconds.to_string());
    let outcome = reqtrace::run(command)?;
    ensure!(outcome.code == Some(0), "{}", outcome.printed());
    Ok(())
}
