//! The trace itself: its header and later events of it in, [`TraceInfo`] out.

use std::collections::BTreeMap;

use reqtrace_base::plain::Plain;
use reqtrace_recording::{ClockStep, Cost, End, Header};

use super::processes::Processes;
use crate::report::{LateChildren, MarkerInfo, TraceInfo};

/// Lacks of a kernel that are shown: it has fewer features to lack.
const MAX_LACKS: usize = 16;

/// Steps of the clock that are known: later requests do not refer to older ones.
const MAX_CLOCK_STEPS: usize = 64;

/// Text of whoever made the recording.
fn plain(text: &str) -> String {
    Plain::of(text).into()
}

/// What is known of the trace.
#[derive(Debug)]
pub(super) struct Trace {
    header: Header,
    cost: Cost,
    end: Option<End>,
    /// When the wall clock was set.
    clock: Vec<ClockStep>,
    clock_steps: u64,
    /// The latest time of an event.
    seen_ns: u64,
}

impl Trace {
    pub(super) fn new(header: &Header) -> Self {
        Self {
            seen_ns: header.start_ns,
            header: header.clone(),
            cost: Cost::default(),
            clock: Vec::new(),
            clock_steps: 0,
            end: None,
        }
    }

    pub(super) fn start_ns(&self) -> u64 {
        self.header.start_ns
    }

    /// What `CLOCK_MONOTONIC` lacks to the wall clock at its start.
    pub(super) fn to_unix_ns(&self) -> i64 {
        self.header.monotonic_to_unix_ns
    }

    /// Nanoseconds since the Unix epoch, by the wall clock as it was then.
    pub(super) fn unix_ns(&self, monotonic_ns: u64) -> u64 {
        let after = self
            .clock
            .partition_point(|step| step.at_ns <= monotonic_ns);
        let step = after.checked_sub(1).and_then(|at| self.clock.get(at));
        monotonic_ns.saturating_add_signed(step.map_or(self.to_unix_ns(), |step| step.to_unix_ns))
    }

    /// Nanoseconds since the start, below 0 before it.
    pub(super) fn since_start_ns(&self, monotonic_ns: u64) -> i64 {
        let start_ns = self.header.start_ns;
        monotonic_ns
            .checked_signed_diff(start_ns)
            .unwrap_or(i64::MAX)
    }

    /// The wall clock was set.
    pub(super) fn clock(&mut self, step: ClockStep) {
        self.clock_steps += 1;
        if self.clock.len() == MAX_CLOCK_STEPS {
            self.clock.remove(0);
        }
        let last_ns = self.clock.last().map_or(0, |last| last.at_ns);
        self.clock.push(ClockStep {
            at_ns: step.at_ns.max(last_ns),
            ..step
        });
    }

    /// How often it was set.
    pub(super) fn clock_steps(&self) -> u64 {
        self.clock_steps
    }

    /// Something happened then.
    pub(super) fn seen(&mut self, now_ns: u64) {
        self.seen_ns = self.seen_ns.max(now_ns);
    }

    pub(super) fn set_cost(&mut self, cost: Cost) {
        self.cost = cost;
    }

    pub(super) fn end(&mut self, end: &End) {
        self.end = Some(end.clone());
    }

    /// When it ended, or until when it is known.
    pub(super) fn stop_ns(&self) -> u64 {
        self.end.as_ref().map_or(self.seen_ns, |end| end.stop_ns)
    }

    /// What the tracer has cost.
    pub(super) fn cost(&self) -> &Cost {
        &self.cost
    }

    /// Whether records were chosen at the ends of requests.
    pub(super) fn keeps_slow(&self) -> bool {
        self.header.options.keep_slow_ns > 0
    }

    /// What was traced, for the report.
    pub(super) fn info(&self, processes: &Processes) -> TraceInfo {
        let header = &self.header;
        let markers = header.markers.iter().map(|marker| MarkerInfo {
            request: plain(&marker.request),
            marker: plain(&marker.marker),
            place: plain(&marker.place),
            object: plain(&marker.object),
            probes: usize::try_from(marker.probes).unwrap_or(usize::MAX),
            counts: None,
        });
        let keeps_slow = self.keeps_slow();
        TraceInfo {
            version: plain(&header.version),
            profile: plain(&header.profile),
            processes: processes.listed(),
            unlisted_processes: processes.unlisted(),
            kernel: plain(&header.kernel),
            start_unix_ns: self.unix_ns(header.start_ns),
            monotonic_to_unix_ns: header.monotonic_to_unix_ns,
            duration_ns: self.stop_ns().saturating_sub(header.start_ns),
            ended_by: self
                .end
                .as_ref()
                .map_or("recording ended".to_owned(), |end| plain(&end.ended_by)),
            seconds_checked: 0,
            markers: markers.collect(),
            unmatched_waits: header
                .unmatched_waits
                .iter()
                .map(|unmatched| (unmatched.wait.clone(), unmatched.functions.clone()))
                .collect(),
            lacks: header
                .lacks
                .iter()
                .take(MAX_LACKS)
                .map(|lack| plain(lack))
                .collect(),
            overhead: self.cost.overhead,
            untraced: self.cost.untraced,
            cold_percent: self.cost.cold_percent,
            shed: self.cost.shed.clone(),
            sockets: header.sockets.iter().map(|kind| plain(kind)).collect(),
            stack_filter: plain(&header.options.stack_filter),
            preempted_stacks: header.options.preempted_stacks,
            keep_slow_ns: keeps_slow.then_some(header.options.keep_slow_ns),
            one_in: keeps_slow.then_some(header.options.one_in),
            host: plain(&header.host),
            alike: alike(header),
            late_children: self
                .end
                .as_ref()
                .map_or_else(LateChildren::default, |end| end.late_children),
        }
    }
}

/// What ought to be the same of two traces.
fn alike(header: &Header) -> BTreeMap<String, String> {
    let options = &header.options;
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let texts: Vec<&str> = header.profile_texts().collect();
    let known = [
        ("profile", plain(&header.profile)),
        ("profile's text", short_hash(&texts.concat())),
        ("machine", plain(&header.host)),
        ("kernel", plain(&header.kernel)),
        ("architecture", plain(&header.architecture)),
        ("reqtrace", plain(&header.version)),
        ("--labels", yes(options.labels)),
        ("--blame", yes(header.blame)),
        ("--before", yes(header.before)),
        ("--cpu-rate", header.cpu_rate.to_string()),
        ("user stacks", yes(!options.no_user_stacks)),
        ("kernel stacks", yes(!options.no_kernel_stacks)),
        ("stacks only of blocks", plain(&options.stack_filter)),
        ("stacks of preemptions", yes(options.preempted_stacks)),
        ("--keep-slow, ns", options.keep_slow_ns.to_string()),
    ];
    let cpus = (header.cpus > 0).then(|| ("CPUs", header.cpus.to_string()));
    let model = Some(("CPU", plain(&header.cpu_model))).filter(|(_, model)| !model.is_empty());
    let all = known.into_iter().chain(cpus).chain(model);
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A text is named by its hash (FNV-1a): only whether it is the same counts.
fn short_hash(text: &str) -> String {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, add))
}
