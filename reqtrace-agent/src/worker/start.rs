//! The tracing process's side: a configuration in; a worker that runs, the ways of rows and spans to it, and what it counts
//! in the text of the metrics, out.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

use reqtrace_base::error::{Error, Result};
use reqtrace_capture::socket::{frame, handed};
use reqtrace_output::rollups::Rollup;
use rustix::process::geteuid;
use tokio::sync::Notify;

use super::message::{MOST_OF_WORKER, OfTheWorker, Start, ToTheWorker};
use super::{records, spans};
use crate::config::Config;
use crate::ids::Machine;
use crate::metrics::{Format, Metrics, OfWorker};
use crate::records::Way;
use crate::rights::{other, process};
use crate::user::{self, User};
use crate::{listen, otlp, profiles};

/// How the worker is started: this program, under whatever name it has now.
pub(crate) const SELF: &str = "/proc/self/exe";
/// It looks through the folders of rows before it is ready.
const STARTING: Duration = Duration::from_secs(60);
/// A worker that does not read for so long is none.
const NOT_READING: Duration = Duration::from_secs(10);
/// One that says nothing for so long hangs: it says each [`super::run::ALIVE`] that it works.
const SILENT: Duration = Duration::from_secs(30);
/// Between two texts of the metrics: a worker that asks for ever costs a share of a CPU.
const BETWEEN: Duration = Duration::from_millis(10);
/// Rows and spans are handed over in this time at the end.
const ENDING: Duration = Duration::from_secs(40);
/// It ends in this time when it has closed its socket.
const CLOSED: Duration = Duration::from_secs(2);
const GLANCE: Duration = Duration::from_millis(10);

/// A worker.
#[derive(Debug)]
pub(crate) struct Worker {
    control: Arc<Mutex<UnixStream>>,
    pub(crate) rows: Option<crate::rows::Queue>,
    pub(crate) rollups: Option<Way<Rollup>>,
    pub(crate) spans: Option<otlp::Queue>,
    pub(crate) stacks: Option<profiles::Queue>,
    /// How it has ended.
    ended: Receiver<Ended>,
    /// Somebody waits for that.
    pub(crate) has_ended: Arc<Notify>,
    pub(crate) pid: u32,
    /// Where metrics are read.
    pub(crate) at: SocketAddr,
    /// Whose rights it has, for people.
    pub(crate) words: String,
}

/// How a worker has ended.
#[derive(Debug)]
enum Ended {
    /// It has closed its socket.
    Exited(ExitStatus),
    /// It is to be left alone.
    Wrong(String),
}

/// Its socket, and the process.
struct Watch {
    child: Child,
    /// Whose rights it has.
    user: String,
    from: UnixStream,
    to: Arc<Mutex<UnixStream>>,
    metrics: Arc<Metrics>,
    /// The process that attaches.
    attacher: u32,
}

