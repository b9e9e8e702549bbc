//! The exporter: rows in, row groups out as they become full, the footer at the end.

use std::io::{self, Write};
use std::mem;

use parquet::arrow::ArrowWriter;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use reqtrace_analysis::classify::columns::Columns;
use reqtrace_analysis::fingerprint::Fingerprints;
use reqtrace_analysis::report::blame::Cause;
use reqtrace_analysis::report::{Exporter, KeptFor, LossLine, Report, RequestRow};
use reqtrace_base::error::{Error, Result};
use reqtrace_base::plain::Plain;

use super::META_KEY;
use super::batch::Batch;
use super::columns::{columns, properties, schema};
use crate::chunks::Limits;
use crate::csv::named;
use crate::rows::{Meta, SCHEMA_VERSION};

/// Rows that are encoded at a time.
const BATCH: usize = 4096;
/// The same where the size of the file is bounded.
const SMALL_BATCH: usize = 256;
/// Rows of a row group at most.
pub(super) const GROUP_ROWS: usize = 1_000_000;
/// Its encoded bytes at most: they stay in memory until it is full.
pub(super) const GROUP_BYTES: usize = 16 << 20;
/// Bytes that wait at most until the output takes them; then rows are left out.
const MOST_WAITING: usize = 48 << 20;
/// Bytes that are handed over at a time.
const CHUNK: usize = 1 << 20;
/// Bytes of the footer for each column and row group, and for the rest, at most.
const OF_FOOTER: [usize; 2] = [256, 32 << 10];
/// Bytes of a row at most, where the size of the file is bounded.
const OF_ROW: usize = 8 << 10;

/// Writes `requests.parquet`.
pub struct ParquetExporter {
    out: Box<dyn Write + Send>,
    name: String,
    limits: Limits,
    columns: Columns,
    /// How many places have a column.
    named: Option<[usize; 2]>,
    batch: Batch,
    writer: Option<ArrowWriter<Vec<u8>>>,
    /// Whole bytes of the file that the output has not taken.
    waiting: Vec<u8>,
    fingerprints: Fingerprints,
    rows: u64,
    /// Rows that were left out because of the limits.
    beyond: u64,
    /// Rows that were left out because nobody took them.
    unread: u64,
}

impl ParquetExporter {
    /// `name` is what errors call the output. It takes a chunk of bytes with each write, or refuses it with
    /// [`io::ErrorKind::WouldBlock`].
    #[must_use]
    pub fn new(out: Box<dyn Write + Send>, name: &str, columns: &Columns, limits: Limits) -> Self {
        Self {
            out,
            name: name.to_owned(),
            limits,
            named: named(&columns.places),
            batch: Batch::new(columns),
            columns: columns.clone(),
            writer: None,
            waiting: Vec::new(),
            fingerprints: Fingerprints::default(),
            rows: 0,
            beyond: 0,
            unread: 0,
        }
    }

    /// Whether a row of a request of this latency is to be made.
    fn takes(&mut self, latency_ns: u64) -> bool {
        if latency_ns < self.limits.slower_than_ns {
            return false;
        }
        let most = self.limits.max_rows;
        if most.is_some_and(|most| self.rows >= most) || self.is_full() {
            // Shorter ones that come later would fit: the file is that of the first ones.
            self.limits.max_rows = Some(self.rows);
            self.beyond += 1;
            return false;
        }
        if self.waiting.len() > MOST_WAITING {
            self.unread += 1;
            return false;
        }
        true
    }

