//! `summary.json`, as far as the tests read it. If its shape changes, only this file does.
//!
//! In: the file's text. Out: a [`Summary`].

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;

/// The file.
#[derive(Clone, Debug, Deserialize)]
pub struct Summary {
    /// When and what.
    pub trace: Trace,
    /// One entry per request type.
    pub requests: Vec<Request>,
    /// What was lost; causes with count 0 may be there or not.
    pub losses: Vec<Loss>,
    /// What the kernel programs cost.
    #[serde(default)]
    pub programs: Vec<Program>,
    /// How far user stacks were unwound.
    #[serde(default)]
    pub unwinding: Unwinding,
    /// One entry per request type, with blame.
    #[serde(default)]
    pub blame: Vec<Blame>,
}

/// What held the requests of one type up.
#[derive(Clone, Debug, Deserialize)]
pub struct Blame {
    /// The type.
    pub request: String,
    /// What they were queued behind; `None` when they never were.
    pub queue: Option<Queue>,
}

/// What requests were queued behind for their runtime.
#[derive(Clone, Debug, Deserialize)]
pub struct Queue {
    /// Queued, ns.
    pub queued_ns: u64,
    /// The parts of that.
    pub behind: Vec<Behind>,
}

/// A part of queued time.
#[derive(Clone, Debug, Deserialize)]
pub struct Behind {
    /// `request`, `no_request`, `asleep`, `no_cpu` or `unknown`.
    pub kind: String,
    /// The type of the requests that the thread ran meanwhile.
    pub request: Option<String>,
    /// Nanoseconds.
    pub ns: u64,
}

impl Queue {
    /// Nanoseconds behind what fits.
    pub fn behind(&self, fits: impl Fn(&Behind) -> bool) -> u64 {
        let behind = self.behind.iter().filter(|behind| fits(behind));
        behind.map(|behind| behind.ns).sum()
    }
}

/// What one kernel program cost; zeros unless `kernel.bpf_stats_enabled` is 1.
#[derive(Clone, Debug, Deserialize)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// How often it ran.
    pub runs: u64,
    /// Nanoseconds in all.
    pub run_ns: u64,
}

/// Off-CPU time in requests by how far its user stack was unwound, ns.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Unwinding {
    /// To the thread's outermost function.
    pub whole_ns: u64,
    /// By frame pointers, which cannot tell.
    pub frame_pointers_ns: u64,
    /// Ended early, by reason.
    pub truncated_ns: BTreeMap<String, u64>,
    /// What walking them took; with `-v` only.
    pub walks: Option<Walks>,
}

/// What walking user stacks took.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Walks {
    /// How often.
    pub walks: u64,
    /// Frames found.
    pub frames: u64,
    /// Nanoseconds in all.
    pub run_ns: u64,
    /// 999 of 1000 were shorter, ns.
    pub p999_ns: u64,
    /// The longest, ns.
    pub max_ns: u64,
}

impl Unwinding {
    /// Share of the time whose stack is whole, 0 to 1; 1 when there is no time.
    #[must_use]
    pub fn whole_share(&self) -> f64 {
        let truncated: u64 = self.truncated_ns.values().sum();
        let all = self.whole_ns + self.frame_pointers_ns + truncated;
        if all == 0 {
            1.0
        } else {
            self.whole_ns as f64 / all as f64
        }
    }
}

/// When and what.
#[derive(Clone, Debug, Deserialize)]
pub struct Trace {
    /// Add to `CLOCK_MONOTONIC` ns to get Unix ns.
    pub monotonic_to_unix_ns: i64,
    /// When all probes were set, Unix ns.
    pub start_unix_ns: u64,
    /// From then to its end, ns.
    pub duration_ns: u64,
    /// Seconds in which what came was counted against what the kernel has sent.
    #[serde(default)]
    pub seconds_checked: u64,
    /// All that were probed.
    pub markers: Vec<Marker>,
}

/// A marker.
#[derive(Clone, Debug, Deserialize)]
pub struct Marker {
    /// What was counted of it.
    pub counts: Option<MarkerCounts>,
}

/// What was counted of a marker.
#[derive(Clone, Debug, Deserialize)]
pub struct MarkerCounts {
    /// Hits that went on with a request which no thread ran.
    pub resumed: u64,
    /// Those of which nothing had made the request ready.
    pub not_ready: u64,
}

/// One request type.
#[derive(Clone, Debug, Deserialize)]
pub struct Request {
    /// Its name.
    pub name: String,
    /// Complete requests, counted in the kernel; an estimate when requests were sampled.
    pub count: u64,
    /// Complete requests, exact in any case.
    pub exact_count: u64,
    /// Complete requests whose record arrived.
    pub rows: u64,
    /// How often the begin marker was hit.
    pub begins: u64,
    /// How often the end marker was hit.
    pub ends: u64,
    /// Of these, how many closed nothing, but for the first of a thread born in the trace.
    pub ends_without_begin: u64,
    /// Incomplete requests by their reasons.
    #[serde(default)]
    pub incomplete: BTreeMap<String, u64>,
    /// Markers with a key that no request had; only of a type with keys.
    pub unknown_keys: Option<u64>,
    /// Markers with a key whose request another thread ran; only of a type with keys.
    pub running_elsewhere: Option<u64>,
    /// Units that its requests have made, and that are none of them; only of a type with keys.
    pub children: Option<u64>,
}

/// A cause of loss.
#[derive(Clone, Debug, Deserialize)]
pub struct Loss {
    /// Its name.
    pub name: String,
    /// How often.
    pub count: u64,
}

impl Summary {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// When it is not JSON or something is missing.
    pub fn read(text: &str) -> Result<Self> {
        serde_json::from_str(text).context("summary.json is not as agreed")
    }

    /// The request type of that name.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn request(&self, name: &str) -> Result<&Request> {
        let mut requests = self.requests.iter();
        requests
            .find(|request| request.name == name)
            .with_context(|| format!("summary.json has no request {name}"))
    }

    /// Everything that was lost, added up, but for what no tracer can help: see
    /// [`Summary::unseen`].
    #[must_use]
    pub fn lost(&self) -> u64 {
        let all: u64 = self.losses.iter().map(|loss| loss.count).sum();
        all - self.unseen()
    }

    /// Lines of the report that gave up their frames, because there were too many different ones. Their time
    /// is in the report: it is no loss of the kernel programs.
    #[must_use]
    pub fn merged(&self) -> u64 {
        let mut losses = self.losses.iter();
        let found = losses.find(|loss| loss.name == "stacks_merged");
        found.map_or(0, |loss| loss.count)
    }

    /// Switch-ins that the kernel told nobody of. On a machine whose kernel hides the switches of
    /// its own supervisor, these are the threads that come after it.
    #[must_use]
    pub fn unseen(&self) -> u64 {
        let mut losses = self.losses.iter();
        let found = losses.find(|loss| loss.name == "switch_in_unseen");
        found.map_or(0, |loss| loss.count)
    }
}