impl Worker {
    /// Starts one: this program again, with these arguments.
    ///
    /// # Errors
    ///
    /// When the metrics cannot be served, there is no such user, and what the worker finds wrong with its folders.
    pub(crate) fn start(
        config: &Config,
        arguments: &[&str],
        metrics: &Arc<Metrics>,
        attacher: u32,
        drop_privileges: impl FnOnce(Option<&User>) -> Result<()>,
    ) -> Result<Self> {
        let cannot =
            |error: std::io::Error| Error::failed("the worker could not begin").because(error);
        let machine = Machine::own().map_err(|error| {
            Error::failed("this boot has no id, which files of rows and spans are named by")
                .because(error)
        })?;
        let machine = Arc::new(machine);
        let user = user::of(config.agent.user.as_deref())?;
        let listener = listen::bind(config.listen)?;
        let at = listener.local_addr().map_err(cannot)?;
        let (own, its) = UnixStream::pair().map_err(cannot)?;
        let child = spawn(arguments, user.as_ref(), its.into())?;
        let pid = child.id();
        own.set_write_timeout(Some(NOT_READING)).map_err(cannot)?;
        let mut files: Vec<OwnedFd> = vec![listener.into()];
        let rows = config.rows.as_ref().map(|of| {
            let has_spans = config.otlp.is_some();
            let (queue, from) = crate::rows::Queue::new(of, &machine, has_spans, metrics);
            let (own, its) = UnixStream::pair()?;
            files.push(its.into());
            Ok((queue, move || records::send(&from, own)))
        });
        let rows = rows.transpose().map_err(cannot)?;
        let rollups = config.rows.as_ref().and_then(|of| of.rollups.as_ref());
        let rollups = rollups.map(|_| {
            let (way, from) = Way::new(metrics);
            let (own, its) = UnixStream::pair()?;
            files.push(its.into());
            Ok((way, move || records::send(&from, own)))
        });
        let rollups = rollups.transpose().map_err(cannot)?;
        let keep_slow = config.rows.as_ref().and_then(|rows| rows.keep_slow);
        let spans = config.otlp.as_ref().map(|of| {
            let (queue, from) = otlp::Queue::new(of, &machine, keep_slow, metrics);
            let (own, its) = UnixStream::pair()?;
            files.push(its.into());
            Ok((queue, move || spans::send(&from, own)))
        });
        let spans = spans.transpose().map_err(cannot)?;
        let stacks = config.off_cpu.as_ref().map(|_| {
            let (queue, from) = profiles::Queue::new(metrics);
            let (own, its) = UnixStream::pair()?;
            files.push(its.into());
            let metrics = Arc::clone(metrics);
            Ok((queue, move || super::profiles::send(&from, own, &metrics)))
        });
        let stacks = stacks.transpose().map_err(cannot)?;
        let start = Start {
            machine: Machine::clone(&machine),
            rows: config.rows.clone(),
            otlp: config.otlp.clone(),
            off_cpu: config.off_cpu.clone(),
        };
        let files_of = files.iter().map(|file| file.as_fd());
        let mut watch = Watch {
            child,
            user: user
                .as_ref()
                .map_or_else(String::new, |user| user.name.clone()),
            from: own.try_clone().map_err(cannot)?,
            to: Arc::new(Mutex::new(own)),
            metrics: Arc::clone(metrics),
            attacher,
        };
        watch.begin(&start, &files_of.collect::<Vec<_>>())?;
        drop(files);
        // What whoever traces may not do any more it may not do before it has another thread.
        drop_privileges(user.as_ref())?;
        let thread = |name: &str, run: Box<dyn FnOnce() + Send>| {
            let thread = Builder::new().name(name.to_owned()).spawn(run);
            thread.map(drop).map_err(cannot)
        };
        let control = Arc::clone(&watch.to);
        let (say, ended) = sync_channel(1);
        let has_ended = Arc::new(Notify::new());
        let notify = Arc::clone(&has_ended);
        thread(
            "reqtrace-worker",
            Box::new(move || {
                // It is received until the agent ends.
                let _ = say.send(watch.serve());
                notify.notify_one();
            }),
        )?;
        let mut queue_of_rows = None;
        if let Some((queue, send)) = rows {
            thread("reqtrace-rows", Box::new(send))?;
            queue_of_rows = Some(queue);
        }
        let mut way_of_rollups = None;
        if let Some((way, send)) = rollups {
            thread("reqtrace-rollup", Box::new(send))?;
            way_of_rollups = Some(way);
        }
        let mut queue_of_spans = None;
        if let Some((queue, send)) = spans {
            thread("reqtrace-otlp", Box::new(send))?;
            queue_of_spans = Some(queue);
        }
        let mut queue_of_stacks = None;
        if let Some((queue, send)) = stacks {
            thread("reqtrace-pprof", Box::new(send))?;
            queue_of_stacks = Some(queue);
        }
        Ok(Self {
            control,
            rows: queue_of_rows,
            rollups: way_of_rollups,
            spans: queue_of_spans,
            stacks: queue_of_stacks,
            ended,
            has_ended,
            pid,
            at,
            words: user::words_of(user.as_ref()),
        })
    }

    /// Why it has ended before it was told to.
    pub(crate) fn failure(self) -> Error {
        let how = match self.ended.recv() {
            Ok(Ended::Exited(status)) => format!("the worker has ended: {status}"),
            Ok(Ended::Wrong(what)) => format!("the worker {what}"),
            Err(_) => "the thread that watches the worker panicked".to_owned(),
        };
        Error::failed(format!("{how}; nothing is traced without it"))
            .next("start the agent again, as systemd does; its last words are above")
    }

    /// Ends it, when all sessions have ended: what is on its way is handed over.
    ///
    /// # Errors
    ///
    /// When it does not end, or not well.
    pub(crate) fn end(self) -> Result<()> {
        // It may have ended by itself.
        let _ = frame::send_whole(&self.control, &ToTheWorker::End);
        if let Some(rows) = &self.rows {
            rows.stop();
        }
        if let Some(rollups) = &self.rollups {
            rollups.stop();
        }
        if let Some(spans) = self.spans {
            spans.stop();
        }
        if let Some(stacks) = self.stacks {
            stacks.stop();
        }
        match self.ended.recv_timeout(ENDING) {
            Ok(Ended::Exited(status)) if status.success() => Ok(()),
            Err(RecvTimeoutError::Timeout) => Err(Error::failed(format!(
                "the worker has not ended in {} s; the rows that it has may be lost",
                ENDING.as_secs()
            ))
            .next("see whether the disk of [rows] stands still")),
            _ => Err(Error::failed(
                "the worker has not ended well; the rows that it had may be lost",
            )
            .next("see its last words above")),
        }
    }
}

