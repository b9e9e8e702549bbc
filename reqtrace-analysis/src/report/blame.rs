//! Because of whom requests were blocked: what blame adds to the report.

use reqtrace_base::plain::Plain;

pub use super::disk::{DiskUser, DiskWaits};
pub use super::taken::{CpuTaken, TakerKind, TakerName};
pub use crate::blame::{Cause, Causes, Reason};

/// Blame of complete requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blame {
    /// One entry per request type, in profile order.
    pub types: Vec<TypeBlame>,
    /// Everything, the most time first.
    pub rows: Vec<BlameRow>,
    /// How many rows are in those whose culprit is [`CulpritKind::Others`]: there were too many.
    pub merged_rows: u64,
    /// Chains of waits, the most time first.
    pub chains: Vec<Chain>,
    /// How many chains gave up their frames, because there were too many.
    pub merged_chains: u64,
    /// Sums of I/O by process that were left out, because there were too many.
    pub forgotten_io_sums: u64,
    /// Waits for disks that are in no count of stalls, because too many ended together.
    pub left_out_disk_waits: u64,
    /// How many futexes are in the lines of all others, because there were too many.
    pub merged_locks: u64,
}

/// Blame of one request type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeBlame {
    /// Its name.
    pub request: String,
    /// Complete requests.
    pub requests: u64,
    /// Blocked time by root cause, ns.
    pub causes: Causes,
    /// Who held them up, the most time first. What is not known is in `unknown`.
    pub holders: Vec<Holder>,
    /// Why the root cause is not known, ns, the most time first.
    pub unknown: Vec<(Reason, u64)>,
    /// The slowest of them, the slowest first: a few.
    pub slowest: Vec<HeldRequest>,
    /// Futexes that they waited on, the most time first.
    pub locks: Vec<Lock>,
    /// What they waited for a CPU themselves, on run queues and preempted, ns.
    pub cpu_ns: u64,
    /// Who had that CPU, the most time first. What is missing is not known: short waits above all. Empty where the trace
    /// does not have it.
    pub takers: Vec<CpuTaken>,
    /// What they were queued for their runtime, ns.
    pub queued_ns: u64,
    /// What the threads did meanwhile that then went on with them, the most time first.
    pub queue: Vec<QueuedBehind>,
    /// Waits that ended at a disk; `None` without any, and where the trace does not say what disks did.
    pub disk: Option<DiskWaits>,
}

/// Part of what requests of one type were queued for their runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedBehind {
    /// What the thread did that then went on with the request.
    pub with: Busy,
    /// Nanoseconds.
    pub ns: u64,
    /// How many requests waited.
    pub requests: u64,
    /// The longest of it without a break, ns.
    pub longest_ns: u64,
}

/// What a thread of a runtime does while a request is queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Busy {
    /// It runs a request of this type.
    Request(String),
    /// It runs no request of the trace: another unit, or the runtime itself.
    NoRequest,
    /// It sleeps in no request, until it is woken.
    Asleep,
    /// It waits for a CPU, in no request.
    NoCpu,
    /// It is not known.
    NotKnown,
}

impl Busy {
    /// Its name in files.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Request(_) => "request",
            Self::NoRequest => "no_request",
            Self::Asleep => "asleep",
            Self::NoCpu => "no_cpu",
            Self::NotKnown => "unknown",
        }
    }
}

/// A slow request, and who held it up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldRequest {
    /// As in `requests.csv`.
    pub id: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Name of the thread.
    pub comm: Plain,
    /// Label; empty when none was recorded.
    pub label: Plain,
    /// Begin in nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// From begin to end, ns.
    pub latency_ns: u64,
    /// Blocked, ns.
    pub blocked_ns: u64,
    /// No thread ran it, and it waited for an event, ns.
    pub parked_ns: u64,
    /// No thread ran it, and it waited for a thread, ns.
    pub queued_ns: u64,
    /// Runnable after a wakeup, ns.
    pub run_queue_ns: u64,
    /// Switched out while runnable, ns.
    pub preempted_ns: u64,
    /// Its blocks, the longest first; those that read alike are one. Parts below 2 % of `blocked_ns`
    /// and `parked_ns` are left out.
    pub parts: Vec<Part>,
}

/// What somebody did while another waited for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Who. The request itself is [`CulpritKind::Interrupt`].
    pub whose: CulpritName,
    /// Thread; 0 for the request itself, and when it is not known.
    pub tid: u32,
    /// Id of its request; 0 when it is in none, or when its record had not come.
    pub request_id: u64,
    /// Of a thread between its requests: the last request that it had served.
    pub after: Option<After>,
    /// What.
    pub what: What,
    /// From where the culprit ended the wait, where the chain ended with it: user frames, innermost first;
    /// empty when it is no thread of a traced process that ran on its own behalf.
    pub woken_from: Vec<String>,
    /// For how long, ns.
    pub ns: u64,
    /// What held that up.
    pub parts: Vec<Part>,
}

/// A request that a thread had served before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct After {
    /// As in `requests.csv`.
    pub request_id: u64,
    /// Its type.
    pub request: String,
    /// Its label; empty when none was recorded.
    pub label: Plain,
}

/// What a part was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It was blocked.
    Waited {
        /// The wait class, or `unattributed`.
        class: String,
        /// User frames, innermost first; empty for threads in no request.
        user: Vec<String>,
        /// Kernel frames, innermost first.
        kernel: Vec<String>,
    },
    /// The chain ended.
    Ended(Cause, Option<Reason>),
}

