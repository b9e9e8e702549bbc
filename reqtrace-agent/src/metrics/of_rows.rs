//! Figures of rows and roll-ups: what their writers and their choice have done in, counters that never decrease out.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::encoder::{Encoder, Label};
use super::of_records::{OfRecords, Words};

const ROWS: Words = Words {
    name: "rows",
    things: "Rows",
    lost: "Rows",
};
const ROLLUPS: Words = Words {
    name: "rollups",
    things: "Rows of minutes",
    lost: "Rows of minutes, or of windows of which there is none yet,",
};

/// What became of rows since the agent's start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct OfRows {
    pub(crate) records: OfRecords,
    /// Rows that left before a slow request could name them, and rows that were named when they had been left out.
    pub(crate) not_waited: u64,
    pub(crate) blamed_late: u64,
}

impl OfRows {
    /// With those of another process, which have the rest of the way of a row.
    pub(super) fn add(&mut self, other: &Self) {
        self.records.add(&other.records);
        self.not_waited = self.not_waited.saturating_add(other.not_waited);
        self.blamed_late = self.blamed_late.saturating_add(other.blamed_late);
    }

    pub(super) fn encode(&self, to: &mut Encoder<'_>) -> fmt::Result {
        let none: [Label<'_>; 0] = [];
        self.records.encode(ROWS, to)?;
        to.counter(
            "rows_not_waited",
            "Rows that had no room to wait until a slow or incomplete request names them; of rules with blame",
            [(none, self.not_waited as f64)],
        )?;
        to.counter(
            "rows_blamed_late",
            "Requests without a row that a slow or incomplete one named when theirs had waited long enough",
            [(none, self.blamed_late as f64)],
        )
    }
}

/// The same of roll-ups.
pub(super) fn encode_rollups(of: &OfRecords, to: &mut Encoder<'_>) -> fmt::Result {
    of.encode(ROLLUPS, to)
}
