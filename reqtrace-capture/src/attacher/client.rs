//! The tracing process's side: questions in; answers of the attacher out.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::message::{self, Answer, Request};
use reqtrace_base::error::{Error, Result};

/// Sockets that are kept for the next who asks.
const MOST_IDLE: usize = 16;
/// Questions at a time, fewer than the attacher has room for; who comes then waits.
const MOST_USED: usize = 64;

/// The attacher of this process.
#[derive(Debug)]
pub struct Attacher {
    control: Mutex<UnixStream>,
    sockets: Mutex<Sockets>,
    /// One is idle, or may be made.
    has_room: Condvar,
    /// The number of what is loaded or attached next.
    next: AtomicU64,
}

#[derive(Debug, Default)]
struct Sockets {
    idle: Vec<UnixStream>,
    /// Those that are in use.
    used: usize,
}

/// Setting hundreds of probes one by one takes seconds on a busy machine. Who takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(100);

/// How a question fails.
pub(super) enum Failure {
    /// There is no answer.
    Silent(io::Error),
    /// The system's error.
    Denied(io::Error),
    Refused(Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Silent(error)
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Silent(error) | Failure::Denied(error) => error,
            Failure::Refused(error) => Self::other(error),
        }
    }
}

impl Failure {
    pub(super) fn error(self) -> Error {
        match self {
            Self::Silent(error) => {
                Error::failed("the process that attaches does not answer").because(error)
            }
            Self::Denied(error) => {
                Error::failed("the process that attaches refuses").because(error)
            }
            Self::Refused(error) => error,
        }
    }
}

pub(super) type Asked = Result<(Answer, Vec<OwnedFd>), Failure>;

impl Attacher {
    /// The one at the other end of this socket, which runs [`super::serve`].
    pub(super) fn at(control: UnixStream) -> Self {
        Self {
            control: Mutex::new(control),
            sockets: Mutex::default(),
            has_room: Condvar::new(),
            next: AtomicU64::new(1),
        }
    }

    /// Asks the attacher's owner.
    ///
    /// # Errors
    ///
    /// When there is no answer.
    pub fn ask(&self, question: Vec<u8>) -> io::Result<Vec<u8>> {
        match self.request(&Request::Ask(question), &[])? {
            (Answer::Answered(answer), _) => Ok(answer),
            _ => Err(other_answer()),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn open(&self, request: &Request) -> io::Result<OwnedFd> {
        match self.request(request, &[])? {
            (Answer::Opened, mut files) => files.pop().ok_or_else(other_answer),
            _ => Err(other_answer()),
        }
    }

    pub(super) fn request(&self, request: &Request, files: &[BorrowedFd<'_>]) -> Asked {
        let socket = match self.place() {
            Some(socket) => Ok(socket),
            None => self.connect(),
        };
        let answer = socket.and_then(|socket| {
            let answer = exchange(&socket, request, files)?;
            Ok((answer, socket))
        });
        let mut sockets = self.sockets();
        sockets.used -= 1;
        let answer = answer.map(|(answer, socket)| {
            if sockets.idle.len() < MOST_IDLE {
                sockets.idle.push(socket);
            }
            answer
        });
        drop(sockets);
        self.has_room.notify_one();
        match answer? {
            (Answer::Denied(denied), _) => Err(Failure::Denied(denied.into())),
            (Answer::Refused(refusal), _) => Err(Failure::Refused(refusal.into_error())),
            answer => Ok(answer),
        }
    }

    /// Waits until a socket may be used; `None`: one that is to be made.
    fn place(&self) -> Option<UnixStream> {
        let is_full = |sockets: &mut Sockets| sockets.used >= MOST_USED;
        let sockets = self.has_room.wait_while(self.sockets(), is_full);
        let mut sockets = sockets.unwrap_or_else(PoisonError::into_inner);
        sockets.used += 1;
        sockets.idle.pop()
    }

    fn connect(&self) -> io::Result<UnixStream> {
        let control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        match exchange(&control, &Request::Connect, &[])? {
            (Answer::Opened, mut files) => files.pop().map(Into::into).ok_or_else(other_answer),
            (Answer::Denied(denied), _) => Err(denied.into()),
            _ => Err(other_answer()),
        }
    }

    fn sockets(&self) -> MutexGuard<'_, Sockets> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn exchange(
    socket: &UnixStream,
    request: &Request,
    files: &[BorrowedFd<'_>],
) -> io::Result<(Answer, Vec<OwnedFd>)> {
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    message::send(socket, request, files)?;
    message::receive(socket)?.ok_or_else(|| io::Error::other("it has ended"))
}

pub(super) fn other_answer() -> io::Error {
    io::Error::other("the process that attaches has answered something else")
}
