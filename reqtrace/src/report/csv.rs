//! `requests.csv`: rows in, one line each out, as they come.

use std::cell::RefCell;
use std::io::{self, Write};
use std::mem;
use std::rc::Rc;
use std::time::{Duration, Instant};

use csv::{Terminator, Writer, WriterBuilder};

use super::{Exporter, LossLine, Report, RequestRow};
use crate::classify::columns::{AFTER, BEFORE, column};
use crate::error::{Error, Result};

/// Bytes of rows that are handed over at a time.
const CHUNK: usize = 64 << 10;
/// How long a row waits for others at most, when more come.
const LONGEST: Duration = Duration::from_secs(1);

/// Which rows are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `--slower-than`: rows at or above this latency only; 0 for all.
    pub slower_than_ns: u64,
    /// `--max-rows`: no more than these.
    pub max_rows: Option<u64>,
    /// `--max-bytes`: no more than these, the header with them.
    pub max_bytes: Option<u64>,
}

/// Writes `requests.csv`.
pub struct CsvExporter {
    writer: Writer<Tray>,
    tray: Tray,
    /// Bytes of whole rows in the tray, and how many these are.
    ready: (usize, u64),
    since: Instant,
    out: Box<dyn Write>,
    name: String,
    header: Vec<String>,
    limits: Limits,
    rows: u64,
    bytes: u64,
    /// Rows that were left out because of the limits, and because nobody took them.
    beyond: u64,
    unread: u64,
}

/// Rows that wait to be handed over: a chunk ends with a whole one.
#[derive(Clone, Debug, Default)]
struct Tray(Rc<RefCell<Vec<u8>>>);

impl Write for Tray {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl CsvExporter {
    /// `name` is what errors call the output. It takes a chunk of rows with each write, or refuses it
    /// with [`io::ErrorKind::WouldBlock`].
    #[must_use]
    pub fn new(out: Box<dyn Write>, name: &str, classes: &[String], limits: Limits) -> Self {
        let tray = Tray::default();
        let writer = WriterBuilder::new()
            .terminator(Terminator::Any(b'\n'))
            .from_writer(tray.clone());
        Self {
            writer,
            tray,
            ready: (0, 0),
            since: Instant::now(),
            out,
            name: name.to_owned(),
            header: BEFORE
                .into_iter()
                .map(str::to_owned)
                .chain(classes.iter().map(|class| column(class)))
                .chain(AFTER.into_iter().map(str::to_owned))
                .collect(),
            limits,
            rows: 0,
            bytes: 0,
            beyond: 0,
            unread: 0,
        }
    }

    /// The header comes before the first row: a trace that comes to nothing writes nothing.
    fn begin(&mut self) -> Result<()> {
        let header = mem::take(&mut self.header);
        if header.is_empty() {
            return Ok(());
        }
        self.writer
            .write_record(header)
            .map_err(|error| failed(&self.name, error))?;
        self.collect(0)?;
        self.hand_over()
    }

    /// The tray has `rows` more.
    fn collect(&mut self, rows: u64) -> Result<()> {
        self.writer
            .flush()
            .map_err(|error| failed(&self.name, error))?;
        let length = self.tray.0.borrow().len();
        let added = (length - self.ready.0) as u64;
        let most = self.limits.max_bytes.unwrap_or(u64::MAX);
        if rows > 0 && self.bytes + added > most {
            // Shorter ones that come later would fit: the file is that of the first ones.
            self.limits.max_bytes = Some(0);
            self.tray.0.borrow_mut().truncate(self.ready.0);
            self.beyond += rows;
            return Ok(());
        }
        self.bytes += added;
        self.rows += rows;
        self.ready = (length, self.ready.1 + rows);
        Ok(())
    }

    fn hand_over(&mut self) -> Result<()> {
        let (length, rows) = mem::take(&mut self.ready);
        self.since = Instant::now();
        if length == 0 {
            return Ok(());
        }
        let result = self.out.write_all(&self.tray.0.borrow());
        self.tray.0.borrow_mut().clear();
        match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.unread += rows;
                Ok(())
            }
            other => other.map_err(|error| failed(&self.name, error)),
        }
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
        writer.write_field(&*row.comm.csv_field())?;
        writer.write_field(&*row.label.csv_field())?;
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
}

impl Exporter for CsvExporter {
    fn request(&mut self, row: &RequestRow<'_>) -> Result<()> {
        if row.ledger.latency_ns < self.limits.slower_than_ns {
            return Ok(());
        }
        if self.limits.max_rows.is_some_and(|most| self.rows >= most)
            || self.limits.max_bytes == Some(0)
        {
            self.beyond += 1;
            return Ok(());
        }
        self.begin()?;
        self.row(row).map_err(|error| failed(&self.name, error))?;
        self.collect(1)?;
        if self.ready.0 >= CHUNK || self.since.elapsed() >= LONGEST {
            return self.hand_over();
        }
        Ok(())
    }

    fn wants_requests(&self) -> bool {
        true
    }

    fn left_out(&self) -> Vec<LossLine> {
        let line = |name: &str, count, advice: &str| LossLine {
            name: name.to_owned(),
            count,
            advice: advice.to_owned(),
        };
        [
            line(
                "rows_beyond_limit",
                self.beyond,
                "requests that are not in requests.csv because of --max-rows or --max-bytes; everything \
                 else has them",
            ),
            line(
                "rows_not_taken",
                self.unread,
                "requests that are not in requests.csv because its reader or its disk stood still; \
                 everything else has them",
            ),
        ]
        .into_iter()
        .filter(|line| line.count > 0)
        .collect()
    }

    fn finish(&mut self, _report: &Report) -> Result<()> {
        self.begin()?;
        self.hand_over()
    }
}

fn failed(name: &str, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::failed(format!("{name} could not be written")).because(error)
}
