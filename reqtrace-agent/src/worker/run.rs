//! The worker's side: the sockets that it is handed in; files, spans and answers to readers of the metrics out.
//!
//! It gives up all privileges before it reads anything, ignores the signals that end the other process, which it outlasts by
//! the time that rows and spans take, and ends when the control socket does.

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

use log::warn;
use reqtrace_base::error::{Error, Result};
use reqtrace_base::say;
use reqtrace_capture::socket::{Refusal, frame, handed};
use reqtrace_output::rollups::Rollup;
use rustix::thread::set_name;

use super::message::{MOST_TO_WORKER, OfTheWorker, Start, ToTheWorker};
use super::{profiles, records, spans};
use crate::config::Rows;
use crate::ids::Machine;
use crate::listen::{self, Page};
use crate::metrics::{Format, Metrics};
use crate::otlp;
use crate::records::{Record, Writer};
use crate::rights::{give_up_all, process};
use crate::rows::Row;

/// The text of the metrics comes in this time, or a reader gets none.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it says that it works.
pub(super) const ALIVE: Duration = Duration::from_secs(5);

/// Runs a worker for the process at the other end of standard input, until that ends.
///
/// # Errors
///
/// When nobody is there, when privileges are left, and when the other process ends without a word.
pub fn run() -> Result<()> {
    let (mut control, start, files) = begin()?;
    let (texts, answers) = channel();
    let to = control.try_clone().map_err(cannot)?;
    let to = Arc::new(Mutex::new(to));
    let asking = Asking {
        to: Arc::clone(&to),
        answers,
        number: 0,
    };
    let asked = Working::begin(start, files, asking);
    let working = match asked {
        Ok(working) => working,
        Err(error) => {
            let refused = OfTheWorker::Refused(Refusal::of(&error));
            // The other process says it.
            return frame::send(&mut control, &refused).map_err(cannot);
        }
    };
    frame::send_whole(&to, &OfTheWorker::Ready).map_err(cannot)?;
    let alive = Builder::new().name("alive".to_owned());
    alive.spawn(move || say_alive(&to)).map_err(cannot)?;
    let is_told = listen_to(&mut control, &texts);
    working.end();
    match is_told {
        true => Ok(()),
        false => Err(Error::failed(
            "the tracing process has ended without a word, and with it the agent",
        )
        .next("start it again, as systemd does; rows that had come were handed over")),
    }
}

fn cannot(error: io::Error) -> Error {
    Error::failed("the worker of an agent cannot go on").because(error)
}

/// Takes what the other process hands over.
fn begin() -> Result<(UnixStream, Start, Vec<OwnedFd>)> {
    give_up_all()?;
    let mut control = begin_as(c"reqtrace-worker")?;
    let files = handed::receive(&control).map_err(alone)?;
    let start = frame::receive(&mut control, MOST_TO_WORKER).map_err(alone)?;
    let start = start.ok_or_else(|| alone(io::ErrorKind::UnexpectedEof.into()))?;
    Ok((control, start, files))
}

/// Begins as a part of an agent that has this name, for the process at the other end of standard input.
///
/// # Errors
///
/// When it has no standard input.
pub(crate) fn begin_as(name: &CStr) -> Result<UnixStream> {
    // Else it is called as the link by which it was started. A name is for people: none is no failure.
    let _ = set_name(name);
    ignore_signals();
    close_inherited();
    let control = io::stdin().as_fd().try_clone_to_owned();
    control.map(UnixStream::from).map_err(alone)
}

/// Whoever was to be there is not.
pub(crate) fn alone(error: io::Error) -> Error {
    Error::usage("nobody is at the other end of standard input")
        .because(error)
        .next("this command is a part of `reqtrace agent`, which starts it")
}

/// Those that end the other process: it says when this one ends.
fn ignore_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: nothing is run by a signal that is ignored.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// What whoever started the agent has left open.
fn close_inherited() {
    // SAFETY: this process has opened nothing yet but the standard streams. It fails before Linux 5.9, where what is
    // inherited stays open.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
}

/// Says that this process works, until nobody is there.
fn say_alive(to: &Mutex<UnixStream>) {
    while frame::send_whole(to, &OfTheWorker::Alive).is_ok() {
        thread::sleep(ALIVE);
    }
}

/// Passes answers on until the other process wants this one to end (`true`) or is gone.
fn listen_to(control: &mut UnixStream, metrics: &Sender<(u64, Option<Vec<u8>>)>) -> bool {
    loop {
        match frame::receive(control, MOST_TO_WORKER) {
            Ok(Some(ToTheWorker::Metrics { number, bytes })) => {
                // Readers that come are there as long as the process.
                let _ = metrics.send((number, bytes));
            }
            Ok(Some(ToTheWorker::End)) => return true,
            Ok(None) | Err(_) => return false,
        }
    }
}

/// What works.
struct Working {
    rows: Option<(JoinHandle<()>, Writer<Row>)>,
    rollups: Option<(JoinHandle<()>, Writer<Rollup>)>,
    spans: Option<(JoinHandle<()>, otlp::Sender)>,
    profiles: Option<(JoinHandle<()>, crate::profiles::Writer)>,
}

