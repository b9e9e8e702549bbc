//! The model: what a trace found out. Each output takes it through the trait [`Exporter`].

pub mod blame;
mod disk;
mod labels;
mod ledger;
mod on_cpu;
pub mod page;
pub mod palette;
mod places;
mod rows;
pub mod slow;
mod taken;
mod trace;
pub mod verdict;

use std::sync::Arc;

use reqtrace_base::plain::Plain;

use crate::error::Result;

pub(crate) use labels::OfText;
pub use labels::{Grouping, LabelGroup, LabelGroups};
pub use ledger::Ledger;
pub use on_cpu::{HotFunction, NOT_SAMPLED, OnCpu, OnCpuType};
pub use places::Places;
pub use reqtrace_recording::{
    Incomplete, LateChildren, Overhead, ProgramCost, ShedSpan, Untraced, WalkCost,
};
pub use rows::{
    GroupRow, IntervalKind, IntervalRow, IntervalWaker, KeptFor, Origin, RequestKey, RequestRow,
    StacksRow, WindowRow,
};
pub use taken::{CpuTaken, TakerKind, TakerName};
pub use trace::{MarkerInfo, TraceInfo};

/// One output. Made before tracing starts, so that a bad path fails in the first second.
pub trait Exporter {
    /// Takes one finished request, in order of its end. Most formats need only the report.
    ///
    /// # Errors
    ///
    /// When the output cannot be written.
    fn request(&mut self, _row: &RequestRow<'_>) -> Result<()> {
        Ok(())
    }

    /// Whether [`Exporter::request`] does anything.
    fn wants_requests(&self) -> bool {
        false
    }

    /// Whether [`RequestRow::blames`] is wanted of a request that took so long, ns.
    fn wants_blames_of(&self, _latency_ns: u64, _is_complete: bool) -> bool {
        false
    }

    /// Takes one interval of a request that comes next, in order of their begin. Only traces with blame
    /// have any.
    ///
    /// # Errors
    ///
    /// When the output cannot be written.
    fn interval(&mut self, _row: &IntervalRow<'_>) -> Result<()> {
        Ok(())
    }

    /// Whether [`Exporter::interval`] does anything.
    fn wants_intervals(&self) -> bool {
        false
    }

    /// Whether it does with a request that took so long, ns.
    fn wants_intervals_of(&self, _latency_ns: u64) -> bool {
        self.wants_intervals()
    }

    /// Takes the requests of one type in a window of time that is over, in the order of windows.
    ///
    /// # Errors
    ///
    /// When the output cannot be written.
    fn window(&mut self, _row: &WindowRow<'_>) -> Result<()> {
        Ok(())
    }

    /// Takes the requests of one type and group in a window of time that is over, in the order of windows. They come only
    /// when they are asked for.
    ///
    /// # Errors
    ///
    /// When the output cannot be written.
    fn group(&mut self, _row: &GroupRow<'_>) -> Result<()> {
        Ok(())
    }

    /// Takes where the requests of one type were off the CPU in a period that is over. They come only when they are asked for.
    ///
    /// # Errors
    ///
    /// When the output cannot be written.
    fn stacks(&mut self, _row: &Arc<StacksRow>) -> Result<()> {
        Ok(())
    }

    /// Whether [`Exporter::window`] does anything.
    fn wants_windows(&self) -> bool {
        false
    }

    /// Whether it takes [`Report::page`].
    fn wants_page(&self) -> bool {
        false
    }

    /// What was left out of it on purpose, or because nobody took it in time.
    fn left_out(&self) -> Vec<LossLine> {
        Vec::new()
    }

    /// Takes the report and completes the output.
    ///
    /// # Errors
    ///
    /// When the output cannot be written.
    fn finish(&mut self, report: &Report) -> Result<()>;
}

