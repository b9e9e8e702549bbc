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
        begin_unix_ns: unix_ns(),
        most_groups: spec.groups.as_ref().map(|groups| groups.most),
    };
    let sink = Sink::new(&served, outputs)?;
    started(Handles {
        stopper: trace.stopper(),
        roster: trace.roster(),
    });
    let mut live = Live { analysis, sink };
    let finished = trace.run(&mut live);
    let Live { analysis, mut sink } = live;
    let (mut finished, result) = match finished {
        Ok(finished) => {
            // Tracing is over: what is left counts too.
            let whole = Ending {
                ended: true,
                ..Ending::default()
            };
            let report = analysis.finish(&whole, sink.exporters());
            (finished, report.map(|_| sink.close_all(unix_ns())))
        }
        Err(error) => {
            sink.end();
            return Err(error);
        }
    };
    sink.end();
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

impl EventSink for Live {
    fn event(&mut self, event: &Event<'_>) -> Result<ControlFlow<()>> {
        if let Event::Loss(loss) = event {
            self.sink.lost(&loss.name, loss.count);
        }
        self.analysis.event(event, self.sink.exporters())?;
        Ok(ControlFlow::Continue(()))
    }

    fn look(&mut self, overhead: Option<[f64; 2]>) {
        if let Some([_, most]) = overhead {
            self.sink.cost(most);
        }
        self.sink.look();
        // What was sealed has been handed over: until then nothing comes any more.
        let behind_ns = monotonic_ns().saturating_sub(self.analysis.cells().sealed_ns());
        let until_ns = unix_ns().saturating_sub(behind_ns);
        self.sink.close(until_ns);
        // A second belongs to the period in which it begins.
        let until_ns = until_ns.saturating_sub(SECOND_NS);
        let closed = self.analysis.close_stacks(until_ns, self.sink.exporters());
        if let Err(error) = closed {
            warn!("{error}");
        }
    }

    fn shed(&mut self, shed: Shed) {
        self.sink.shed(shed, unix_ns());
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

fn unix_ns() -> u64 {
    clock_ns(ClockId::Realtime)
}

fn monotonic_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}
