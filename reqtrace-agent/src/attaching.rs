//! The process that attaches: a configuration in; what of the processes that its rules are about only privileges give, out.
//!
//! It is this program again, started before anything else. It keeps its own copy of the configuration, which it reads
//! itself, and believes the tracing process nothing: whether a process is one of a rule's, it looks up.

mod rules;
mod texts;

use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::Builder;

use reqtrace_base::error::{Error, Result};
use reqtrace_capture::attacher::{Attacher, attach_by};
use reqtrace_capture::socket::Refusal;
use rustix::process::geteuid;
use rustix::thread::{
    CapabilitySets, capabilities, configure_capability_in_ambient_set, set_capabilities,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::config::{Config, Profiles};
use crate::processes::{Seen, Sees};
use crate::worker::SELF;
pub use rules::attacher;
use texts::Texts;

/// What the agent asks beside what capture does.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Question {
    /// How rules see a process.
    See(u32),
    /// The configuration as it is now, and its profiles.
    Read,
    /// To go by what was read last.
    Take,
}

/// An answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Reply {
    Seen(Option<Seen>),
    Read(Result<Box<Texts>, Refusal>),
    Taken,
}

/// An attacher that runs.
#[derive(Debug)]
pub(crate) struct Attaching {
    pub(crate) client: Arc<Attacher>,
    pub(crate) pid: u32,
    ended: Receiver<io::Result<ExitStatus>>,
    /// Somebody waits for its end.
    pub(crate) has_ended: Arc<Notify>,
}

/// One that was started.
pub(crate) struct Started {
    child: Child,
    control: UnixStream,
}

impl Started {
    /// Starts it: this program again, with these arguments, and with all privileges of this one.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub(crate) fn start(arguments: &[&str]) -> Result<Self> {
        let cannot = |error: io::Error| {
            Error::failed("the process that attaches could not begin").because(error)
        };
        let (control, its) = UnixStream::pair().map_err(cannot)?;
        let mut command = Command::new(SELF);
        let kept = [
            "RUST_BACKTRACE",
            "RUST_LOG",
            "REQTRACE_HIDE",
            "REQTRACE_BTF",
        ];
        command
            .arg0("reqtrace")
            .args(arguments)
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| kept.iter().any(|kept| name == kept)))
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(its)))
            .stdout(Stdio::null());
        if !geteuid().is_root() {
            // SAFETY: it only makes system calls.
            unsafe { command.pre_exec(pass_capabilities_on) };
        }
        let child = command.spawn().map_err(cannot)?;
        Ok(Self { child, control })
    }

    /// Its number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// From now on it attaches for this process.
    ///
    /// # Errors
    ///
    /// When it cannot be watched.
    pub(crate) fn attach_for_us(self) -> Result<Attaching> {
        let Self { mut child, control } = self;
        let pid = child.id();
        let (say, ended) = sync_channel(1);
        let has_ended = Arc::new(Notify::new());
        let notify = Arc::clone(&has_ended);
        let thread = Builder::new().name("reqtrace-attach".to_owned());
        let watched = thread.spawn(move || {
            // It is received until the agent ends.
            let _ = say.send(child.wait());
            notify.notify_one();
        });
        watched.map_err(|error| {
            Error::failed("the process that attaches cannot be watched").because(error)
        })?;
        Ok(Attaching {
            client: attach_by(control),
            pid,
            ended,
            has_ended,
        })
    }
}

/// Else a user that is not root has none in the program that is started.
fn pass_capabilities_on() -> io::Result<()> {
    let own = capabilities(None)?;
    let sets = CapabilitySets {
        inheritable: own.permitted,
        ..own
    };
    set_capabilities(None, sets)?;
    for capability in own.permitted.iter() {
        // One that the bounding set has not is not passed on.
        let _ = configure_capability_in_ambient_set(capability, true);
    }
    Ok(())
}

impl Attaching {
    /// Has it read the configuration again. It goes by the one that it had until [`Self::take`].
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(crate) fn read(&self, path: &Path, profiles: Profiles<'_>) -> Result<Config> {
        match question(&self.client, Question::Read).map_err(no_answer)? {
            Reply::Read(Ok(texts)) => texts.parse(path, profiles),
            Reply::Read(Err(refusal)) => Err(refusal.into_error()),
            _ => Err(no_answer(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Has it go by the configuration that it has read.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub(crate) fn take(&self) -> Result<()> {
        question(&self.client, Question::Take).map_err(no_answer)?;
        Ok(())
    }

    /// Why it has ended.
    pub(crate) fn failure(self) -> Error {
        let how = match self.ended.recv() {
            Ok(Ok(status)) => status.to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "nobody watches it".to_owned(),
        };
        Error::failed(format!(
            "the process that attaches has ended: {how}; nothing is traced without it"
        ))
        .next("start the agent again, as systemd does; its last words are above")
    }
}

fn no_answer(error: io::Error) -> Error {
    Error::failed("the process that attaches does not read the configuration").because(error)
}

fn question(attacher: &Attacher, question: Question) -> io::Result<Reply> {
    let asked = postcard::to_allocvec(&question).map_err(io::Error::other)?;
    let answer = attacher.ask(asked)?;
    postcard::from_bytes(&answer).map_err(io::Error::other)
}

impl Sees for Attacher {
    fn see(&self, pid: u32) -> io::Result<Option<Seen>> {
        match question(self, Question::See(pid))? {
            Reply::Seen(seen) => Ok(seen),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}