fn spawn(arguments: &[&str], user: Option<&User>, control: OwnedFd) -> Result<Child> {
    let mut command = Command::new(SELF);
    command
        .arg0("reqtrace")
        .args(arguments)
        .env_clear()
        .envs(
            std::env::vars_os().filter(|(name, _)| name == "RUST_BACKTRACE" || name == "RUST_LOG"),
        )
        .current_dir("/")
        .stdin(Stdio::from(control))
        .stdout(Stdio::null());
    if let Some(User { name, .. }) = user.filter(|_| !geteuid().is_root()) {
        // It would keep the groups of this one.
        return Err(Error::usage(format!(
            "[agent]: user = \"{name}\": only root gives the worker another user"
        ))
        .next("leave out user, or run the agent as root"));
    }
    if let Some(user) = user {
        // It has no other groups then.
        command.uid(user.number).gid(user.group);
    }
    command.spawn().map_err(|error| match user {
        Some(user) => Error::failed(format!("the worker could not begin as {}", user.name))
            .because(error)
            .next(
                "that needs root with CAP_SETUID and CAP_SETGID, until it has begun; or write the user that runs the agent \
                 into [agent]: user = \"root\"",
            ),
        None => Error::failed("the worker could not begin").because(error),
    })
}

impl Watch {
    /// Hands over what the worker works with, and waits until it does.
    fn begin(&mut self, start: &Start, files: &[std::os::fd::BorrowedFd<'_>]) -> Result<()> {
        let begun = self.try_begin(start, files);
        match begun {
            Ok(OfTheWorker::Ready) => Ok(()),
            Ok(OfTheWorker::Refused(refusal)) => Err(match self.user.as_str() {
                "" => refusal.into_error(),
                user => refusal
                    .noting(&format!("the worker has the rights of {user}"))
                    .into_error(),
            }),
            Ok(OfTheWorker::Alive | OfTheWorker::Asks { .. }) => {
                Err(Error::failed("the worker asks before it has begun"))
            }
            Err(error) => {
                let status = self.status();
                let how = status.map_or_else(String::new, |status| format!(": {status}"));
                Err(Error::failed(format!("the worker has not begun{how}")).because(error))
            }
        }
    }

    fn try_begin(
        &mut self,
        start: &Start,
        files: &[std::os::fd::BorrowedFd<'_>],
    ) -> std::io::Result<OfTheWorker> {
        handed::send(&self.from, files)?;
        frame::send(&mut &self.from, start)?;
        self.from.set_read_timeout(Some(STARTING))?;
        let first = frame::receive(&mut self.from, MOST_OF_WORKER)?;
        self.from.set_read_timeout(Some(SILENT))?;
        first.ok_or_else(|| ErrorKind::UnexpectedEof.into())
    }

    /// Answers the worker until it ends.
    fn serve(mut self) -> Ended {
        let what = self.answer();
        match self.status() {
            // What it wrote last is its own matter when it was killed.
            Some(status) => Ended::Exited(status),
            None => {
                // Root's worker may not be killed by who has no right to kill: it has no descriptor of ours any more.
                let _ = self.child.kill();
                Ended::Wrong(what)
            }
        }
    }

    /// Why there is nothing more to answer.
    fn answer(&mut self) -> String {
        let attacher = self.attacher;
        answers(&mut self.from, &self.to, |figures, format| {
            let mut own = vec![process("tracing")];
            own.extend(other("attaching", attacher));
            self.metrics.bytes_with(figures, own, format).ok()
        })
    }

    /// How it has ended; `None` when it has not, soon after.
    fn status(&mut self) -> Option<ExitStatus> {
        let until = Instant::now() + CLOSED;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < until => sleep(GLANCE),
                _ => return None,
            }
        }
    }
}

/// Answers all questions that come from a socket. Returns why the last one had no answer.
pub(super) fn answers(
    from: &mut UnixStream,
    to: &Mutex<UnixStream>,
    metrics: impl Fn(&OfWorker, Format) -> Option<Vec<u8>>,
) -> String {
    loop {
        match frame::receive(from, MOST_OF_WORKER) {
            Ok(Some(OfTheWorker::Asks {
                format,
                number,
                figures,
            })) => {
                let bytes = metrics(&figures, format);
                if frame::send_whole(to, &ToTheWorker::Metrics { number, bytes }).is_err() {
                    return "does not read its answers".to_owned();
                }
                sleep(BETWEEN);
            }
            Ok(Some(OfTheWorker::Alive)) => {}
            Ok(Some(OfTheWorker::Ready | OfTheWorker::Refused(_))) => {
                return "has begun twice".to_owned();
            }
            Ok(None) => return "has closed its socket".to_owned(),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return "has answered nothing for too long, as if it were stopped".to_owned();
            }
            Err(error) => return format!("has sent what is no question: {error}"),
        }
    }
}
