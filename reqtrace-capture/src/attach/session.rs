//! A running trace: probes attached, ring and maps readable; stopped once, then read, then
//! detached.

mod begin;
mod costs;
mod dismiss;
mod end;

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread::{self, JoinHandle};

use aya::maps::{Array, MapData, RingBuf};
use reqtrace_common::config::{Control, follow};
use reqtrace_common::limits::MAX_SAMPLE_EVERY;
use reqtrace_common::record::{FileId, StackId};
use reqtrace_recording::Cost;

use super::detach::Link;
use super::estimate::HitCost;
use super::grace::GracePeriod;
use super::guard::Shed;
use super::identity::Identity;
use super::loader::{KernelLog, fill_plans};
use super::maps::{Maps, map_error};
use super::open::{self, Running};
use super::overhead::{self, Runs, Traps};
use super::plans::PlanTables;
use super::probes::ProbePlan;
use super::processes::{ended_ns, forget_processes, trace_processes, watch_programs};
use super::programs::CpuEngine;
use super::sampling::Sampling;
use super::sent::Seconds;
use super::sums::{Filling, Forgotten, Sums};
use super::tables::UnwindTables;
use super::targets::Probes;
use super::uprobe::Engine;
use crate::kernel::clock;
use reqtrace_base::error::{Error, Result};
use reqtrace_base::frame::AddressSpace;
use reqtrace_binary::maps::Mapped;
use reqtrace_recording::{DiskUse, LateChildren, Sent};

/// A running trace.
pub struct Session {
    maps: Maps,
    ring: RingBuf<MapData>,
    log: Option<KernelLog>,
    tracepoints: Vec<Link>,
    sampling: Sampling,
    probes: Probes,
    kernel_memory: u64,
    tables: Option<UnwindTables>,
    /// Bits of [`follow`] for processes that are traced.
    children: u32,
    start_ns: u64,
    control: Control,
    /// What was asked for; shedding records still fewer.
    sample_every: u64,
    /// All probes that are set, with the programs that they are for.
    planned: Vec<(BTreeSet<Identity>, Vec<ProbePlan>)>,
    /// What they name.
    plans: PlanTables,
    /// What was counted of markers of programs that have gone.
    forgotten: Forgotten,
    cost: HitCost,
    traps: Traps,
    /// Whether reqtrace's own CPU time is that of one thread.
    is_of_thread: bool,
    /// That before the start.
    own_cpu_ns: u64,
    grace: GracePeriod,
    filling: Filling,
    seconds: Seconds,
    /// What was counted until detaching began, and who detaches.
    detaching: Option<(Cost, JoinHandle<()>)>,
}

impl Session {
    /// What becomes readable when the kernel asks to be read: after news of a process, and when a
    /// quarter of the ring is full.
    #[must_use]
    pub fn ring(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }

    /// Passes the kernel programs' messages to the log.
    pub fn forward_messages(&mut self) {
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }

    /// Takes the next record, if there is one. The kernel gets its room back after `take`.
    pub fn next_record<T>(&mut self, take: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let record = self.ring.next()?;
        Some(take(&record))
    }

    /// I/O of processes that is summed up in the kernel still.
    ///
    /// # Errors
    ///
    /// When the map cannot be read.
    pub(crate) fn disk_users(&self) -> Result<Vec<DiskUse>> {
        super::decode::disk_users(&self.maps)
    }

    /// What was sent in the seconds that are over, when all records of before `taken_ns` were taken; with `all` in those
    /// that are left too.
    ///
    /// # Errors
    ///
    /// When the kernel's counters cannot be read.
    pub(crate) fn take_seconds(&mut self, taken_ns: u64, all: bool) -> Result<Vec<Sent>> {
        self.seconds.take(&self.maps, taken_ns, all)
    }

    /// A record is sent of a request that ended then, `CLOCK_MONOTONIC` ns, and took so long, ns: not the kernel sends it.
    pub(crate) fn sent_by_us(&mut self, end_ns: u64, latency_ns: u64) {
        self.seconds.sent_by_us(end_ns, latency_ns);
    }

