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

    /// One row, without a copy of a field: a server has 100,000 of them in a second.
    fn row(&mut self, row: &RequestRow<'_>) -> csv::Result<()> {
        let mut digits = itoa::Buffer::new();
        let ledger = row.ledger;
        let writer = &mut self.writer;
        writer.write_field(digits.format(row.id))?;
        writer.write_field(digits.format(row.start_unix_ns))?;
        writer.write_field(row.request)?;
        writer.write_field(digits.format(row.pid))?;
        writer.write_field(digits.format(row.tid))?;
        writer.write_field(row.comm)?;
        writer.write_field(row.label)?;
        let sums = [
            ledger.latency_ns,
            ledger.on_cpu_ns,
            ledger.run_queue_ns,
            ledger.preempted_ns,
            ledger.blocked_ns(),
            ledger.unattributed_ns,
        ];
        for ns in sums.iter().chain(&ledger.classes) {
            writer.write_field(digits.format(*ns))?;
        }
        writer.write_field(digits.format(row.blocks))?;
        writer.write_field(digits.format(row.preemptions))?;
        let (complete, reason) = row
            .incomplete
            .map_or(("true", ""), |incomplete| ("false", incomplete.reason()));
        writer.write_field(complete)?;
        writer.write_field(reason)?;
        writer.write_field(digits.format(row.weight))?;
        writer.write_record(None::<&[u8]>)
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
        self.row(row).map_err(|error| failed(&self.name, error))
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
