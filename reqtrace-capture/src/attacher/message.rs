//! What a tracing process asks of its attacher, and the answers. Files come with them, as many as the message says. What is
//! loaded or attached has the number that the tracing process chose, so that it can undo what it had no answer to.

use std::io::{self, ErrorKind};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use reqtrace_binary::procfs::Entry;
use reqtrace_recording::ProgramCost;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::attach::{CountPlan, CpuEngine, Engine, LoadPlan, SelfTest};
use crate::socket::{Refusal, frame, handed};

/// Bytes of a message, either way: all places of a program are the longest.
const MOST: u32 = 4 << 20;

/// A question.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Another socket: each thread has its own.
    Connect,
    /// Something of a process: a file.
    Open { pid: u32, entry: Entry },
    /// What any process runs.
    Executable { pid: u32 },
    /// The kernel's symbols: a file.
    KernelSymbols,
    /// Device and inode of a program of a rule.
    Program(PathBuf),
    /// Whether probes work, and what a hit costs.
    SelfTest,
    /// The tracer's programs under a new number: their tables, and two of the grace period.
    Load { object: u64, plan: Box<LoadPlan> },
    /// The counting program: its tables.
    Count { object: u64, plan: CountPlan },
    /// Attach the programs of tracepoints, under a new number.
    Attach { object: u64, links: u64 },
    /// Look at all threads of traced processes.
    WatchThreads { object: u64 },
    /// Take samples.
    Sample {
        object: u64,
        links: u64,
        engine: CpuEngine,
        rate_hz: u32,
    },
    /// Set probes in the files that come with it.
    Set {
        object: u64,
        links: u64,
        program: String,
        places: Vec<Place>,
    },
    /// Take out what was attached.
    Detach { links: u64 },
    /// What the kernel has counted of each program.
    Costs { object: u64 },
    /// Give up the programs, and what is attached of them.
    Unload { object: u64 },
    /// Let a thread of the tracing process come first, or no longer.
    ComeFirst { tid: u32, first: bool },
    /// Something of the attacher's owner.
    Ask(Vec<u8>),
}

/// Where a probe is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    /// Which of the files.
    pub(super) file: u8,
    pub(super) file_offset: u64,
    pub(super) counter: Option<u64>,
    pub(super) on_return: bool,
    pub(super) process: Option<u32>,
    pub(super) cookie: u64,
}

/// An answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Done,
    /// It is the file that comes with it, or the socket.
    Opened,
    SelfTest(Box<SelfTest>),
    Loaded(Loaded),
    /// But for these places, where the kernel set no probe.
    Attached(Vec<(u64, Denied)>),
    /// Device and inode.
    Inode(u64, u64),
    /// A path, and its device and inode.
    Runs(PathBuf, (u64, u64)),
    Costs(Vec<ProgramCost>),
    Answered(Vec<u8>),
    /// The kernel's or the file system's error.
    Denied(Denied),
    Refused(Refusal),
}

/// Programs that were loaded; their tables come with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Loaded {
    pub(super) engine: Engine,
    pub(super) sets_by_perf_events: bool,
    /// Of the tables, in the order of the files.
    pub(super) names: Vec<String>,
}

/// An error of the system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Denied {
    code: Option<i32>,
    text: String,
}

impl From<io::Error> for Denied {
    fn from(error: io::Error) -> Self {
        Self {
            code: error.raw_os_error(),
            text: error.to_string(),
        }
    }
}

impl From<Denied> for io::Error {
    fn from(denied: Denied) -> Self {
        match denied.code {
            Some(code) => Self::from_raw_os_error(code),
            None => Self::other(denied.text),
        }
    }
}

/// A message, and how many files come behind it.
#[derive(Serialize, Deserialize)]
struct With<T> {
    files: u8,
    message: T,
}

/// Sends a message with files.
///
/// # Errors
///
/// When the other end is gone, or there are too many files.
pub(super) fn send(
    to: &UnixStream,
    message: &impl Serialize,
    files: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let with = With {
        files: u8::try_from(files.len()).map_err(io::Error::other)?,
        message,
    };
    frame::send(&mut &*to, &with)?;
    match files {
        [] => Ok(()),
        files => handed::send(to, files),
    }
}

/// Receives a message with its files; `None` when the other end is gone.
///
/// # Errors
///
/// When what comes is no message, or has other files than it says.
pub(super) fn receive<T: DeserializeOwned>(
    from: &UnixStream,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let Some(with) = frame::receive::<With<T>>(&mut &*from, MOST)? else {
        return Ok(None);
    };
    let files = match with.files {
        0 => Vec::new(),
        _ => handed::receive(from)?,
    };
    if files.len() != usize::from(with.files) {
        return Err(io::Error::new(ErrorKind::InvalidData, "files are missing"));
    }
    Ok(Some((with.message, files)))
}
