//! An analysed trace that runs: everything attached in; events while it goes, then the report, out.

use std::fmt;
use std::ops::ControlFlow;
use std::time::Instant;

use log::info;
use reqtrace_analysis::aggregate::Aggregator;
use reqtrace_analysis::report::Report;
use reqtrace_base::error::Result;
use reqtrace_capture::events::{EventSink, Fanout};
use reqtrace_capture::tracer::{self, EndedBy, Roster, Stopper};
use reqtrace_output::outputs::BoxedExporter;
use reqtrace_recording::{Event, Recorder};

use super::later::Later;
use super::sinks::{Analysed, Model, Recording};
use super::{Observer, Watcher};

/// A trace with everything attached, made by [`super::Analysed::start`]. Requests are counted from its
/// start on; they wait in the kernel's ring until it is run.
pub struct Trace {
    trace: tracer::Trace,
    analysis: Aggregator,
    exporters: Vec<BoxedExporter>,
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
        exporters: Vec<BoxedExporter>,
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

    /// Runs it to its end with an observer. All is analysed at once, by this thread.
    ///
    /// # Errors
    ///
    /// As [`Trace::run`].
    pub fn run_with(mut self, observer: &mut dyn Observer) -> Result<Finished> {
        if observer.wants_running() {
            self.analysis.keep_groups();
        }
        let mut model = Model::new(self.analysis, self.exporters, observer);
        let captured = capture(self.trace, self.recording, &mut model)?;
        let ended = model.ended_at();
        captured.finish(ended, || model.finish())
    }

    /// Runs it to its end, and analyses it where a CPU has nothing else to do, and then: servers that need all CPUs keep
    /// them while the trace runs. With `at_once` nothing waits for that: somebody reads rows while they are made.
    ///
    /// # Errors
    ///
    /// As [`Trace::run`].
    pub fn run_later(self, at_once: bool, watcher: &mut dyn Watcher) -> Result<Finished> {
        let mut later = Later::start(self.analysis, self.exporters, at_once, watcher)?;
        let captured = capture(self.trace, self.recording, &mut later)?;
        let ended = later.ended_at();
        captured.finish(ended, || later.finish())
    }
}

/// A trace that is over, and not reported yet.
struct Captured {
    finished: tracer::Finished,
    recording: Result<()>,
}

/// Lets a sink, and a recording if there is one, have all events of a trace.
fn capture(
    trace: tracer::Trace,
    mut recording: Option<Recording>,
    sink: &mut dyn EventSink,
) -> Result<Captured> {
    let mut sinks: Vec<&mut dyn EventSink> = Vec::new();
    if let Some(recording) = &mut recording {
        sinks.push(recording);
    }
    sinks.push(sink);
    let finished = trace.run(&mut Fanout::new(sinks))?;
    let recording = recording.map_or(Ok(()), Recording::finish);
    Ok(Captured {
        finished,
        recording,
    })
}

impl Captured {
    /// Reports it. Tracing was over at `ended`.
    fn finish(self, ended: Option<Instant>, report: impl FnOnce() -> Analysed) -> Result<Finished> {
        let ended = ended.unwrap_or_else(Instant::now);
        let (report, outputs) = report()?;
        info!(
            "reported in {:.0?}; user memory at most {} KiB",
            ended.elapsed(),
            peak_memory()
        );
        Ok(Finished {
            report,
            ended_by: self.finished.ended_by,
            outputs,
            recording: self.recording,
            captured: self.finished,
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
