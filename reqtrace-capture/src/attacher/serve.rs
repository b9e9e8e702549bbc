//! The attacher: questions of the tracing process in; what it may have, opened, loaded or attached, out.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Builder;

use log::debug;
use reqtrace_binary::lazy::LazyFile;
use reqtrace_binary::privileged;
use reqtrace_binary::procfs::{self, Entry};
use reqtrace_binary::status::Status;
use reqtrace_common::limits::MAX_CPU_RATE;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

use super::message::{self, Answer, Denied, Loaded, Request};
use super::probeable::Files;
use super::semaphores::are_semaphores;
use crate::attach::{
    self, GracePeriod, KernelTypes, Link, Loader, Maps, Own, Programs as _, count, detach_all,
    self_test,
};
use crate::kernel::memory::give_memory_back;
use crate::kernel::{Host, priority};
use crate::socket::Refusal;
use reqtrace_base::error::{Error, Result};

/// Sockets at a time: one for each thread that asks.
const MOST_SOCKETS: usize = 128;
/// Loaded objects at a time: one for each session, and one more while it begins.
const MOST_OBJECTS: usize = 256;
/// Sets of what is attached at a time, and places of one.
const MOST_LINKS: usize = 1 << 14;
const MOST_PLACES: usize = 1 << 14;

/// Says whose files the attacher opens.
pub trait Owner: Send + Sync {
    /// Whether a rule watches for this program.
    fn watches(&self, program: &Path) -> bool;

    /// Whether a process is one of those that are traced.
    ///
    /// # Errors
    ///
    /// When it is not there, or is none of them: why. Else returns when it began, in any unit.
    fn allows(&self, pid: u32) -> io::Result<u64>;

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
    files: Mutex<Files>,
    objects: Mutex<BTreeMap<u64, Arc<Mutex<Object>>>>,
    links: Mutex<Links>,
}

/// What is attached, by its number, with the number of its object.
type Links = BTreeMap<u64, (u64, Vec<Link>)>;

