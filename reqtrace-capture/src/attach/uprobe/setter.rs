//! Sets uprobes with the best engine that the kernel has: programs by name and places in, links
//! out, and which places were refused.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt as _;
use std::thread;

use log::debug;

use super::super::detach::Link;
use super::super::image::{AttachType, Image};
use super::{Engine, Place, UprobeEvents, filter, multi};
use crate::kernel::{Feature, Hidden};
use reqtrace_base::error::{Error, Result};
use reqtrace_resolve::probeable::{LONGEST, Probing, probing};

/// Threads that set probes of perf events: each waits for a grace period of the kernel, which they
/// share when they wait at the same time.
const THREADS: usize = 16;

/// `ENOTSUPP`, which no C library has: not an instruction that the kernel probes.
const NOT_SUPPORTED: i32 = 524;

/// Whether the kernel does not set a probe because of the instruction.
pub(in super::super) fn is_of_instruction(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(NOT_SUPPORTED | libc::ENOEXEC))
}

/// A place where no probe could be set.
#[derive(Debug)]
pub(crate) struct Refused {
    /// Its index in what was asked for.
    pub(crate) index: usize,
    /// The kernel's answer.
    pub(crate) error: io::Error,
}

/// The programs for probes, and what sets them.
pub(in super::super) struct Setter {
    image: Image,
    engine: Engine,
    programs: BTreeMap<(String, AttachType), OwnedFd>,
}

impl Setter {
    /// Loads these programs for the engine that the kernel has.
    ///
    /// # Errors
    ///
    /// [`reqtrace_base::error::Kind::Unsupported`] when the kernel refuses one for either engine.
    pub(in super::super) fn new(image: Image, names: &[&str]) -> Result<Self> {
        let mut setter = Self {
            image,
            engine: Engine::UprobeMulti,
            programs: BTreeMap::new(),
        };
        let hidden = Hidden::read()?.has(Feature::UprobeMulti);
        let first = names.first();
        if hidden || !first.is_some_and(|name| setter.takes_multi(name)) {
            setter.engine = Engine::PerfEvents;
        }
        let attach = setter.attach_type();
        for name in names {
            setter.load(name, attach)?;
        }
        Ok(setter)
    }

    /// Which engine sets probes.
    pub(in super::super) fn engine(&self) -> Engine {
        self.engine
    }

    /// Whether a probe for one process is set by a perf event.
    pub(in super::super) fn sets_by_perf_events(&self) -> bool {
        self.engine == Engine::PerfEvents || !filter::goes_by_process()
    }

    /// Descriptors of a program in all forms that are loaded.
    pub(in super::super) fn files(&self, name: &str) -> impl Iterator<Item = RawFd> {
        let of_name = move |(key, _): &(&(String, AttachType), &OwnedFd)| key.0 == name;
        let programs = self.programs.iter().filter(of_name);
        programs.map(|(_, file)| file.as_raw_fd())
    }

    /// Sets a probe with this program at each place. Where one cannot be set the others are; what
    /// could not be set is in the second list.
    ///
    /// # Errors
    ///
    /// When a program cannot be loaded, or the kernel has no uprobes.
    pub(in super::super) fn set(
        &mut self,
        name: &str,
        places: &[Place<'_>],
    ) -> Result<(Vec<Link>, Vec<Refused>)> {
        let mut links = Vec::new();
        let mut rest = Vec::new();
        let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        let harmful = harmful(places);
        for (index, place) in places.iter().enumerate() {
            if harmful.contains(&index) {
                continue;
            }
            let of_one = place.process.is_some();
            if self.engine == Engine::PerfEvents || of_one && self.sets_by_perf_events() {
                rest.push(index);
            } else {
                let key = (place.object.inode().ok(), place.process, place.on_return);
                groups.entry(key).or_default().push(index);
            }
        }
        if !groups.is_empty() {
            self.load(name, AttachType::UprobeMulti)?;
        }
        for group in groups.into_values() {
            let program = self.program(name, AttachType::UprobeMulti)?;
            split(program, places, &group, &mut links, &mut rest);
        }
        let not_set = |index| Refused {
            index,
            error: io::Error::from_raw_os_error(NOT_SUPPORTED),
        };
        let mut refused: Vec<Refused> = harmful.into_iter().map(not_set).collect();
        if rest.is_empty() {
            return Ok((links, refused));
        }
        self.load(name, AttachType::Perf)?;
        let program = self.program(name, AttachType::Perf)?;
        let events = UprobeEvents::of_kernel()?;
        let (more, more_refused) = by_events(program, events, places, &rest)?;
        links.extend(more);
        refused.extend(more_refused);
        Ok((links, refused))
    }

    fn attach_type(&self) -> AttachType {
        match self.engine {
            Engine::UprobeMulti => AttachType::UprobeMulti,
            Engine::PerfEvents => AttachType::Perf,
        }
    }

    fn takes_multi(&mut self, name: &str) -> bool {
        // Older kernels load a program for such links all the same.
        self.load(name, AttachType::UprobeMulti)
            .and_then(|()| self.program(name, AttachType::UprobeMulti))
            .inspect_err(|error| debug!("no uprobe_multi: {error}"))
            .is_ok_and(multi::is_there)
    }

    fn load(&mut self, name: &str, attach: AttachType) -> Result<()> {
        let key = (name.to_owned(), attach);
        if !self.programs.contains_key(&key) {
            let program = self.image.load(name, attach)?;
            debug!("loaded {name} for {attach:?}");
            self.programs.insert(key, program);
        }
        Ok(())
    }

    fn program(&self, name: &str, attach: AttachType) -> Result<BorrowedFd<'_>> {
        let program = self.programs.get(&(name.to_owned(), attach));
        program
            .map(|program| program.as_fd())
            .ok_or_else(|| Error::failed(format!("`{name}` is not loaded")))
    }
}

