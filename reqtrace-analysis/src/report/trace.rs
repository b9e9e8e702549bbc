//! What was traced, as a report has it.

use std::collections::BTreeMap;

use reqtrace_base::plain::Plain;
use reqtrace_recording::{LateChildren, MarkerCounts, Overhead, ShedSpan, Untraced};
use serde::{Deserialize, Serialize};

use super::Report;

/// What was traced, when, where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceInfo {
    /// Version of reqtrace.
    pub version: String,
    /// Name of the profile.
    pub profile: String,
    /// Traced processes: pid and name.
    pub processes: Vec<(u32, Plain)>,
    /// Traced processes that are not among them, because there were too many.
    #[serde(default)]
    pub unlisted_processes: u64,
    /// `uname -r`.
    pub kernel: String,
    /// Start in nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// Add to `CLOCK_MONOTONIC` ns to get Unix ns, at its start.
    pub monotonic_to_unix_ns: i64,
    /// Length of the trace, ns.
    pub duration_ns: u64,
    /// How the trace ended: `duration`, `interrupted`, `target exited`.
    pub ended_by: String,
    /// Seconds in which the requests that came were counted against those that the kernel has sent.
    #[serde(default)]
    pub seconds_checked: u64,
    /// Markers that were probed.
    pub markers: Vec<MarkerInfo>,
    /// Function patterns of named waits that match nothing because the executable has no symbol
    /// table: names of waits, and for each the patterns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmatched_waits: Vec<(String, Vec<String>)>,
    /// What the kernel lacked that is left out of the trace, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<String>,
    /// What tracing took; `None`: it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead: Option<Overhead>,
    /// What the processes took before they were traced; `None`: it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untraced: Option<Untraced>,
    /// What the traps took at most, in percent of [`Overhead::traps_ns`]; 0: not known.
    #[serde(default)]
    pub cold_percent: u32,
    /// When less was recorded because tracing took too much, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shed: Vec<ShedSpan>,
    /// Processes that got some of their probes only after the start of their program.
    #[serde(default, skip_serializing_if = "LateChildren::is_none")]
    pub late_children: LateChildren,
    /// Kinds of the sockets that the processes had at the start, if it was looked at: `TCP`, `UDP`, `Unix`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<String>,
    /// Which blocks the stacks hold, empty for all: `of at least 100 µs`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stack_filter: String,
    /// Whether preemptions have stacks, or are only timed.
    #[serde(default)]
    pub preempted_stacks: bool,
    /// From this latency on each complete request has a record; `None`: all have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_slow_ns: Option<u64>,
    /// With that: of the others one in so many has, and stands for as many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_in: Option<u32>,
    /// Name of the machine.
    #[serde(skip)]
    pub host: String,
    /// What ought to be the same of two traces that are compared, by its name: machine, kernel, options. What is not known is
    /// not in it.
    #[serde(skip)]
    pub alike: BTreeMap<String, String>,
}

impl Report {
    /// What ought to be the same of two traces that are compared, by its name: [`TraceInfo::alike`], and the build ids of the
    /// files that functions are in.
    #[must_use]
    pub fn alike(&self) -> BTreeMap<String, String> {
        let known = self.modules.iter();
        let known = known.filter(|module| !module.build_id.is_empty());
        let build_ids = known.map(|module| {
            let first = module.build_id.iter().take(8);
            let hex: String = first.map(|byte| format!("{byte:02x}")).collect();
            (format!("build id of {}", module.path), hex)
        });
        let mut alike = self.trace.alike.clone();
        alike.extend(build_ids);
        alike
    }
}

/// One probed marker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkerInfo {
    /// Request type.
    pub request: String,
    /// `begin` or `end`.
    pub marker: String,
    /// Function or offset, with `entry` or `return`.
    pub place: String,
    /// Object as the process sees it.
    pub object: String,
    /// Number of probes it needed.
    pub probes: usize,
    /// How often it was hit, and what of that fits no request. `None`: a recording that has no such counts, a begin
    /// or an end that is in several programs, and a `resume` where the `begin` of the same place does its work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<MarkerCounts>,
}
