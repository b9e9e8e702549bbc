//! Records that are written while a trace runs: bytes of whole records in, chunks of them out, as many as the limits allow.

use std::io::{self, Write};
use std::mem;

use reqtrace_analysis::report::LossLine;
use reqtrace_base::error::{Error, Result};

/// Bytes that are handed over at a time.
const CHUNK: usize = 64 << 10;
/// Records of so much time are handed over together at most, ns. Time is that of the records: a clock would be read for each.
const LONGEST_NS: u64 = 1_000_000_000;

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

/// Records that wait to be handed over.
pub(super) struct Chunks {
    /// With the record that is being made.
    bytes: Vec<u8>,
    /// Bytes of whole records, and how many these are.
    ready: (usize, u64),
    /// Time of the first of these.
    since_ns: u64,
    out: Box<dyn Write + Send>,
    name: String,
    limits: Limits,
    records: u64,
    written: u64,
    /// Records that were left out because of the limits.
    beyond: u64,
    /// Records that were left out because nobody took them.
    unread: u64,
}

impl Chunks {
    /// `name` is what errors call the output. It takes a chunk of records with each write, or refuses it
    /// with [`io::ErrorKind::WouldBlock`].
    pub(super) fn new(out: Box<dyn Write + Send>, name: &str, limits: Limits) -> Self {
        Self {
            bytes: Vec::new(),
            ready: (0, 0),
            since_ns: 0,
            out,
            name: name.to_owned(),
            limits,
            records: 0,
            written: 0,
            beyond: 0,
            unread: 0,
        }
    }

    /// Whether requests of this latency are wanted.
    pub(super) fn is_slow_enough(&self, latency_ns: u64) -> bool {
        latency_ns >= self.limits.slower_than_ns
    }

    /// Whether a record of a request of this latency is to be made; counts it when there is no room for it.
    pub(super) fn takes(&mut self, latency_ns: u64) -> bool {
        if !self.is_slow_enough(latency_ns) {
            return false;
        }
        let is_full = self
            .limits
            .max_rows
            .is_some_and(|most| self.records >= most)
            || self.limits.max_bytes == Some(0);
        self.beyond += u64::from(is_full);
        !is_full
    }

    /// Where the bytes of a record are added.
    pub(super) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Ends what stands before or behind all records, and is not one of them.
    pub(super) fn end_frame(&mut self) -> Result<()> {
        self.collect(0);
        self.hand_over()
    }

    /// Ends the record. It is of what ended then, ns since the Unix epoch.
    pub(super) fn end_record(&mut self, unix_ns: u64) -> Result<()> {
        if self.ready.1 == 0 {
            self.since_ns = unix_ns;
        }
        self.collect(1);
        // The wall clock may have been set back.
        if self.ready.0 >= CHUNK || unix_ns.abs_diff(self.since_ns) >= LONGEST_NS {
            return self.hand_over();
        }
        Ok(())
    }

    /// There are so many records more.
    fn collect(&mut self, records: u64) {
        let length = self.bytes.len();
        let added = (length - self.ready.0) as u64;
        let most = self.limits.max_bytes.unwrap_or(u64::MAX);
        if records > 0 && self.written + added > most {
            // Shorter ones that come later would fit: the file is that of the first ones.
            self.limits.max_bytes = Some(0);
            self.bytes.truncate(self.ready.0);
            self.beyond += records;
            return;
        }
        self.written += added;
        self.records += records;
        self.ready = (length, self.ready.1 + records);
    }

    /// Hands all whole records over.
    pub(super) fn hand_over(&mut self) -> Result<()> {
        let (length, records) = mem::take(&mut self.ready);
        if length == 0 {
            return Ok(());
        }
        let result = self.out.write_all(&self.bytes);
        self.bytes.clear();
        match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.unread += records;
                Ok(())
            }
            other => other.map_err(|error| {
                Error::failed(format!("{} could not be written", self.name)).because(error)
            }),
        }
    }

    /// Records that were left out because nobody took them.
    pub(super) fn unread(&self) -> u64 {
        self.unread
    }

    /// What was left out: its stable name and its advice, because of the limits, and because nobody took
    /// it.
    pub(super) fn left_out(&self, beyond: [&str; 2], unread: [&str; 2]) -> Vec<LossLine> {
        [(beyond, self.beyond), (unread, self.unread)]
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|([name, advice], count)| LossLine {
                name: name.to_owned(),
                count,
                advice: advice.to_owned(),
            })
            .collect()
    }
}
