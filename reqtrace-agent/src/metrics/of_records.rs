//! Figures of files of records: what a writer and its way have done in, counters that never decrease out.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::encoder::{Encoder, Label};
use super::latencies::seconds;
use crate::records::Dropped;

/// What became of records of a kind since the agent's start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct OfRecords {
    /// Rows in files that were handed over, these files, and their bytes.
    pub(crate) written: u64,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Files of a killed agent that were removed.
    pub(crate) half_made: u64,
    /// Rows of a killed agent whose file was made again.
    pub(crate) made_again: u64,
    /// Bytes of files that are being made, and of those that were handed over and are there.
    pub(crate) spool_bytes: u64,
    pub(crate) kept_bytes: u64,
    /// Records and the time between their ends, ns, by cause.
    dropped: [(u64, u128); Dropped::ALL.len()],
}

/// Words of the names and helps of the metrics.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words {
    /// `rows`
    pub(super) name: &'static str,
    /// What is in a file.
    pub(super) things: &'static str,
    /// What is lost.
    pub(super) lost: &'static str,
}

impl OfRecords {
    /// So many records are lost, whose requests ended in this time.
    pub(crate) fn dropped(&mut self, cause: Dropped, records: u64, span_ns: u64) {
        let at = &mut self.dropped[cause as usize];
        at.0 += records;
        at.1 += u128::from(span_ns);
    }

    /// With those of another process, which have the rest of the way of a record.
    pub(super) fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.written, other.written),
            (&mut self.files, other.files),
            (&mut self.bytes, other.bytes),
            (&mut self.half_made, other.half_made),
            (&mut self.made_again, other.made_again),
            (&mut self.spool_bytes, other.spool_bytes),
            (&mut self.kept_bytes, other.kept_bytes),
        ];
        for (own, more) in sums {
            *own = own.saturating_add(more);
        }
        for (own, more) in self.dropped.iter_mut().zip(other.dropped) {
            own.0 = own.0.saturating_add(more.0);
            own.1 = own.1.saturating_add(more.1);
        }
    }

    pub(super) fn encode(&self, words: Words, to: &mut Encoder<'_>) -> fmt::Result {
        let none: [Label<'_>; 0] = [];
        let Words { name, things, lost } = words;
        let counters = [
            (
                "written",
                format!("{things} in files that were handed over"),
                self.written,
            ),
            (
                "files",
                format!("Files of {name} that were handed over"),
                self.files,
            ),
            (
                "bytes",
                format!("Bytes of files of {name} that were handed over"),
                self.bytes,
            ),
            (
                "half_made_files",
                format!(
                    "Files of {name} with nothing in them that an agent had not finished when it was killed, and that were removed"
                ),
                self.half_made,
            ),
            (
                "made_again",
                format!(
                    "{things} of an agent that was killed, which are written from its journals"
                ),
                self.made_again,
            ),
        ];
        for (what, help, count) in counters {
            to.counter(&format!("{name}_{what}"), &help, [(none, count as f64)])?;
        }
        let causes = || Dropped::ALL.into_iter().zip(self.dropped);
        to.counter(
            &format!("{name}_dropped"),
            &format!(
                "{lost} that are in no file, or whose file was removed to make room, by cause"
            ),
            causes().map(|(cause, (records, _))| ([("cause", cause.name())], records as f64)),
        )?;
        to.counter(
            &format!("{name}_dropped_seconds"),
            &format!("Time in which the requests of dropped {name} ended, by cause"),
            causes().map(|(cause, (_, ns))| ([("cause", cause.name())], seconds(ns))),
        )?;
        to.gauge(
            &format!("{name}_spool_bytes"),
            &format!("Bytes of files of {name} that are being made"),
            [(none, self.spool_bytes as f64)],
        )?;
        to.gauge(
            &format!("{name}_kept_bytes"),
            &format!("Bytes of files of {name} that were handed over and are still there"),
            [(none, self.kept_bytes as f64)],
        )
    }
}
