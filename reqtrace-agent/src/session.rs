//! The session of one rule: its first processes in; a trace in a thread of its own, whose windows go to the metrics and
//! whose requests go to the rows, out.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use log::{info, warn};
use reqtrace_analysis::aggregate::{self, Aggregator};
use reqtrace_analysis::classify::columns::Columns;
use reqtrace_analysis::report::{Exporter, Ledger, Places};
use reqtrace_base::error::{Error, Result};
use reqtrace_capture::attach::Running;
use reqtrace_capture::attach::guard::Shed;
use reqtrace_capture::events::{EventSink, Notice};
use reqtrace_capture::tracer::{EndedBy, Roster, Stopper, Tracer};
use reqtrace_profile::Profile;
use reqtrace_recording::{Ending, Event};
use rustix::time::{ClockId, clock_gettime};

use crate::config::{GroupBy, Share};
use crate::metrics::{Closed, Metrics, Shown, parts};
use crate::open_windows::{Open, Windows};
use crate::otlp::{self, About, Spans, SpansExporter};
use crate::rows::{Chosen, Of, Queue, RowsExporter};

/// What makes two sessions alike: one of them can go on when the configuration is read again.
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
    /// Bytes of the kernel's tables.
    pub(crate) memory: Option<u64>,
    pub(crate) window: Duration,
}

/// Where its figures and rows go.
#[derive(Clone, Debug)]
pub(crate) struct Outputs {
    pub(crate) metrics: Arc<Metrics>,
    /// `None`: no rows are kept.
    pub(crate) rows: Option<Queue>,
    /// `None`: no spans are sent.
    pub(crate) spans: Option<otlp::Queue>,
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
    let metrics = outputs.metrics.as_ref();
    let service = spec.service.clone();
    let mut tracer = Tracer::new((*spec.profile).clone())
        // Nothing here shows stacks. What a profile names by its functions is looked for all the same.
        .samples(None)
        .user_stacks(false)
        .blame(spec.blame)
        .labels(spec.texts)
        .max_probe_rate(max_probe_rate(spec.max_cost))
        .may_leave_out(spec.window)
        .one_of_many()
        .max_overhead(spec.max_cost.percent())
        .memory(spec.memory)
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
        ..aggregate::Options::default()
    };
    let analysis = Aggregator::new(&profiles, trace.header(), options)?;
    let (classes, places) = (analysis.classes(), analysis.places().clone());
    let empty = Ledger::of(classes.len(), &places);
    let names: Vec<String> = parts(&empty, &classes, &places)
        .map(|(name, _)| name)
        .collect();
    metrics.begin(
        &spec.service,
        &profiles.request_names(),
        &Shown {
            parts: &names,
            has_causes: spec.blame,
            has_groups: spec.groups.is_some(),
        },
    );
    started(Handles {
        stopper: trace.stopper(),
        roster: trace.roster(),
    });
    let (open, window_ns) = (Rc::default(), nanoseconds(spec.window));
    let chosen = match &outputs.rows {
        Some(queue) => {
            let of = Of {
                service: spec.service.clone(),
                profile: spec.profile.name.clone(),
                kernel: trace.header().kernel.clone(),
                columns: Columns::of(&profiles)?,
                has_causes: spec.blame,
                texts: spec.texts,
            };
            Some(Rc::new(RefCell::new(Chosen::new(of, queue.clone()))))
        }
        None => None,
    };
    let windows = Windows {
        window_ns,
        open: Rc::clone(&open),
        has_groups: spec.groups.is_some(),
    };
    let mut exporters: Vec<Box<dyn Exporter>> = vec![Box::new(windows)];
    if let Some(chosen) = &chosen {
        exporters.push(Box::new(RowsExporter(Rc::clone(chosen))));
    }
    let spans = match &outputs.spans {
        Some(queue) => {
            let about = About {
                service: spec.service.clone(),
                classes: classes.clone(),
                places: places.clone(),
                attributes: Columns::of(&profiles)?.attributes,
                texts: spec.texts,
            };
            let spans = Spans::new(about, queue.clone());
            Some(Rc::new(RefCell::new(spans)))
        }
        None => None,
    };
    if let Some(spans) = &spans {
        exporters.push(Box::new(SpansExporter(Rc::clone(spans))));
    }
    let mut sink = Sink {
        to: HandOver {
            service: &spec.service,
            metrics,
            classes,
            places,
            most_groups: spec.groups.as_ref().map_or(0, |groups| groups.most),
        },
        window_ns,
        exporters,
        analysis,
        open,
        chosen: chosen.clone(),
        spans,
    };
    let finished = trace.run(&mut sink);
    let (mut finished, result) = match finished {
        Ok(finished) => (finished, sink.finish()),
        Err(error) => {
            chosen.iter().for_each(|chosen| chosen.borrow_mut().end());
            return Err(error);
        }
    };
    chosen.iter().for_each(|chosen| chosen.borrow_mut().end());
    finished.detach();
    result?;
    Ok(match finished.ended_by {
        EndedBy::Dear => Ended::Dear,
        _ => Ended::Stopped,
    })
}

