//! What the kernel keeps exact whatever the load: totals per request type, sums per stack pair.

use reqtrace_common::filter::POWERS;
use reqtrace_common::histogram::BUCKETS;
use reqtrace_common::record::{FileId, StackId};
use reqtrace_common::sums::off_kind;
use serde::{Deserialize, Serialize};

use crate::wire::sparse;

/// Totals of one request type. All fields but the counters named so are over complete requests that
/// were recorded, each times its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeTotals {
    /// Complete requests: Σ of their weights, so an estimate when requests are sampled.
    pub count: u64,
    /// Σ latency, ns.
    pub latency_ns: u64,
    /// Σ run queue, ns.
    pub run_queue_ns: u64,
    /// Σ preempted, ns.
    pub preempted_ns: u64,
    /// Σ blocked at known sites, ns.
    pub blocked_ns: u64,
    /// Σ unattributed, ns.
    pub unattributed_ns: u64,
    /// Longest latency, ns.
    pub max_ns: u64,
    /// Counter: begin markers hit in traced processes.
    pub begins: u64,
    /// Counter: end markers hit in traced processes.
    pub ends: u64,
    /// Counter: requests closed as incomplete.
    pub incomplete: u64,
    /// Counter: begins inside a request of the same type (`nest` and `ignore`).
    pub nested: u64,
    /// Counter: begins inside a request of another type; they are left out.
    pub other_type: u64,
    /// Counter: ends with no request of this type open, but for the first marker that a thread born
    /// while tracing meets: that may be how a server greets its client.
    pub ends_without_begin: u64,
    /// Counter: complete requests that were not recorded.
    pub unsampled: u64,
    /// What weights beyond 1 added to `count`.
    pub beyond: u64,
    /// Complete requests by latency; see [`reqtrace_common::histogram`].
    #[serde(with = "sparse")]
    pub histogram: [u64; BUCKETS],
    /// Σ parked, ns.
    #[serde(skip)]
    pub parked_ns: u64,
    /// Σ queued, ns.
    #[serde(skip)]
    pub queued_ns: u64,
    /// Counter: resumes, parks, readies and adoptions with a key that no request has.
    #[serde(skip)]
    pub unknown_keys: u64,
    /// Counter: the same with a key whose request another thread runs.
    #[serde(skip)]
    pub running_elsewhere: u64,
    /// Counter: complete requests that were recorded, and not sent because they were not slow.
    #[serde(skip)]
    pub withheld: u64,
    /// Counter: units of a runtime that its recorded requests have made, and that are none of its requests.
    #[serde(skip)]
    pub children: u64,
}

impl Default for TypeTotals {
    fn default() -> Self {
        Self::ZERO
    }
}

impl TypeTotals {
    /// Nothing counted.
    pub const ZERO: Self = Self {
        count: 0,
        latency_ns: 0,
        run_queue_ns: 0,
        preempted_ns: 0,
        blocked_ns: 0,
        unattributed_ns: 0,
        max_ns: 0,
        begins: 0,
        ends: 0,
        incomplete: 0,
        nested: 0,
        other_type: 0,
        ends_without_begin: 0,
        unsampled: 0,
        beyond: 0,
        histogram: [0; BUCKETS],
        parked_ns: 0,
        queued_ns: 0,
        unknown_keys: 0,
        running_elsewhere: 0,
        withheld: 0,
        children: 0,
    };

    /// Complete requests that were recorded, each counted once.
    #[must_use]
    pub const fn recorded(&self) -> u64 {
        self.count.saturating_sub(self.beyond)
    }

    /// Those whose records were sent.
    #[must_use]
    pub const fn sent(&self) -> u64 {
        self.recorded().saturating_sub(self.withheld)
    }

    /// All complete requests, counted and not estimated.
    #[must_use]
    pub const fn exact_count(&self) -> u64 {
        self.recorded() + self.unsampled
    }

    /// Adds those of another window.
    pub fn merge(&mut self, other: &Self) {
        let longest_ns = self.max_ns.max(other.max_ns);
        *self = self.with(other, u64::saturating_add);
        self.max_ns = longest_ns;
    }

