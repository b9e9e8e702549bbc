//! The session of one rule: its first processes in; a trace in a thread of its own, whose model goes to a [`Sink`], out.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use log::{info, warn};
use reqtrace_analysis::aggregate::{self, Aggregator};
use reqtrace_base::error::{Error, Result};
use reqtrace_capture::attach::Running;
use reqtrace_capture::attach::guard::Shed;
use reqtrace_capture::events::{EventSink, Notice};
use reqtrace_capture::tracer::{EndedBy, Roster, Stopper, Tracer};
use reqtrace_profile::Profile;
use reqtrace_recording::{Ending, Event};
use rustix::time::{ClockId, clock_gettime};

use crate::config::{GroupBy, Share};
use crate::memory::RuleMemory;
use crate::moment::Moment;
use crate::sink::{Outputs, Served, Sink};

const SECOND_NS: u64 = 1_000_000_000;

/// What a session does, and with what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) service: String,
    pub(crate) profile: Box<Profile>,
    /// Whoever runs it is traced from its first instruction.
    pub(crate) program: Option<PathBuf>,
    pub(crate) max_cost: Share,
    pub(crate) blame: bool,
    /// Rows have texts.
    pub(crate) texts: bool,
    /// Requests are counted by group.
    pub(crate) groups: Option<GroupBy>,
    /// A session keeps what it began with.
    pub(crate) memory: RuleMemory,
    pub(crate) window: Duration,
    /// Stacks are handed over by periods of this length; `None`: nobody takes any.
    pub(crate) stacks_every: Option<Duration>,
}

impl Spec {
    /// Whether a session of this one can go on as one of the other.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let memory = other.memory;
        let this = Self {
            memory,
            ..self.clone()
        };
        this == *other
    }
}

/// A session that begins or runs.
#[derive(Debug)]
pub(crate) struct Session {
    started: Receiver<Handles>,
    handles: Option<Handles>,
    thread: JoinHandle<Result<Ended>>,
}

/// How a session has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was stopped.
    Stopped,
    /// It took more than it may, whatever was left out.
    Dear,
}

#[derive(Debug)]
struct Handles {
    stopper: Stopper,
    roster: Roster,
}

impl Session {
    /// Begins one with these processes.
    ///
    /// # Errors
    ///
    /// When there can be no more threads.
    pub(crate) fn begin(spec: &Spec, pids: Vec<u32>, outputs: &Outputs) -> Result<Self> {
        let (send, started) = mpsc::channel();
        let (spec, outputs) = (spec.clone(), outputs.clone());
        let thread = Builder::new()
            .name("reqtrace-session".to_owned())
            .spawn(move || {
                let result = run(&spec, &pids, &outputs, |handles| {
                    // It is received until the thread is joined.
                    let _ = send.send(handles);
                });
                let is_dear = matches!(result, Ok(Ended::Dear));
                outputs
                    .metrics
                    .ended(&spec.service, result.is_err(), is_dear);
                result
            })
            .map_err(|error| Error::failed("a session could not begin").because(error))?;
        Ok(Self {
            started,
            handles: None,
            thread,
        })
    }

    /// What adds and removes processes, once everything is attached.
    pub(crate) fn roster(&mut self) -> Option<&Roster> {
        if self.handles.is_none() {
            self.handles = self.started.try_recv().ok();
        }
        self.handles.as_ref().map(|handles| &handles.roster)
    }

    /// Whether it has ended by itself.
    pub(crate) fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Tells it to end; one that begins ends when it has begun.
    pub(crate) fn stop(&mut self) {
        if self.handles.is_none() {
            self.handles = self.started.recv().ok();
        }
        if let Some(handles) = &self.handles {
            handles.stopper.stop();
        }
    }

    /// Waits for its end: its probes are out then.
    ///
    /// # Errors
    ///
    /// Why it could not begin, or ended.
    pub(crate) fn wait(self) -> Result<Ended> {
        let panicked = |_| {
            Err(Error::failed(
                "its session panicked: please report this as a bug",
            ))
        };
        self.thread.join().unwrap_or_else(panicked)
    }
}

/// What the probes may take at the start, percent: only one window in 16 may be traced then, but those are felt, too.
fn max_probe_rate(max_cost: Share) -> f64 {
    (max_cost.percent() * 16.0).min(50.0)
}

