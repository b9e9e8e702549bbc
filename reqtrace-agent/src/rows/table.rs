//! A file of rows that is made: rows in, Parquet out.

use std::io::Write;

use reqtrace_analysis::report::blame::Blame;
use reqtrace_analysis::report::{Exporter as _, Report, TraceInfo};
use reqtrace_base::error::Result;
use reqtrace_output::csv::Limits;
use reqtrace_output::parquet::ParquetExporter;

use super::row::Row;
use crate::records::journal::Head;
use crate::records::{Of, Table};

/// A file of rows.
pub(crate) struct RowsTable {
    of: Of,
    slow_ns: Option<u64>,
    one_in: u32,
    exporter: ParquetExporter,
    rows: u64,
    start_unix_ns: u64,
    start_ns: i64,
}

impl Table<Row> for RowsTable {
    fn begin(head: &Head, name: &str, to: Box<dyn Write + Send>, first: &Row) -> Self {
        let Head {
            of,
            slow_ns,
            one_in,
            hour: _,
        } = head;
        Self {
            exporter: ParquetExporter::new(to, name, &of.columns, Limits::default()),
            of: of.clone(),
            slow_ns: *slow_ns,
            one_in: *one_in,
            rows: 0,
            start_unix_ns: first.start_unix_ns,
            start_ns: first.since_start_ns,
        }
    }

    fn add(&mut self, row: &Row, host: &str) -> Result<()> {
        // It is one of those that are lost when it fails.
        self.rows += 1;
        let row = row.lend(host, &self.of.service, self.start_ns);
        self.exporter.request(&row)
    }

    fn rows(&self) -> u64 {
        self.rows
    }

    fn size(&self) -> u64 {
        self.exporter.size()
    }

    fn finish(&mut self, host: &str, last_end_ns: u64) -> Result<()> {
        let slow = self
            .slow_ns
            .map_or_else(|| "none".to_owned(), |ns| format!("{ns} ns"));
        let labels = if self.of.texts { "yes" } else { "no" };
        let alike = [
            ("--labels", labels.to_owned()),
            ("one in", self.one_in.to_string()),
            ("slow above", slow),
        ];
        let report = Report {
            trace: TraceInfo {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                profile: self.of.profile.clone(),
                kernel: self.of.kernel.clone(),
                host: host.to_owned(),
                start_unix_ns: self.start_unix_ns,
                duration_ns: last_end_ns.saturating_sub(self.start_unix_ns),
                ended_by: "file closed".to_owned(),
                alike: alike.map(|(name, value)| (name.to_owned(), value)).into(),
                ..TraceInfo::default()
            },
            blame: self.of.has_causes.then(Blame::default),
            ..Report::default()
        };
        self.exporter.finish(&report)
    }
}