/// Makes the model, and hands its closed windows on.
struct Sink<'a> {
    to: HandOver<'a>,
    window_ns: u64,
    analysis: Aggregator,
    exporters: Vec<Box<dyn Exporter>>,
    open: Rc<RefCell<Open>>,
    chosen: Option<Rc<RefCell<Chosen>>>,
    spans: Option<Rc<RefCell<Spans>>>,
}

/// Where closed windows go.
struct HandOver<'a> {
    service: &'a str,
    metrics: &'a Metrics,
    classes: Vec<String>,
    places: Places,
    /// Groups that are told apart.
    most_groups: u32,
}

impl HandOver<'_> {
    fn windows(&self, closed: Open, until_unix_ns: u64) {
        let mut types: Vec<(String, Closed)> = closed.into_values().flatten().collect();
        for (_, of_type) in &mut types {
            of_type.name_parts(&self.classes, &self.places);
        }
        let types = types.iter().map(|(name, closed)| (name, closed));
        let most_groups = self.most_groups as usize;
        self.metrics
            .closed(self.service, until_unix_ns, most_groups, types);
    }
}

impl Sink<'_> {
    /// Closes windows that end until then, ns since the Unix epoch.
    fn close(&self, until_unix_ns: u64) {
        let next_ns = until_unix_ns - until_unix_ns % self.window_ns;
        let mut open = self.open.borrow_mut();
        let later = open.split_off(&next_ns);
        let closed = std::mem::replace(&mut *open, later);
        self.to.windows(closed, next_ns);
    }

    /// Tracing is over: what is left counts too.
    fn finish(self) -> Result<()> {
        let Self {
            to,
            analysis,
            mut exporters,
            open,
            window_ns: _,
            chosen: _,
            spans: _,
        } = self;
        let whole = Ending {
            ended: true,
            ..Ending::default()
        };
        analysis.finish(&whole, &mut exporters)?;
        to.windows(open.take(), unix_ns());
        Ok(())
    }
}

impl EventSink for Sink<'_> {
    fn event(&mut self, event: &Event<'_>) -> Result<ControlFlow<()>> {
        if let Event::Loss(loss) = event {
            self.to
                .metrics
                .lost(self.to.service, &loss.name, loss.count);
        }
        self.analysis.event(event, &mut self.exporters)?;
        Ok(ControlFlow::Continue(()))
    }

    fn look(&mut self, overhead: Option<[f64; 2]>) {
        if let Some([_, most]) = overhead {
            self.to.metrics.cost(self.to.service, most);
        }
        self.chosen
            .iter()
            .for_each(|chosen| chosen.borrow_mut().look());
        self.spans
            .iter()
            .for_each(|spans| spans.borrow_mut().look());
        // What was sealed has been handed over: until then nothing comes any more.
        let behind_ns = monotonic_ns().saturating_sub(self.analysis.cells().sealed_ns());
        self.close(unix_ns().saturating_sub(behind_ns));
    }

    fn shed(&mut self, shed: Shed) {
        self.to.metrics.shed(self.to.service, shed);
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
        self.to.metrics.open(self.to.service, all as u64, oldest_ns);
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn clock_ns(clock: ClockId) -> u64 {
    let now: Duration = clock_gettime(clock).try_into().unwrap_or_default();
    nanoseconds(now)
}

fn unix_ns() -> u64 {
    clock_ns(ClockId::Realtime)
}

fn monotonic_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}