    /// Traces children that were started before forks were seen.
    ///
    /// # Errors
    ///
    /// When the kernel's table cannot take them.
    pub fn trace_children(&mut self, pids: &[u32]) -> Result<()> {
        self.trace(pids)?;
        for &pid in pids {
            self.probes.follow(pid, self.start_ns, false);
        }
        Ok(())
    }

    /// Traces processes from now on, as far as probes are set in what they run.
    ///
    /// # Errors
    ///
    /// When the kernel's table cannot take them.
    pub(crate) fn trace(&mut self, pids: &[u32]) -> Result<()> {
        trace_processes(&mut self.maps, pids, self.children)?;
        self.probes.programs().watch_threads()
    }

    /// The processes that the kernel traces, each with how often it has called exec.
    ///
    /// # Errors
    ///
    /// When the kernel's table cannot be read.
    pub(crate) fn traced(&self) -> Result<Vec<(u32, u32)>> {
        super::processes::traced(&self.maps)
    }

    /// Whether the kernel traces a process.
    pub(crate) fn traces(&self, pid: u32) -> bool {
        ended_ns(&self.maps, pid).is_some()
    }

    /// From now on the kernel traces every process that begins to run one of these files, and no others.
    ///
    /// # Errors
    ///
    /// When there are too many of them, or the kernel's table cannot be written.
    pub(crate) fn watch(&mut self, files: &BTreeSet<Identity>) -> Result<()> {
        // Without a probe for all that run the file there are only those that are set later.
        let is_late = self.children & follow::LATE != 0 || self.children == 0;
        let bits = self.children | if is_late { follow::WAS_LATE } else { 0 };
        watch_programs(&mut self.maps, files, bits)
    }

    /// A process is new: what another one with its number had is gone with that.
    pub(crate) fn begins(&mut self, pid: u32) {
        self.probes.forget(&BTreeSet::from([pid]));
    }

    /// Sets the probes of a child that was forked then, `CLOCK_MONOTONIC` ns, if it has not all
    /// of them.
    pub fn follow(&mut self, pid: u32, forked_ns: u64) {
        self.probes.follow(pid, forked_ns, false);
    }

    /// The same of a process that has waited for the probes of its program.
    pub(crate) fn follow_late(&mut self, pid: u32, since_ns: u64) {
        self.probes.follow(pid, since_ns, true);
    }

    /// Sets the probes of a program that a process runs since then, `CLOCK_MONOTONIC` ns, or ran, if it has left
    /// meanwhile; the tables have their plans beside those of before.
    ///
    /// # Errors
    ///
    /// When they need a program or room that was not loaded, or cannot be set; then all is as before.
    pub(crate) fn probe_program(
        &mut self,
        probes: Vec<ProbePlan>,
        mut plans: PlanTables,
        program: &Identity,
        pid: u32,
        since_ns: u64,
    ) -> Result<()> {
        let advised = |error: Error| {
            error.next("its markers may need more than was loaded at the start: trace it by itself with -p")
        };
        let runs = overhead::runs(&self.maps)?;
        fill_plans(&mut self.maps, &plans).map_err(advised)?;
        if let Err(error) = self.probes.add(&probes, program, pid, since_ns) {
            // Others of the program may have hit some meanwhile, and the next program gets the same places.
            self.forget_unplanned(&mut plans)?;
            return Err(advised(error));
        }
        self.planned
            .push((BTreeSet::from([program.clone()]), probes));
        self.plans = plans;
        self.measure_traps(runs);
        Ok(())
    }

    /// What the probes name; who plans more adds to a copy.
    pub(crate) fn plans(&self) -> &PlanTables {
        &self.plans
    }

    /// Nobody runs this program any more, and nobody will: its probes go, and the room of what only they named. What was
    /// counted of them must have been taken.
    ///
    /// # Errors
    ///
    /// When the kernel's tables cannot be written.
    pub(crate) fn forget_program(&mut self, program: &Identity) -> Result<()> {
        self.probes.forget_program(program);
        self.planned.retain_mut(|(programs, _)| {
            programs.remove(program);
            !programs.is_empty()
        });
        let mut plans = std::mem::take(&mut self.plans);
        let forgotten = self.forget_unplanned(&mut plans);
        self.plans = plans;
        forgotten?;
        self.measure_traps(overhead::runs(&self.maps)?);
        Ok(())
    }

