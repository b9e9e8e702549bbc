//! The verdict: why slow requests were slow, if one cause and one culprit explain it.

use reqtrace_base::plain::Plain;

use super::TakerName;

/// What a trace says of the slow requests of one type.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// One cause explains them.
    Cause(Box<Verdict>),
    /// They are slow, and no cause is sure.
    NoSingleCause(Unsure),
}

impl Finding {
    /// The numbers that it rests on.
    #[must_use]
    pub fn evidence(&self) -> &Evidence {
        match self {
            Self::Cause(verdict) => &verdict.evidence,
            Self::NoSingleCause(unsure) => &unsure.evidence,
        }
    }
}

/// One cause, and who.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// What kind of cause it is.
    pub class: Class,
    /// Type of the slow requests.
    pub request: String,
    /// Other types whose slow requests have the same class and culprit.
    pub also: Vec<String>,
    /// Who; `None` where the trace names nobody for this class.
    pub culprit: Option<Culprit>,
    /// Of a culprit whose own time has several causes: what it did while it held them up, in per mille of that, the most first.
    pub did: Vec<(Did, u16)>,
    /// What the slow requests waited in: a wait class, or a place where they were parked; the path of a cgroup that has a CPU limit. Of requests that computed
    /// themselves their statement, if one has most of the time. Empty when there is none.
    pub object: Plain,
    /// Nanoseconds that one episode took: the median.
    pub episode_ns: u64,
    /// How many episodes have this cause and culprit.
    pub times: u64,
    /// How often it comes, if it comes regularly.
    pub cadence: Option<Cadence>,
    /// Of a disk that several requests waited for at once: how many in the longest episode, and for how many ns all of them.
    pub stood: Option<(u64, u64)>,
    /// Of a disk who had most of its bytes during the episodes, if one had.
    pub meanwhile: Option<Meanwhile>,
    /// Whether the trace says who had CPUs that requests waited for.
    pub knows_takers: bool,
    /// The numbers that it rests on.
    pub evidence: Evidence,
}

/// Slow requests without a verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct Unsure {
    /// Their type.
    pub request: String,
    /// Why there is none.
    pub because: Because,
    /// The largest causes: class and per mille of the excess, the largest first.
    pub largest: Vec<(Class, u16)>,
    /// Where they waited most of the time: a wait class, or a place where they were parked; empty when no place has most of it.
    pub object: Plain,
    /// The numbers that it rests on.
    pub evidence: Evidence,
}

/// Why there is no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// So much is not known, or lost, per mille.
    NotKnown(u16),
    /// No cause has enough of the excess.
    SeveralCauses,
    /// Another choice of the episodes might have had another cause: the share that is sure, per mille.
    FewEpisodes(u16),
    /// No culprit has enough of the cause: the largest one's share, per mille.
    SeveralCulprits(u16),
}

impl Because {
    /// Its name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotKnown(_) => "not_known",
            Self::SeveralCauses => "several_causes",
            Self::FewEpisodes(_) => "few_episodes",
            Self::SeveralCulprits(_) => "several_culprits",
        }
    }
}

/// Kinds of causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// A thread held them up while it was between its requests, such as a connection that idles in its transaction.
    HeldBetweenRequests,
    /// Another request held them up.
    HeldByRequest,
    /// A thread in no request held them up: a helper, or another process.
    HeldByThread,
    /// They waited for each other: many threads took turns at one thing.
    Contended,
    /// A CPU was taken: by own run queue and preemptions, and by those of whoever they waited for.
    WaitsForCpu,
    /// A process that serves none of the requests had the CPU that they waited for, or that whoever held them up waited for.
    CpuTaken,
    /// The CPU limit of a cgroup let them not run.
    CpuLimited,
    /// A block device.
    Disk,
    /// The network, or a peer.
    Network,
    /// A time that they had to wait for themselves.
    Timer,
    /// They computed.
    OnCpu,
    /// They waited for a thread of their service.
    Queued,
    /// An interrupt of another kind.
    OtherInterrupt,
    /// Not known.
    NotKnown,
}

