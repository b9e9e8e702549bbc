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

pub(crate) use queue::{Chosen, Queue, RowsExporter};
pub(crate) use row::Row;

#[cfg(test)]
#[cfg(feature = "parquet")]
mod tests;
#[cfg(test)]
#[cfg(feature = "parquet")]
pub(crate) use waiting::tests as tests_of_waiting;