/// Everything a trace found out.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What was traced, when, where.
    pub trace: TraceInfo,
    /// Names of all wait classes, the profile's named waits first, then the built-in ones: the
    /// order of every ledger and of the CSV's columns.
    pub classes: Vec<String>,
    /// How many of `classes` are the profile's named waits.
    pub named_waits: usize,
    /// Where requests are while no thread runs them.
    pub places: Places,
    /// Names of all attributes, of all request types: the order of [`RequestRow::attributes`].
    pub attributes: Vec<String>,
    /// One entry per request type, in profile order.
    pub requests: Vec<TypeReport>,
    /// Requests by label, one entry per request type; empty without `--group-by`.
    pub labels: Vec<LabelGroups>,
    /// Because of whom requests were blocked; `None` when the trace has no blame.
    pub blame: Option<blame::Blame>,
    /// Why slow requests were slow, three findings at most; empty without blame, and before the end of the trace.
    pub verdict: Vec<verdict::Finding>,
    /// The model of `report.html`; `None` unless an output takes it, and before the end of the trace.
    pub page: Option<Box<page::Page>>,
    /// Off-CPU stacks, those with most time first, one per distinct stack, kind and class.
    pub stacks: Vec<StackLine>,
    /// Time in which no thread ran requests, of complete ones: one line for each request type and place.
    pub away: Vec<StackLine>,
    /// What requests did on their CPUs; `None` when no samples were taken.
    pub on_cpu: Option<OnCpu>,
    /// The files that their functions are in, those with the most functions first.
    pub modules: Vec<Module>,
    /// Requests that were open when tracing stopped, the longest first.
    pub open: Vec<OpenRequest>,
    /// What was lost.
    pub losses: Vec<LossLine>,
    /// What the kernel programs cost.
    pub programs: Vec<ProgramCost>,
    /// How far user stacks were unwound.
    pub unwinding: Unwinding,
    /// Which requests it is about; `None` for all.
    pub filtered: Option<Filtered>,
    /// Why numbers of this report are wrong, and what to do. Printed before them.
    pub warnings: Vec<String>,
    /// What a user should know or do: probes never hit, begins without ends, ….
    pub hints: Vec<String>,
}

/// A report about some of the requests of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filtered {
    /// Which ones: `requests of type `command`, pid 4711`.
    pub which: String,
    /// How many of them were recorded.
    pub kept: u64,
    /// How many others were recorded.
    pub left_out: u64,
    /// Off-CPU time of the requests that is in no stack, ns: on the run queue and preempted.
    pub without_stack_ns: u64,
}

/// One request type.
#[derive(Clone, Debug, Default)]
pub struct TypeReport {
    /// Its name.
    pub name: String,
    /// Complete requests, counted in the kernel: exact, or an estimate when requests were sampled.
    pub count: u64,
    /// Complete requests, exact whatever was sampled.
    pub exact_count: u64,
    /// Complete requests that were recorded.
    pub recorded: u64,
    /// Of these, those whose record was sent: all but with `--keep-slow`.
    pub sent: u64,
    /// Complete requests whose record arrived: what the CSV has as `complete=true`.
    pub rows: u64,
    /// All of it is from rows that stand for more than themselves: of a filtered trace, or a part of one.
    pub is_estimate: bool,
    /// Incomplete requests by reason.
    pub incomplete: Vec<(Incomplete, u64)>,
    /// Latency of complete requests; `None` when there was none.
    pub latency: Option<Latency>,
    /// Sum of the ledgers of complete requests.
    pub ledger: Ledger,
    /// Whether the split of blocked time by class is from the records of all complete requests.
    /// False when records were lost or withheld: then it is estimated from the sums per stack, and still adds
    /// up to the exact blocked time.
    pub classes_exact: bool,
    /// Typical and slow requests side by side; `None` when there are few, or all are alike.
    pub slow: Option<slow::SlowRequests>,
    /// Lengths of blocks, when they were asked for; incomplete requests included.
    pub lengths: Vec<LengthCounts>,
    /// Files that they were blocked on, the most time first; incomplete requests included. The empty path
    /// stands for all others.
    pub files: Vec<FileLine>,
    /// Counter: begin markers hit.
    pub begins: u64,
    /// Counter: end markers hit.
    pub ends: u64,
    /// Counter: begins inside a request of the same type.
    pub nested: u64,
    /// Counter: begins left out because another type's request was open.
    pub other_type: u64,
    /// Counter: ends with no request open, but for the first marker of a thread born in the trace.
    pub ends_without_begin: u64,
    /// Whether its requests are known by a key.
    pub is_keyed: bool,
    /// Whether its profile leaves begins inside of a request out: `reentry = "ignore"`.
    pub ignores_inner: bool,
    /// Whether it has a key, and nearly all of its requests began right after the end of another one in the same thread.
    pub ends_with_next: bool,
    /// Counter: resumes, readies, adoptions and ends with a key that no request has.
    pub unknown_keys: u64,
    /// Counter: the same with a key whose request another thread runs.
    pub running_elsewhere: u64,
    /// Counter: units of its runtime that its recorded requests have made, and that are none of its requests. What those do
    /// is not theirs. `None` where they were not counted.
    pub children: Option<u64>,
    /// How long their data had been waiting when they began; `None` unless that was recorded.
    pub waited_before: Option<WaitedBefore>,
    /// CPU time of the complete requests whose records arrived that went elsewhere; `None` unless that was recorded.
    pub lost: Option<LostOfType>,
}

