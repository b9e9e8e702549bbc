//! Rows: what outputs are given while a trace runs, one request or interval at a time.

use reqtrace_base::plain::Plain;
use reqtrace_common::record::StackId;
use reqtrace_recording::Incomplete;

use super::{Ledger, Module, StackLine, blame};
use crate::cells::Cell;

/// One row of `requests.csv`, all names known.
#[derive(Clone, Debug)]
pub struct RequestRow<'a> {
    /// Unique in the trace, from 1 on, in the order in which requests were seen to end.
    pub id: u64,
    /// Where it was recorded.
    pub origin: Origin<'a>,
    /// Begin in nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// Begin in nanoseconds since the start of the trace, whatever was done to the wall clock; below 0 before it.
    pub since_start_ns: i64,
    /// Request type.
    pub request: &'a str,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Name of the thread.
    pub comm: &'a Plain,
    /// Label, empty when none was recorded.
    pub label: &'a Plain,
    /// What it was about, in the order of [`super::Report::attributes`]; empty texts for what was not read.
    pub attributes: &'a [Plain],
    /// The ledger.
    pub ledger: &'a Ledger,
    /// Number of blocks.
    pub blocks: u32,
    /// Number of preemptions.
    pub preemptions: u32,
    /// Why it is incomplete, if it is.
    pub incomplete: Option<Incomplete>,
    /// How many requests it stands for.
    pub weight: u32,
    /// Whether it took longer than is wanted; `None`: there is no such limit.
    pub slow: Option<bool>,
    /// How long its data had been waiting when it began, ns; `None`: not known.
    pub waited_before_ns: Option<u64>,
    /// What took its CPU from it; `None` unless that was recorded.
    pub lost: Option<super::LostCpu>,
    /// Whether it is known by a key, and changes threads.
    pub is_keyed: bool,
    /// Its blocked and parked time by root cause; `None` when the trace has no blame.
    pub causes: Option<blame::Causes>,
    /// Other requests that held it up, each once; empty unless an output asks for them, see
    /// [`super::Exporter::wants_blames_of`].
    pub blames: &'a [RequestKey],
    /// Why its row is there while those of others are not; `None`: rows were not chosen.
    pub kept: Option<KeptFor>,
}

impl RequestRow<'_> {
    /// What others call it that were held up by it.
    #[must_use]
    pub fn key(&self) -> RequestKey {
        RequestKey {
            pid: self.pid,
            tid: if self.is_keyed { 0 } else { self.tid },
            since_start_ns: self.since_start_ns,
        }
    }
}

/// A request, also one whose record has not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestKey {
    /// Process.
    pub pid: u32,
    /// Thread; 0 of one that changes threads.
    pub tid: u32,
    /// Begin in nanoseconds since the start of the trace.
    pub since_start_ns: i64,
}

/// Why a row is kept.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub enum KeptFor {
    /// Its request took longer than is wanted.
    Slow,
    /// The end of its request was not seen.
    Incomplete,
    /// Its request held up one that is slow or incomplete.
    Blamed,
    /// By chance.
    Drawn,
}

impl KeptFor {
    /// As files have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Incomplete => "incomplete",
            Self::Blamed => "blamed",
            Self::Drawn => "drawn",
        }
    }
}

/// Where a request was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin<'a> {
    /// Name of the machine.
    pub host: &'a str,
    /// Name of its type's profile.
    pub service: &'a str,
    /// Build id of the file in which it begins; `None`: not known yet.
    pub build_id: Option<&'a str>,
}

/// One row of `windows.csv`: requests of one type that ended in a window of time, when nothing in it changes any more.
#[derive(Clone, Copy, Debug)]
pub struct WindowRow<'a> {
    /// Begin in nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// A second, or less where the wall clock was set, ns.
    pub length_ns: u64,
    /// Request type.
    pub request: &'a str,
    /// The complete requests.
    pub cell: &'a Cell,
    /// How many are incomplete.
    pub incomplete: u64,
    /// Whether root causes are known.
    pub has_causes: bool,
    /// Build id of the file in which they begin; `None`: not known yet.
    pub build_id: Option<&'a str>,
}