    /// Frees the places of plans that only probes named which are set no longer, and sets aside what was counted of them.
    fn forget_unplanned(&mut self, plans: &mut PlanTables) -> Result<()> {
        let all = plans.marker_plans().iter();
        let all: Vec<_> = all.map(|(plan, name)| (*plan, name.request)).collect();
        let probes = self.planned.iter().flat_map(|(_, probes)| probes);
        let freed = plans.keep(probes);
        // Who hit one of them last may still count.
        self.grace.wait()?;
        self.forgotten.add(&self.maps, &freed, &all)
    }

    /// The probes are others since the programs had run so often.
    fn measure_traps(&mut self, runs: Runs) {
        let probes = self.planned.iter().flat_map(|(_, probes)| probes);
        self.traps.are_at(probes, self.cost, runs);
    }

    /// Processes that should have probes and got none.
    #[must_use]
    pub(crate) fn unprobed(&self) -> u64 {
        self.probes.unprobed()
    }

    /// Children that got some of their probes only after their start.
    #[must_use]
    pub fn late_children(&self) -> LateChildren {
        self.probes.late()
    }

    /// What takes samples of threads on their CPUs; `None` when nothing does.
    #[must_use]
    pub fn cpu_engine(&self) -> Option<CpuEngine> {
        self.sampling.engine
    }

    /// What of the samples is not as it was asked for, and what to do.
    #[must_use]
    pub fn sampling_warning(&self) -> Option<&str> {
        self.sampling.warning.as_deref()
    }

    /// What sets the probes.
    #[must_use]
    pub fn engine(&self) -> Engine {
        self.probes.engine()
    }

    /// Whether probes of processes that come are set by perf events, which needs privileges: each does on a kernel
    /// whose `uprobe_multi` cannot tell processes apart (before Linux 6.12).
    #[must_use]
    pub fn sets_by_perf_events(&self) -> bool {
        self.probes.sets_by_perf_events()
    }

    /// Gives the room of processes that have left to others, when all their records were taken.
    ///
    /// # Errors
    ///
    /// When the kernel's table cannot be written.
    pub fn forget(&mut self, pids: &BTreeSet<u32>) -> Result<()> {
        if let Some(tables) = &mut self.tables {
            tables.forget(pids);
        }
        self.probes.forget(pids);
        forget_processes(&mut self.maps, pids)
    }

    /// CPU time of a process's threads that have ended while it was traced, ns; 0 when nothing is known of it.
    #[must_use]
    pub fn ended_ns(&self, pid: u32) -> u64 {
        ended_ns(&self.maps, pid).unwrap_or(0)
    }

    /// Kernel memory of all maps in bytes, as the kernel accounts for it.
    #[must_use]
    pub fn kernel_memory(&self) -> u64 {
        self.kernel_memory
    }

    /// A process has mapped this, executable: stacks are walked by its tables from now on.
    ///
    /// # Errors
    ///
    /// When the kernel's maps cannot be written.
    pub fn map(&mut self, space: AddressSpace, mapped: &[Mapped]) -> Result<()> {
        let Self { tables, grace, .. } = self;
        let tables = tables.as_mut();
        tables.map_or(Ok(()), |tables| tables.map(space, mapped, grace))
    }

    /// Files whose unwind tables found no room.
    #[must_use]
    pub fn tables_left_out(&self) -> u64 {
        self.tables.as_ref().map_or(0, UnwindTables::left_out)
    }

    /// A new process begins with its parent's mappings.
    ///
    /// # Errors
    ///
    /// When the kernel's maps cannot be written.
    pub fn inherit(&mut self, child: AddressSpace, parent: AddressSpace) -> Result<()> {
        self.tables
            .as_mut()
            .map_or(Ok(()), |tables| tables.inherit(child, parent))
    }

