//! Rows of requests: those of all sessions in; those that are chosen, as [records](crate::records), out.
//!
//! ```text
//! session ──► choice ──► waiting ──► records: way (bounded) ══► writer
//! ```

mod queue;
mod row;
#[cfg(feature = "parquet")]
mod table;
mod waiting;

use std::time::Duration;

use crate::metrics::{Metrics, OfRecords};
use crate::records::Record;
use crate::spool::{Gone, Kind};

pub(crate) use queue::{Chosen, Queue, RowsExporter};
pub(crate) use row::Row;

/// Files of rows.
const KIND: Kind = Kind {
    section: "[rows]",
    start: "rows",
    end: ".parquet",
    contents,
};

#[cfg(feature = "parquet")]
fn contents(path: &std::path::Path) -> Option<Gone> {
    let file = reqtrace_output::parquet::ParquetFile::open(path).ok()?;
    Some(Gone {
        count: file.rows(),
        span_ns: file.meta().duration_ns,
    })
}

/// Nobody writes any.
#[cfg(not(feature = "parquet"))]
fn contents(_: &std::path::Path) -> Option<Gone> {
    None
}

impl Record for Row {
    #[cfg(feature = "parquet")]
    type Table = table::RowsTable;

    const KIND: &'static Kind = &KIND;
    const PATIENCE: Duration = Duration::ZERO;

    fn count(metrics: &Metrics, change: impl FnOnce(&mut OfRecords)) {
        metrics.rows(|of| change(&mut of.records));
    }

    fn end_unix_ns(&self) -> u64 {
        Self::end_unix_ns(self)
    }

    fn bytes(&self) -> usize {
        Self::bytes(self)
    }
}

#[cfg(test)]
#[cfg(feature = "parquet")]
mod tests;
#[cfg(test)]
#[cfg(feature = "parquet")]
pub(crate) use waiting::tests as tests_of_waiting;
