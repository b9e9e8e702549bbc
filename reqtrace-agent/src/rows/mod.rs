//! Rows of requests: those of all sessions in, whole files in a folder out.
//!
//! ```text
//! session ──► choice ──► waiting ──► queue (bounded) ══► writer (a thread of the worker) ──► spool ──► date=/hour=/service=
//! ```
//!
//! A session never waits for the writer: what the queue has no room for is dropped and counted.

#![cfg_attr(
    not(feature = "parquet"),
    allow(dead_code, reason = "the writer is not there")
)]

#[cfg(feature = "parquet")]
mod journal;
mod queue;
mod row;
mod waiting;
#[cfg(not(feature = "parquet"))]
mod without;
#[cfg(feature = "parquet")]
mod writer;

pub(crate) use queue::{Batch, Chosen, Message, Of, Queue, Room, RowsExporter};
pub(crate) use row::Row;
#[cfg(not(feature = "parquet"))]
pub(crate) use without::Writer;
#[cfg(feature = "parquet")]
pub(crate) use writer::Writer;

/// Why rows were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Dropped {
    /// The writer was behind.
    Queue,
    /// A file could not be written, or there was no room for one.
    Disk,
    /// They were handed over, and removed to make room.
    Oldest,
}

impl Dropped {
    pub(crate) const ALL: [Self; 3] = [Self::Queue, Self::Disk, Self::Oldest];

    /// The label `cause`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue_full",
            Self::Disk => "disk",
            Self::Oldest => "oldest",
        }
    }
}

#[cfg(test)]
#[cfg(feature = "parquet")]
mod tests;