/// What the complete requests of a type lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct LostOfType {
    /// Those whose records arrived; with `--sample` all that they stand for.
    pub requests: u64,
    /// Σ of them.
    #[serde(flatten)]
    pub lost: LostCpu,
}

/// CPU time that went elsewhere while requests ran, ns: a part of their time on CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct LostCpu {
    /// To interrupts.
    pub interrupts_ns: u64,
    /// To softirqs, also those that their threads ran by themselves.
    pub softirqs_ns: u64,
    /// To what the hypervisor ran; `None`: it does not say.
    pub steal_ns: Option<u64>,
}

/// How long the data of complete requests had been waiting at their sockets when they began: no part of their
/// latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct WaitedBefore {
    /// Complete requests whose records arrived; with `--sample` all that they stand for.
    pub requests: u64,
    /// Those of which it is known. Everything below is about these.
    pub known: u64,
    /// Arithmetic mean in nanoseconds, rounded down.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Exact maximum.
    pub max_ns: u64,
}

impl TypeReport {
    /// Whether only a part of the requests was recorded, so that counts and sums are estimates.
    #[must_use]
    pub const fn is_sampled(&self) -> bool {
        self.recorded < self.exact_count
    }

    /// Complete requests: exact, unless there is only an estimate.
    #[must_use]
    pub const fn best_count(&self) -> u64 {
        if self.is_estimate {
            self.count
        } else {
            self.exact_count
        }
    }
}

/// A file that requests of one type were blocked on, through a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLine {
    /// Its path; empty for all others, because there were too many.
    pub path: String,
    /// Blocks. `None` where stacks come from the requests' records: these have the sum of all blocks at a place.
    pub blocks: Option<u64>,
    /// Nanoseconds blocked.
    pub ns: u64,
    /// Nanoseconds on the run queue after these blocks. `None` there.
    pub run_queue_ns: Option<u64>,
    /// The longest that one was blocked, ns; with its time on the run queue if `longest_run_queue_ns` is not known.
    /// `None` there.
    pub longest_ns: Option<u64>,
    /// The longest that one was on the run queue after a block, ns. `None` there, and in older recordings.
    pub longest_run_queue_ns: Option<u64>,
    /// Bytes that the blocked calls have asked for, each call once: `read`, `write`, `pread64` and `pwrite64`. 0
    /// for other calls, for page faults, and where stacks come from the requests' records.
    pub bytes: u64,
}

/// How long the blocks of one wait class were, from switch-out to switch-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LengthCounts {
    /// The wait class, `unattributed`, or `preempted`.
    pub name: String,
    /// Intervals by powers of two of microseconds, see [`reqtrace_common::filter::least_us`].
    pub counts: Vec<u64>,
}