    /// Fixes the stop time: from now on the kernel programs change nothing.
    ///
    /// # Errors
    ///
    /// When the kernel's control map cannot be written.
    pub fn stop(&mut self) -> Result<u64> {
        let stop_ns = clock::monotonic_ns();
        self.control.stop_ns = stop_ns;
        self.write_control()?;
        // A program that had looked at the control before may still be running; each takes
        // microseconds.
        thread::sleep(std::time::Duration::from_millis(2));
        Ok(stop_ns)
    }

    /// When all probes were set, `CLOCK_MONOTONIC` ns: markers hit before do not count.
    #[must_use]
    pub fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// Records less, or more again.
    ///
    /// # Errors
    ///
    /// When the kernel's control map cannot be written.
    pub fn shed(&mut self, shed: Shed) -> Result<()> {
        self.control.shed_stacks = u64::from(shed != Shed::Nothing);
        let more = match shed {
            Shed::Sample(every) => u64::from(every),
            Shed::Nothing | Shed::Stacks | Shed::Windows(_) | Shed::All => 1,
        };
        self.control.sample_every = (self.sample_every * more).min(MAX_SAMPLE_EVERY);
        self.write_control()
    }

    fn write_control(&mut self) -> Result<()> {
        let mut control: Array<&mut MapData, Control> =
            Array::try_from(self.maps.map_mut("CONTROL")?).map_err(map_error)?;
        control.set(0, self.control, 0).map_err(map_error)
    }

    /// Whether a table of the kernel programs fills up, so that it has to be emptied.
    ///
    /// # Errors
    ///
    /// When the kernel's counters cannot be read.
    pub(crate) fn tables_fill_up(&self) -> Result<bool> {
        self.filling.is_due(&self.maps)
    }

    /// Begins the other window, and waits until no program writes to the one before, which is returned:
    /// 0 or 1.
    ///
    /// # Errors
    ///
    /// When the kernel's maps cannot be used.
    pub(crate) fn next_window(&mut self) -> Result<u64> {
        let before = self.control.window & 1;
        self.control.window += 1;
        self.write_control()?;
        self.filling.changed(&self.maps)?;
        self.grace.wait()?;
        Ok(before)
    }

    /// Lets every file that is blocked on from now on send its name again.
    ///
    /// # Errors
    ///
    /// When the kernel's map cannot be written.
    pub(crate) fn name_files_again(&mut self) -> Result<()> {
        self.control.file_period += 1;
        self.write_control()
    }

    /// Reads what the kernel has added up and lost since the start, and takes out what was added up per
    /// stack in a window that is over. While tracing, a total may be read in the middle of a change; the
    /// next read has it whole.
    ///
    /// # Errors
    ///
    /// When a map cannot be used.
    pub(crate) fn take_sums(&self, request_types: usize, window: u64) -> Result<Sums> {
        Sums::take(
            &self.maps,
            request_types,
            window,
            &self.plans,
            &self.forgotten,
        )
    }

    /// Stacks that open requests refer to.
    ///
    /// # Errors
    ///
    /// When a map cannot be read.
    pub(crate) fn stacks_in_use(&self) -> Result<Vec<StackId>> {
        open::stacks(self.maps.map("THREADS")?, self.maps.map("PARKED")?)
    }

    /// Files that open requests blocked on, or are blocked on.
    ///
    /// # Errors
    ///
    /// When a map cannot be read.
    pub(crate) fn files_in_use(&self) -> Result<Vec<FileId>> {
        open::files(self.maps.map("THREADS")?, self.maps.map("PARKED")?)
    }

    /// Requests that are open now, while tracing: at most `most`, those that began first, and how many there
    /// are.
    ///
    /// # Errors
    ///
    /// When a map cannot be read.
    pub(crate) fn running(&self, now_ns: u64, most: usize) -> Result<(Vec<Running>, usize)> {
        let (keys, parked) = (self.maps.map("KEYS")?, self.maps.map("PARKED")?);
        open::running(self.maps.map("THREADS")?, keys, parked, now_ns, most)
    }
}
