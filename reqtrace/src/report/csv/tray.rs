//! The rows of a CSV that is written while a trace runs: fields in, chunks of whole rows out, bounded.

use std::io::{self, Write};
use std::mem;
use std::time::{Duration, Instant};

use csv::{QuoteStyle, Terminator, WriterBuilder};

use super::Limits;
use crate::error::{Error, Result};

/// Bytes of rows that are handed over at a time.
const CHUNK: usize = 64 << 10;
/// How long a row waits for others at most, when more come.
const LONGEST: Duration = Duration::from_secs(1);

/// Rows that wait to be handed over.
pub(super) struct Tray {
    /// With the row that is being made.
    bytes: Vec<u8>,
    /// Bytes of whole rows, and how many these are.
    ready: (usize, u64),
    since: Instant,
    out: Box<dyn Write>,
    name: String,
    limits: Limits,
    rows: u64,
    written: u64,
    /// Rows that were left out because of the limits.
    pub(super) beyond: u64,
    /// Rows that were left out because nobody took them.
    pub(super) unread: u64,
}

impl Tray {
    /// `name` is what errors call the output. It takes a chunk of rows with each write, or refuses it
    /// with [`io::ErrorKind::WouldBlock`].
    pub(super) fn new(out: Box<dyn Write>, name: &str, limits: Limits) -> Self {
        Self {
            bytes: Vec::new(),
            ready: (0, 0),
            since: Instant::now(),
            out,
            name: name.to_owned(),
            limits,
            rows: 0,
            written: 0,
            beyond: 0,
            unread: 0,
        }
    }

    /// Writes the names of the columns.
    pub(super) fn header<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) -> Result<()> {
        for name in names {
            self.text(name);
        }
        end(&mut self.bytes);
        self.collect(0);
        self.hand_over()
    }

    /// Whether a row of a request of this latency is to be made; counts it when there is no room for it.
    pub(super) fn takes(&mut self, latency_ns: u64) -> bool {
        if latency_ns < self.limits.slower_than_ns {
            return false;
        }
        let is_full = self.limits.max_rows.is_some_and(|most| self.rows >= most)
            || self.limits.max_bytes == Some(0);
        self.beyond += u64::from(is_full);
        !is_full
    }

    /// Adds a field.
    pub(super) fn number(&mut self, value: u64) {
        number(&mut self.bytes, value);
    }

    /// Adds a field.
    pub(super) fn text(&mut self, value: &str) {
        text(&mut self.bytes, value);
    }

    /// Ends the row.
    pub(super) fn end(&mut self) -> Result<()> {
        end(&mut self.bytes);
        self.collect(1);
        if self.ready.0 >= CHUNK || self.since.elapsed() >= LONGEST {
            return self.hand_over();
        }
        Ok(())
    }

    /// There are `rows` more.
    fn collect(&mut self, rows: u64) {
        let length = self.bytes.len();
        let added = (length - self.ready.0) as u64;
        let most = self.limits.max_bytes.unwrap_or(u64::MAX);
        if rows > 0 && self.written + added > most {
            // Shorter ones that come later would fit: the file is that of the first ones.
            self.limits.max_bytes = Some(0);
            self.bytes.truncate(self.ready.0);
            self.beyond += rows;
            return;
        }
        self.written += added;
        self.rows += rows;
        self.ready = (length, self.ready.1 + rows);
    }

    /// Hands all rows over.
    pub(super) fn hand_over(&mut self) -> Result<()> {
        let (length, rows) = mem::take(&mut self.ready);
        self.since = Instant::now();
        if length == 0 {
            return Ok(());
        }
        let result = self.out.write_all(&self.bytes);
        self.bytes.clear();
        match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.unread += rows;
                Ok(())
            }
            other => other.map_err(|error| {
                Error::failed(format!("{} could not be written", self.name)).because(error)
            }),
        }
    }
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