    fn row(&mut self, row: &RequestRow<'_>) {
        let (batch, ledger) = (&mut self.batch, row.ledger);
        batch.text(row.origin.host);
        batch.text(row.origin.service);
        batch.build_id(row.request, row.origin.build_id);
        batch.text(row.request);
        batch.number(row.id);
        batch.time(row.start_unix_ns);
        batch.signed(row.since_start_ns);
        batch.number(row.pid.into());
        batch.number(row.tid.into());
        batch.text(row.comm.as_str());
        batch.text(row.label.as_str());
        let label = match self.columns.labels.get(row.request) {
            Some(attribute) => row.attributes.get(*attribute).map_or("", Plain::as_str),
            None => row.label.as_str(),
        };
        batch.text(match label {
            "" => "",
            label => self.fingerprints.of(label),
        });
        for attribute in 0..self.columns.attributes.len() {
            batch.text(row.attributes.get(attribute).map_or("", Plain::as_str));
        }
        let fixed = [
            ledger.latency_ns,
            ledger.on_cpu_ns,
            ledger.run_queue_ns,
            ledger.preempted_ns,
            ledger.blocked_ns(),
            ledger.unattributed_ns,
        ];
        for ns in fixed.iter().chain(&ledger.classes) {
            batch.number(*ns);
        }
        if let Some([parked, queued]) = self.named {
            let places = ledger.parked.iter().take(parked);
            let places = places.chain(ledger.queued.iter().take(queued));
            for ns in [ledger.parked_ns(), ledger.queued_ns()]
                .iter()
                .chain(places)
            {
                batch.number(*ns);
            }
        }
        for cause in Cause::ALL {
            batch.maybe(row.causes.as_ref().map(|causes| causes.get(cause)));
        }
        batch.number(row.blocks.into());
        batch.number(row.preemptions.into());
        batch.flag(Some(row.incomplete.is_none()));
        batch.text(row.incomplete.map_or("", |why| why.reason()));
        batch.number(row.weight.into());
        batch.maybe(row.waited_before_ns);
        batch.flag(row.slow);
        batch.text("");
        batch.text("");
        batch.text(row.kept.map_or("", KeptFor::name));
        if self.columns.has_lost {
            batch.maybe(row.lost.map(|lost| lost.interrupts_ns));
            batch.maybe(row.lost.map(|lost| lost.softirqs_ns));
            batch.maybe(row.lost.and_then(|lost| lost.steal_ns));
        }
        batch.end();
    }

    /// Whether the file might get larger than it may with one row more. Encoded rows are smaller than those that wait.
    fn is_full(&self) -> bool {
        let most = self.limits.max_bytes;
        most.is_some_and(|most| self.size() + OF_ROW as u64 > most)
    }

    /// Bytes that the file would have at most if it were finished now.
    #[must_use]
    pub fn size(&self) -> u64 {
        let written = self.writer.as_ref();
        let bytes = written.map_or(0, |writer| {
            writer.bytes_written() + writer.in_progress_size()
        });
        let groups = written.map_or(0, |writer| writer.flushed_row_groups().len()) + 1;
        let footer = groups * self.batch.columns() * OF_FOOTER[0] + OF_FOOTER[1];
        (bytes + footer + self.batch.bytes()) as u64
    }

