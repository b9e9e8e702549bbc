//! Bounds: events in; whether a trace can have them out.
//!
//! Whoever made a recording chose its numbers. Everything behind this gate adds them up without a thought of
//! overflow, and keeps texts and lists as they are.

use std::iter;

use reqtrace_common::cpu::MAX_RUNNERS;
use reqtrace_common::limits::{MAX_FRAMES, MAX_PATH, MAX_STACK_SUMS};
use reqtrace_common::marker;
use reqtrace_recording::{
    Event, Header, Incomplete, Interval, IntervalKind, Request, Sent, SumOf, TypeTotals, Value,
    Window,
};

/// The latest time, and the longest: 36 years, ns.
const MAX_NS: u64 = 1 << 60;
/// The largest sum: two of them fit into a number.
const MAX_SUM: u64 = u64::MAX >> 1;
/// Bytes of the name of a function: those of C++ get long.
const MAX_NAME: usize = 64 << 10;
/// Bytes of a path.
const MAX_PATH_BYTES: usize = 8 * MAX_PATH;
/// Bytes of labels, attributes and names of threads.
const MAX_TEXT: usize = 4 * marker::MAX_TEXT;
/// Addresses of a stack, and functions that are inlined at one.
const MAX_DEPTH: usize = 4 * MAX_FRAMES;
/// Elements of lists that are short.
const MAX_FEW: usize = 1024;
/// Steps of the wall clock.
const MAX_CLOCK_STEPS: u64 = 1 << 17;
/// Requests that were open at the end.
const MAX_OPEN: u64 = 1 << 17;

/// What events have added up to.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounds {
    start_ns: u64,
    requests: u64,
    intervals: u64,
    windows: u64,
    counts: u64,
    open: u64,
    clock_steps: u64,
    /// Events that no trace has.
    pub(super) refused: u64,
}

/// Adds numbers to a sum, if it does not get too large.
fn charge(sum: &mut u64, more: impl Iterator<Item = u64>, weight: u32) -> bool {
    let more: u128 = more.map(u128::from).sum::<u128>() * u128::from(weight);
    let Ok(all) = u64::try_from(u128::from(*sum) + more) else {
        return false;
    };
    let fits = all <= MAX_SUM;
    if fits {
        *sum = all;
    }
    fits
}

fn are_times<const N: usize>(times: [u64; N]) -> bool {
    times.into_iter().all(|ns| ns <= MAX_NS)
}

impl Bounds {
    pub(super) fn new(header: &Header) -> Self {
        Self {
            start_ns: header.start_ns,
            ..Self::default()
        }
    }

    /// Whether it is an event that a trace can have. Counts it when it is not.
    pub(super) fn take(&mut self, event: &Event<'_>) -> bool {
        let fits = self.fits(event);
        self.refused += u64::from(!fits);
        fits
    }

    /// Whether half of what fits has come, of anything.
    pub(super) fn is_half_full(&self) -> bool {
        let sums = [self.requests, self.intervals, self.windows, self.counts];
        sums.into_iter().any(|sum| sum > MAX_SUM / 2)
            || self.open > MAX_OPEN / 2
            || self.clock_steps > MAX_CLOCK_STEPS / 2
    }

