//! One output: an exporter, the thread that writes, and the file that gets its name at the end.

use std::io::{self, Write};
use std::sync::Arc;

use super::BoxedExporter;
use super::place::Partial;
use super::sink::Sink;
use reqtrace_analysis::report::{Exporter, IntervalRow, LossLine, Report, RequestRow, WindowRow};
use reqtrace_base::error::{Error, Result};

/// Where an exporter writes.
#[derive(Clone, Debug)]
pub(super) struct Handle(Arc<Sink>);

impl Handle {
    pub(super) fn new(sink: Sink) -> Self {
        Self(Arc::new(sink))
    }
}

impl Write for Handle {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self.0).flush()
    }
}

/// An output that fails by itself.
pub(super) struct Output {
    exporter: BoxedExporter,
    sink: Handle,
    partial: Option<Partial>,
    name: String,
    failed: Option<Error>,
}

impl Output {
    pub(super) fn new(
        exporter: BoxedExporter,
        sink: Handle,
        partial: Option<Partial>,
        name: String,
    ) -> Self {
        Self {
            exporter,
            sink,
            partial,
            name,
            failed: None,
        }
    }

    /// What went wrong is printed at once, and again at the end.
    fn note(&mut self, result: Result<()>) {
        if let Err(error) = result {
            reqtrace_base::say!("reqtrace: {error}; it ends here, and everything else goes on");
            self.failed = Some(error);
        }
    }

    fn complete(&mut self, report: &Report) -> Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.sink.0.expect_end();
        self.exporter.finish(report)?;
        let name = &self.name;
        let failed =
            |error: io::Error| Error::failed(format!("{name} could not be written")).because(error);
        self.sink.0.finish().map_err(failed)?;
        match self.partial.take() {
            Some(partial) => partial.commit().map_err(failed),
            None => Ok(()),
        }
    }
}

impl Exporter for Output {
    /// Never fails: see [`Output::note`].
    fn request(&mut self, row: &RequestRow<'_>) -> Result<()> {
        if self.failed.is_none() {
            let result = self.exporter.request(row);
            self.note(result);
        }
        Ok(())
    }

    /// Never fails: see [`Output::note`].
    fn interval(&mut self, row: &IntervalRow<'_>) -> Result<()> {
        if self.failed.is_none() {
            let result = self.exporter.interval(row);
            self.note(result);
        }
        Ok(())
    }

    /// Never fails: see [`Output::note`].
    fn window(&mut self, row: &WindowRow<'_>) -> Result<()> {
        if self.failed.is_none() {
            let result = self.exporter.window(row);
            self.note(result);
        }
        Ok(())
    }

    fn wants_windows(&self) -> bool {
        self.exporter.wants_windows()
    }

    fn wants_intervals(&self) -> bool {
        self.exporter.wants_intervals()
    }

    fn wants_intervals_of(&self, latency_ns: u64) -> bool {
        self.exporter.wants_intervals_of(latency_ns)
    }

    fn wants_requests(&self) -> bool {
        self.exporter.wants_requests()
    }

    fn wants_page(&self) -> bool {
        self.exporter.wants_page()
    }

    fn left_out(&self) -> Vec<LossLine> {
        self.exporter.left_out()
    }

    fn finish(&mut self, report: &Report) -> Result<()> {
        let result = self.complete(report);
        match &self.partial {
            Some(partial) if !self.sink.0.is_empty() => result.map_err(|error| {
                let shown = &partial.shown;
                error.next(format!("what was written is in {shown}.partial"))
            }),
            _ => result,
        }
    }
}

impl Drop for Output {
    /// A trace that came to nothing leaves no empty files.
    fn drop(&mut self) {
        if let Some(partial) = self.partial.take()
            && self.sink.0.is_empty()
        {
            partial.remove();
        }
    }
}
