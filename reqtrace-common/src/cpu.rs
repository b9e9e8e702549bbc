//! Who runs on a CPU while a watched thread waits for it, with blame.

use crate::limits::COMM_LEN;

/// Runs of each CPU that are remembered, 40 bytes each: a power of two. A wait that saw more switches knows
/// the last of them.
pub const MAX_RUNS: usize = 128;

/// Processes that one wait names: those that ran longest.
pub const MAX_RUNNERS: usize = 8;

/// Waits below this are not looked at, ns: the scheduler gives no slice that is shorter, so they are the way to a CPU
/// and not a wait behind somebody.
pub const SHORT_WAIT_NS: u64 = 200_000;

/// A thread has a CPU, since then until the next run begins.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// `CLOCK_MONOTONIC` nanoseconds; 0: there was none yet.
    pub since_ns: u64,
    /// Process; 0: the CPU is idle. This and what follows [`Self::tid`] is known when the run is over.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// The kernel's number of its policy, such as 1 for `SCHED_FIFO`.
    pub policy: u32,
    /// The kernel's priority: 100 and more are 120 and the nice value, below is real time, 0 first.
    pub priority: u32,
    /// Name of the thread, padded with NUL.
    pub comm: [u8; COMM_LEN],
}

/// The last runs of one CPU. Only that CPU writes, with its run queue's lock held; who holds that lock may read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Runs {
    /// How many there were: where the next one goes, after a mask.
    pub next: u64,
    /// Address of the `task_struct` of the last one, which goes on.
    pub current: u64,
    /// A ring of them.
    pub runs: [Run; MAX_RUNS],
}

/// What the threads of one process had of a CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunnerRecord {
    /// Process; 0: the CPU was idle.
    pub tgid: u32,
    /// Its thread with the longest run.
    pub tid: u32,
    /// [`Run::policy`] of that thread.
    pub policy: u32,
    /// [`Run::priority`] of that thread.
    pub priority: u32,
    /// Nanoseconds of all its threads.
    pub ns: u64,
    /// The longest run, ns.
    pub longest_ns: u64,
    /// Name of that thread, padded with NUL.
    pub comm: [u8; COMM_LEN],
}

/// A watched thread was runnable, and waited in the queue of one CPU.
///
/// The kernel sends a prefix: up to the last used entry of `runners`. It comes before the interval that it lies in.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuWaitRecord {
    /// [`crate::record::kind::CPU_WAIT`].
    pub kind: u32,
    /// Process id, in the initial PID namespace.
    pub tgid: u32,
    /// Thread id, in the initial PID namespace.
    pub tid: u32,
    /// The CPU.
    pub cpu: u32,
    /// Since when, `CLOCK_MONOTONIC` nanoseconds.
    pub from_ns: u64,
    /// Until when: it had that CPU, or was moved to another one's queue.
    pub until_ns: u64,
    /// Nanoseconds of these in which the CPU limit of its cgroup kept it from running. Then nobody is named.
    pub limited_ns: u64,
    /// Used entries of `runners`.
    pub used: u32,
    /// Always 0.
    pub pad: u32,
    /// Who ran meanwhile. What is missing to the whole time is not known.
    pub runners: [RunnerRecord; MAX_RUNNERS],
}
