//! The attacher: questions of the tracing process in; what it may have, opened, loaded or attached, out.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Builder;

use log::debug;
use reqtrace_binary::lazy::LazyFile;
use reqtrace_binary::procfs::{self, Entry};
use rustix::net::sockopt::socket_peercred;

use super::message::{self, Answer, Loaded, Request};
use crate::attach::{
    self, GracePeriod, KernelTypes, Link, Loader, Maps, Own, Programs as _, count, detach_all,
    self_test,
};
use crate::kernel::{Host, priority};
use crate::socket::Refusal;
use reqtrace_base::error::{Error, Result};

/// Sockets at a time: one for each thread that asks.
const MOST_SOCKETS: usize = 128;
/// Loaded objects at a time: one for each session, and one more while it begins.
const MOST_OBJECTS: usize = 256;
/// Files that probes may be set in; those that were handed over first are forgotten first.
const MOST_FILES: usize = 1 << 16;

/// Says whose files the attacher opens.
pub trait Owner: Send + Sync {
    /// Whether a process is one of those that are traced.
    ///
    /// # Errors
    ///
    /// When it is not there, or is none of them: why.
    fn allows(&self, pid: u32) -> io::Result<()>;

    /// Answers a question that has nothing to do with attaching.
    ///
    /// # Errors
    ///
    /// When it is none.
    fn answer(&self, question: &[u8]) -> io::Result<Vec<u8>>;
}

/// Answers all questions from this socket, and from those that are asked for over it, until it is closed.
///
/// # Errors
///
/// When what comes over it is no question.
pub fn serve(control: &UnixStream, owner: impl Owner + 'static) -> Result<()> {
    let wrong = |error| Error::failed("the tracing process has sent no question").because(error);
    let peer = socket_peercred(control).map_err(|error| wrong(error.into()))?;
    let server = Arc::new(Server {
        owner: Box::new(owner),
        peer: peer.pid.as_raw_nonzero().get().cast_unsigned(),
        host: OnceLock::new(),
        sockets: AtomicUsize::new(0),
        next: AtomicU64::new(1),
        files: Mutex::default(),
        objects: Mutex::default(),
        links: Mutex::default(),
    });
    server.answer_all(control).map_err(wrong)
}

struct Server {
    owner: Box<dyn Owner>,
    /// The tracing process.
    peer: u32,
    host: OnceLock<Host>,
    sockets: AtomicUsize,
    /// The number of what is loaded or attached next.
    next: AtomicU64,
    files: Mutex<Files>,
    objects: Mutex<BTreeMap<u64, Arc<Mutex<Object>>>>,
    links: Mutex<BTreeMap<u64, Vec<Link>>>,
}

/// A loaded object.
struct Object {
    programs: Own,
    /// Programs that are loaded later refer to them.
    _maps: Maps,
    _grace: Option<GracePeriod>,
}

/// Files that were handed over as programs or mappings, by device and inode.
#[derive(Default)]
struct Files {
    known: HashSet<(u64, u64)>,
    order: VecDeque<(u64, u64)>,
}

impl Files {
    fn add(&mut self, inode: (u64, u64)) {
        if !self.known.insert(inode) {
            return;
        }
        self.order.push_back(inode);
        if self.order.len() > MOST_FILES
            && let Some(first) = self.order.pop_front()
        {
            self.known.remove(&first);
        }
    }
}