/// Complete requests of one type and group that ended in a window of time, when nothing in it changes any more.
#[derive(Clone, Copy, Debug)]
pub struct GroupRow<'a> {
    /// Begin of the window in nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// Request type.
    pub request: &'a str,
    /// What they have in common; `None`: others, of which there were too many to distinguish.
    pub group: Option<&'a str>,
    /// Their sums.
    pub cell: &'a Cell,
}

/// Where complete requests of one type were off the CPU, by stack, that ended in a period of time. Σ of the stacks is what the
/// cells of that period have of run queue, preempted, blocked, unattributed, parked and queued time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StacksRow {
    /// Begin of the period in nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// Its length, also where a part of it was traced, ns.
    pub length_ns: u64,
    /// Request type.
    pub request: String,
    /// Complete requests that were recorded.
    pub recorded: u64,
    /// How many they stand for: all times are of these.
    pub requests: u64,
    /// Incomplete ones, which are in no time.
    pub incomplete: u64,
    /// Σ of their latencies.
    pub latency_ns: u64,
    /// What of it was on a CPU, which is in no stack.
    pub on_cpu_ns: u64,
    /// The rest, the most time first. Counts of lines are of places in requests, of which one may have several that read alike.
    pub stacks: Vec<StackLine>,
    /// The files of their functions, and those of other types in this period.
    pub modules: Vec<Module>,
}

/// One row of `intervals.csv`: when a request was off the CPU.
#[derive(Clone, Debug)]
pub struct IntervalRow<'a> {
    /// The request, as in `requests.csv`.
    pub request_id: u64,
    /// Request type.
    pub request: &'a str,
    /// Latency of the request, ns.
    pub latency_ns: u64,
    /// Process.
    pub pid: u32,
    /// Thread; of a parked or queued request the one that ran it before.
    pub tid: u32,
    /// Whether the request is known by a key, and changes threads.
    pub is_keyed: bool,
    /// What it was.
    pub kind: IntervalKind,
    /// Name of the wait class; empty for a preemption, and when the stack was lost. Of a parked or queued request
    /// the name of its place, empty where it has none.
    pub class: &'a str,
    /// Switch-out in nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// Blocked, preempted or parked, ns.
    pub off_ns: u64,
    /// Runnable after the wakeup, or queued, ns.
    pub run_queue_ns: u64,
    /// Who ended the wait; `None` for a preemption, and of a queued request.
    pub waker: Option<IntervalWaker>,
    /// Name of the thread that ended the wait; empty when it was none, or is not known.
    pub waker_comm: &'a str,
    /// Address of the futex that it waited on; 0 for other waits.
    pub futex: u64,
    /// The thread that held the lock when the wait began; 0 when that is not known.
    pub holder_tid: u32,
    /// The request that it was in; 0 for none, and when its record had not come.
    pub holder_request_id: u64,
    /// Ids of its stacks, as in the recording.
    pub user_stack: StackId,
    /// The kernel's.
    pub kernel_stack: StackId,
    /// The frames that say most, innermost first.
    pub place: &'a str,
}

/// What a request did in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntervalKind {
    /// Its thread waited.
    Blocked,
    /// Another had its thread's CPU.
    Preempted,
    /// No thread ran it, and it waited for an event.
    Parked,
    /// No thread ran it, and it waited for a thread.
    Queued,
}

/// Who ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntervalWaker {
    /// An interrupt of this kind.
    Interrupt(blame::Cause),
    /// A thread.
    Thread {
        /// Its process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// Whether it served a request.
        in_request: bool,
        /// Which; 0 when the record of that had not come 200 ms after the end of the request that waited.
        request_id: u64,
    },
    /// Not known.
    Unknown,
}
