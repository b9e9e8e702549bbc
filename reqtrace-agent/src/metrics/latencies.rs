//! Durations as all figures take them: a cell of requests in; its durations, the edges that all histograms have, and seconds out.

use reqtrace_analysis::cells::Cell;
use reqtrace_analysis::cells::bucket::highest;

/// Bits of the buckets of a cell's latencies.
const LATENCY_BITS: u32 = 10;
/// Edges of the histogram of all services: 1, 2 and 5 times each of these, up to 100 s.
const DECADES_NS: [u64; 6] = [
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
    1_000_000_000,
    10_000_000_000,
];
const LAST_NS: u64 = 100_000_000_000;

/// Durations of a cell of requests of a type that has taken `max_ns` at most, and how many there are of each. A bucket is as long
/// as its longest: what is shown as fast enough is.
pub(crate) fn durations(cell: &Cell, max_ns: u64) -> impl Iterator<Item = (u64, u64)> {
    let buckets = cell.latencies.buckets();
    buckets.map(move |(bucket, count)| {
        let ns = highest(LATENCY_BITS, u32::from(bucket)).min(max_ns);
        (ns, count)
    })
}

/// Edges of the histogram of all services, ns; behind the last one is a bucket more.
pub(crate) fn grid() -> impl Iterator<Item = u64> {
    let grid = DECADES_NS.iter().flat_map(|ns| [*ns, ns * 2, ns * 5]);
    grid.chain([LAST_NS])
}

pub(super) fn seconds(ns: u128) -> f64 {
    ns as f64 / 1e9
}
