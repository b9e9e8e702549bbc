//! A trace that runs: everything attached in; events while it goes, then the report, out.

use std::fmt;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::time::Instant;

use log::info;
use reqtrace_recording::{Cost, Event, Recorder};

use super::Options;
use super::follow::{EndedBy, Follower, Keyed};
use super::guarding::Guarding;
use super::latecomers::Latecomers;
use super::stopper::Stopper;
use crate::aggregate::Aggregator;
use crate::attach::{Engine, Session};
use crate::capture::{Names, Notices, Observer, Stream};
use crate::error::Result;
use crate::kernel;
use crate::kernel::give_up::{StillNeeded, give_up};
use reqtrace_analysis::report::{Exporter, Report, Untraced};

/// The first kernel whose maps may be used by whoever has their descriptors, although
/// `kernel.unprivileged_bpf_disabled` is set.
const MAPS_BY_DESCRIPTOR: (u32, u32) = (5, 19);

/// A trace with everything attached, made by [`super::Tracer::start`]. Requests are counted from its
/// start on; they wait in the kernel's ring until it is run.
pub struct Trace {
    session: Session,
    events: Events,
    options: Options,
    notices: Notices,
    stopper: Stopper,
    /// While it is open the kernel counts the time of programs.
    stats: Option<OwnedFd>,
}

/// What makes events, and where they go.
pub(super) struct Events {
    pub(super) analysis: Aggregator,
    pub(super) exporters: Vec<Box<dyn Exporter>>,
    /// And its name, for messages.
    pub(super) recorder: Option<(Recorder, String)>,
    pub(super) names: Names,
    pub(super) request_types: usize,
    pub(super) keyed: Keyed,
    /// All processes that are traced from the start on.
    pub(super) pids: Vec<u32>,
    pub(super) latecomers: Latecomers,
    /// What they took before.
    pub(super) untraced: Option<Untraced>,
    /// See [`Cost::cold_percent`].
    pub(super) cold_percent: u32,
}

/// A trace that is over: the outputs are written, and the probes are being taken out, which
/// [`Finished::detach`] and the end of this wait for.
#[non_exhaustive]
pub struct Finished {
    /// What it found out.
    pub report: Report,
    /// Why it ended.
    pub ended_by: EndedBy,
    /// Whether all outputs are whole.
    pub outputs: Result<()>,
    /// Whether the recording is whole; no error when none was wanted.
    pub recording: Result<()>,
    session: Session,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace")
            .field("pids", &self.events.pids)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finished")
            .field("ended_by", &self.ended_by)
            .finish_non_exhaustive()
    }
}

impl Trace {
    pub(super) fn new(
        session: Session,
        events: Events,
        stats: Option<OwnedFd>,
        options: Options,
        notices: Notices,
        stopper: Stopper,
    ) -> Self {
        Self {
            session,
            events,
            options,
            notices,
            stopper,
            stats,
        }
    }

    /// What ends it from another thread, or from a signal handler.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Gives up the privileges that this trace needs no more, of the calling thread, which has to be the one
    /// that runs it: from now on it reads processes, and no more. The kernel's tables and links are open.
    /// The arguments say what the caller still does: give
    /// names to files in folders of other users, and send signals to a program that it has started.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn give_up_privileges(&self, foreign_folders: bool, signals: bool) -> Result<()> {
        let left = give_up(StillNeeded {
            perf_probes: self.options.follow && self.session.engine() == Engine::PerfEvents,
            maps: kernel::running_version().is_none_or(|version| version < MAPS_BY_DESCRIPTOR),
            foreign_folders,
            signals,
        })?;
        info!("privileges left: {}", left.join(", "));
        Ok(())
    }

    /// Runs it to its end: calls a function for each event, after the model has taken it, and reports.
    /// The function ends it with `Break`.
    ///
    /// # Errors
    ///
    /// When the kernel's maps cannot be read, or an output cannot be written.
    pub fn run(
        self,
        mut on_event: impl FnMut(&Event<'_>, &Aggregator) -> ControlFlow<()>,
    ) -> Result<Finished> {
        self.run_with(&mut on_event)
    }

    /// Runs it to its end with an observer.
    ///
    /// # Errors
    ///
    /// As [`Trace::run`].
    pub fn run_with(self, observer: &mut dyn Observer) -> Result<Finished> {
        let Self {
            mut session,
            events,
            options,
            notices,
            stopper,
            stats,
        } = self;
        let mut stream = Stream::new(events.analysis, events.exporters, observer, notices.clone());
        if let Some((recorder, name)) = events.recorder {
            stream.record(recorder, &name);
        }
        let (names, types) = (events.names, events.request_types);
        let mut follower = Follower::new(
            stream,
            names,
            types,
            &events.pids,
            (stopper, events.latecomers),
            events.keyed,
        )?;
        let alive = follower.processes().alive();
        let mut guarding = Guarding::new(options.max_overhead, alive, notices);
        let ended_by = follower.run(&mut session, options.duration, &mut guarding)?;
        follower.ended();
        let reporting = Instant::now();
        let stop_ns = session.stop()?;
        // What is read from now on is in the kernel's tables and in ours.
        session.begin_detach()?;
        let (overhead, shed) = guarding.finish(&session, follower.processes())?;
        let cost = Cost {
            overhead: Some(overhead),
            shed,
            untraced: events.untraced,
            cold_percent: events.cold_percent,
            ..session.cost()?
        };
        follower.drain(&mut session)?;
        let stream = follower.end(&mut session, stop_ns, ended_by, cost)?;
        drop(stats);
        let finished = stream.finish()?;
        info!(
            "reported in {:.0?}; user memory at most {} KiB",
            reporting.elapsed(),
            peak_memory()
        );
        Ok(Finished {
            report: finished.report,
            ended_by,
            outputs: finished.outputs,
            recording: finished.recording,
            session,
        })
    }
}

impl Finished {
    /// Waits until all probes are out.
    pub fn detach(&mut self) {
        self.session.detach();
    }
}

/// Peak of this process's resident memory in KiB.
fn peak_memory() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("VmHWM:"))?;
            line.trim().trim_end_matches("kB").trim().parse().ok()
        })
        .unwrap_or(0)
}
