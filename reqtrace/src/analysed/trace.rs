//! An analysed trace that runs: everything attached in; events while it goes, then the report, out.

use std::fmt;
use std::ops::ControlFlow;
use std::time::Instant;

use log::info;
use reqtrace_analysis::aggregate::Aggregator;
use reqtrace_analysis::report::{Exporter, Report};
use reqtrace_base::error::Result;
use reqtrace_capture::events::{EventSink, Fanout};
use reqtrace_capture::tracer::{self, EndedBy, Roster, Stopper};
use reqtrace_recording::{Event, Recorder};

use super::Observer;
use super::sinks::{Model, Recording};

/// A trace with everything attached, made by [`super::Analysed::start`]. Requests are counted from its
/// start on; they wait in the kernel's ring until it is run.
pub struct Trace {
    trace: tracer::Trace,
    analysis: Aggregator,
    exporters: Vec<Box<dyn Exporter>>,
    recording: Option<Recording>,
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
    captured: tracer::Finished,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace")
            .field("trace", &self.trace)
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
        trace: tracer::Trace,
        analysis: Aggregator,
        exporters: Vec<Box<dyn Exporter>>,
        recorder: Option<(Recorder, String)>,
    ) -> Self {
        let notices = trace.notices();
        let recording =
            recorder.map(|(recorder, name)| Recording::new(recorder, name, notices.clone()));
        Self {
            trace,
            analysis,
            exporters,
            recording,
        }
    }

    /// What ends it from another thread, or from a signal handler.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.trace.stopper()
    }

    /// What adds processes to it while it runs, and takes them out.
    #[must_use]
    pub fn roster(&self) -> Roster {
        self.trace.roster()
    }

    /// See [`tracer::Trace::give_up_privileges`].
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn give_up_privileges(&self, foreign_folders: bool, signals: bool) -> Result<()> {
        self.trace.give_up_privileges(foreign_folders, signals)
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
            trace,
            mut analysis,
            exporters,
            mut recording,
        } = self;
        if observer.wants_running() {
            analysis.keep_groups();
        }
        let mut model = Model::new(analysis, exporters, observer);
        let mut sinks: Vec<&mut dyn EventSink> = Vec::new();
        if let Some(recording) = &mut recording {
            sinks.push(recording);
        }
        sinks.push(&mut model);
        let captured = trace.run(&mut Fanout::new(sinks))?;
        let reporting = model.ended_at().unwrap_or_else(Instant::now);
        let recording = recording.map_or(Ok(()), Recording::finish);
        let (report, outputs) = model.finish()?;
        info!(
            "reported in {:.0?}; user memory at most {} KiB",
            reporting.elapsed(),
            peak_memory()
        );
        Ok(Finished {
            report,
            ended_by: captured.ended_by,
            outputs,
            recording,
            captured,
        })
    }
}

impl Finished {
    /// Waits until all probes are out.
    pub fn detach(&mut self) {
        self.captured.detach();
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
