//! Decode: bytes of the ring buffer and entries of the maps in, checked plain types out.

mod label;
pub mod recording;
pub mod records;

use std::collections::HashMap;

use reqtrace_common::filter::LengthHistogram;
use reqtrace_common::loss::Loss;
use reqtrace_common::record::{BlockSite, FileRecord, LongBlock, ProcessRecord, Slot, StackId};
use reqtrace_common::sums::{StackSum, StackSumKey, TypeTotals};
use reqtrace_common::unwind::Stop;
use serde::{Deserialize, Serialize};

use crate::symbolize::AddressSpace;

/// Where stacks are looked up by id: the kernel's map while tracing, a table in a replay.
pub trait StackSource {
    /// The addresses of a stack, innermost first; `None` when it is not known.
    fn stack(&mut self, id: StackId) -> Option<RawStack>;
}

/// A stack as the kernel stored it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawStack {
    /// Addresses, innermost first.
    pub addresses: Vec<u64>,
    /// Why the walk stopped.
    pub stop: Stop,
}

impl<S: StackSource + ?Sized> StackSource for &mut S {
    fn stack(&mut self, id: StackId) -> Option<RawStack> {
        (**self).stack(id)
    }
}

impl StackSource for HashMap<StackId, RawStack> {
    fn stack(&mut self, id: StackId) -> Option<RawStack> {
        self.get(&id).cloned()
    }
}

/// One record of the ring buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A finished request.
    Request(Box<RawRequest>),
    /// A traced process came, changed or went.
    Process(ProcessRecord),
    /// A descriptor to look up.
    File(FileRecord),
}

/// A request as the kernel told it: ids, no names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawRequest {
    /// Index of the request type.
    pub request_type: usize,
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// Exec generation of the process.
    pub exec_generation: u32,
    /// Why it is incomplete, if it is.
    pub incomplete: Option<Incomplete>,
    /// Name of the thread.
    pub comm: String,
    /// Label, empty when none was recorded.
    pub label: String,
    /// Begin, `CLOCK_MONOTONIC` ns.
    pub begin_ns: u64,
    /// End, `CLOCK_MONOTONIC` ns.
    pub end_ns: u64,
    /// Nanoseconds on the run queue.
    pub run_queue_ns: u64,
    /// Nanoseconds preempted.
    pub preempted_ns: u64,
    /// Nanoseconds blocked, the sum of `slots`.
    pub blocked_ns: u64,
    /// Nanoseconds blocked that found no slot.
    pub unattributed_ns: u64,
    /// Number of blocks.
    pub blocks: u32,
    /// Number of preemptions.
    pub preemptions: u32,
    /// How deep begins nested at most; 1 when they did not.
    pub max_depth: u32,
    /// Blocked time per site.
    pub slots: Vec<Slot>,
    /// The longest blocks, longest first.
    pub longest: Vec<LongBlock>,
    /// Where it is blocked and since when, for a request still blocked when tracing stopped.
    pub blocked_in: Option<(BlockSite, u64)>,
}

impl RawRequest {
    /// The process between two execs.
    #[must_use]
    pub fn space(&self) -> AddressSpace {
        AddressSpace {
            tgid: self.tgid,
            exec_generation: self.exec_generation,
        }
    }

    /// Nanoseconds from begin to end.
    #[must_use]
    pub fn latency_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }

    /// Nanoseconds off the CPU, whatever the reason.
    #[must_use]
    pub fn off_cpu_ns(&self) -> u64 {
        self.run_queue_ns + self.preempted_ns + self.blocked_ns + self.unattributed_ns
    }

    /// Nanoseconds on a CPU: what closes the ledger.
    #[must_use]
    pub fn on_cpu_ns(&self) -> u64 {
        self.latency_ns().saturating_sub(self.off_cpu_ns())
    }
}

/// Why a request is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Incomplete {
    /// Its end never came.
    NoEnd,
    /// Its thread died.
    ThreadDied,
    /// Its process called exec.
    Exec,
    /// It ran when tracing started.
    RunningAtStart,
    /// It ran when tracing stopped.
    RunningAtStop,
    /// It was blocked when tracing stopped.
    BlockedAtStop,
}

impl Incomplete {
    /// The word for it in the CSV's `reason` column.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::NoEnd => "no end",
            Self::ThreadDied => "thread died",
            Self::Exec => "exec",
            Self::RunningAtStart => "running at start",
            Self::RunningAtStop => "running at stop",
            Self::BlockedAtStop => "blocked at stop",
        }
    }
}

/// What the kernel's maps held when tracing stopped.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Stop time, `CLOCK_MONOTONIC` ns.
    pub stop_ns: u64,
    /// Totals per request type, in profile order.
    pub totals: Vec<TypeTotals>,
    /// Sums per stack pair.
    pub sums: Vec<(StackSumKey, StackSum)>,
    /// Lengths of intervals per stack pair, when they were asked for.
    pub histograms: Vec<(StackSumKey, LengthHistogram)>,
    /// Stored stacks, innermost frame first, addresses.
    pub stacks: HashMap<StackId, RawStack>,
    /// Requests that were open, closed at `stop_ns` as incomplete.
    pub open: Vec<RawRequest>,
    /// Counted losses; causes with a count of 0 are left out.
    pub losses: Vec<(Loss, u64)>,
    /// Cost and misses per kernel program.
    pub programs: Vec<ProgramCost>,
    /// What walking user stacks took; `None` unless it was counted.
    pub walks: Option<WalkCost>,
}

/// What walking user stacks took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalkCost {
    /// How often.
    pub walks: u64,
    /// Frames found.
    pub frames: u64,
    /// Nanoseconds in all.
    pub run_ns: u64,
    /// Nanoseconds that 999 of 1000 walks stayed below, to 1/16.
    pub p999_ns: u64,
    /// The longest, nanoseconds.
    pub max_ns: u64,
}

/// What one kernel program cost and missed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramCost {
    /// Its name.
    pub name: String,
    /// Runs; 0 when `kernel.bpf_stats_enabled` is 0.
    pub runs: u64,
    /// Nanoseconds in all; 0 when `kernel.bpf_stats_enabled` is 0.
    pub run_ns: u64,
    /// Events that the kernel skipped because the program was already running on that CPU.
    pub recursion_misses: u64,
}

/// The address space of a key of the sums per stack pair.
#[must_use]
pub fn space_of(key: &StackSumKey) -> AddressSpace {
    AddressSpace {
        tgid: key.tgid,
        exec_generation: key.exec_generation,
    }
}

/// The place of blocking of a key of the sums per stack pair.
#[must_use]
pub fn site_of(key: &StackSumKey) -> BlockSite {
    BlockSite {
        kernel_stack: key.kernel_stack,
        user_stack: key.user_stack,
        syscall: key.syscall,
        fd: key.fd,
    }
}
