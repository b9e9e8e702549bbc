//! `requests.csv`: rows in, one line each out, as they come.

use std::io::Write;

use csv::{Terminator, Writer, WriterBuilder};

use super::{Exporter, Report, RequestRow};
use crate::classify::columns::{AFTER, BEFORE, column};
use crate::error::{Error, Result};

/// Writes `requests.csv`.
pub struct CsvExporter {
    writer: Writer<Box<dyn Write>>,
    name: String,
    slower_than_ns: u64,
}

impl CsvExporter {
    /// Writes the header. `name` is what errors call the output. Rows below `slower_than_ns` are
    /// left out; 0 keeps all.
    ///
    /// # Errors
    ///
    /// When the output cannot be written.
    pub fn new(
        out: Box<dyn Write>,
        name: &str,
        classes: &[String],
        slower_than_ns: u64,
    ) -> Result<Self> {
        let writer = WriterBuilder::new()
            .terminator(Terminator::Any(b'\n'))
            .from_writer(out);
        let mut exporter = Self {
            writer,
            name: name.to_owned(),
            slower_than_ns,
        };
        let header = BEFORE
            .into_iter()
            .map(str::to_owned)
            .chain(classes.iter().map(|class| column(class)))
            .chain(AFTER.into_iter().map(str::to_owned));
        exporter.record(header)?;
        exporter.flush()?;
        Ok(exporter)
    }

    fn record(&mut self, fields: impl Iterator<Item = String>) -> Result<()> {
        self.writer
            .write_record(fields)
            .map_err(|error| failed(&self.name, error))
    }

    fn flush(&mut self) -> Result<()> {
        self.writer
            .flush()
            .map_err(|error| failed(&self.name, error))
    }
}

impl Exporter for CsvExporter {
    fn request(&mut self, row: &RequestRow<'_>) -> Result<()> {
        let ledger = row.ledger;
        if ledger.latency_ns < self.slower_than_ns {
            return Ok(());
        }
        let before = [
            row.id.to_string(),
            row.start_unix_ns.to_string(),
            row.request.to_owned(),
            row.pid.to_string(),
            row.tid.to_string(),
            row.comm.to_owned(),
            row.label.to_owned(),
            ledger.latency_ns.to_string(),
            ledger.on_cpu_ns.to_string(),
            ledger.run_queue_ns.to_string(),
            ledger.preempted_ns.to_string(),
            ledger.blocked_ns().to_string(),
            ledger.unattributed_ns.to_string(),
        ];
        let after = [
            row.blocks.to_string(),
            row.preemptions.to_string(),
            row.incomplete.is_none().to_string(),
            row.incomplete
                .map_or("", reqtrace_recording::Incomplete::reason)
                .to_owned(),
        ];
        let classes = ledger.classes.iter().map(u64::to_string);
        self.record(before.into_iter().chain(classes).chain(after))
    }

    fn wants_requests(&self) -> bool {
        true
    }

    fn finish(&mut self, _report: &Report) -> Result<()> {
        self.flush()
    }
}

fn failed(name: &str, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::failed(format!("{name} could not be written")).because(error)
}
