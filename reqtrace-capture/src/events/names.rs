//! Names: stacks and threads that events refer to in, events that say what they are out, each once.
//!
//! A stack is looked up and named when the first event refers to it, so that a trace that is killed
//! has the names of all that it has.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use reqtrace_binary::files::Files;
use reqtrace_binary::symbolize::user::{ANONYMOUS, ObjectKey, Place};
use reqtrace_binary::variables::Memory;
use reqtrace_common::record::{FileId, STACK_LOST, STACK_NONE, StackId};
use reqtrace_recording::{
    Address, AddressSpace, BlockSite, CpuWait, Event, File, Futex, Interval, IntervalKind, KERNEL,
    Mapping, NOWHERE, Name, Object, Request, Sample, Stack, StackSumKey, Thread,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::Stream;
use super::file_names::FileNames;
use super::holders::Holders;
use super::limits::Limits;
use crate::attach::StackTable;
use crate::symbolize::{LiveSymbolizer, thread_name};
use reqtrace_base::error::Result;
use reqtrace_base::frame::{Frame, UNKNOWN};
use reqtrace_recording::losses::{
    FILES_LEFT_OUT, NAMES_LATE, PERF_MAPS_CUT, SYMBOLS_GIVEN_UP, SYMBOLS_LEFT_OUT,
};

/// How often at most a stack is looked at again that has addresses without a name.
const PAUSE: Duration = Duration::from_millis(200);
/// Stacks that are known as said; beyond it all are said anew.
const MAX_STACKS: usize = 1 << 16;
/// Entries of each other set; beyond it all are said anew, or a set that only saves time starts anew.
const MAX_KNOWN: usize = 1 << 16;
/// Threads whose names are read between two ticks: more is a server that makes a thread for each
/// request, and there the name of the process does.
const THREADS_PER_TICK: u32 = 200;

/// What was said so far.
pub(crate) struct Names {
    stacks: StackTable,
    symbols: LiveSymbolizer,
    objects: FxHashMap<ObjectKey, u32>,
    /// Those that were said.
    said_objects: FxHashSet<u32>,
    mappings: FxHashSet<(AddressSpace, u64, u64, u32)>,
    /// Addresses and their names; `None` for names that stay.
    names: FxHashMap<(Address, bool), Option<Vec<Frame>>>,
    /// Addresses of processes whose names stay.
    addresses: FxHashMap<(AddressSpace, u64, bool), Address>,
    /// Kernel addresses by the number that stands for them.
    kernel: FxHashMap<u64, u64>,
    /// Stacks with names that stay.
    said: FxHashSet<(Option<AddressSpace>, StackId)>,
    /// Places of which both stacks have such names.
    sites: FxHashSet<(AddressSpace, BlockSite)>,
    unsettled: FxHashMap<(AddressSpace, StackId), Unsettled>,
    /// Stacks that were said and forgotten since all were said anew: their process has left, but who was
    /// told of them has them still.
    forgotten: usize,
    files: FileNames,
    threads: FxHashSet<(u32, u32)>,
    threads_left: u32,
    holders: Holders,
    limits: Limits,
    memory: Memory,
    futexes: FxHashSet<(AddressSpace, u64)>,
    /// From then on nothing is looked up any more.
    deadline: Option<Instant>,
    /// Addresses that were not looked up.
    late: u64,
}

/// A stack with addresses that may get a name later: a library that is being loaded, generated code.
struct Unsettled {
    tried: Instant,
    said: Vec<Address>,
}

impl Names {
    pub(crate) fn new(stacks: StackTable, symbols: LiveSymbolizer, files: Files) -> Self {
        Self {
            stacks,
            symbols,
            objects: FxHashMap::default(),
            said_objects: FxHashSet::default(),
            mappings: FxHashSet::default(),
            names: FxHashMap::default(),
            addresses: FxHashMap::default(),
            kernel: FxHashMap::default(),
            said: FxHashSet::default(),
            sites: FxHashSet::default(),
            unsettled: FxHashMap::default(),
            forgotten: 0,
            files: FileNames::default(),
            threads: FxHashSet::default(),
            threads_left: THREADS_PER_TICK,
            holders: Holders::default(),
            limits: Limits::default(),
            memory: Memory::with_files(files),
            futexes: FxHashSet::default(),
            deadline: None,
            late: 0,
        }
    }

    /// From `deadline` on, or from when an earlier call has said, user addresses are said without a
    /// name: a report has to come, however long names take. They are written by the traced processes.
    pub(crate) fn until(&mut self, deadline: Instant) {
        let sooner = self.deadline.is_none_or(|before| deadline < before);
        if sooner {
            self.deadline = Some(deadline);
        }
    }

    /// What could not be named.
    pub(crate) fn losses(&self) -> [(&'static str, u64); 5] {
        let left_out = self.symbols.left_out();
        [
            (NAMES_LATE, self.late),
            (PERF_MAPS_CUT, left_out.perf_maps),
            (FILES_LEFT_OUT, left_out.files),
            (SYMBOLS_LEFT_OUT, left_out.symbols),
            (SYMBOLS_GIVEN_UP, left_out.given_up),
        ]
    }

    fn is_late(&self) -> bool {
        self.deadline
            .is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// The symbolizer, to tell it of changes of a process.
    pub(crate) fn symbols(&mut self) -> &mut LiveSymbolizer {
        self.addresses.clear();
        &mut self.symbols
    }

    /// The stacks, to take them out of the kernel's table.
    pub(crate) fn stacks(&mut self) -> &mut StackTable {
        &mut self.stacks
    }

    fn kept(&self) -> usize {
        self.said.len() + self.unsettled.len()
    }

    /// Whether so much was said that it is to be said anew.
    pub(crate) fn is_full(&self) -> bool {
        let others = [
            self.names.len(),
            self.mappings.len(),
            self.threads.len(),
            self.futexes.len(),
        ];
        self.kept() + self.forgotten >= MAX_STACKS
            || self.files.is_full()
            || others.into_iter().any(|said| said >= MAX_KNOWN)
    }

    /// Says the name of a file, which the kernel sends.
    pub(crate) fn file(&mut self, file: &File, stream: &mut Stream<'_>) -> Result<()> {
        self.files.add(file);
        stream.send(&Event::File(file))
    }

    /// Says everything anew from now on, when it is needed, and these files now: nothing that was said before is
    /// referred to. The kernel must be told to send the names of files again.
    pub(crate) fn anew(&mut self, in_use: &[FileId], stream: &mut Stream<'_>) -> Result<()> {
        self.said.clear();
        self.sites.clear();
        self.unsettled.clear();
        self.said_objects.clear();
        self.mappings.clear();
        self.names.clear();
        self.addresses.clear();
        self.threads.clear();
        self.futexes.clear();
        self.forgotten = 0;
        stream.send(&Event::StacksAnew)?;
        for file in self.files.anew(in_use) {
            stream.send(&Event::File(file))?;
        }
        Ok(())
    }

    /// Forgets processes that have left, of which everything was said.
    pub(crate) fn forget(&mut self, pids: &BTreeSet<u32>) {
        let stays = |space: &AddressSpace| !pids.contains(&space.tgid);
        let before = self.kept();
        self.mappings.retain(|(space, ..)| stays(space));
        self.addresses.retain(|(space, ..), _| stays(space));
        self.said
            .retain(|(space, _)| space.as_ref().is_none_or(stays));
        self.sites.retain(|(space, _)| stays(space));
        self.unsettled.retain(|(space, _), _| stays(space));
        self.forgotten += before - self.kept();
        self.threads.retain(|(tgid, _)| !pids.contains(tgid));
        self.holders.forget(pids);
        self.limits.forget(pids);
        self.memory.forget(|pid| pids.contains(&pid));
        self.futexes.retain(|(space, _)| stays(space));
        self.symbols.forget(pids);
    }

    /// Some time has passed.
    pub(crate) fn tick(&mut self) {
        self.threads_left = THREADS_PER_TICK;
    }

    /// Says what a request refers to.
    pub(crate) fn request(&mut self, request: &Request<'_>, stream: &mut Stream<'_>) -> Result<()> {
        for slot in request.slots {
            self.site(request.space, slot.site, false, stream)?;
        }
        for block in request.longest {
            self.site(request.space, block.site, false, stream)?;
            if block.waker_tid != 0 {
                self.thread(block.waker_tgid, block.waker_tid, stream)?;
            }
        }
        for park in request.parks {
            self.user_stack(request.space, park.stack, false, stream)?;
        }
        Ok(())
    }

    /// Says the name of a thread, which the kernel sends.
    pub(crate) fn named_thread(&mut self, thread: &Thread, stream: &mut Stream<'_>) -> Result<()> {
        self.threads.insert((thread.tgid, thread.tid));
        stream.send(&Event::Thread(thread))
    }

    /// Says an interval, and before it what it refers to.
    pub(crate) fn interval(
        &mut self,
        interval: &mut Interval,
        stream: &mut Stream<'_>,
    ) -> Result<()> {
        self.holders.translate(interval);
        self.site(interval.space, interval.site, false, stream)?;
        if let IntervalKind::Blocked { waker, .. } = interval.kind {
            if waker.tid != 0 {
                self.thread(waker.tgid, waker.tid, stream)?;
            }
            let of_interrupt = BlockSite {
                kernel_stack: waker.stack,
                ..BlockSite::PREEMPTED
            };
            self.site(interval.space, of_interrupt, false, stream)?;
        }
        self.futex(interval, stream)?;
        if let Some(from) = interval.woken_from {
            self.user_stack(from.space, from.user_stack, false, stream)?;
        }
        stream.send(&Event::Interval(interval))
    }

    /// Says a wait for a CPU, with the cgroup whose limit kept it waiting.
    pub(crate) fn cpu_wait(&mut self, mut wait: CpuWait, stream: &mut Stream<'_>) -> Result<()> {
        if wait.limited_ns > 0 {
            wait.cgroup = self.limits.of(wait.space.tgid);
        }
        stream.send(&Event::CpuWait(&wait))
    }

    /// Says what the futex of an interval lies in.
    fn futex(&mut self, interval: &Interval, stream: &mut Stream<'_>) -> Result<()> {
        let key = (interval.space, interval.futex);
        if interval.futex == 0 || self.futexes.contains(&key) || self.is_late() {
            return Ok(());
        }
        self.futexes.insert(key);
        match self.memory.lies_in(interval.space.tgid, interval.futex) {
            Some(lies_in) => stream.send(&Event::Futex(&Futex {
                space: interval.space,
                address: interval.futex,
                lies_in,
            })),
            None => Ok(()),
        }
    }

    /// Says a sample, and before it what it refers to.
    pub(crate) fn sample(&mut self, sample: &Sample, stream: &mut Stream<'_>) -> Result<()> {
        self.site(sample.space, sample.site(), false, stream)?;
        stream.send(&Event::Sample(sample))
    }

    /// Says what a sum refers to. At the end everything without a name is looked at once more.
    pub(crate) fn sum(
        &mut self,
        key: &StackSumKey,
        at_end: bool,
        stream: &mut Stream<'_>,
    ) -> Result<()> {
        let space = AddressSpace {
            tgid: key.tgid,
            exec_generation: key.exec_generation,
        };
        let site = BlockSite {
            kernel_stack: key.kernel_stack,
            user_stack: key.user_stack,
            syscall: key.syscall,
            file: key.file,
        };
        self.site(space, site, at_end, stream)
    }

    /// Says what a place of blocking refers to.
    pub(crate) fn site(
        &mut self,
        space: AddressSpace,
        site: BlockSite,
        at_end: bool,
        stream: &mut Stream<'_>,
    ) -> Result<()> {
        if self.sites.contains(&(space, site)) {
            return Ok(());
        }
        let kernel = self.kernel_stack(site.kernel_stack, stream)?;
        let user = self.user_stack(space, site.user_stack, at_end, stream)?;
        if kernel && user {
            if self.sites.len() >= MAX_KNOWN {
                self.sites.clear();
            }
            self.sites.insert((space, site));
        }
        Ok(())
    }

    /// Says the name of a thread that has woken another.
    fn thread(&mut self, tgid: u32, tid: u32, stream: &mut Stream<'_>) -> Result<()> {
        if self.threads_left == 0 || self.threads.contains(&(tgid, tid)) {
            return Ok(());
        }
        self.threads_left -= 1;
        self.threads.insert((tgid, tid));
        match thread_name(tgid, tid) {
            Some(name) => stream.send(&Event::Thread(&Thread { tgid, tid, name })),
            None => Ok(()),
        }
    }

    /// Says a kernel stack; true when all was said.
    fn kernel_stack(&mut self, id: StackId, stream: &mut Stream<'_>) -> Result<bool> {
        if id == STACK_LOST || id == STACK_NONE || self.said.contains(&(None, id)) {
            return Ok(true);
        }
        let Some(stack) = self.stacks.stack(id) else {
            return Ok(false);
        };
        let frames = self.symbols.kernel(&stack.addresses);
        // Frames of tracing itself were cut off at the innermost end.
        let cut = stack.addresses.len().saturating_sub(frames.len());
        let mut addresses = Vec::with_capacity(frames.len());
        for (address, frame) in stack.addresses[cut..].iter().zip(frames) {
            let next = self.kernel.len() as u64;
            let offset = *self.kernel.entry(*address).or_insert(next);
            let address = Address {
                object: KERNEL,
                offset,
            };
            let is_return = !addresses.is_empty();
            self.name(address, is_return, &[frame], stream)?;
            addresses.push(address);
        }
        self.said.insert((None, id));
        stream.send(&Event::Stack(&Stack {
            space: None,
            id,
            stop: 0,
            addresses,
        }))?;
        Ok(true)
    }

    /// Says a user stack; true when all was said, and no name may come later.
    fn user_stack(
        &mut self,
        space: AddressSpace,
        id: StackId,
        at_end: bool,
        stream: &mut Stream<'_>,
    ) -> Result<bool> {
        let key = (Some(space), id);
        if id == STACK_LOST || id == STACK_NONE || self.said.contains(&key) {
            return Ok(true);
        }
        let before = self.unsettled.get(&(space, id));
        if !at_end && before.is_some_and(|before| before.tried.elapsed() < PAUSE) {
            return Ok(false);
        }
        let Some(stack) = self.stacks.stack(id) else {
            return Ok(false);
        };
        let mut addresses = Vec::with_capacity(stack.addresses.len());
        let mut settled = true;
        for (depth, &address) in stack.addresses.iter().enumerate() {
            let (address, stays) = self.user_address(space, address, depth > 0, stream)?;
            addresses.push(address);
            settled &= stays;
        }
        let before = self.unsettled.remove(&(space, id));
        if before.is_none_or(|before| before.said != addresses) {
            stream.send(&Event::Stack(&Stack {
                space: Some(space),
                id,
                stop: stack.stop as u32,
                addresses: addresses.clone(),
            }))?;
        }
        if settled {
            self.said.insert(key);
        } else {
            let tried = Instant::now();
            let said = addresses;
            self.unsettled
                .insert((space, id), Unsettled { tried, said });
        }
        Ok(settled)
    }

    /// Says what is at an address of a process, and whether that stays.
    fn user_address(
        &mut self,
        space: AddressSpace,
        address: u64,
        is_return: bool,
        stream: &mut Stream<'_>,
    ) -> Result<(Address, bool)> {
        if let Some(known) = self.addresses.get(&(space, address, is_return)) {
            return Ok((*known, true));
        }
        let is_late = self.is_late();
        let mut frames = None;
        let mut place = self.symbols.user().place(space, address, is_return);
        if place.is_none() && !is_late {
            // Naming looks at the mappings again.
            frames = Some(self.symbols.user().frame(space, address, is_return));
            place = self.symbols.user().place(space, address, is_return);
        }
        let Some(place) = place else {
            let nowhere = Address {
                object: NOWHERE,
                offset: address,
            };
            return Ok((nowhere, false));
        };
        let object = self.object(space, &place, stream)?;
        let known_as = Address {
            object,
            offset: place.offset,
        };
        let stays = match self.names.get(&(known_as, is_return)) {
            Some(None) => true,
            known if is_late => {
                let frame = Frame::new(place.without_name());
                let is_new = known.is_none();
                self.late += u64::from(is_new);
                if is_new {
                    self.name(known_as, is_return, &[frame], stream)?;
                }
                // Nothing better will come.
                true
            }
            _ => {
                let frames =
                    frames.unwrap_or_else(|| self.symbols.user().frame(space, address, is_return));
                self.name(known_as, is_return, &frames, stream)?
            }
        };
        if stays {
            if self.addresses.len() >= MAX_KNOWN {
                self.addresses.clear();
            }
            self.addresses.insert((space, address, is_return), known_as);
        }
        Ok((known_as, stays))
    }

    /// Says the names of an address, unless that was done; true when they stay.
    fn name(
        &mut self,
        address: Address,
        is_return: bool,
        frames: &[Frame],
        stream: &mut Stream<'_>,
    ) -> Result<bool> {
        let key = (address, is_return);
        match self.names.get(&key) {
            Some(None) => return Ok(true),
            Some(Some(said)) if said == frames => return Ok(false),
            _ => {}
        }
        let may_change = |frame: &Frame| [UNKNOWN, ANONYMOUS].contains(&&*frame.name);
        let stays = !frames.iter().any(may_change);
        self.names.insert(key, (!stays).then(|| frames.to_vec()));
        stream.send(&Event::Name(&Name {
            address,
            is_return,
            frames: frames.iter().map(|frame| frame.name.to_string()).collect(),
        }))?;
        Ok(stays)
    }

    /// Says an object and where it is mapped; its number.
    fn object(
        &mut self,
        space: AddressSpace,
        place: &Place,
        stream: &mut Stream<'_>,
    ) -> Result<u32> {
        let next = KERNEL + 1 + self.objects.len() as u32;
        let id = match self.objects.get(&place.object) {
            Some(id) => *id,
            None => {
                self.objects.insert(place.object.clone(), next);
                next
            }
        };
        if self.said_objects.insert(id) {
            stream.send(&Event::Object(&Object {
                id,
                path: place.object.path(),
                build_id: self.symbols.user().build_id(&place.object),
            }))?;
        }
        if self.mappings.insert((space, place.start, place.end, id)) {
            stream.send(&Event::Mapping(&Mapping {
                space,
                start: place.start,
                end: place.end,
                offset: place.start_offset,
                object: id,
            }))?;
        }
        Ok(id)
    }
}
