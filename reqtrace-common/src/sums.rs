//! What the kernel keeps exact whatever the load: totals per request type, sums per stack pair.

use crate::histogram::{BUCKETS, lower_bound};
use crate::limits::MAX_FRAMES;
use crate::record::{FileId, StackId};

/// What walking user stacks took, counted when that is asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkTotals {
    /// Walks.
    pub count: u64,
    /// Frames that they found.
    pub frames: u64,
    /// Σ of their time, ns.
    pub ns: u64,
    /// The longest, ns.
    pub max_ns: u64,
    /// User stacks that were remembered, so that no walk was needed. They were walked all the same, to
    /// check them.
    pub known_user: u64,
    /// Kernel stacks that were remembered.
    pub known_kernel: u64,
    /// Stacks at markers that were remembered.
    pub known_at_markers: u64,
    /// Walks by time; see [`crate::histogram`].
    pub histogram: [u64; BUCKETS],
}

impl WalkTotals {
    /// Nothing counted.
    pub const ZERO: Self = Self {
        count: 0,
        frames: 0,
        ns: 0,
        max_ns: 0,
        known_user: 0,
        known_kernel: 0,
        known_at_markers: 0,
        histogram: [0; BUCKETS],
    };

    /// Adds those of another CPU.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.frames += other.frames;
        self.ns += other.ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.known_user += other.known_user;
        self.known_kernel += other.known_kernel;
        self.known_at_markers += other.known_at_markers;
        for (sum, more) in self.histogram.iter_mut().zip(&other.histogram) {
            *sum += more;
        }
    }

    /// The time that this share of the walks, in thousandths, stayed below; exact to 1/16.
    #[must_use]
    pub fn quantile_ns(&self, thousandths: u64) -> u64 {
        let wanted = (self.count * thousandths).div_ceil(1000);
        let mut seen = 0;
        for (bucket, count) in self.histogram.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return lower_bound(bucket + 1).min(self.max_ns);
            }
        }
        self.max_ns
    }
}

/// Seconds that have a counter of their own in [`SentSums`]: a second later than another one by this shares its.
pub const SECONDS: u32 = 16;

/// What was sent of requests that ended in some seconds. Never set back.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentSums {
    /// Their records.
    pub requests: u64,
    /// Σ of their latencies, ns.
    pub latency_ns: u64,
}

/// Totals of one request type. All fields but the counters named so are over complete requests that
/// were recorded, each times its weight.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeTotals {
    /// Counter: begin markers hit in traced processes. This and what follows up to `blocked_ns` is one cache line.
    pub begins: u64,
    /// Counter: end markers hit in traced processes.
    pub ends: u64,
    /// Counter: complete requests that were not recorded.
    pub unsampled: u64,
    /// Complete requests: Σ of their weights, so an estimate when requests are sampled.
    pub count: u64,
    /// Σ latency, ns.
    pub latency_ns: u64,
    /// Longest latency, ns.
    pub max_ns: u64,
    /// Σ run queue, ns.
    pub run_queue_ns: u64,
    /// Σ blocked at known sites, ns.
    pub blocked_ns: u64,
    /// Σ preempted, ns.
    pub preempted_ns: u64,
    /// Σ unattributed, ns.
    pub unattributed_ns: u64,
    /// Counter: requests closed as incomplete.
    pub incomplete: u64,
    /// Counter: begins inside a request of the same type (`nest` and `ignore`).
    pub nested: u64,
    /// Counter: begins inside a request of another type; they are left out.
    pub other_type: u64,
    /// Counter: ends with no request of this type open, but for the first marker that a thread born
    /// while tracing meets: that may be how a server greets its client.
    pub ends_without_begin: u64,
    /// What weights beyond 1 added to `count`.
    pub beyond: u64,
    /// Complete requests by latency; see [`crate::histogram`].
    pub histogram: [u64; BUCKETS],
    /// Σ parked, ns.
    pub parked_ns: u64,
    /// Σ queued, ns.
    pub queued_ns: u64,
    /// Counter: resumes, parks, readies and adoptions with a key that no request has. User space adds this and what
    /// follows up, from what is counted of each marker.
    pub unknown_keys: u64,
    /// Counter: the same with a key whose request another thread runs.
    pub running_elsewhere: u64,
    /// Counter: complete requests that were recorded, and not sent because they were not slow.
    pub withheld: u64,
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
    };

    /// Adds what another CPU counted.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.latency_ns += other.latency_ns;
        self.run_queue_ns += other.run_queue_ns;
        self.preempted_ns += other.preempted_ns;
        self.blocked_ns += other.blocked_ns;
        self.unattributed_ns += other.unattributed_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.begins += other.begins;
        self.ends += other.ends;
        self.incomplete += other.incomplete;
        self.nested += other.nested;
        self.parked_ns += other.parked_ns;
        self.queued_ns += other.queued_ns;
        self.unknown_keys += other.unknown_keys;
        self.running_elsewhere += other.running_elsewhere;
        self.withheld += other.withheld;
        self.other_type += other.other_type;
        self.ends_without_begin += other.ends_without_begin;
        self.unsampled += other.unsampled;
        self.beyond += other.beyond;
        for (mine, theirs) in self.histogram.iter_mut().zip(&other.histogram) {
            *mine += theirs;
        }
    }
}

/// What a thread was switched out for.
pub mod off_kind {
    /// It blocked: the interval is blocked time and then run queue time.
    pub const BLOCK: u32 = 0;
    /// It was runnable: the whole interval is preempted time.
    pub const PREEMPTED: u32 = 1;
    /// Flag beside one of the above: the interval did not pass the filter of the stacks. It counts for
    /// wait classes, and is in no folded stack.
    pub const OUTSIDE: u32 = 2;
    /// Flag in the kernel's tables only: the entry is of the odd window
    /// ([`crate::config::Control::window`]).
    pub const ODD_WINDOW: u32 = 4;
}

/// Key of the sums per stack pair.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
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
    /// As in [`crate::record::BlockSite`].
    pub file: FileId,
}

/// Sums per stack pair.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackSum {
    /// Nanoseconds blocked, or preempted.
    pub off_ns: u64,
    /// Nanoseconds on the run queue after a block.
    pub run_queue_ns: u64,
    /// Intervals.
    pub count: u64,
    /// The longest that one was blocked, or preempted, ns.
    pub longest_ns: u64,
    /// Bytes that the calls have asked for that were blocked here: `read`, `write`, `pread64` and `pwrite64`,
    /// each call once.
    pub bytes: u64,
    /// The longest that one was on the run queue after a block, ns.
    pub longest_run_queue_ns: u64,
}

/// One stored stack, innermost frame first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StoredStack {
    /// A second hash over the same frames: two stacks with equal ids and unequal checks are a
    /// counted collision.
    pub check: u64,
    /// Used entries of `frames`.
    pub len: u32,
    /// Why the walk stopped: a [`crate::unwind::Stop`].
    pub stop: u32,
    /// Where the thread was, then return addresses. A frame that a signal interrupted is stored one
    /// byte on, so that all but the first are looked up at the byte before.
    pub frames: [u64; MAX_FRAMES],
}
