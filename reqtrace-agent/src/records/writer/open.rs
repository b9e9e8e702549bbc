//! A file that is being made: records in; the same in its table out, until it is over.

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqtrace_base::error::Result;

use crate::records::journal::{Head, Journal};
use crate::records::{Of, Record, Table as _};
use crate::spool::paths::hour;

/// A file that is being made.
pub(super) struct Open<R: Record> {
    pub(super) of: Arc<Of>,
    pub(super) slow_ns: Option<u64>,
    pub(super) name: String,
    pub(super) file: File,
    pub(super) journal: Journal,
    pub(super) table: R::Table,
    pub(super) hour: u64,
    pub(super) first_end_ns: u64,
    pub(super) last_end_ns: u64,
    pub(super) since: Instant,
}

impl<R: Record> Open<R> {
    /// A file that begins with this record, which is still to be added.
    pub(super) fn begin(
        head: Head,
        name: &str,
        file: File,
        journal: Journal,
        record: &R,
    ) -> std::io::Result<Self> {
        let to = Box::new(file.try_clone()?);
        let end_ns = record.end_unix_ns();
        Ok(Self {
            table: R::Table::begin(&head, name, to, record),
            of: Arc::new(head.of),
            slow_ns: head.slow_ns,
            name: name.to_owned(),
            file,
            journal,
            hour: head.hour,
            first_end_ns: end_ns,
            last_end_ns: end_ns,
            since: Instant::now(),
        })
    }

    /// Whether a record does not belong into it any more.
    pub(super) fn is_over(&self, record: &R, every: Duration) -> bool {
        let end_ns = record.end_unix_ns();
        let age = Duration::from_nanos(end_ns.saturating_sub(self.first_end_ns));
        hour(end_ns) != self.hour || age >= every
    }

    pub(super) fn add(&mut self, record: &R, host: &str) -> Result<()> {
        self.first_end_ns = self.first_end_ns.min(record.end_unix_ns());
        self.last_end_ns = self.last_end_ns.max(record.end_unix_ns());
        self.table.add(record, host)
    }
}
