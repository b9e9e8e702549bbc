//! Figures of rows: what the writer and its queue have done in, counters that never decrease out.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::encode::{Encoder, Label};
use super::of_type::seconds;
use crate::rows::Dropped;

/// What became of rows since the agent's start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct OfRows {
    /// Rows in files that were handed over, these files, and their bytes.
    pub(crate) written: u64,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Rows that left before a slow request could name them, and rows that were named when they had been left out.
    pub(crate) not_waited: u64,
    pub(crate) blamed_late: u64,
    /// Files of a killed agent that were removed.
    pub(crate) half_made: u64,
    /// Rows of a killed agent whose file was made again.
    pub(crate) made_again: u64,
    /// Bytes of files that are being made, and of those that were handed over and are there.
    pub(crate) spool_bytes: u64,
    pub(crate) kept_bytes: u64,
    /// Rows and the time between their ends, ns, by cause.
    dropped: [(u64, u128); Dropped::ALL.len()],
}

impl OfRows {
    /// So many rows are lost, whose requests ended in this time.
    pub(crate) fn dropped(&mut self, cause: Dropped, rows: u64, span_ns: u64) {
        let at = &mut self.dropped[cause as usize];
        at.0 += rows;
        at.1 += u128::from(span_ns);
    }

    /// With those of another process, which have the rest of the way of a row.
    pub(super) fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.written, other.written),
            (&mut self.files, other.files),
            (&mut self.bytes, other.bytes),
            (&mut self.not_waited, other.not_waited),
            (&mut self.blamed_late, other.blamed_late),
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

    pub(super) fn encode(&self, to: &mut Encoder<'_>) -> fmt::Result {
        let none: [Label<'_>; 0] = [];
        let counters = [
            (
                "rows_written",
                "Rows in files that were handed over",
                self.written,
            ),
            (
                "rows_files",
                "Files of rows that were handed over",
                self.files,
            ),
            (
                "rows_bytes",
                "Bytes of files of rows that were handed over",
                self.bytes,
            ),
            (
                "rows_half_made_files",
                "Files without a row that an agent had not finished when it was killed, and that were removed",
                self.half_made,
            ),
            (
                "rows_made_again",
                "Rows of an agent that was killed, which are written from its journals",
                self.made_again,
            ),
            (
                "rows_not_waited",
                "Rows that had no room to wait until a slow or incomplete request names them; of rules with blame",
                self.not_waited,
            ),
            (
                "rows_blamed_late",
                "Requests without a row that a slow or incomplete one named when theirs had waited long enough",
                self.blamed_late,
            ),
        ];
        for (name, help, count) in counters {
            to.counter(name, help, [(none, count as f64)])?;
        }
        let causes = || Dropped::ALL.into_iter().zip(self.dropped);
        to.counter(
            "rows_dropped",
            "Rows that are in no file, or whose file was removed to make room, by cause",
            causes().map(|(cause, (rows, _))| ([("cause", cause.name())], rows as f64)),
        )?;
        to.counter(
            "rows_dropped_seconds",
            "Time in which the requests of dropped rows ended, by cause",
            causes().map(|(cause, (_, ns))| ([("cause", cause.name())], seconds(ns))),
        )?;
        to.gauge(
            "rows_spool_bytes",
            "Bytes of files of rows that are being made",
            [(none, self.spool_bytes as f64)],
        )?;
        to.gauge(
            "rows_kept_bytes",
            "Bytes of files of rows that were handed over and are still there",
            [(none, self.kept_bytes as f64)],
        )
    }
}
