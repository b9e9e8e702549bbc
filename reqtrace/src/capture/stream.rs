//! The stream: events in, to the analysis and to the recording.

use std::io;

use reqtrace_analysis::aggregate::Aggregator;
use reqtrace_recording::{Ending, Event, Loss, Recorder, Request};

use super::{Notices, Observer, Running};
use crate::error::{Error, Result};
use reqtrace_analysis::report::{Exporter, Report};
use reqtrace_output::outputs;

/// Where events go.
pub(crate) struct Stream<'a> {
    observer: &'a mut dyn Observer,
    notices: Notices,
    /// The observer wants the trace to end.
    is_stopped: bool,
    analysis: Aggregator,
    exporters: Vec<Box<dyn Exporter>>,
    recorder: Option<Recorder>,
    /// Name of the recording, for messages.
    recording: String,
    failed: Option<io::Error>,
    /// Id of the last request.
    last_id: u64,
}

impl<'a> Stream<'a> {
    pub(crate) fn new(
        analysis: Aggregator,
        exporters: Vec<Box<dyn Exporter>>,
        observer: &'a mut dyn Observer,
        notices: Notices,
    ) -> Self {
        Self {
            observer,
            notices,
            is_stopped: false,
            analysis,
            exporters,
            recorder: None,
            recording: String::new(),
            failed: None,
            last_id: 0,
        }
    }

    /// Everything from now on is recorded too. `name` is what to call the recording.
    pub(crate) fn record(&mut self, recorder: Recorder, name: &str) {
        self.recorder = Some(recorder);
        name.clone_into(&mut self.recording);
    }

    pub(crate) fn is_recording(&self) -> bool {
        self.recorder.is_some()
    }

    /// Whether the observer wants the trace to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Lets the observer look at what is known so far.
    pub(crate) fn look(&mut self, overhead: Option<f64>) {
        self.observer.look(&self.analysis, overhead);
    }

    /// Whether the observer wants requests that are open.
    pub(crate) fn wants_running(&self) -> bool {
        self.observer.wants_running()
    }

    /// Shows the observer requests that are open; `all` is how many there are.
    pub(crate) fn running(&mut self, requests: &[Running], all: usize, now_ns: u64) {
        self.observer.running(requests, all, now_ns, &self.analysis);
    }

    /// Tells the observer that tracing is over.
    pub(crate) fn ended(&mut self) {
        self.observer.ended();
    }

    /// Sends an event.
    ///
    /// # Errors
    ///
    /// When an output cannot be written. A recording that cannot be written is no error here: it
    /// ends, and the trace goes on.
    pub(crate) fn send(&mut self, event: &Event<'_>) -> Result<()> {
        if let Some(recorder) = &mut self.recorder {
            recorder.event(event);
        }
        self.analysis.event(event, &mut self.exporters)?;
        self.is_stopped |= self.observer.event(event, &self.analysis).is_break();
        Ok(())
    }

    /// Sends a request, which gets its id here.
    pub(crate) fn request(&mut self, mut request: Request<'_>) -> Result<()> {
        request.id = self.next_id();
        self.send(&Event::Request(request))
    }

    /// An id that no request has.
    pub(crate) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Says that something was lost.
    pub(crate) fn lost(&mut self, name: &str, count: u64) -> Result<()> {
        let name = name.to_owned();
        self.send(&Event::Loss(&Loss { name, count }))
    }

    /// Sees to it that the recording has what was sent, as far as that goes, and says when it cannot
    /// be written any more.
    pub(crate) fn flush(&mut self) {
        let failed = self.recorder.as_mut().and_then(Recorder::flush);
        if let Some(error) = failed {
            self.recorder = None;
            self.notices.warn(format_args!(
                "the recording {} cannot be written: {error}; it ends here, and tracing goes on",
                self.recording
            ));
            self.failed = Some(error);
        }
    }

    /// Ends the stream: the report, and all outputs complete, as far as they can be written.
    ///
    /// # Errors
    ///
    /// When there can be no report.
    pub(crate) fn finish(mut self) -> Result<Finished> {
        if let Some(recorder) = self.recorder.take() {
            self.failed = recorder.finish().failure;
        }
        let whole = Ending {
            ended: true,
            ..Ending::default()
        };
        let mut report = self.analysis.finish(&whole, &mut self.exporters)?;
        let outputs = outputs::finish(&mut report, &mut self.exporters);
        let name = &self.recording;
        let recording = self.failed.map_or(Ok(()), |error| {
            Err(Error::failed(format!("the recording {name} is not whole"))
                .because(error)
                .next(format!("`reqtrace report {name}` shows what is in it")))
        });
        Ok(Finished {
            report,
            outputs,
            recording,
        })
    }
}

/// What a stream leaves.
pub(crate) struct Finished {
    /// The report.
    pub(crate) report: Report,
    /// Whether all outputs are whole.
    pub(crate) outputs: Result<()>,
    /// Whether the recording is whole, to be said when everything else is.
    pub(crate) recording: Result<()>,
}
