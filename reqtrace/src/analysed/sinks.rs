//! The two sinks of an analysed trace: its recording, and its model with who looks on.

use std::io;
use std::ops::ControlFlow;
use std::time::Instant;

use reqtrace_analysis::aggregate::Aggregator;
use reqtrace_analysis::report::{Exporter, Report};
use reqtrace_base::error::{Error, Result};
use reqtrace_capture::attach::Running;
use reqtrace_capture::events::{EventSink, Notices};
use reqtrace_output::outputs::{self, BoxedExporter};
use reqtrace_recording::{Ending, Event, Recorder, Removed};

use super::observer::Observer;

/// Records everything. A recording that cannot be written is no error of the trace: it ends, and the
/// trace goes on.
pub(super) struct Recording {
    recorder: Option<Recorder>,
    /// For messages.
    name: String,
    notices: Notices,
    failed: Option<io::Error>,
    removed: Removed,
}

impl Recording {
    pub(super) fn new(recorder: Recorder, name: String, notices: Notices) -> Self {
        Self {
            recorder: Some(recorder),
            name,
            notices,
            failed: None,
            removed: Removed::default(),
        }
    }

    /// Takes what had to go, and says it the first time.
    fn count_removed(&mut self) {
        let new = self.recorder.as_ref().map(Recorder::removed);
        let new = new.unwrap_or_default();
        if new.files > 0 && self.removed.files == 0 {
            self.notices.note(format_args!(
                "the oldest files of {} go, to keep to --keep",
                self.name
            ));
        }
        self.removed.files += new.files;
        self.removed.bytes += new.bytes;
    }

    /// Ends it.
    ///
    /// # Errors
    ///
    /// When it is not whole.
    pub(super) fn finish(mut self) -> Result<()> {
        if let Some(recorder) = self.recorder.take() {
            let recorded = recorder.finish();
            self.removed.files += recorded.removed.files;
            self.removed.bytes += recorded.removed.bytes;
            self.failed = recorded.failure.or(self.failed);
        }
        let name = &self.name;
        if self.removed.files > 0 {
            self.notices.note(format_args!(
                "{} files of {name} with {} bytes had to go, to keep to --keep",
                self.removed.files, self.removed.bytes
            ));
        }
        self.failed.map_or(Ok(()), |error| {
            Err(Error::failed(format!("the recording {name} is not whole"))
                .because(error)
                .next(format!("`reqtrace report {name}` shows what is in it")))
        })
    }
}

impl EventSink for Recording {
    fn event(&mut self, event: &Event<'_>) -> Result<ControlFlow<()>> {
        if let Some(recorder) = &mut self.recorder {
            recorder.event(event);
        }
        Ok(ControlFlow::Continue(()))
    }

    fn wants_windows(&self) -> bool {
        self.recorder.is_some()
    }

    fn wants_window_now(&self) -> bool {
        let recorder = self.recorder.as_ref();
        recorder.is_some_and(Recorder::wants_window)
    }

    fn flush(&mut self) {
        let failed = self.recorder.as_mut().and_then(Recorder::flush);
        self.count_removed();
        let Some(error) = failed else { return };
        let is_over = self.recorder.as_ref().is_none_or(Recorder::is_over);
        let what_now = match is_over {
            true => "it ends here, and tracing goes on",
            false => "it is tried again in 10 s, and what comes until then is counted",
        };
        self.notices.warn(format_args!(
            "the recording {} cannot be written: {error}; {what_now}",
            self.name
        ));
        if is_over {
            self.recorder = None;
        }
        self.failed = Some(error);
    }
}

/// The report, and whether all outputs are whole.
pub(super) type Analysed = Result<(Report, Result<()>)>;

/// Makes the report of a trace of which all events have come, and completes its outputs.
pub(super) fn finish(analysis: Aggregator, mut exporters: Vec<Box<dyn Exporter>>) -> Analysed {
    let whole = Ending {
        ended: true,
        ..Ending::default()
    };
    let mut report = analysis.finish(&whole, &mut exporters)?;
    let written = outputs::finish(&mut report, &mut exporters);
    Ok((report, written))
}

/// Makes the model and the rows of outputs, and shows the model to who looks on.
pub(super) struct Model<'a> {
    analysis: Aggregator,
    exporters: Vec<Box<dyn Exporter>>,
    observer: &'a mut dyn Observer,
    /// When tracing was over.
    ended: Option<Instant>,
}

impl<'a> Model<'a> {
    pub(super) fn new(
        analysis: Aggregator,
        exporters: Vec<BoxedExporter>,
        observer: &'a mut dyn Observer,
    ) -> Self {
        Self {
            analysis,
            exporters: outputs::settled(exporters),
            observer,
            ended: None,
        }
    }

    /// When tracing was over; `None` while it runs.
    pub(super) fn ended_at(&self) -> Option<Instant> {
        self.ended
    }

    /// The report, and whether all outputs are whole.
    ///
    /// # Errors
    ///
    /// When there can be no report.
    pub(super) fn finish(self) -> Analysed {
        finish(self.analysis, self.exporters)
    }
}

impl EventSink for Model<'_> {
    fn event(&mut self, event: &Event<'_>) -> Result<ControlFlow<()>> {
        self.analysis.event(event, &mut self.exporters)?;
        Ok(self.observer.event(event, &self.analysis))
    }

    fn look(&mut self, overhead: Option<[f64; 2]>) {
        self.observer.look(&self.analysis, overhead);
    }

    fn wants_windows(&self) -> bool {
        self.observer.wants_running()
    }

    fn wants_running(&self) -> bool {
        self.observer.wants_running()
    }

    fn running(&mut self, requests: &[Running], all: usize, now_ns: u64) {
        self.observer.running(requests, all, now_ns, &self.analysis);
    }

    fn ended(&mut self) {
        self.ended = Some(Instant::now());
        self.observer.ended();
    }
}