/// Latency in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Arithmetic mean, rounded down.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 95th percentile.
    pub p95_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Exact maximum.
    pub max_ns: u64,
    /// False when records were lost or withheld, and percentiles come from the kernel's histogram (6 % wide).
    pub from_records: bool,
}

/// The frame of blocked time whose stack was not taken, since tracing would have been too dear.
pub const STACK_NOT_TAKEN: &str = "[stack not taken]";

/// Time of one stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackLine {
    /// Name of the process.
    pub comm: Plain,
    /// Request type.
    pub request: String,
    /// User frames, outermost first.
    pub user: Vec<String>,
    /// Kernel frames, outermost first.
    pub kernel: Vec<String>,
    /// What the time is.
    pub kind: StackKind,
    /// Wait class of blocked time: an index into [`Report::classes`]. Of parked and queued time its place: an
    /// index into [`Places::parked`], or [`Places::queued`].
    pub class: Option<usize>,
    /// Nanoseconds.
    pub ns: u64,
    /// Number of intervals.
    pub count: u64,
    /// The longest of these times, ns. In older recordings a block and its time on the run queue are one.
    pub longest_ns: u64,
}

/// A file, and the functions of [`Report::stacks`] that are in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Its path as the process sees it, `[vdso]` and the like, or `[kernel.kallsyms]`.
    pub path: String,
    /// Its build id; empty when it has none, or when it is not known.
    pub build_id: Vec<u8>,
    /// Names of functions as stacks have them, sorted. A name that several files have is in none.
    pub functions: Vec<String>,
}

/// What the time of a stack is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StackKind {
    /// Blocked.
    Blocked,
    /// On the run queue after a block here; folded with a top frame `[run queue]`.
    RunQueue,
    /// Preempted here, or anywhere when its stacks were not recorded; folded with a top frame
    /// `[preempted]`.
    Preempted,
    /// On a CPU, by samples.
    OnCpu,
    /// No thread ran it, and it waited for an event; the only frame says so.
    Parked,
    /// No thread ran it, and it waited for a thread; the only frame says so.
    Queued,
}

/// A request that was open when tracing stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    /// Request type.
    pub request: String,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Name of the thread.
    pub comm: Plain,
    /// Label; empty when none was recorded.
    pub label: Plain,
    /// Nanoseconds since its begin.
    pub running_ns: u64,
    /// For a blocked one: for how long, in which class, user and kernel frames innermost first.
    pub blocked: Option<OpenBlock>,
    /// Of one that no thread runs: where it is, such as `parked: upstream`, and for how many nanoseconds.
    pub place: Option<(String, u64)>,
}

/// Where an open request is blocked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenBlock {
    /// Nanoseconds since the switch-out.
    pub for_ns: u64,
    /// Name of the wait class.
    pub class: String,
    /// User frames, innermost first.
    pub user: Vec<String>,
    /// Kernel frames, innermost first.
    pub kernel: Vec<String>,
}

/// How far user stacks were unwound: nanoseconds blocked or preempted in them.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Unwinding {
    /// Unwound to the thread's outermost function.
    pub whole_ns: u64,
    /// Walked by frame pointers, which cannot tell whether the walk was right.
    pub frame_pointers_ns: u64,
    /// Part of these that is one frame deep.
    pub shallow_ns: u64,
    /// Ended early, by reason.
    pub truncated: Vec<(String, u64)>,
    /// What walking them took; `None` unless it was counted.
    pub walks: Option<WalkCost>,
}

impl Unwinding {
    /// Time in truncated stacks, ns.
    #[must_use]
    pub fn truncated_ns(&self) -> u64 {
        self.truncated.iter().map(|(_, ns)| ns).sum()
    }

    /// Time in all stacks, ns.
    #[must_use]
    pub fn all_ns(&self) -> u64 {
        self.whole_ns + self.frame_pointers_ns + self.truncated_ns()
    }
}

/// Something that was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossLine {
    /// Stable name, as in `summary.json`.
    pub name: String,
    /// How often.
    pub count: u64,
    /// What it means for the report, and what to do about it.
    pub advice: String,
}