impl Class {
    /// Its name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HeldBetweenRequests => "held_between_requests",
            Self::HeldByRequest => "held_by_request",
            Self::HeldByThread => "held_by_thread",
            Self::Contended => "contended",
            Self::WaitsForCpu => "waits_for_cpu",
            Self::CpuTaken => "cpu_taken",
            Self::CpuLimited => "cpu_limited",
            Self::Disk => "disk",
            Self::Network => "network",
            Self::Timer => "timer",
            Self::OnCpu => "on_cpu",
            Self::Queued => "queued",
            Self::OtherInterrupt => "other_interrupt",
            Self::NotKnown => "not_known",
        }
    }
}

/// What a culprit did while others waited for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Did {
    /// A cause of its own.
    Itself(Class),
    /// It waited, in this wait class.
    Waited(Plain),
}

/// Who.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Culprit {
    /// Process; 0 of another machine, and of threads of several.
    pub pid: u32,
    /// Thread; 0 of another machine, and of several.
    pub tid: u32,
    /// How many threads took turns; 0: it is one.
    pub threads: u64,
    /// Requests of these types, which have no thread of their own: tasks, goroutines, and what else has a key. Empty: it is no
    /// request, or one with a thread.
    pub requests: Vec<String>,
    /// When the request began, ns since the Unix epoch, if it is a single one of these.
    pub request_unix_ns: Option<u64>,
    /// When its process began, ns since the Unix epoch; `None` if that was before the trace.
    pub start_unix_ns: Option<u64>,
    /// Name of the thread, or address and port of another machine.
    pub comm: Plain,
    /// What is known of its connection: names and values of attributes, such as user and database.
    pub connection: Vec<(String, Plain)>,
    /// Its statements in order, without their values: from the last one before the wait to the one that ended it.
    pub statements: Vec<Plain>,
    /// The CPU that it took, or took most of the time, and its name there with policy and priority.
    pub took: Option<(u32, TakerName)>,
}

/// Who used the disks while slow requests waited for them: it happened at the same time, which is no proof that they waited
/// because of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meanwhile {
    /// Process.
    pub pid: u32,
    /// Thread of a traced process; 0: it is another process.
    pub tid: u32,
    /// Name of the thread, or of one of the process.
    pub comm: Plain,
    /// Share of the bytes that all had, per mille.
    pub share: u16,
    /// Bytes that it read.
    pub read_bytes: u64,
    /// Bytes that it wrote.
    pub written_bytes: u64,
    /// What a thread's request was about at its first I/O there, without values; empty when it was in none, or without labels.
    pub statement: Plain,
}

/// A regular cadence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cadence {
    /// Nanoseconds from one episode to the next.
    pub period_ns: u64,
    /// The chance that irregular episodes look as regular, by permutation.
    pub p: f64,
}

/// The numbers of a verdict. Shares are per mille.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Slow requests: of at least five times the median. With `--sample` all that they stand for.
    pub slow: u64,
    /// All complete requests.
    pub requests: u64,
    /// Median of the latency, ns.
    pub median_ns: u64,
    /// 99th percentile, ns.
    pub p99_ns: u64,
    /// Episodes: slow requests that overlap are one.
    pub episodes: u64,
    /// What the slow ones took more than as many typical ones, ns.
    pub excess_ns: u64,
    /// Share of the excess of all slow ones that these have: those that another verdict explains are left out.
    pub of_excess: u16,
    /// Share of the excess that the cause has.
    pub cause: u16,
    /// The same at least, in 97.5 % of the choices of episodes.
    pub cause_least: u16,
    /// Share of the cause that the culprit has.
    pub culprit: u16,
    /// Share of the excess that is not known, and of the requests that were lost.
    pub not_known: u16,
}
