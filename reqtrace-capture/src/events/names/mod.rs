//! Names: events that refer to stacks, threads, files and locks in; what these are out, each once, and before the event.
//!
//! A stack is looked up and named when the first event refers to it, so that a trace that is killed
//! has the names of all that it has.

mod addresses;
mod objects;
mod pointed;
mod stacks;
mod units;

use std::collections::BTreeSet;
use std::time::Instant;

use reqtrace_base::error::Result;
use reqtrace_binary::files::Files;
use reqtrace_binary::variables::Memory;
use reqtrace_common::record::{FileId, StackId};
use reqtrace_profile::Profiles;
use reqtrace_recording::{
    AddressSpace, AwayInterval, BlockSite, CpuWait, Event, File, Futex, Holder, Interval,
    IntervalKind, NumberOf, Request, Sample, StackSumKey, TextOf, Thread,
};
use rustc_hash::FxHashSet;

use super::Stream;
use super::file_names::FileNames;
use super::holders::Holders;
use super::limits::Limits;
use crate::attach::StackTable;
use crate::kernel::processes::thread_name;
use crate::symbolize::LiveSymbolizer;
use addresses::Addresses;
use pointed::{Is, Pointed, lies_at};
use stacks::Stacks;
pub(crate) use units::UnitsOfPrograms;

/// Entries of each set but that of stacks; beyond it all are sent again, or a set that only saves time is emptied.
const MAX_KNOWN: usize = 1 << 16;
/// Threads whose names are read between two ticks: more is a server that makes a thread for each
/// request, and there the name of the process does.
const THREADS_PER_TICK: u32 = 200;

/// What was sent so far.
pub(crate) struct Names {
    addresses: Addresses,
    stacks: Stacks,
    /// Places of which both stacks have names that stay.
    sites: FxHashSet<(AddressSpace, BlockSite)>,
    files: FileNames,
    threads: FxHashSet<(u32, u32)>,
    threads_left: u32,
    holders: Holders,
    limits: Limits,
    memory: Memory,
    futexes: FxHashSet<(AddressSpace, u64)>,
    pointed: Pointed,
    units: UnitsOfPrograms,
}

impl Names {
    /// Names what these profiles ask for.
    pub(crate) fn new(
        stacks: StackTable,
        symbols: LiveSymbolizer,
        files: Files,
        profiles: &Profiles,
        units: UnitsOfPrograms,
    ) -> Self {
        Self {
            addresses: Addresses::new(symbols),
            stacks: Stacks::new(stacks),
            sites: FxHashSet::default(),
            files: FileNames::default(),
            threads: FxHashSet::default(),
            threads_left: THREADS_PER_TICK,
            holders: Holders::default(),
            limits: Limits::default(),
            memory: Memory::with_files(files),
            futexes: FxHashSet::default(),
            pointed: Pointed::new(profiles.symbols(), profiles.units()),
            units,
        }
    }

    /// From `deadline` on, or from an earlier one, user addresses are sent without a
    /// name: a report has to come, however long names take. They are written by the traced processes.
    pub(crate) fn until(&mut self, deadline: Instant) {
        self.addresses.until(deadline);
    }