/// Places of instructions that some kernels probe and then do not carry out. Whoever asks for one gets what a
/// kernel says that probes none of them.
fn harmful(places: &[Place<'_>]) -> BTreeSet<usize> {
    let mut harmful = BTreeSet::new();
    for (index, place) in places.iter().enumerate() {
        let mut bytes = [0; LONGEST];
        // At the end of a file, or where none is to be read, the kernel says what is wrong.
        let file = place.object.open();
        let read = file.and_then(|file| file.read_at(&mut bytes, place.file_offset));
        if read.is_ok() && matches!(probing(&bytes), Probing::Refused(_)) {
            harmful.insert(index);
        }
    }
    harmful
}

/// Sets places by one link, or, where the kernel refuses one of them, by a link for each half of
/// them. A place that is refused alone is left to perf events.
fn split(
    program: BorrowedFd<'_>,
    places: &[Place<'_>],
    group: &[usize],
    links: &mut Vec<Link>,
    rest: &mut Vec<usize>,
) {
    let chosen: Vec<Place<'_>> = group.iter().map(|&index| places[index]).collect();
    match multi::attach(program, &chosen) {
        Ok(link) => links.push(Link::of(link)),
        Err(error) if group.len() > 1 => {
            debug!("a link of {} probes is refused: {error}", group.len());
            let (first, second) = group.split_at(group.len() / 2);
            split(program, places, first, links, rest);
            split(program, places, second, links, rest);
        }
        Err(error) => {
            debug!("uprobe_multi at {:#x}: {error}", chosen[0].file_offset);
            rest.extend(group);
        }
    }
}

/// Sets places by a perf event each, many at a time.
fn by_events(
    program: BorrowedFd<'_>,
    events: UprobeEvents,
    places: &[Place<'_>],
    chosen: &[usize],
) -> Result<(Vec<Link>, Vec<Refused>)> {
    let share = chosen.len().div_ceil(THREADS).max(1);
    let set = |&index: &usize| {
        events
            .attach(program, &places[index])
            .map_err(|error| Refused { index, error })
    };
    let set = &set;
    let results = thread::scope(|scope| {
        let workers: Vec<_> = chosen
            .chunks(share)
            .map(|mine| {
                let all = move || mine.iter().map(set).collect::<Vec<_>>();
                // Without a thread for it this one does it.
                let thread = thread::Builder::new().spawn_scoped(scope, all);
                thread.map_err(|_| all())
            })
            .collect();
        let joined = workers.into_iter();
        joined
            .map(|worker| match worker {
                Ok(thread) => thread.join(),
                Err(done) => Ok(done),
            })
            .collect::<Result<Vec<_>, _>>()
    });
    let results = results.map_err(|_| Error::failed("a thread that sets probes panicked"))?;
    let mut links = Vec::new();
    let mut refused = Vec::new();
    for result in results.into_iter().flatten() {
        match result {
            Ok(link) => links.push(Link::of(link)),
            Err(one) => refused.push(one),
        }
    }
    Ok((links, refused))
}