/// A futex that requests of one type waited on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Process; 0 for all others.
    pub pid: u32,
    /// Address; 0 for all others.
    pub address: u64,
    /// What it lies in: a variable, a file and a place in it, or a kind of memory; empty when it is not known.
    pub object: Plain,
    /// Waits.
    pub waits: u64,
    /// Blocks that went on with a wait: who waited was woken, and somebody else had taken the lock by then.
    pub again: u64,
    /// Nanoseconds blocked.
    pub ns: u64,
    /// The longest wait, ns.
    pub longest_ns: u64,
    /// Wait class of the last wait.
    pub class: String,
    /// User frames of the last wait, innermost first.
    pub user: Vec<String>,
    /// Who ended the waits, and how many nanoseconds they had taken, the most first.
    pub woken_by: Vec<(CulpritName, u64)>,
    /// Who held it when the waits began, and how many nanoseconds these took, the most first; empty when it
    /// is no lock of glibc that says who holds it.
    pub held_by: Vec<(CulpritName, u64)>,
}

/// A chain of waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The request type; its stack, outermost first; then `--`, who held it up, and where that one was
    /// blocked, innermost first; and so on; then from where the last one ended the wait, innermost first;
    /// last the root cause.
    pub frames: Vec<String>,
    /// Nanoseconds.
    pub ns: u64,
}

impl Chain {
    /// Stands in [`Chain::frames`] between who waits and who held it up, as offwaketime has it.
    pub const DELIMITER: &str = "--";

    /// The stack that the request itself was blocked in, outermost first.
    #[must_use]
    pub fn own_stack(&self) -> &[String] {
        let own = self.frames.get(1..).unwrap_or_default();
        let is_delimiter = |frame: &String| frame == Self::DELIMITER;
        let end = own.iter().position(is_delimiter);
        &own[..end.unwrap_or(own.len().saturating_sub(1))]
    }

    /// What it ended in; `None` of several chains that were put together.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        let last = self.frames.last()?.strip_prefix('[')?;
        let ended_in = |cause: &Cause| {
            let rest = last.strip_prefix(cause.words());
            rest.is_some_and(|rest| rest.starts_with([']', ':']))
        };
        Cause::ALL.into_iter().find(ended_in)
    }
}

/// What held requests of one type up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The root cause.
    pub cause: Cause,
    /// Whose. Its label is only given when requests are grouped by label.
    pub culprit: CulpritName,
    /// Nanoseconds of blocked time.
    pub ns: u64,
    /// How many requests waited.
    pub requests: u64,
    /// The wait class that most of the time was spent in, or `unattributed`.
    pub wait_class: String,
}

/// One row of `blame.csv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlameRow {
    /// Type of the requests that waited.
    pub victim_request: String,
    /// Their label, or its fingerprint; empty when none was recorded.
    pub victim_label: Plain,
    /// Wait class of their blocks, or `unattributed`; empty in a merged row.
    pub wait_class: String,
    /// Whose time it was.
    pub culprit: CulpritName,
    /// Its process and thread; `None` when it is no thread, or several are in this row.
    pub thread: Option<(u32, u32)>,
    /// The root cause.
    pub cause: Cause,
    /// How many threads stand between: 0 for what ended the block itself.
    pub depth: u8,
    /// Nanoseconds of blocked time.
    pub ns: u64,
    /// How many requests waited. In a merged row one request may count more than once.
    pub requests: u64,
}

/// Whose time it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CulpritName {
    /// What it is.
    pub kind: CulpritKind,
    /// Type of the request; empty for others.
    pub request: String,
    /// Label of the request, or of the one that a thread between its requests had served before; empty when
    /// it is not known.
    pub label: Plain,
    /// Name of a thread in no request; address and port of another machine; empty for others.
    pub comm: Plain,
}

/// What a culprit is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CulpritKind {
    /// An interrupt that ended the request's own block.
    Interrupt,
    /// The request itself: who held it up had waited for it.
    Itself,
    /// Another request.
    Request,
    /// A thread in no request.
    Thread,
    /// Another machine.
    Peer,
    /// Not known.
    #[default]
    Unknown,
    /// Several, in a merged row.
    Others,
}

impl CulpritKind {
    /// All.
    pub const ALL: [Self; 7] = [
        Self::Interrupt,
        Self::Itself,
        Self::Request,
        Self::Thread,
        Self::Peer,
        Self::Unknown,
        Self::Others,
    ];

    /// Its name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "interrupt",
            Self::Itself => "itself",
            Self::Request => "request",
            Self::Thread => "thread",
            Self::Peer => "peer",
            Self::Unknown => "unknown",
            Self::Others => "others",
        }
    }
}

impl CulpritName {
    /// For people: `command`, `thread walwriter`.
    #[must_use]
    pub fn words(&self) -> String {
        match self.kind {
            CulpritKind::Interrupt => "own".to_owned(),
            CulpritKind::Itself => "itself".to_owned(),
            CulpritKind::Request => self.request.clone(),
            CulpritKind::Thread => format!("thread {}", self.comm),
            CulpritKind::Peer => format!("peer {}", self.comm),
            CulpritKind::Unknown => "nobody known".to_owned(),
            CulpritKind::Others => "others".to_owned(),
        }
    }
}
