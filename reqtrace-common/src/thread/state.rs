//! A thread: switch-out, waking and switch-in in; closed off-CPU intervals out.

use super::Units;
use crate::clocks::Clocks;
use crate::record::{
    BlockSite, FILE_NONE, LastRun, STACK_NONE, StackId, WakerRecord, waker_context, waker_is,
};

/// Where a thread is, as far as it was seen.
pub mod phase {
    /// On a CPU, or nobody looks.
    pub const ON_CPU: u32 = 0;
    /// Switched out because it waits.
    pub const BLOCKED: u32 = 1;
    /// Switched out while runnable.
    pub const PREEMPTED: u32 = 2;
}

/// What is known of a thread.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThreadState {
    /// One of [`phase`]. This and the next lie in the cache line of the table's own key.
    pub phase: u32,
    /// Number of switch-outs seen in requests: end reads it around its clock.
    pub switches: u32,
    /// Process id, in the initial PID namespace.
    pub tgid: u32,
    /// Thread id, in the initial PID namespace.
    pub tid: u32,
    /// How often the process had called exec since tracing began.
    pub exec_generation: u32,
    /// The task's state at the last switch-out, flags included; 0 when it was preempted.
    pub out_state: u32,
    /// Where the open interval is; meaningful in [`phase::BLOCKED`] and [`phase::PREEMPTED`].
    pub open_site: BlockSite,
    /// When it was switched out.
    pub out_ns: u64,
    /// When it was last woken, 0 if never.
    pub wake_ns: u64,
    /// Who woke it then.
    pub waker: WakerRecord,
    /// Since when it is a helper, 0 when it is none.
    pub helper_ns: u64,
    /// When it last woke a thread that is looked at, as a helper; or since when it is watched without that.
    pub needed_ns: u64,
    /// The futex that it waits on, in an open interval; otherwise 0.
    pub futex: u64,
    /// One of [`crate::futex::holder_is`], of that futex.
    pub holder_is: u32,
    /// The thread that holds the lock, as it was when the wait began, by its number in its own PID
    /// namespace.
    pub holder: u32,
    /// Address of its last page fault, and where its code was then; 0 when none was seen. With blame.
    pub fault: Fault,
    /// Bytes that the call asks for that it is blocked in, unless it had been blocked in that call before.
    pub bytes: u64,
    /// The last call with a size that it was blocked in: a hash of its arguments and of its place in the file.
    pub call: u64,
    /// How many of its intervals were closed, with blame.
    pub sequence: u32,
    /// Odd while the scheduler's programs change the thread, and another number afterwards.
    pub version: u32,
    /// [`crate::config::Process::inherited`] of the process, as it was when the thread was first seen.
    pub inherited: u64,
    /// Since when the request was parked that the thread goes on with at a marker, `CLOCK_MONOTONIC` nanoseconds.
    pub parked_since_ns: u64,
    /// Until when; 0: it goes on with none.
    pub parked_until_ns: u64,
    /// What it ran last, with blame.
    pub ran: LastRun,
    /// Since when it is in the queue that it waits in for a CPU, unless it was woken later; with blame.
    pub queued_ns: u64,
    /// What the kernel had counted then of its cgroup on that CPU: nanoseconds in which the limit let none of it run.
    pub limit_ns: u64,
    /// The CPU that it left, or that it was moved to since.
    pub queued_on: u32,
    /// 1: it left its CPU because of its cgroup's limit.
    pub limited: u32,
    /// [`Self::sequence`] at [`Self::needed_ns`].
    pub needed_sequence: u32,
    /// 1: its entry is one of those of threads that had woken nobody yet.
    pub is_counted: u32,
    /// The units of a runtime that it runs, one inside the other, if another thread has its place: see [`crate::passed::place`].
    pub units: Units,
    /// User stack from which it made a request ready that was parked; with blame.
    pub wakes_from: StackId,
    /// The clocks of its CPU when it last went on with its request, with `--interrupts`.
    pub clocks: Clocks,
    /// 1: it has gone on with a request since they were last added up.
    pub is_clocked: u64,
}

/// A closed off-CPU interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interval {
    /// Waited, then queued for a CPU.
    Block {
        /// Nanoseconds until the wakeup.
        blocked_ns: u64,
        /// Nanoseconds from the wakeup on.
        run_queue_ns: u64,
    },
    /// Switched out while runnable.
    Preempted {
        /// Nanoseconds.
        preempted_ns: u64,
    },
}

impl Interval {
    /// What a thread is off its CPU for, from when it was switched out until now: of a thread in this [`phase`], that
    /// was last woken then.
    #[must_use]
    #[inline]
    pub const fn of(was: u32, out_ns: u64, wake_ns: u64, now: u64) -> Self {
        let total = now.saturating_sub(out_ns);
        if was != phase::BLOCKED {
            return Self::Preempted {
                preempted_ns: total,
            };
        }
        // A waking before the switch-out is either a stale one, or one that raced with the switch: in both cases
        // no time was spent waiting for it.
        let waited = wake_ns.saturating_sub(out_ns);
        let blocked_ns = if waited < total { waited } else { total };
        Self::Block {
            blocked_ns,
            run_queue_ns: total - blocked_ns,
        }
    }
}