    /// Encodes the rows that wait, and hands over what is whole.
    fn encode(&mut self) -> Result<()> {
        let failed = failed(&self.name);
        let batch = self.batch.take().map_err(&failed)?;
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => {
                let all = columns(&self.columns);
                let properties = properties(&all, GROUP_ROWS, GROUP_BYTES).map_err(&failed)?;
                let writer = ArrowWriter::try_new(Vec::new(), schema(&all), Some(properties));
                none.insert(writer.map_err(&failed)?)
            }
        };
        writer.write(&batch).map_err(&failed)?;
        writer.sync().map_err(|error| failed(error.into()))?;
        self.waiting.append(writer.inner_mut());
        self.hand_over()
    }

    /// Hands over what the output takes.
    fn hand_over(&mut self) -> Result<()> {
        let mut taken = 0;
        let mut result = Ok(());
        for chunk in self.waiting.chunks(CHUNK) {
            match self.out.write_all(chunk) {
                Ok(()) => taken += chunk.len(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    result = Err(failed(&self.name)(error.into()));
                    break;
                }
            }
        }
        self.waiting.drain(..taken);
        result
    }

    fn meta(&self, report: &Report) -> Meta {
        let trace = &report.trace;
        let alike = report.alike();
        Meta {
            schema_version: SCHEMA_VERSION,
            reqtrace: trace.version.clone(),
            host: trace.host.clone(),
            profile: trace.profile.clone(),
            kernel: trace.kernel.clone(),
            start_unix_ns: trace.start_unix_ns,
            duration_ns: trace.duration_ns,
            ended_by: trace.ended_by.clone(),
            classes: self.columns.classes.clone(),
            parked: self.columns.places.parked.clone(),
            queued: self.columns.places.queued.clone(),
            attributes: self.columns.attributes.clone(),
            label_attributes: self.columns.labels.clone(),
            has_labels: alike.get("--labels").is_some_and(|is| is == "yes"),
            has_causes: report.blame.is_some(),
            has_lost: self.columns.has_lost,
            which: report
                .filtered
                .as_ref()
                .map_or_else(String::new, |filtered| filtered.which.clone()),
            slower_than_ns: self.limits.slower_than_ns,
            beyond_limits: self.beyond,
            losses: report
                .losses
                .iter()
                .map(|loss| (loss.name.clone(), loss.count))
                .collect(),
            alike,
        }
    }
}

/// An error of the output of this name.
pub(super) fn failed(name: &str) -> impl Fn(ParquetError) -> Error + use<> {
    let name = name.to_owned();
    move |error| Error::failed(format!("{name} could not be written")).because(error)
}

impl Exporter for ParquetExporter {
    fn request(&mut self, row: &RequestRow<'_>) -> Result<()> {
        if !self.takes(row.ledger.latency_ns) {
            return match self.waiting.is_empty() {
                true => Ok(()),
                false => self.hand_over(),
            };
        }
        self.row(row);
        self.rows += 1;
        let batch = match self.limits.max_bytes {
            Some(_) => SMALL_BATCH,
            None => BATCH,
        };
        match self.batch.rows() >= batch {
            true => self.encode(),
            false => Ok(()),
        }
    }

    fn wants_requests(&self) -> bool {
        true
    }

    fn left_out(&self) -> Vec<LossLine> {
        let lines = [
            (
                "parquet_rows_beyond_limit",
                "requests that are not in requests.parquet because of --max-rows or --max-bytes; everything else has them",
                self.beyond,
            ),
            (
                "parquet_rows_not_taken",
                "requests that are not in requests.parquet because its reader or its disk stood still; everything else has \
                 them",
                self.unread,
            ),
        ];
        let some = lines.into_iter().filter(|(.., count)| *count > 0);
        some.map(|(name, advice, count)| LossLine {
            name: name.to_owned(),
            count,
            advice: advice.to_owned(),
        })
        .collect()
    }

    fn finish(&mut self, report: &Report) -> Result<()> {
        self.encode()?;
        let failed = failed(&self.name);
        let meta = serde_json::to_string(&self.meta(report))
            .map_err(|error| failed(ParquetError::External(Box::new(error))))?;
        if let Some(mut writer) = self.writer.take() {
            writer.append_key_value_metadata(KeyValue::new(META_KEY.to_owned(), meta));
            self.waiting.extend(writer_bytes(writer).map_err(&failed)?);
        }
        self.hand_over()?;
        match self.waiting.is_empty() {
            true => Ok(()),
            false => Err(failed(io::Error::from(io::ErrorKind::WouldBlock).into())),
        }
    }
}

/// The rest of the file, with its footer.
pub(super) fn writer_bytes(mut writer: ArrowWriter<Vec<u8>>) -> Result<Vec<u8>, ParquetError> {
    writer.finish()?;
    writer.sync()?;
    Ok(mem::take(writer.inner_mut()))
}