    /// What could not be named.
    pub(crate) fn losses(&self) -> [(&'static str, u64); 5] {
        self.addresses.losses()
    }

    /// The symbolizer, for changes of a process.
    pub(crate) fn symbols(&mut self) -> &mut LiveSymbolizer {
        self.addresses.changed();
        self.pointed.changed();
        &mut self.addresses.symbols
    }

    /// The stacks, to take them out of the kernel's table.
    pub(crate) fn stacks(&mut self) -> &mut StackTable {
        &mut self.stacks.table
    }

    /// Whether so much was sent that all is to be sent again.
    pub(crate) fn is_full(&self) -> bool {
        self.stacks.is_full()
            || self.addresses.is_full()
            || self.files.is_full()
            || self.threads.len().max(self.futexes.len()) >= MAX_KNOWN
    }

    /// Sends the name of a file, which comes from the kernel.
    pub(crate) fn file(&mut self, file: &File, stream: &mut Stream<'_>) -> Result<()> {
        self.files.add(file);
        stream.send(&Event::File(file))
    }

    /// Sends all again from now on, when it is needed, and these files now: no event refers to what was sent before.
    /// The kernel must be made to send the names of files again.
    pub(crate) fn send_again(&mut self, in_use: &[FileId], stream: &mut Stream<'_>) -> Result<()> {
        self.addresses.send_again();
        self.stacks.send_again();
        self.sites.clear();
        self.threads.clear();
        self.futexes.clear();
        stream.send(&Event::StacksAnew)?;
        for file in self.files.again(in_use) {
            stream.send(&Event::File(file))?;
        }
        Ok(())
    }

    /// Forgets processes that have left, once no event refers to them.
    pub(crate) fn forget(&mut self, pids: &BTreeSet<u32>) {
        let stays = |space: &AddressSpace| !pids.contains(&space.tgid);
        self.addresses.keep(stays);
        self.addresses.symbols.forget(pids);
        self.stacks.keep(stays);
        self.sites.retain(|(space, _)| stays(space));
        self.futexes.retain(|(space, _)| stays(space));
        self.threads.retain(|(tgid, _)| !pids.contains(tgid));
        self.holders.forget(pids);
        self.limits.forget(pids);
        self.memory.forget(|pid| pids.contains(&pid));
    }

    /// Some time has passed.
    pub(crate) fn tick(&mut self) {
        self.threads_left = THREADS_PER_TICK;
    }

    /// Makes the attributes of a request that are symbols, or say what its unit is, texts.
    pub(crate) fn symbols_of(
        &mut self,
        (space, request_type): (AddressSpace, u32),
        numbers: &mut Vec<NumberOf>,
        texts: &mut Vec<TextOf>,
    ) {
        let Self {
            addresses,
            memory,
            pointed,
            units,
            ..
        } = self;
        let is_late = addresses.is_late();
        let symbols = addresses.symbols.user();
        let look_up = |address, is| match (is, is_late) {
            (Is::Unit, _) => units.name(space, address, symbols, is_late),
            (Is::Symbol, true) => None,
            (Is::Symbol, false) => lies_at(space, address, symbols, memory),
        };
        pointed.name(request_type, (numbers, texts), look_up, space);
    }

    /// Sends what a request refers to.
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

    /// Sends the name of a thread, which comes from the kernel.
    pub(crate) fn named_thread(&mut self, thread: &Thread, stream: &mut Stream<'_>) -> Result<()> {
        self.threads.insert((thread.tgid, thread.tid));
        stream.send(&Event::Thread(thread))
    }

    /// Who has a lock that a thread of this process waits for, by its number in the initial PID namespace.
    pub(crate) fn holder(&mut self, tgid: u32, holder: Holder) -> Holder {
        self.holders.of_process(tgid, holder)
    }

    /// Sends an interval, and before it what it refers to.
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

    /// Sends where a request was that no thread ran, and before it what it refers to.
    pub(crate) fn away(&mut self, away: &AwayInterval, stream: &mut Stream<'_>) -> Result<()> {
        if let Some(from) = away.woken_from {
            self.user_stack(from.space, from.user_stack, false, stream)?;
        }
        stream.send(&Event::Away(away))
    }

    /// Sends a wait for a CPU, with the cgroup whose limit kept it waiting.
    pub(crate) fn cpu_wait(&mut self, mut wait: CpuWait, stream: &mut Stream<'_>) -> Result<()> {
        if wait.limited_ns > 0 {
            wait.cgroup = self.limits.of(wait.space.tgid);
        }
        stream.send(&Event::CpuWait(&wait))
    }

    /// Sends what the futex of an interval lies in.
    fn futex(&mut self, interval: &Interval, stream: &mut Stream<'_>) -> Result<()> {
        let key = (interval.space, interval.futex);
        if interval.futex == 0 || self.futexes.contains(&key) || self.addresses.is_late() {
            return Ok(());
        }
        self.futexes.insert(key);
        match self.memory.lies_in(interval.space, interval.futex) {
            Some(lies_in) => stream.send(&Event::Futex(&Futex {
                space: interval.space,
                address: interval.futex,
                lies_in,
            })),
            None => Ok(()),
        }
    }

    /// Sends a sample, and before it what it refers to.
    pub(crate) fn sample(&mut self, sample: &Sample, stream: &mut Stream<'_>) -> Result<()> {
        self.site(sample.space, sample.site(), false, stream)?;
        stream.send(&Event::Sample(sample))
    }

    /// Sends what a sum refers to. At the end everything without a name is looked at once more.
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

    /// Sends what a place of blocking refers to.
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
        let Self {
            stacks, addresses, ..
        } = self;
        let kernel = stacks.kernel(site.kernel_stack, addresses, stream)?;
        let user = self.user_stack(space, site.user_stack, at_end, stream)?;
        if kernel && user {
            if self.sites.len() >= MAX_KNOWN {
                self.sites.clear();
            }
            self.sites.insert((space, site));
        }
        Ok(())
    }

    fn user_stack(
        &mut self,
        space: AddressSpace,
        id: StackId,
        at_end: bool,
        stream: &mut Stream<'_>,
    ) -> Result<bool> {
        let Self {
            stacks, addresses, ..
        } = self;
        stacks.user(space, id, at_end, addresses, stream)
    }

    /// Sends the name of a thread that has woken another.
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
}
