//! Waits for a CPU, and who had it.

use serde::{Deserialize, Serialize};

use super::{AddressSpace, Comm};

/// A thread was runnable and waited in the queue of one CPU: one of those of which all intervals are recorded. Only
/// traces with blame have these, and only of waits that were not short
/// ([`reqtrace_common::cpu::SHORT_WAIT_NS`]).
///
/// It comes before the interval that it lies in. An interval has several where its thread was moved to another queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuWait {
    /// The process.
    pub space: AddressSpace,
    /// The thread.
    pub tid: u32,
    /// The CPU.
    pub cpu: u32,
    /// Since when, `CLOCK_MONOTONIC` ns.
    pub from_ns: u64,
    /// Until when, `CLOCK_MONOTONIC` ns.
    pub until_ns: u64,
    /// Nanoseconds of these in which the limit of a cgroup kept the thread from running. Then there are no `runners`.
    pub limited_ns: u64,
    /// That cgroup; empty where there is no limit, or where it is not known.
    pub cgroup: String,
    /// Who ran on that CPU meanwhile, each process once. What is missing to the whole time is not known.
    pub runners: Vec<Runner>,
}

/// What threads of one process had of a CPU while another waited for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runner {
    /// The process; 0: the CPU was idle.
    pub tgid: u32,
    /// Its thread with the longest run.
    pub tid: u32,
    /// The kernel's number of that thread's policy.
    pub policy: u32,
    /// The kernel's priority of that thread.
    pub priority: u32,
    /// Name of that thread.
    pub comm: Comm,
    /// Nanoseconds of all its threads.
    pub ns: u64,
}