/// A page fault of a thread in user code.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What it wanted to read or write.
    pub address: u64,
    /// Its instruction pointer.
    pub pc: u64,
    /// Its stack pointer.
    pub sp: u64,
}

impl Fault {
    /// None was seen.
    pub const NONE: Self = Self {
        address: 0,
        pc: 0,
        sp: 0,
    };
}

/// What `switch_in` found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Where the thread was switched out.
    pub site: BlockSite,
    /// When, `CLOCK_MONOTONIC` nanoseconds.
    pub start_ns: u64,
    /// For how long and why.
    pub interval: Interval,
    /// Whether somebody was seen to wake it: then [`ThreadState::waker`] did.
    pub woken: bool,
}

impl ThreadState {
    /// A thread of which nothing was seen.
    pub(super) const ZERO: Self = Self {
        open_site: BlockSite {
            kernel_stack: 0,
            user_stack: 0,
            syscall: 0,
            file: FILE_NONE,
        },
        out_ns: 0,
        wake_ns: 0,
        waker: WakerRecord {
            tid: 0,
            tgid: 0,
            context: waker_context::UNKNOWN,
            is: waker_is::UNKNOWN,
            since_ns: 0,
            stack: 0,
            request_type: 0,
            exec_generation: 0,
        },
        helper_ns: 0,
        needed_ns: 0,
        futex: 0,
        holder_is: 0,
        holder: 0,
        fault: Fault::NONE,
        bytes: 0,
        call: 0,
        sequence: 0,
        version: 0,
        phase: phase::ON_CPU,
        switches: 0,
        tgid: 0,
        tid: 0,
        exec_generation: 0,
        out_state: 0,
        inherited: 0,
        parked_since_ns: 0,
        parked_until_ns: 0,
        ran: LastRun::NONE,
        queued_ns: 0,
        limit_ns: 0,
        queued_on: 0,
        limited: 0,
        needed_sequence: 0,
        is_counted: 0,
        units: Units::NONE,
        wakes_from: STACK_NONE,
        clocks: Clocks::ZERO,
        is_clocked: 0,
    };

    /// Whether the thread is off its CPU as far as is known. Where it does something itself (it
    /// leaves a CPU, it ends a request), its switch-in went unseen: Linux 6.18 with patches that
    /// keep some processes' switches from tracepoints was seen to do that to whoever came next.
    #[must_use]
    #[inline]
    pub const fn is_off_cpu(&self) -> bool {
        matches!(self.phase, phase::BLOCKED | phase::PREEMPTED)
    }

    /// The thread leaves its CPU. `preempted` is the preempt flag of `sched_switch`, `prev_state`
    /// its state; flags in it (`TASK_FREEZABLE`, 6.1) only occur together with a sleep state.
    #[inline]
    pub fn switch_out(&mut self, now: u64, preempted: bool, prev_state: u32, site: BlockSite) {
        self.switches = self.switches.wrapping_add(1);
        self.out_ns = now;
        self.open_site = site;
        if is_preemption(preempted, prev_state) {
            self.phase = phase::PREEMPTED;
            self.out_state = 0;
        } else {
            self.phase = phase::BLOCKED;
            self.out_state = prev_state;
        }
    }

    /// Somebody wakes the thread.
    #[inline]
    pub fn waking(&mut self, now: u64, waker: &WakerRecord) {
        self.waker = *waker;
        self.wake_ns = now;
    }

    /// The thread that woke it and its process; zeros when it was an interrupt, or is not known.
    #[must_use]
    #[inline]
    pub const fn waking_thread(&self) -> (u32, u32) {
        if self.waker.context == waker_context::TASK {
            (self.waker.tid, self.waker.tgid)
        } else {
            (0, 0)
        }
    }

    /// The thread gets a CPU: closes the open interval, if there is one.
    #[inline]
    pub fn switch_in(&mut self, now: u64) -> Option<Closed> {
        let was = self.phase;
        if was != phase::BLOCKED && was != phase::PREEMPTED {
            return None;
        }
        self.phase = phase::ON_CPU;
        Some(Closed {
            site: self.open_site,
            start_ns: self.out_ns,
            interval: Interval::of(was, self.out_ns, self.wake_ns, now),
            woken: was == phase::BLOCKED && self.wake_ns > self.out_ns,
        })
    }
}

/// Whether a switch-out is a preemption: the flag of `sched_switch` wins, then a state of 0
/// (`TASK_RUNNING`) means that the thread gave up its CPU while runnable.
#[must_use]
#[inline]
pub const fn is_preemption(preempted: bool, prev_state: u32) -> bool {
    preempted || prev_state == 0
}
