//! The model of `report.html`: cells of time and latency, stacks, who held whom up, rows, and the
//! slowest requests with what happened in them.
//!
//! All times are nanoseconds; those of requests are since the start of the trace, those in a
//! [`Timeline`] since the begin of its request. Requests that are sampled count as often as their
//! weight says, but for [`Rows`] and [`SlowRequest`].

use reqtrace_base::plain::Plain;

use super::blame::{Cause, Causes, CulpritName, Reason};
use super::{Ledger, StackKind};

/// Requests that have a row; of more there are cells only.
pub const MAX_ROWS: usize = 200_000;
/// Requests that are kept with what happened in them, of all types together.
pub const MAX_SLOWEST: usize = 2_000;

/// What a page is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Length of the time that a cell stands for.
    pub column_ns: u64,
    /// Lowest latency of each row of cells, and of the row behind the last one.
    pub edges_ns: Vec<u64>,
    /// Cells that have a request, by request type, time and latency. Only complete requests are in them.
    pub cells: Vec<Cell>,
    /// Labels without their numbers and strings, or labels: the first is none, the second all others.
    pub statements: Vec<Plain>,
    /// Names of frames.
    pub frames: Vec<String>,
    /// Stacks.
    pub stacks: Vec<PageStack>,
    /// Index of the stack of on-CPU time of a type that no sample has met.
    pub not_sampled: u32,
    /// Who held whom up.
    pub holdings: Vec<Holding>,
    /// One row for each complete request; `None` when there are too many.
    pub rows: Option<Vec<PageRow>>,
    /// The slowest requests, by request type, the slowest first.
    pub slowest: Vec<SlowRequest>,
    /// Entries of cells that gave up their names because there were too many.
    pub merged: Merged,
}

/// How often names were given up on a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Stacks that are `[other stacks]`.
    pub stacks: u64,
    /// Statements that are `[other statements]`.
    pub statements: u64,
    /// Culprits that are `others`.
    pub holdings: u64,
}

/// Requests of one type, of one time and of one latency, added up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Index of the request type.
    pub request: u32,
    /// When they began, in units of [`Page::column_ns`].
    pub column: u32,
    /// Their latency: an index into [`Page::edges_ns`].
    pub row: u32,
    /// How many.
    pub count: u64,
    /// Their ledgers.
    pub ledger: Ledger,
    /// Their blocked time by root cause.
    pub causes: Causes,
    /// By stack: its index, nanoseconds. They add up to the ledger less its time on CPU.
    pub stacks: Vec<(u32, u64)>,
    /// Where they were met on a CPU: a stack's index, samples. They say how the ledger's on-CPU time is
    /// split, not how much it is.
    pub samples: Vec<(u32, u64)>,
    /// By statement, its index first.
    pub statements: Vec<(u32, StatementSum)>,
    /// By who held them up: index, nanoseconds. They add up to the blocked and parked time.
    pub holdings: Vec<(u32, u64)>,
}

/// Requests of one statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatementSum {
    /// How many.
    pub count: u64,
    /// From begin to end.
    pub latency_ns: u64,
    /// On a CPU.
    pub on_cpu_ns: u64,
    /// Blocked.
    pub blocked_ns: u64,
    /// The longest latency.
    pub max_ns: u64,
}

impl StatementSum {
    /// Adds what another one has.
    pub(crate) fn add(&mut self, more: &Self) {
        self.count += more.count;
        self.latency_ns += more.latency_ns;
        self.on_cpu_ns += more.on_cpu_ns;
        self.blocked_ns += more.blocked_ns;
        self.max_ns = self.max_ns.max(more.max_ns);
    }
}

/// A stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageStack {
    /// Indices into [`Page::frames`], outermost first; user, then kernel frames.
    pub frames: Vec<u32>,
    /// What the time is.
    pub kind: StackKind,
    /// Wait class of blocked time: an index into [`super::Report::classes`]; `None` when the stack was lost. Of
    /// parked and queued time an index into [`super::Places::parked`], or [`super::Places::queued`].
    pub class: Option<u32>,
}

