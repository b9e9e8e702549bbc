//! Typical and slow requests of one type, side by side: two bands in, the numbers that `table` draws
//! and JSON out.

use reqtrace_base::plain::Plain;

use super::Ledger;

/// Where the time of typical and of slow requests goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowRequests {
    /// The requests between the 40th and the 60th percentile of the latency.
    pub typical: Band,
    /// The slowest 1 %.
    pub slowest: Band,
    /// Complete requests that the records which arrived stand for: all that the bands are taken from.
    pub of: u64,
    /// The longest blocks of requests that were slower than the typical ones, the longest first, one
    /// per place.
    pub blocks: Vec<SlowBlock>,
}

/// The complete requests whose record arrived and whose latency lies between two bounds: all of
/// them, and no other.
///
/// Bounds are those of latency buckets of 1.6 %, so that a band can hold a few more requests than its
/// percentiles say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Band {
    /// How many.
    pub count: u64,
    /// The least latency among them, ns.
    pub from_ns: u64,
    /// The greatest, ns.
    pub to_ns: u64,
    /// The sum of their ledgers.
    pub ledger: Ledger,
}

impl Band {
    /// The mean of one sum of the ledger, ns.
    #[must_use]
    pub fn mean(&self, sum_ns: u64) -> u64 {
        sum_ns.checked_div(self.count).unwrap_or(0)
    }
}

/// One long block of a slow request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowBlock {
    /// Process.
    pub pid: u32,
    /// Thread; `None` of a request that went from one to another.
    pub tid: Option<u32>,
    /// Name of the thread, or of the last one.
    pub comm: Plain,
    /// Latency of the request, ns.
    pub latency_ns: u64,
    /// Switch-out in nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// Until the wakeup, ns.
    pub blocked_ns: u64,
    /// From the wakeup until the thread ran, ns.
    pub run_queue_ns: u64,
    /// Name of the wait class.
    pub class: String,
    /// Who woke it; `None` for an interrupt, and when no wakeup was seen.
    pub waker: Option<Waker>,
    /// User frames, innermost first.
    pub user: Vec<String>,
    /// Kernel frames, innermost first.
    pub kernel: Vec<String>,
}

/// The thread that ended a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waker {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Name of the thread, or of its process when the thread had left.
    pub comm: Plain,
}
