//! A collector that does as it is told: requests by HTTP in; what it has taken out. Of spans, by OTLP/HTTP, as the published
//! definition reads them; of profiles as [`crate::profiles`] does.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::workspace;

/// What it does with a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Does {
    /// Takes it.
    #[default]
    Takes,
    /// Answers with this status.
    Answers(u16),
    /// Reads it, and never answers.
    Hangs,
}

/// What it is asked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Protocol {
    path: &'static str,
    content_type: &'static str,
}

const OTLP: Protocol = Protocol {
    path: "/v1/traces",
    content_type: "application/x-protobuf",
};
/// Pyroscope's push API, a call of the Connect protocol with one request and one answer.
const PUSH: Protocol = Protocol {
    path: "/push.v1.PusherService/Push",
    content_type: "application/proto",
};

/// A running one, until the test ends.
#[derive(Debug)]
pub struct Collector {
    port: u16,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    does: Does,
    /// Requests that have come, whatever became of them.
    seen: usize,
    taken: Vec<Vec<u8>>,
}

/// A span that was taken.
#[derive(Clone, Debug, Deserialize)]
pub struct Span {
    /// Attributes of the service.
    pub resource: Map<String, Value>,
    /// Who has made it.
    pub scope: String,
    /// 32 digits.
    pub trace_id: String,
    /// 16 digits.
    pub span_id: String,
    /// What was done.
    pub name: String,
    /// As the definition names it.
    pub kind: String,
    /// ns since the Unix epoch.
    pub start_ns: i64,
    /// The same.
    pub end_ns: i64,
    /// By key.
    pub attributes: Map<String, Value>,
}

impl Span {
    /// An attribute that is a number.
    ///
    /// # Errors
    ///
    /// When it is not there, or is none.
    pub fn number(&self, key: &str) -> Result<i64> {
        let value = self.attributes.get(key).and_then(Value::as_i64);
        value.with_context(|| format!("{key}: {self:#?}"))
    }

    /// Σ of the numbers whose keys begin so.
    #[must_use]
    pub fn sum(&self, start: &str) -> i64 {
        let of = self.attributes.iter();
        let of = of.filter(|(key, _)| key.starts_with(start));
        of.filter_map(|(_, value)| value.as_i64()).sum()
    }
}

impl Collector {
    /// Starts one of spans at this port; 0 is any that is free.
    ///
    /// # Errors
    ///
    /// When the loopback cannot be bound to.
    pub fn start(port: u16) -> Result<Self> {
        Self::start_by(port, OTLP)
    }

    /// Starts one of profiles.
    ///
    /// # Errors
    ///
    /// As [`Collector::start`].
    pub fn start_pyroscope(port: u16) -> Result<Self> {
        Self::start_by(port, PUSH)
    }

    fn start_by(port: u16, protocol: Protocol) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(Mutex::new(State::default()));
        let of = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let of = Arc::clone(&of);
                // The client sees what goes wrong.
                thread::spawn(move || serve(&stream, &of, protocol).is_ok());
            }
        });
        Ok(Self { port, state })
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on it does this.
    pub fn set(&self, does: Does) {
        lock(&self.state).does = does;
    }

    /// Requests that have come.
    #[must_use]
    pub fn seen(&self) -> usize {
        lock(&self.state).seen
    }

    /// The requests that it has taken.
    #[must_use]
    pub fn bodies(&self) -> Vec<Vec<u8>> {
        lock(&self.state).taken.clone()
    }

    /// All spans that it has taken.
    ///
    /// # Errors
    ///
    /// When one does not fit the definition.
    pub fn spans(&self, folder: &Path) -> Result<Vec<Span>> {
        let python = workspace::perfetto().join("bin/python");
        ensure!(
            python.exists(),
            "{} is missing; run: cargo xtask setup --for test",
            python.display()
        );
        let mut command = Command::new(python);
        command.arg(workspace::root().join("tests/fixtures/otlp/decode.py"));
        for (number, body) in lock(&self.state).taken.iter().enumerate() {
            let file = folder.join(format!("body-{number}"));
            std::fs::write(&file, body)?;
            command.arg(file);
        }
        let output = command.output().context("python could not be started")?;
        ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8(output.stdout)?;
        let spans: Result<Vec<Span>, _> = text.lines().map(serde_json::from_str).collect();
        Ok(spans?)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All requests of a connection.
fn serve(stream: &TcpStream, state: &Mutex<State>, protocol: Protocol) -> Result<()> {
    let Protocol { path, content_type } = protocol;
    let mut reader = BufReader::new(stream);
    loop {
        let (mut line, mut length, mut kind) = (String::new(), 0, String::new());
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        ensure!(line.starts_with(&format!("POST {path} HTTP/1.1")), "{line}");
        while line.trim_end() != "" {
            let (key, value) = line.split_once(':').unwrap_or_default();
            match key.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse()?,
                "content-type" => value.trim().clone_into(&mut kind),
                _ => {}
            }
            line.clear();
            reader.read_line(&mut line)?;
        }
        ensure!(kind == content_type, "{kind}");
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let does = {
            let mut state = lock(state);
            state.seen += 1;
            if state.does == Does::Takes {
                state.taken.push(body);
            }
            state.does
        };
        let status = match does {
            Does::Takes => 200,
            Does::Answers(status) => status,
            Does::Hangs => {
                // Until the other end has enough.
                reader.read_to_end(&mut Vec::new())?;
                return Ok(());
            }
        };
        let mut writer = stream;
        write!(
            writer,
            "HTTP/1.1 {status} As told\r\ncontent-length: 0\r\ncontent-type: {content_type}\r\n\r\n"
        )?;
    }
}
