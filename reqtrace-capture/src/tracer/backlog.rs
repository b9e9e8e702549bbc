//! Requests that wait for their names: their records in, in the order of the ring, and out again.
//!
//! Finding a name for the first time may take tens of milliseconds; what processes do meanwhile, an
//! exec above all, must not wait so long for its unwind tables.

use std::time::{Duration, Instant};

/// How long a request waits at most.
const LONGEST: Duration = Duration::from_millis(200);
/// How many bytes wait at most; about 1,000 requests. They are in the CPU's cache then, and working on them takes few milliseconds.
const MOST: usize = 256 << 10;

/// Records one behind the other.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    bytes: Vec<u8>,
    lengths: Vec<u32>,
    since: Option<Instant>,
}

impl Backlog {
    pub(super) fn push(&mut self, record: &[u8]) {
        self.since.get_or_insert_with(Instant::now);
        self.bytes.extend_from_slice(record);
        self.lengths.push(record.len() as u32);
    }

    /// Whether it is time to work on it. Nothing to do is always due.
    pub(super) fn is_due(&self) -> bool {
        self.bytes.len() >= MOST || self.since.is_none_or(|since| since.elapsed() >= LONGEST)
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.bytes.as_slice();
        self.lengths.iter().map(move |&length| {
            let (record, behind) = rest.split_at(length as usize);
            rest = behind;
            record
        })
    }

    /// Forgets the records and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.lengths.clear();
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_out_as_they_went_in() {
        let mut backlog = Backlog::default();
        assert!(backlog.is_due());
        for record in [&b"one"[..], b"", b"three"] {
            backlog.push(record);
        }
        assert!(!backlog.is_due());
        assert_eq!(
            backlog.records().collect::<Vec<_>>(),
            [&b"one"[..], b"", b"three"]
        );
        backlog.push(&vec![0; MOST]);
        assert!(backlog.is_due());
        backlog.clear();
        assert_eq!(backlog.records().count(), 0);
        assert!(backlog.is_due());
    }
}