/// Who held whom up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Statement of the requests that waited; empty without labels.
    pub victim: Plain,
    /// Wait class that they were blocked in, or behind all of these where they were parked; `None` when it is not known.
    pub class: Option<u32>,
    /// Who.
    pub culprit: CulpritName,
    /// What the culprit did.
    pub cause: Cause,
}

/// A complete request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageRow {
    /// As in `requests.csv`.
    pub id: u64,
    /// Index of the request type.
    pub request: u32,
    /// Thread.
    pub tid: u32,
    /// Begin.
    pub begin_ns: u64,
    /// Index of its statement.
    pub statement: u32,
    /// From begin to end.
    pub latency_ns: u64,
    /// On a CPU.
    pub on_cpu_ns: u64,
    /// Runnable after a wakeup.
    pub run_queue_ns: u64,
    /// Switched out while runnable.
    pub preempted_ns: u64,
    /// Blocked, with an unknown stack too.
    pub blocked_ns: u64,
    /// No thread ran it, and it waited for an event.
    pub parked_ns: u64,
    /// No thread ran it, and it waited for a thread.
    pub queued_ns: u64,
}

/// A slow request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowRequest {
    /// As in `requests.csv`.
    pub id: u64,
    /// Index of the request type.
    pub request: u32,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Name of the thread.
    pub comm: Plain,
    /// Label; empty when none was recorded.
    pub label: Plain,
    /// Index of its statement.
    pub statement: u32,
    /// Begin.
    pub begin_ns: u64,
    /// Where its time went.
    pub ledger: Ledger,
    /// Its blocked time by root cause.
    pub causes: Option<Causes>,
    /// What happened; `None` without intervals.
    pub timeline: Option<Timeline>,
}

/// What happened in a request, and what those did that held it up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Threads: first that of the request, then those that held it up, the longest first.
    pub lanes: Vec<Lane>,
    /// Requests of these threads.
    pub others: Vec<Other>,
    /// By lane and time. Where the request's own lane has none, it was on a CPU.
    pub segments: Vec<Segment>,
    /// How many of the shortest were left out, and their nanoseconds: of the request itself, of others.
    pub left_out: [(u64, u64); 2],
    /// Threads that were left out, as they held the request up the least.
    pub lanes_left_out: u64,
    /// Nanoseconds off the CPU that the request's record has more than its intervals.
    pub missing_ns: u64,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Its name.
    pub comm: Plain,
}

/// A request of a thread that held another up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    /// As in `requests.csv`; 0 when its record had not come.
    pub id: u64,
    /// Index of the request type.
    pub request: u32,
    /// Label; empty when none was recorded.
    pub label: Plain,
    /// It had ended: the thread was between its requests.
    pub has_ended: bool,
}

/// A part of a timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Index of the thread.
    pub lane: u32,
    /// When it began.
    pub from_ns: u64,
    /// How long.
    pub ns: u64,
    /// What the thread did.
    pub did: Did,
    /// Of a blocked one: index of its stack, if it is known.
    pub stack: Option<u32>,
    /// Of a blocked one that a thread ended: index of the stack from which it did, if it is known.
    pub woken_from: Option<u32>,
    /// Of a blocked one: its wait class. Of a parked or queued one its place: the number of wait classes and
    /// its index in [`super::Places::parked`], or behind all of these in [`super::Places::queued`].
    pub class: Option<u32>,
    /// Of a blocked one: who ended that.
    pub ended_by: Option<EndedBy>,
    /// Of another thread: index of the request that it was in, or had been in.
    pub other: Option<u32>,
}

/// What a thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Did {
    /// It ran.
    OnCpu,
    /// It waited for a CPU after a wakeup.
    RunQueue,
    /// Another had its CPU.
    Preempted,
    /// It waited.
    Blocked,
    /// It was in no request.
    BetweenRequests,
    /// No thread ran the request, and it waited for an event.
    Parked,
    /// No thread ran the request, and it waited for a thread.
    Queued,
}

/// Who ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// The thread of this lane.
    Lane(u32),
    /// A thread that has no lane.
    Thread,
    /// An interrupt of this kind.
    Interrupt(Cause),
    /// Not known.
    Unknown(Reason),
}