/// A loaded object.
struct Object {
    programs: Own,
    is_attached: bool,
    is_sampled: bool,
    /// Programs that are loaded later refer to them.
    _maps: Maps,
    _grace: Option<GracePeriod>,
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

/// What takes back what a request leaves behind.
fn undoes(request: &Request) -> Option<Request> {
    match *request {
        Request::Set { links, .. }
        | Request::Attach { links, .. }
        | Request::Sample { links, .. } => Some(Request::Detach { links }),
        Request::Load { object, .. } | Request::Count { object, .. } => {
            Some(Request::Unload { object })
        }
        _ => None,
    }
}

impl Server {
    fn answer_all(self: &Arc<Self>, socket: &UnixStream) -> io::Result<()> {
        while let Some((request, files)) = message::receive(socket)? {
            // Loading takes types and objects of tens of MB.
            let is_large = matches!(
                request,
                Request::Load { .. }
                    | Request::Count { .. }
                    | Request::SelfTest
                    | Request::Unload { .. }
            );
            let undoes = undoes(&request);
            let answered = self.answer(request, files);
            let undoes = undoes.filter(|_| answered.is_ok());
            let (answer, files) = answered.unwrap_or_else(|failure| {
                let answer = match failure {
                    Failure::Denied(error) => Answer::Denied(error.into()),
                    Failure::Refused(error) => Answer::Refused(Refusal::of(&error)),
                };
                (answer, Vec::new())
            });
            let files: Vec<BorrowedFd<'_>> = files.iter().map(|file| file.as_fd()).collect();
            if message::send(socket, &answer, &files).is_err() {
                // The tracing process has ended, or waits no longer: then it has undone this before it was done.
                if let Some(undoes) = undoes {
                    let _ = self.answer(undoes, Vec::new());
                }
                return Ok(());
            }
            if is_large {
                give_memory_back();
            }
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
            Request::Executable { pid } => {
                let (path, inode) = procfs::executable_here(pid)?;
                Ok((Answer::Runs(path, inode), Vec::new()))
            }
            Request::Program(path) => {
                if !self.owner.watches(&path) {
                    return Err(io::Error::other("no rule is about that program").into());
                }
                let (device, inode) = procfs::program_here(&path)?;
                Ok((Answer::Inode(device, inode), Vec::new()))
            }
            Request::SelfTest => {
                let found = self_test::run_here()?;
                Ok((Answer::SelfTest(Box::new(found)), Vec::new()))
            }
            Request::Load { object, plan } => {
                let host = self.host()?;
                let types = || KernelTypes::read(&host);
                let taken = attach::load_here(&host, Loader::new(), types, &plan)?;
                self.keep(object, taken.programs, taken.maps, Some(taken.grace))
            }
            Request::Count { object, plan } => {
                let (programs, maps) = count::load_here(plan)?;
                self.keep(object, programs, maps, None)
            }
            Request::Attach { object, links } => {
                let of = self.object(object)?;
                let mut of = lock(&of);
                if std::mem::replace(&mut of.is_attached, true) {
                    return Err(io::Error::other("it is attached already").into());
                }
                let attached = of.programs.attach_tracepoints()?;
                self.attached((object, links), attached, Vec::new())
            }
            Request::WatchThreads { object } => {
                let object = self.object(object)?;
                lock(&object).programs.watch_threads()?;
                done()
            }
            Request::Sample {
                object,
                links,
                engine,
                rate_hz,
            } => {
                if !(1..=MAX_CPU_RATE).contains(&rate_hz) {
                    return Err(io::Error::other("no such rate").into());
                }
                let of = self.object(object)?;
                let mut of = lock(&of);
                if of.is_sampled {
                    return Err(io::Error::other("samples are taken already").into());
                }
                let attached = of.programs.sample(engine, rate_hz)?;
                of.is_sampled = true;
                self.attached((object, links), attached, Vec::new())
            }
            Request::Set {
                object,
                links,
                program,
                places,
            } => self.set((object, links), &program, &places, files),
            Request::Detach { links } => {
                let gone = lock(&self.links).remove(&links);
                detach_all(gone.map_or_else(Vec::new, |(_, links)| links));
                done()
            }
            Request::Costs { object } => {
                let object = self.object(object)?;
                let costs = lock(&object).programs.costs()?;
                Ok((Answer::Costs(costs), Vec::new()))
            }
            Request::Unload { object } => {
                let gone = lock(&self.objects).remove(&object);
                let its: Vec<Link> = lock(&self.links)
                    .extract_if(.., |_, (of, _)| *of == object)
                    .flat_map(|(_, (_, links))| links)
                    .collect();
                detach_all(its);
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
        let before = self.sockets.fetch_add(1, Ordering::Relaxed);
        let place = Place(Arc::clone(self));
        if before >= MOST_SOCKETS {
            return Err(io::Error::other("too many sockets at a time"));
        }
        let (own, its) = UnixStream::pair()?;
        let thread = Builder::new().name("attach".to_owned());
        thread.spawn(move || {
            if let Err(error) = place.0.answer_all(&own) {
                debug!("a socket of the tracing process: {error}");
            }
        })?;
        Ok(its)
    }

    fn open(&self, pid: u32, entry: Entry) -> io::Result<File> {
        let before = self.allows(pid)?;
        let file = privileged::open(pid, entry)?;
        // It is still the same process.
        if self.allows(pid)? != before {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        if matches!(entry, Entry::Executable | Entry::Mapping(..)) {
            let inode = inode(&file)?;
            let program = (entry == Entry::Executable).then(|| file.try_clone());
            lock(&self.files).add(inode, program.transpose()?);
        }
        Ok(file)
    }

    /// Whether a process is one of those that are traced, and none that the tracing process may have started or changed. Returns
    /// when it began.
    fn allows(&self, pid: u32) -> io::Result<u64> {
        let begun = self.owner.allows(pid)?;
        let own = geteuid().as_raw();
        let users = |of: u32| Status::of(of).map(|status| status.users());
        let peer = users(self.peer)?.first().copied().unwrap_or(own);
        if peer != own && users(pid)?.contains(&peer) {
            return Err(io::Error::other("it is a process of the agent's own user"));
        }
        Ok(begun)
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

    fn keep(&self, number: u64, programs: Own, maps: Maps, grace: Option<GracePeriod>) -> Answered {
        let (mut names, mut files) = (Vec::new(), Vec::new());
        for (name, file) in maps.files() {
            names.push(name.to_owned());
            files.push(file.try_clone_to_owned()?);
        }
        for file in grace.iter().flat_map(GracePeriod::files) {
            files.push(file.try_clone_to_owned()?);
        }
        let loaded = Loaded {
            engine: programs.engine(),
            sets_by_perf_events: programs.sets_by_perf_events(),
            names,
        };
        let object = Object {
            programs,
            is_attached: false,
            is_sampled: false,
            _maps: maps,
            _grace: grace,
        };
        let mut objects = lock(&self.objects);
        if objects.len() >= MOST_OBJECTS || objects.contains_key(&number) {
            return Err(Error::failed("too many sessions at a time, or one of that number").into());
        }
        objects.insert(number, Arc::new(Mutex::new(object)));
        Ok((Answer::Loaded(loaded), files))
    }

    fn object(&self, number: u64) -> io::Result<Arc<Mutex<Object>>> {
        let objects = lock(&self.objects);
        let object = objects.get(&number).cloned();
        object.ok_or_else(|| io::Error::other("nothing of that number is loaded"))
    }

    fn attached(
        &self,
        (object, number): (u64, u64),
        attached: Vec<Link>,
        refused: Vec<(u64, Denied)>,
    ) -> Answered {
        let mut links = lock(&self.links);
        if links.len() >= MOST_LINKS || links.contains_key(&number) {
            drop(links);
            detach_all(attached);
            return Err(
                io::Error::other("too much is attached, or something of that number").into(),
            );
        }
        links.insert(number, (object, attached));
        Ok((Answer::Attached(refused), Vec::new()))
    }

    /// Only in files that were handed over, and for processes that are traced.
    fn set(
        &self,
        numbers: (u64, u64),
        program: &str,
        places: &[message::Place],
        files: Vec<OwnedFd>,
    ) -> Answered {
        if places.len() > MOST_PLACES {
            return Err(io::Error::other("too many places at a time").into());
        }
        let of = self.object(numbers.0)?;
        let mut objects = Vec::with_capacity(files.len());
        for (index, file) in files.into_iter().map(File::from).enumerate() {
            let its: Vec<&message::Place> = places
                .iter()
                .filter(|place| usize::from(place.file) == index)
                .collect();
            self.may_set(&file, &its)?;
            objects.push(LazyFile::opened(file));
        }
        let mut processes: Vec<u32> = places.iter().filter_map(|place| place.process).collect();
        processes.sort_unstable();
        processes.dedup();
        for pid in processes {
            self.allows(pid)?;
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
        let (attached, refused) = lock(&of).programs.set(program, &places)?;
        let refused = refused.into_iter();
        let refused = refused.map(|one| (one.index as u64, one.error.into()));
        self.attached(numbers, attached, refused.collect())
    }

    /// Whether probes may be set at these places of a file.
    fn may_set(&self, file: &File, places: &[&message::Place]) -> Result<(), Failure> {
        let for_all = places.iter().any(|place| place.process.is_none());
        let inode = inode(file)?;
        if !lock(&self.files).may_be_probed(inode, for_all) {
            let path = procfs::path_of(file).unwrap_or_default();
            let what = match for_all {
                true => "is no program of a process that is traced",
                false => "is of no process that is traced",
            };
            let shown = path.display();
            return Err(Error::failed(format!("{shown} {what}: no probe is set in it")).into());
        }
        let counters: Vec<u64> = places.iter().filter_map(|place| place.counter).collect();
        if !are_semaphores(file, &counters)? {
            return Err(io::Error::other("no semaphore of a USDT probe is there").into());
        }
        Ok(())
    }
}

/// One of the sockets, as long as it is answered.
struct Place(Arc<Server>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.sockets.fetch_sub(1, Ordering::Relaxed);
    }
}

fn inode(file: &File) -> io::Result<(u64, u64)> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