    fn fits(&mut self, event: &Event<'_>) -> bool {
        match event {
            Event::Process(process) => {
                are_times([process.time_ns]) && process.name.len() <= MAX_PATH_BYTES
            }
            Event::Object(object) => object.path.len() <= MAX_PATH_BYTES,
            Event::File(file) => file.path.len() <= MAX_PATH_BYTES,
            Event::Thread(thread) => thread.name.len() <= MAX_TEXT,
            Event::Futex(futex) => futex.lies_in.len() <= MAX_PATH_BYTES,
            Event::Name(name) => {
                let mut frames = name.frames.iter();
                name.frames.len() <= MAX_DEPTH && frames.all(|frame| frame.len() <= MAX_NAME)
            }
            Event::Stack(stack) => stack.addresses.len() <= MAX_DEPTH,
            Event::Request(request) => self.request(request),
            Event::Open(open) => {
                let attributes = open.attributes();
                let request = Request {
                    attributes: &attributes,
                    ..open.request()
                };
                let since = [
                    open.blocked_in.map(|blocked| blocked.since_ns),
                    open.away_in.map(|away| away.since_ns),
                ];
                self.open += 1;
                self.open <= MAX_OPEN
                    && are_times(since.map(Option::unwrap_or_default))
                    && self.request(&request)
            }
            Event::Interval(interval) => self.interval(interval),
            Event::Away(away) => {
                are_times([away.request.begin_ns, away.since_ns, away.until_ns])
                    && are_times([away.ran_until_ns])
                    && charge(
                        &mut self.intervals,
                        iter::once(away.since_ns.abs_diff(away.until_ns)),
                        1,
                    )
            }
            Event::CpuWait(wait) => {
                let runs = wait.runners.iter().map(|runner| runner.ns);
                let known_ns = runs.chain([wait.limited_ns]).try_fold(0, u64::checked_add);
                are_times([wait.from_ns, wait.until_ns])
                    && wait.cgroup.len() <= MAX_TEXT
                    && wait.runners.len() <= MAX_RUNNERS
                    && known_ns.is_some_and(|ns| ns <= wait.from_ns.abs_diff(wait.until_ns))
                    && charge(&mut self.intervals, known_ns.into_iter(), 1)
            }
            Event::Disk(disk) => {
                let bytes = disk.read_bytes.checked_add(disk.written_bytes);
                are_times([disk.from_ns, disk.issued_ns, disk.until_ns])
                    && disk.from_ns <= disk.until_ns
                    && disk.issued_ns <= disk.until_ns
                    && bytes.is_some_and(|bytes| bytes <= MAX_NS)
                    && disk.count <= MAX_NS
                    && disk.flushes <= disk.count
            }
            Event::Unrecorded(request) => {
                are_times([request.begin_ns, request.end_ns]) && request.begin_ns <= request.end_ns
            }
            Event::Origin(origin) => {
                are_times([origin.request.begin_ns, origin.until_ns, origin.arrived_ns])
            }
            Event::Sample(sample) => {
                are_times([sample.at_ns, sample.request.begin_ns])
                    && charge(&mut self.counts, iter::once(1), sample.weight)
            }
            Event::Tick(now_ns) => are_times([*now_ns]),
            Event::Sent(sent) => sent.second <= Sent::second_of(MAX_NS),
            Event::Clock(step) => {
                self.clock_steps += 1;
                self.clock_steps <= MAX_CLOCK_STEPS && are_times([step.at_ns])
            }
            Event::Window(window) => self.window(window),
            Event::Loss(loss) => {
                loss.name.len() <= MAX_TEXT && charge(&mut self.counts, iter::once(loss.count), 1)
            }
            Event::Cost(cost) => {
                let programs = cost.programs.iter();
                let walks = cost.walks.iter();
                let overhead = cost.overhead.iter();
                let numbers = programs
                    .flat_map(|program| [program.runs, program.run_ns, program.recursion_misses])
                    .chain(
                        walks
                            .flat_map(|of| [of.walks, of.frames, of.run_ns, of.p999_ns, of.max_ns]),
                    )
                    .chain(overhead.flat_map(|of| {
                        let traced = [of.processes_ns, of.elapsed_ns, of.hits];
                        [of.traps_ns, of.programs_ns, of.tracer_ns]
                            .into_iter()
                            .chain(traced)
                    }));
                cost.programs.len().max(cost.shed.len()) <= MAX_FEW
                    && cost
                        .programs
                        .iter()
                        .all(|program| program.name.len() <= MAX_TEXT)
                    && cost.shed.iter().all(|span| {
                        span.what.len() <= MAX_TEXT && are_times([span.from_ns, span.to_ns])
                    })
                    && charge(&mut 0, numbers, 1)
            }
            Event::End(end) => {
                are_times([end.stop_ns, end.late_children.slowest_ns])
                    && end.ended_by.len() <= MAX_TEXT
            }
            Event::Mapping(_) | Event::StacksAnew => true,
        }
    }

