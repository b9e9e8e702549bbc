//! What is exact whatever the load, what was lost, and what tracing cost.

use serde::{Deserialize, Serialize};

use super::{LengthsOf, Overhead, ShedSpan, SumOf, TypeTotals, Untraced};

/// Sums of the kernel since the window before. They add up; `max_ns` is the greatest
/// since the start and `longest_ns` that of the window, and the greatest of all windows is that of the trace.
/// In a file, histograms have no empty buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Until when, `CLOCK_MONOTONIC` ns.
    pub until_ns: u64,
    /// Totals per request type, in profile order.
    pub totals: Vec<TypeTotals>,
    /// Sums per stack pair; those that did not change are left out.
    pub sums: Vec<SumOf>,
    /// Lengths of intervals per stack pair, when they are counted.
    pub histograms: Vec<LengthsOf>,
    /// Whether [`super::StackSum::longest_ns`] is without the time on the run queue. Old recordings have it in it.
    pub longest_apart: bool,
    /// What was counted of markers; those of which nothing is new since the window before are left out. Empty in
    /// recordings of a reqtrace that did not count it.
    pub markers: Vec<MarkerCount>,
}

/// What the kernel has sent of the requests that ended in one second of `CLOCK_MONOTONIC`, and in those seconds before
/// that share its counter and of which this was not sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// The second.
    pub second: u64,
    /// Records of requests, whatever they weigh.
    pub requests: u64,
    /// Σ of their latencies, ns.
    pub latency_ns: u64,
}

impl Sent {
    /// Seconds that are so far apart share a counter.
    pub const SECONDS: u64 = reqtrace_common::sums::SECONDS as u64;

    /// The second of a time.
    #[must_use]
    pub fn second_of(at_ns: u64) -> u64 {
        at_ns / 1_000_000_000
    }
}

/// The wall clock was set, or the machine was suspended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockStep {
    /// When that was seen, `CLOCK_MONOTONIC` ns: at most 200 ms later.
    pub at_ns: u64,
    /// From then on add this to `CLOCK_MONOTONIC` ns to get Unix ns.
    pub to_unix_ns: i64,
}

/// What was counted of one marker since the window before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkerCount {
    /// The number of its request type.
    pub request: u32,
    /// As in [`super::Marker`].
    pub marker: String,
    /// As in [`super::Marker`].
    pub place: String,
    /// As in [`super::Marker`].
    pub object: String,
    /// As in [`super::Marker`].
    pub probes: u64,
    /// The counts.
    pub counts: MarkerCounts,
}

/// How often something happened at a marker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkerCounts {
    /// It was hit in a traced process, its conditions held, and its key could be read.
    pub hits: u64,
    /// It was hit, and its conditions did not hold.
    pub condition_false: u64,
    /// Hits with a key that no request has.
    pub unknown_keys: u64,
    /// Hits with the key of a request that another thread runs.
    pub elsewhere: u64,
    /// Hits of a thread in a request of a type without a key.
    pub other_type: u64,
    /// Parks of a request that no thread runs.
    pub parked_already: u64,
    /// Hits that went on with a request which no thread ran. 0 in recordings of older versions, as the next.
    #[serde(default)]
    pub resumed: u64,
    /// Those of which nothing had made the request ready: all of its time away counts as parked.
    #[serde(default)]
    pub not_ready: u64,
}

impl MarkerCounts {
    /// Combines each count with that of another marker.
    #[must_use]
    pub fn with(self, other: Self, how: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            hits: how(self.hits, other.hits),
            condition_false: how(self.condition_false, other.condition_false),
            unknown_keys: how(self.unknown_keys, other.unknown_keys),
            elsewhere: how(self.elsewhere, other.elsewhere),
            other_type: how(self.other_type, other.other_type),
            parked_already: how(self.parked_already, other.parked_already),
            resumed: how(self.resumed, other.resumed),
            not_ready: how(self.not_ready, other.not_ready),
        }
    }
}

/// Something was lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Stable name, as in `summary.json`.
    pub name: String,
    /// How often, since the last such event.
    pub count: u64,
}

/// What the tracer has cost since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// The kernel programs.
    pub programs: Vec<ProgramCost>,
    /// Walks of user stacks; `None` unless they were counted.
    pub walks: Option<WalkCost>,
    /// CPU time of tracing, and of what is traced; `None` when it was not measured.
    pub overhead: Option<Overhead>,
    /// When less was recorded, because tracing took too much.
    pub shed: Vec<ShedSpan>,
    /// What the processes took before; `None` when that was not measured.
    pub untraced: Option<Untraced>,
    /// What the traps took at most, in percent of `traps_ns`, which is what they take with warm caches; 0 when
    /// it is not known.
    pub cold_percent: u32,
}

/// What one kernel program cost and missed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// What walking user stacks took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
