//! Records: rows of requests, and roll-ups, of all sessions in; whole files of each kind in a folder of its own out.
//!
//! ```text
//! session ──► way (bounded) ══► writer (a thread of the worker) ──► journal, spool ──► date=/hour=/service=
//! ```
//!
//! A session never waits for the writer: what the way has no room for is dropped and counted.

#![cfg_attr(
    not(feature = "parquet"),
    allow(dead_code, reason = "the writer is not there")
)]

mod dropped;
#[cfg(feature = "parquet")]
pub(crate) mod journal;
mod way;
#[cfg(not(feature = "parquet"))]
mod without;
#[cfg(feature = "parquet")]
mod writer;

use std::fmt::Debug;
#[cfg(feature = "parquet")]
use std::io::Write;
use std::time::Duration;

#[cfg(feature = "parquet")]
use reqtrace_base::error::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::metrics::{Metrics, OfRecords};
use crate::spool::Kind;
#[cfg(feature = "parquet")]
use journal::Head;

pub(crate) use dropped::Dropped;
pub(crate) use way::{Batch, Message, Of, Room, Way};
#[cfg(not(feature = "parquet"))]
pub(crate) use without::Writer;
#[cfg(feature = "parquet")]
pub(crate) use writer::Writer;

/// What files are made of.
pub(crate) trait Record:
    Clone + Debug + Serialize + DeserializeOwned + Send + 'static
{
    /// The file of many.
    #[cfg(feature = "parquet")]
    type Table: Table<Self>;

    /// What their files are called, and recognised by.
    const KIND: &'static Kind;
    /// A file that gets no more is handed over so much later than one that does: more of the same moment may come.
    const PATIENCE: Duration;

    /// Changes what is known of all of them.
    fn count(metrics: &Metrics, change: impl FnOnce(&mut OfRecords));

    /// The end of what it is about, ns since the Unix epoch.
    fn end_unix_ns(&self) -> u64;

    /// The memory that it takes.
    fn bytes(&self) -> usize;
}

/// A file that is made.
#[cfg(feature = "parquet")]
pub(crate) trait Table<R>: Sized {
    /// Begins it with this record, which is still to be added; `name` is what errors call it.
    fn begin(head: &Head, name: &str, to: Box<dyn Write + Send>, first: &R) -> Self;

    /// Adds one, of this machine.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    fn add(&mut self, record: &R, host: &str) -> Result<()>;

    /// Rows that it has.
    fn rows(&self) -> u64;

    /// Bytes of the file at most, if it were finished now.
    fn size(&self) -> u64;

    /// Writes the rest, with what is known of all: the machine, and the end of the last one.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    fn finish(&mut self, host: &str, last_end_ns: u64) -> Result<()>;
}