/// Traces until it is stopped, or too dear.
fn run(
    spec: &Spec,
    pids: &[u32],
    outputs: &Outputs,
    started: impl FnOnce(Handles),
) -> Result<Ended> {
    let service = spec.service.clone();
    let mut tracer = Tracer::new((*spec.profile).clone())
        .samples(None)
        // Where nothing shows stacks, what a profile names by its functions is looked for all the same.
        .user_stacks(spec.stacks_every.is_some())
        .blame(spec.blame)
        .labels(spec.texts)
        .max_probe_rate(max_probe_rate(spec.max_cost))
        .may_leave_out(spec.window)
        .one_of_many()
        .max_overhead(spec.max_cost.percent())
        .memory(spec.memory.tables)
        .file_memory(Some(spec.memory.files))
        .on_notice(move |notice| match notice {
            Notice::Warning(text) => warn!("{service}: {text}"),
            Notice::Note(text) => info!("{service}: {text}"),
            Notice::Compiling(_) => {}
        });
    tracer = pids.iter().fold(tracer, |tracer, pid| tracer.pid(*pid));
    tracer = spec.program.iter().fold(tracer, Tracer::program);
    let (trace, profiles) = tracer.start_with(|profiles| Ok(profiles.clone()))?;
    let options = aggregate::Options {
        group_by: spec.groups.as_ref().map(|groups| groups.by.clone()),
        groups_by_second: true,
        stacks_every_ns: spec.stacks_every.map(ns),
        // Nobody sees its report.
        without_verdict: true,
        ..aggregate::Options::default()
    };
    let analysis = Aggregator::new(&profiles, trace.header(), options)?;
    let served = Served {
        service: &spec.service,
        profile: &spec.profile.name,
        kernel: &trace.header().kernel,
        profiles: &profiles,
        has_causes: spec.blame,
        texts: spec.texts,
        window: spec.window,
        begin: now(),
        most_groups: spec.groups.as_ref().map(|groups| groups.most),
    };
    let sink = Sink::new(&served, outputs)?;
    started(Handles {
        stopper: trace.stopper(),
        roster: trace.roster(),
    });
    let mut live = Live { analysis, sink };
    let mut finished = match trace.run(&mut live) {
        Ok(finished) => finished,
        Err(error) => {
            let service = &spec.service;
            if let Err(error) = live.end(false, now()) {
                warn!("{service}: what came before its session failed is not whole: {error}");
            }
            return Err(error);
        }
    };
    let result = live.end(true, now());
    finished.detach();
    result?;
    Ok(match finished.ended_by {
        EndedBy::Dear => Ended::Dear,
        _ => Ended::Stopped,
    })
}

/// Makes the model, and hands what comes of it on.
struct Live {
    analysis: Aggregator,
    sink: Sink,
}

impl Live {
    /// Tracing is over, as it should be (`is_whole`) or not: what has come counts all the same.
    fn end(self, is_whole: bool, now: Moment) -> Result<()> {
        let Self { analysis, mut sink } = self;
        let ending = Ending {
            ended: is_whole,
            ..Ending::default()
        };
        let report = analysis.finish(&ending, sink.exporters());
        sink.close_all(now);
        sink.end();
        report.map(drop)
    }
}

