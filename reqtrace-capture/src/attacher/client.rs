//! The tracing process's side: what it may not do in; the attacher's doing out.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use reqtrace_binary::procfs::{self, Entry, Opener};

use super::handed::Handed;
use super::message::{self, Answer, Loaded, Request};
use crate::attach::count::CountPlan;
use crate::attach::self_test::SelfTest;
use crate::attach::{Engine, GracePeriod, LoadPlan, Maps, Programs};
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

static ATTACHER: OnceLock<Arc<Attacher>> = OnceLock::new();

/// From now on this process attaches nothing, and opens nothing of others, by itself: the process at the other end of this
/// socket does, which runs [`super::serve`].
pub fn attach_by(control: UnixStream) -> Arc<Attacher> {
    let attacher = ATTACHER.get_or_init(|| {
        Arc::new(Attacher {
            control: Mutex::new(control),
            sockets: Mutex::default(),
            has_room: Condvar::new(),
            next: AtomicU64::new(1),
        })
    });
    procfs::let_open(Opens(Arc::clone(attacher)));
    Arc::clone(attacher)
}

/// Who attaches for this process; `None`: it does itself.
pub(crate) fn attacher() -> Option<Arc<Attacher>> {
    ATTACHER.get().cloned()
}

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

    /// Loads the tracer's programs.
    pub(crate) fn load(
        self: &Arc<Self>,
        plan: &LoadPlan,
    ) -> Result<(Box<dyn Programs>, Maps, GracePeriod)> {
        let (object, plan) = (self.number(), Box::new(plan.clone()));
        let (programs, mut maps) = self.loaded(object, &Request::Load { object, plan })?;
        let grace = GracePeriod::handed(maps.pop(), maps.pop());
        let grace = grace.ok_or_else(|| Failure::Silent(other_answer()).error())?;
        let maps = Maps::handed(programs.loaded.names.iter().cloned().zip(maps))?;
        Ok((Box::new(programs), maps, grace))
    }

    /// Loads the counting program.
    pub(crate) fn count(self: &Arc<Self>, plan: CountPlan) -> Result<(Box<dyn Programs>, Maps)> {
        let object = self.number();
        let (programs, maps) = self.loaded(object, &Request::Count { object, plan })?;
        let maps = Maps::handed(programs.loaded.names.iter().cloned().zip(maps))?;
        Ok((Box::new(programs), maps))
    }

    fn loaded(self: &Arc<Self>, object: u64, request: &Request) -> Result<(Handed, Vec<OwnedFd>)> {
        // It is given up also when there is no answer.
        let mut handed = Handed {
            attacher: Arc::clone(self),
            object,
            loaded: Loaded {
                engine: Engine::PerfEvents,
                sets_by_perf_events: true,
                names: Vec::new(),
            },
        };
        match self.request(request, &[]).map_err(Failure::error)? {
            (Answer::Loaded(loaded), files) => {
                handed.loaded = loaded;
                Ok((handed, files))
            }
            _ => Err(Failure::Silent(other_answer()).error()),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// What a hit costs.
    pub(crate) fn self_test(&self) -> Result<SelfTest> {
        let answer = self.request(&Request::SelfTest, &[]);
        match answer.map_err(Failure::error)? {
            (Answer::SelfTest(found), _) => Ok(*found),
            _ => Err(Failure::Silent(other_answer()).error()),
        }
    }

    /// Lets a thread of this process come first, or no longer.
    pub(crate) fn come_first(&self, tid: u32, first: bool) -> io::Result<()> {
        self.request(&Request::ComeFirst { tid, first }, &[])?;
        Ok(())
    }

    fn open(&self, request: &Request) -> io::Result<OwnedFd> {
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

/// Opens through it.
struct Opens(Arc<Attacher>);

impl Opener for Opens {
    fn open(&self, pid: u32, entry: Entry) -> io::Result<File> {
        self.0.open(&Request::Open { pid, entry }).map(File::from)
    }

    fn executable(&self, pid: u32) -> io::Result<(PathBuf, (u64, u64))> {
        match self.0.request(&Request::Executable { pid }, &[])? {
            (Answer::Runs(path, inode), _) => Ok((path, inode)),
            _ => Err(other_answer()),
        }
    }

    fn program(&self, path: &Path) -> io::Result<(u64, u64)> {
        match self.0.request(&Request::Program(path.to_owned()), &[])? {
            (Answer::Inode(device, inode), _) => Ok((device, inode)),
            _ => Err(other_answer()),
        }
    }

    fn kernel_symbols(&self) -> io::Result<File> {
        self.0.open(&Request::KernelSymbols).map(File::from)
    }
}