/// An answer with its files, or why there is none.
enum Failure {
    Denied(io::Error),
    Refused(Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Denied(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

type Answered = Result<(Answer, Vec<OwnedFd>), Failure>;

impl Server {
    fn answer_all(self: &Arc<Self>, socket: &UnixStream) -> io::Result<()> {
        while let Some((request, files)) = message::receive(socket)? {
            let (answer, files) = self.answer(request, files).unwrap_or_else(|failure| {
                let answer = match failure {
                    Failure::Denied(error) => Answer::Denied(error.into()),
                    Failure::Refused(error) => Answer::Refused(Refusal::of(&error)),
                };
                (answer, Vec::new())
            });
            let files: Vec<BorrowedFd<'_>> = files.iter().map(|file| file.as_fd()).collect();
            message::send(socket, &answer, &files)?;
        }
        Ok(())
    }

    fn answer(self: &Arc<Self>, request: Request, files: Vec<OwnedFd>) -> Answered {
        let done = || Ok((Answer::Done, Vec::new()));
        match request {
            Request::Connect => Ok((Answer::Opened, vec![self.connect()?.into()])),
            Request::Open { pid, entry } => {
                let file = self.open(pid, entry)?;
                Ok((Answer::Opened, vec![file.into()]))
            }
            Request::KernelSymbols => {
                let file = procfs::kernel_symbols_here()?;
                Ok((Answer::Opened, vec![file.into()]))
            }
            Request::SelfTest => {
                let found = self_test::run_here()?;
                Ok((Answer::SelfTest(Box::new(found)), Vec::new()))
            }
            Request::Load(plan) => {
                let host = self.host()?;
                let types = || KernelTypes::read(&host);
                let taken = attach::load_here(&host, Loader::new(), types, &plan)?;
                self.keep(taken.programs, taken.maps, Some(taken.grace))
            }
            Request::Count(plan) => {
                let (programs, maps) = count::load_here(plan)?;
                self.keep(programs, maps, None)
            }
            Request::Attach { object } => {
                let object = self.object(object)?;
                let links = lock(&object).programs.attach_tracepoints()?;
                Ok((self.attached(links), Vec::new()))
            }
            Request::WatchThreads { object } => {
                let object = self.object(object)?;
                lock(&object).programs.watch_threads()?;
                done()
            }
            Request::Sample {
                object,
                engine,
                rate_hz,
            } => {
                let object = self.object(object)?;
                let links = lock(&object).programs.sample(engine, rate_hz)?;
                Ok((self.attached(links), Vec::new()))
            }
            Request::Set {
                object,
                program,
                places,
            } => Ok((self.set(object, &program, &places, files)?, Vec::new())),
            Request::Detach { links } => {
                let links = lock(&self.links).remove(&links).unwrap_or_default();
                detach_all(links);
                done()
            }
            Request::Costs { object } => {
                let object = self.object(object)?;
                let costs = lock(&object).programs.costs()?;
                Ok((Answer::Costs(costs), Vec::new()))
            }
            Request::Unload { object } => {
                let gone = lock(&self.objects).remove(&object);
                drop(gone);
                done()
            }
            Request::ComeFirst { tid, first } => {
                self.come_first(tid, first)?;
                done()
            }
            Request::Ask(question) => {
                let answer = self.owner.answer(&question)?;
                Ok((Answer::Answered(answer), Vec::new()))
            }
        }
    }

    fn connect(self: &Arc<Self>) -> io::Result<UnixStream> {
        if self.sockets.fetch_add(1, Ordering::Relaxed) >= MOST_SOCKETS {
            self.sockets.fetch_sub(1, Ordering::Relaxed);
            return Err(io::Error::other("too many sockets at a time"));
        }
        let (own, its) = UnixStream::pair()?;
        let server = Arc::clone(self);
        let thread = Builder::new().name("attach".to_owned());
        thread.spawn(move || {
            if let Err(error) = server.answer_all(&own) {
                debug!("a socket of the tracing process: {error}");
            }
            server.sockets.fetch_sub(1, Ordering::Relaxed);
        })?;
        Ok(its)
    }

    fn open(&self, pid: u32, entry: Entry) -> io::Result<File> {
        self.owner.allows(pid)?;
        let file = procfs::open_here(pid, entry)?;
        if matches!(entry, Entry::Executable | Entry::Mapping(_)) {
            lock(&self.files).add(inode(&file)?);
        }
        Ok(file)
    }

    /// Of the tracing process's own threads only.
    fn come_first(&self, tid: u32, first: bool) -> io::Result<()> {
        let thread = format!("/proc/{}/task/{tid}", self.peer);
        if !std::fs::exists(thread)? {
            return Err(io::Error::other("it is no thread of the tracing process"));
        }
        priority::set(tid, first)
    }

    fn host(&self) -> Result<Host> {
        if let Some(host) = self.host.get() {
            return Ok(host.clone());
        }
        let host = Host::examine()?;
        Ok(self.host.get_or_init(|| host).clone())
    }

    fn keep(&self, programs: Own, maps: Maps, grace: Option<GracePeriod>) -> Answered {
        let mut objects = lock(&self.objects);
        if objects.len() >= MOST_OBJECTS {
            return Err(Error::failed("too many sessions at a time").into());
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (mut names, mut files) = (Vec::new(), Vec::new());
        for (name, file) in maps.files() {
            names.push(name.to_owned());
            files.push(file.try_clone_to_owned()?);
        }
        for file in grace.iter().flat_map(GracePeriod::files) {
            files.push(file.try_clone_to_owned()?);
        }
        let loaded = Loaded {
            object: number,
            engine: programs.engine(),
            sets_by_perf_events: programs.sets_by_perf_events(),
            names,
        };
        let object = Object {
            programs,
            _maps: maps,
            _grace: grace,
        };
        objects.insert(number, Arc::new(Mutex::new(object)));
        Ok((Answer::Loaded(loaded), files))
    }

    fn object(&self, number: u64) -> io::Result<Arc<Mutex<Object>>> {
        let objects = lock(&self.objects);
        let object = objects.get(&number).cloned();
        object.ok_or_else(|| io::Error::other("nothing of that number is loaded"))
    }

    fn attached(&self, links: Vec<Link>) -> Answer {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.links).insert(number, links);
        Answer::Attached {
            links: number,
            refused: Vec::new(),
        }
    }

    /// Only in files that were handed over, and for processes that are traced.
    fn set(
        &self,
        object: u64,
        program: &str,
        places: &[message::Place],
        files: Vec<OwnedFd>,
    ) -> Result<Answer, Failure> {
        let mut objects = Vec::with_capacity(files.len());
        for file in files.into_iter().map(File::from) {
            if !lock(&self.files).known.contains(&inode(&file)?) {
                let path = procfs::path_of(&file).unwrap_or_default();
                return Err(Error::failed(format!(
                    "{} is of no process that is traced: no probe is set in it",
                    path.display()
                ))
                .into());
            }
            objects.push(LazyFile::opened(file));
        }
        let mut processes: Vec<u32> = places.iter().filter_map(|place| place.process).collect();
        processes.sort_unstable();
        processes.dedup();
        for pid in processes {
            // The counting program tries places in its own process.
            self.owner.allows(pid)?;
        }
        let places = places.iter().map(|place| {
            let object = objects.get(usize::from(place.file));
            Ok(attach::Place {
                object: object.ok_or_else(|| io::Error::other("a file is missing"))?,
                file_offset: place.file_offset,
                counter: place.counter,
                on_return: place.on_return,
                process: place.process,
                cookie: place.cookie,
            })
        });
        let places = places.collect::<io::Result<Vec<_>>>()?;
        let object = self.object(object)?;
        let (links, refused) = lock(&object).programs.set(program, &places)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.links).insert(number, links);
        let refused = refused.into_iter();
        Ok(Answer::Attached {
            links: number,
            refused: refused
                .map(|one| (one.index as u64, one.error.into()))
                .collect(),
        })
    }
}

fn inode(file: &File) -> io::Result<(u64, u64)> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