impl EventSink for Live {
    fn event(&mut self, event: &Event<'_>) -> Result<ControlFlow<()>> {
        if let Event::Loss(loss) = event {
            self.sink.lost(&loss.name, loss.count);
        }
        self.analysis.event(event, self.sink.exporters())?;
        // Full, it would refuse whatever comes.
        if matches!(event, Event::Tick(_)) && self.analysis.is_half_full() {
            info!(
                "{}: its session has added up half of what fits into its sums, and ends: a new one begins at once",
                self.sink.service()
            );
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    }

    fn look(&mut self, overhead: Option<[f64; 2]>) {
        if let Some([_, most]) = overhead {
            self.sink.cost(most);
        }
        self.sink.look();
        // What was sealed has been handed over: until then nothing comes any more.
        let sealed_ns = self.analysis.cells().sealed_ns();
        let now = now();
        let until = now.before(now.monotonic_ns.saturating_sub(sealed_ns));
        self.sink.close(until);
        // A second belongs to the period in which it begins.
        let until_ns = until.unix_ns.saturating_sub(SECOND_NS);
        let closed = self.analysis.close_stacks(until_ns, self.sink.exporters());
        if let Err(error) = closed {
            warn!("{error}");
        }
    }

    fn shed(&mut self, shed: Shed) {
        self.sink.shed(shed, monotonic_ns());
    }

    // Losses come with them.
    fn wants_windows(&self) -> bool {
        true
    }

    fn wants_running(&self) -> bool {
        true
    }

    fn running(&mut self, requests: &[Running], all: usize, now_ns: u64) {
        let begins = requests.iter().map(|running| running.open.request.begin_ns);
        let oldest_ns = begins
            .min()
            .map_or(0, |begin_ns| now_ns.saturating_sub(begin_ns));
        self.sink.open(all as u64, oldest_ns);
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn clock_ns(clock: ClockId) -> u64 {
    let now: Duration = clock_gettime(clock).try_into().unwrap_or_default();
    ns(now)
}

fn monotonic_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}

fn now() -> Moment {
    Moment {
        monotonic_ns: monotonic_ns(),
        unix_ns: clock_ns(ClockId::Realtime),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use reqtrace_profile::Profiles;
    use reqtrace_recording::{ClockStep, Header, Request};

    use super::*;
    use crate::listen::Page as _;
    use crate::metrics::{Metrics, Target};

    /// A session of `shop` that began at the second 100 of both clocks, with windows of 10 s.
    fn live() -> (Live, Arc<Metrics>) {
        let text = include_str!("../../examples/shop/shop.toml");
        let profiles = Profiles::parse([text], "shop.toml").unwrap();
        let metrics = Arc::<Metrics>::default();
        metrics.want(&[("shop".to_owned(), None)].into());
        metrics.targets(&[("shop", 1)].into(), [(Target::Traced, 1)].into());
        let outputs = Outputs {
            metrics: Arc::clone(&metrics),
            rows: None,
            rollups: None,
            spans: None,
            stacks: None,
        };
        let served = Served {
            service: "shop",
            profile: "shop",
            kernel: "6.18",
            profiles: &profiles,
            has_causes: false,
            texts: false,
            window: Duration::from_secs(10),
            begin: second(100),
            most_groups: None,
        };
        let sink = Sink::new(&served, &outputs).unwrap();
        let options = aggregate::Options {
            groups_by_second: true,
            ..aggregate::Options::default()
        };
        let analysis = Aggregator::new(&profiles, &Header::default(), options).unwrap();
        (Live { analysis, sink }, metrics)
    }

    fn second(second: u64) -> Moment {
        Moment {
            monotonic_ns: second * SECOND_NS,
            unix_ns: second * SECOND_NS,
        }
    }

    /// One that begins when the session does, and ends then.
    fn request(end_ns: u64, weight: u32) -> Event<'static> {
        Event::Request(Request {
            id: 1,
            begin_ns: 100 * SECOND_NS,
            end_ns,
            weight,
            ..Request::default()
        })
    }

    fn counted(metrics: &Metrics) -> u64 {
        let name = "reqtrace_request_duration_seconds_count{service=\"shop\",type=\"order\"} ";
        let page = metrics.text().unwrap();
        let count = page.lines().find_map(|line| line.strip_prefix(name));
        count.unwrap_or_else(|| panic!("{page}")).parse().unwrap()
    }

    #[test]
    fn a_session_ends_for_a_new_one_before_its_sums_are_full() {
        let (mut live, metrics) = live();
        let mut at_tick = |event: &Event<'_>| {
            assert!(live.event(event).unwrap().is_continue());
            live.event(&Event::Tick(101 * SECOND_NS)).unwrap()
        };
        assert!(at_tick(&request(101 * SECOND_NS, 1)).is_continue());
        // A month of 2,000 requests at a time.
        let dear = request(101 * SECOND_NS, u32::MAX);
        assert!(at_tick(&dear).is_continue());
        let long = request(1 << 40, 1 << 22);
        assert!(at_tick(&long).is_break());
        live.end(true, second(2_000)).unwrap();
        assert_eq!(counted(&metrics), 1 + u64::from(u32::MAX) + (1 << 22));
    }

    #[test]
    fn what_came_before_a_session_failed_counts() {
        let (mut live, metrics) = live();
        for end_s in [101, 109, 111] {
            let event = request(end_s * SECOND_NS, 1);
            assert!(live.event(&event).unwrap().is_continue());
        }
        assert_eq!(counted(&metrics), 0);
        live.end(false, second(112)).unwrap();
        assert_eq!(counted(&metrics), 3);
    }

    #[test]
    fn a_clock_that_was_set_back_holds_no_window_back() {
        let (mut live, metrics) = live();
        let set = |at_s, ahead_s: u64| ClockStep {
            at_ns: at_s * SECOND_NS,
            to_unix_ns: (ahead_s * SECOND_NS).cast_signed(),
        };
        let events = [
            Event::Clock(&set(101, 3_600)),
            request(105 * SECOND_NS, 1),
            Event::Clock(&set(106, 0)),
            request(107 * SECOND_NS, 1),
            Event::Tick(119 * SECOND_NS),
        ];
        let until = |metrics: &Metrics| {
            let name = "reqtrace_window_end_timestamp_seconds{service=\"shop\"} ";
            let page = metrics.text().unwrap();
            let until = page.lines().find_map(|line| line.strip_prefix(name));
            until.map(str::to_owned)
        };
        // The window in which it began is that of the session of before, too.
        live.sink.close(second(105));
        assert_eq!(until(&metrics), None);
        for event in events {
            assert!(live.event(&event).unwrap().is_continue());
        }
        let ahead = |at_s| Moment {
            unix_ns: (3_600 + at_s) * SECOND_NS,
            ..second(at_s)
        };
        let closed = |at: Moment| {
            live.sink.close(at);
            (counted(&metrics), until(&metrics))
        };
        let of_end = |end: &str| Some(end.to_owned());
        assert_eq!(closed(second(119)), (2, of_end("110.0")));
        assert_eq!(closed(ahead(120)), (2, of_end("3720.0")));
        assert_eq!(closed(second(130)), (2, of_end("130.0")));
    }
}