impl Working {
    fn begin(start: Start, files: Vec<OwnedFd>, asking: Asking) -> Result<Self> {
        let metrics = Arc::<Metrics>::default();
        let mut files = files.into_iter();
        let mut next = || {
            files
                .next()
                .ok_or_else(|| cannot(io::ErrorKind::NotFound.into()))
        };
        let listener = TcpListener::from(next()?);
        let rollups = start.rows.as_ref().and_then(Rows::of_rollups);
        let rows = start.rows.map(|config| {
            let socket = UnixStream::from(next()?);
            written(&config, &start.machine, &metrics, socket)
        });
        let rows = rows.transpose()?;
        let rollups = rollups.map(|config| {
            let socket = UnixStream::from(next()?);
            written(&config, &start.machine, &metrics, socket)
        });
        let rollups = rollups.transpose()?;
        let spans = start.otlp.map(|config| {
            let (to, from) = sync_channel(spans::MOST_TAKEN);
            let socket = UnixStream::from(next()?);
            let sender = otlp::Sender::start(&config, &start.machine.host, &metrics, from)?;
            let read = Box::new(move || spans::receive(socket, &to));
            Ok((reader("spans", read)?, sender))
        });
        let spans = spans.transpose()?;
        let profiles = start.off_cpu.map(|config| {
            let (to, from) = sync_channel(profiles::MOST_TAKEN);
            let socket = UnixStream::from(next()?);
            let writer = crate::profiles::Writer::start(&config, &start.machine, &metrics, from)?;
            let read = Box::new(move || profiles::receive(socket, &to));
            Ok((reader("profiles", read)?, writer))
        });
        let profiles = profiles.transpose()?;
        let asking = Mutex::new(asking);
        listen::answer_at(listener, Arc::new(Asked { asking, metrics }))?;
        Ok(Self {
            rows,
            rollups,
            spans,
            profiles,
        })
    }

    /// Hands over and sends what has come, and what still comes from the sockets.
    fn end(self) {
        if let Some((reader, sender)) = self.spans {
            sender.end();
            wait(reader);
        }
        if let Some((reader, writer)) = self.rows {
            wait(reader);
            writer.wait();
        }
        if let Some((reader, writer)) = self.rollups {
            wait(reader);
            writer.wait();
        }
        if let Some((reader, writer)) = self.profiles {
            wait(reader);
            writer.end();
        }
    }
}

fn reader(name: &str, read: Box<dyn FnOnce() + Send>) -> Result<JoinHandle<()>> {
    let reader = Builder::new().name(name.to_owned()).spawn(read);
    reader.map_err(cannot)
}

/// Writes the records that come from there into these folders.
fn written<R: Record>(
    config: &Rows,
    machine: &Machine,
    metrics: &Arc<Metrics>,
    socket: UnixStream,
) -> Result<(JoinHandle<()>, Writer<R>)> {
    let (to, from) = sync_channel(records::MOST_TAKEN);
    let writer = Writer::start(config, machine, metrics, from)?;
    let read = Box::new(move || records::receive(socket, &to));
    Ok((reader(R::KIND.start, read)?, writer))
}

fn wait(reader: JoinHandle<()>) {
    if reader.join().is_err() {
        warn!("a thread that reads a socket panicked: please report this as a bug");
    }
}

/// What asks for the text of the metrics.
struct Asking {
    to: Arc<Mutex<UnixStream>>,
    answers: Receiver<(u64, Option<Vec<u8>>)>,
    /// Of the last question.
    number: u64,
}

/// The page of the metrics, which the other process writes.
struct Asked {
    asking: Mutex<Asking>,
    metrics: Arc<Metrics>,
}

impl Asked {
    fn ask(&self, format: Format) -> Result<Vec<u8>, fmt::Error> {
        let figures = Box::new(self.metrics.of_worker(process("worker")));
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        asking.number += 1;
        let number = asking.number;
        let asks = OfTheWorker::Asks {
            format,
            number,
            figures,
        };
        frame::send_whole(&asking.to, &asks).map_err(|_| fmt::Error)?;
        let until = Instant::now() + PATIENCE;
        loop {
            let wait = until.saturating_duration_since(Instant::now());
            match asking.answers.recv_timeout(wait) {
                Ok((of, Some(bytes))) if of == number => return Ok(bytes),
                // One that came too late for its reader.
                Ok((of, _)) if of != number => {}
                _ => {
                    say!("reqtrace agent: the tracing process does not answer");
                    return Err(fmt::Error);
                }
            }
        }
    }
}

impl Page for Asked {
    fn text(&self) -> Result<String, fmt::Error> {
        String::from_utf8(self.ask(Format::Text)?).map_err(|_| fmt::Error)
    }

    fn protobuf(&self) -> Option<Result<Vec<u8>, fmt::Error>> {
        Some(self.ask(Format::Protobuf))
    }

    fn turned_away(&self) {
        self.metrics.turned_away();
    }
}