    /// Combines each number with that of others, but for the longest latency.
    #[must_use]
    pub fn with(&self, other: &Self, how: impl Fn(u64, u64) -> u64) -> Self {
        let mut histogram = self.histogram;
        for (count, more) in histogram.iter_mut().zip(&other.histogram) {
            *count = how(*count, *more);
        }
        Self {
            count: how(self.count, other.count),
            latency_ns: how(self.latency_ns, other.latency_ns),
            run_queue_ns: how(self.run_queue_ns, other.run_queue_ns),
            preempted_ns: how(self.preempted_ns, other.preempted_ns),
            blocked_ns: how(self.blocked_ns, other.blocked_ns),
            unattributed_ns: how(self.unattributed_ns, other.unattributed_ns),
            max_ns: self.max_ns,
            begins: how(self.begins, other.begins),
            ends: how(self.ends, other.ends),
            incomplete: how(self.incomplete, other.incomplete),
            nested: how(self.nested, other.nested),
            other_type: how(self.other_type, other.other_type),
            ends_without_begin: how(self.ends_without_begin, other.ends_without_begin),
            unsampled: how(self.unsampled, other.unsampled),
            beyond: how(self.beyond, other.beyond),
            histogram,
            parked_ns: how(self.parked_ns, other.parked_ns),
            queued_ns: how(self.queued_ns, other.queued_ns),
            unknown_keys: how(self.unknown_keys, other.unknown_keys),
            running_elsewhere: how(self.running_elsewhere, other.running_elsewhere),
            withheld: how(self.withheld, other.withheld),
            children: how(self.children, other.children),
        }
    }
}

/// Key of the sums per stack pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StackSumKey {
    /// User stack.
    pub user_stack: StackId,
    /// Kernel stack.
    pub kernel_stack: StackId,
    /// Process.
    pub tgid: u32,
    /// Its exec generation; with `tgid` it names the address space of `user_stack`.
    pub exec_generation: u32,
    /// Request type.
    pub request_type: u32,
    /// One of [`off_kind`], and its flags.
    pub off_kind: u32,
    /// System call, −1 outside any.
    pub syscall: i32,
    /// As in [`super::BlockSite`].
    pub file: FileId,
}

impl StackSumKey {
    /// Whether the thread blocked; otherwise it was preempted.
    #[must_use]
    pub const fn is_block(&self) -> bool {
        self.off_kind & !off_kind::OUTSIDE == off_kind::BLOCK
    }

    /// Whether the interval is kept out of the stacks.
    #[must_use]
    pub const fn is_outside(&self) -> bool {
        self.off_kind & off_kind::OUTSIDE != 0
    }
}

/// Sums per stack pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackSum {
    /// Nanoseconds blocked, or preempted.
    pub off_ns: u64,
    /// Nanoseconds on the run queue after a block.
    pub run_queue_ns: u64,
    /// Intervals.
    pub count: u64,
    /// The longest that one was blocked, or preempted, ns; see [`super::Window::longest_apart`].
    pub longest_ns: u64,
    /// Bytes that the calls have asked for that were blocked here: `read`, `write`, `pread64` and `pwrite64`,
    /// each call once.
    #[serde(skip)]
    pub bytes: u64,
    /// The longest that one was on the run queue after a block, ns.
    #[serde(skip)]
    pub longest_run_queue_ns: u64,
}

/// How many intervals were how long, by powers of two of microseconds; see [`reqtrace_common::filter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LengthHistogram {
    /// Intervals.
    #[serde(with = "sparse")]
    pub counts: [u64; POWERS],
}

impl Default for LengthHistogram {
    fn default() -> Self {
        Self::ZERO
    }
}

impl LengthHistogram {
    /// Nothing counted.
    pub const ZERO: Self = Self {
        counts: [0; POWERS],
    };
}

/// Sums of one stack pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SumOf {
    /// Of which.
    pub key: StackSumKey,
    /// The sums.
    pub sum: StackSum,
}

/// Lengths of the intervals of one stack pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LengthsOf {
    /// Of which.
    pub key: StackSumKey,
    /// The lengths.
    pub lengths: LengthHistogram,
}