    fn request(&mut self, request: &Request<'_>) -> bool {
        let texts = request
            .attributes
            .iter()
            .map(|attribute| match attribute.value {
                Value::Text { bytes, .. } => bytes.len(),
                Value::Number(_) => 0,
            });
        let longest = request.longest.iter();
        let lists = [
            request.slots.len(),
            request.longest.len(),
            request.away.len(),
            request.attributes.len(),
        ];
        let is_one = are_times([request.begin_ns, request.end_ns])
            && lists.into_iter().all(|length| length <= MAX_FEW)
            && texts
                .chain([request.label.len()])
                .all(|length| length <= MAX_TEXT)
            && { longest }
                .all(|block| are_times([block.start_ns, block.blocked_ns, block.run_queue_ns]));
        if !is_one {
            return false;
        }
        let begin_ns = match request.incomplete {
            Some(Incomplete::RunningAtStart) => self.start_ns.min(request.end_ns),
            _ => request.begin_ns,
        };
        let sum = |times: &mut dyn Iterator<Item = u64>| times.fold(0, u64::saturating_add);
        let slots = sum(&mut request.slots.iter().map(|slot| slot.blocked_ns));
        let off_cpu_ns = sum(&mut [
            request.run_queue_ns,
            request.preempted_ns,
            request.unattributed_ns,
            request.blocked_ns.max(slots),
            request.away_ns(),
        ]
        .into_iter());
        let latency_ns = request.end_ns.saturating_sub(begin_ns);
        let times = [
            latency_ns.max(off_cpu_ns),
            request.waited_before_ns.unwrap_or_default(),
            request.lost.interrupts_ns,
            request.lost.softirqs_ns,
            request.lost.steal_ns,
        ];
        let counts = [
            1,
            request.blocks,
            request.preemptions,
            request.moves,
            request.max_depth,
        ];
        let away = request.away.iter().map(|away| away.count);
        let counts = counts.into_iter().chain(away).map(u64::from);
        charge(&mut self.requests, times.into_iter(), request.weight)
            && charge(&mut self.counts, counts, request.weight)
    }

    fn interval(&mut self, interval: &Interval) -> bool {
        let wake_ns = match interval.kind {
            IntervalKind::Blocked { wake_ns, .. } => wake_ns,
            IntervalKind::Preempted => interval.in_ns,
        };
        let begin_ns = interval.request.map_or(0, |of| of.begin_ns);
        are_times([interval.out_ns, wake_ns, interval.in_ns, begin_ns])
            && charge(
                &mut self.intervals,
                iter::once(interval.out_ns.abs_diff(interval.in_ns)),
                1,
            )
    }

    fn window(&mut self, window: &Window) -> bool {
        let lists = [
            window.totals.len(),
            window.sums.len(),
            window.histograms.len(),
        ];
        let totals = window.totals.iter().flat_map(numbers_of);
        let sums = window.sums.iter().flat_map(|of| {
            [
                of.sum.off_ns,
                of.sum.run_queue_ns,
                of.sum.count,
                of.sum.bytes,
            ]
        });
        let histograms = window.histograms.iter().flat_map(|of| of.lengths.counts);
        let is_long = |of: &SumOf| of.sum.longest_ns.max(of.sum.longest_run_queue_ns) > MAX_NS;
        are_times([window.until_ns])
            && lists
                .into_iter()
                .all(|length| length <= 4 * MAX_STACK_SUMS as usize)
            && window.totals.iter().all(|totals| totals.max_ns <= MAX_NS)
            && !window.sums.iter().any(is_long)
            && charge(&mut self.windows, totals.chain(sums).chain(histograms), 1)
    }
}

/// All that is added up of a request type.
fn numbers_of(totals: &TypeTotals) -> impl Iterator<Item = u64> + '_ {
    let times = [
        totals.latency_ns,
        totals.run_queue_ns,
        totals.preempted_ns,
        totals.blocked_ns,
        totals.unattributed_ns,
        totals.parked_ns,
        totals.queued_ns,
    ];
    let counts = [
        totals.count,
        totals.begins,
        totals.ends,
        totals.incomplete,
        totals.nested,
        totals.other_type,
        totals.ends_without_begin,
        totals.unsampled,
        totals.beyond,
        totals.unknown_keys,
        totals.running_elsewhere,
        totals.withheld,
        totals.children,
    ];
    times.into_iter().chain(counts).chain(totals.histogram)
}
