//! `requests.csv`: rows in, one line each out, as they come.

use std::io::{self, Write};
use std::mem;
use std::time::{Duration, Instant};

use csv::{QuoteStyle, Terminator, WriterBuilder};

use super::blame::Cause;
use super::{Exporter, LossLine, Report, RequestRow};
use crate::classify::columns::{AFTER, BEFORE, causes, column};
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
    /// Rows that wait to be handed over, and the one that is being made.
    tray: Vec<u8>,
    /// Bytes of whole rows in the tray, and how many these are.
    ready: (usize, u64),
    since: Instant,
    out: Box<dyn Write>,
    name: String,
    /// Columns before and after those of root causes; none when they are written.
    header: Option<(Vec<String>, [&'static str; AFTER.len()])>,
    limits: Limits,
    rows: u64,
    bytes: u64,
    /// Rows that were left out because of the limits, and because nobody took them.
    beyond: u64,
    unread: u64,
}

impl CsvExporter {
    /// `name` is what errors call the output. It takes a chunk of rows with each write, or refuses it
    /// with [`io::ErrorKind::WouldBlock`].
    #[must_use]
    pub fn new(out: Box<dyn Write>, name: &str, classes: &[String], limits: Limits) -> Self {
        Self {
            tray: Vec::new(),
            ready: (0, 0),
            since: Instant::now(),
            out,
            name: name.to_owned(),
            header: Some((
                BEFORE
                    .into_iter()
                    .map(str::to_owned)
                    .chain(classes.iter().map(|class| column(class)))
                    .collect(),
                AFTER,
            )),
            limits,
            rows: 0,
            bytes: 0,
            beyond: 0,
            unread: 0,
        }
    }

    /// The header comes before the first row: a trace that comes to nothing writes nothing.
    fn begin(&mut self, has_blame: bool) -> Result<()> {
        let Some((before, after)) = self.header.take() else {
            return Ok(());
        };
        for name in before {
            text(&mut self.tray, &name);
        }
        if has_blame {
            causes().for_each(|name| text(&mut self.tray, &name));
        }
        for name in after {
            text(&mut self.tray, name);
        }
        end(&mut self.tray);
        self.collect(0);
        self.hand_over()
    }

    /// The tray has `rows` more.
    fn collect(&mut self, rows: u64) {
        let length = self.tray.len();
        let added = (length - self.ready.0) as u64;
        let most = self.limits.max_bytes.unwrap_or(u64::MAX);
        if rows > 0 && self.bytes + added > most {
            // Shorter ones that come later would fit: the file is that of the first ones.
            self.limits.max_bytes = Some(0);
            self.tray.truncate(self.ready.0);
            self.beyond += rows;
            return;
        }
        self.bytes += added;
        self.rows += rows;
        self.ready = (length, self.ready.1 + rows);
    }

    fn hand_over(&mut self) -> Result<()> {
        let (length, rows) = mem::take(&mut self.ready);
        self.since = Instant::now();
        if length == 0 {
            return Ok(());
        }
        let result = self.out.write_all(&self.tray);
        self.tray.clear();
        match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.unread += rows;
                Ok(())
            }
            other => other.map_err(|error| failed(&self.name, error)),
        }
    }
}

/// One row, without a copy of a field: a server has 100,000 of them in a second.
fn line(line: &mut Vec<u8>, row: &RequestRow<'_>) {
    let ledger = row.ledger;
    number(line, row.id);
    number(line, row.start_unix_ns);
    text(line, row.request);
    number(line, row.pid.into());
    number(line, row.tid.into());
    text(line, &row.comm.csv_field());
    text(line, &row.label.csv_field());
    number(line, ledger.latency_ns);
    number(line, ledger.on_cpu_ns);
    number(line, ledger.run_queue_ns);
    number(line, ledger.preempted_ns);
    number(line, ledger.blocked_ns());
    number(line, ledger.unattributed_ns);
    for ns in &ledger.classes {
        number(line, *ns);
    }
    if let Some(causes) = &row.causes {
        for cause in Cause::ALL {
            number(line, causes.get(cause));
        }
    }
    number(line, row.blocks.into());
    number(line, row.preemptions.into());
    let (complete, reason) = row
        .incomplete
        .map_or(("true", ""), |incomplete| ("false", incomplete.reason()));
    text(line, complete);
    text(line, reason);
    number(line, row.weight.into());
    end(line);
}

/// A number and a comma. Most are 0: a request is in few wait classes.
fn number(line: &mut Vec<u8>, value: u64) {
    if value == 0 {
        line.extend_from_slice(b"0,");
    } else {
        line.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
        line.push(b',');
    }
}

/// A text and a comma. What has to stand in quotes is put there by the crate `csv`; for every field it would take
/// four times as long.
fn text(line: &mut Vec<u8>, text: &str) {
    let special = |byte: &u8| matches!(byte, b',' | b'"' | b'\n' | b'\r');
    if !text.as_bytes().iter().any(special) {
        line.extend_from_slice(text.as_bytes());
        line.push(b',');
        return;
    }
    let mut writer = WriterBuilder::new()
        .quote_style(QuoteStyle::Always)
        .terminator(Terminator::Any(b','))
        .from_writer(line);
    // Writing to memory does not fail, and dropping it writes what is left.
    let _ = writer.write_record([text]);
}

/// The last comma of a row becomes its end.
fn end(line: &mut [u8]) {
    if let Some(last) = line.last_mut() {
        *last = b'\n';
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
        self.begin(row.causes.is_some())?;
        line(&mut self.tray, row);
        self.collect(1);
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

    fn finish(&mut self, report: &Report) -> Result<()> {
        self.begin(report.blame.is_some())?;
        self.hand_over()
    }
}

fn failed(name: &str, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::failed(format!("{name} could not be written")).because(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fields_are_those_of_the_crate_csv(
            texts in proptest::collection::vec("[a,\"\\n\\r é]{0,8}", 1..6),
            value: u64,
        ) {
            let mut ours = Vec::new();
            number(&mut ours, value);
            texts.iter().for_each(|field| text(&mut ours, field));
            end(&mut ours);
            let mut theirs = WriterBuilder::new()
                .terminator(Terminator::Any(b'\n'))
                .from_writer(Vec::new());
            theirs.write_field(value.to_string()).unwrap();
            for field in &texts {
                theirs.write_field(field).unwrap();
            }
            theirs.write_record(None::<&[u8]>).unwrap();
            prop_assert_eq!(ours, theirs.into_inner().unwrap());
        }
    }
}
