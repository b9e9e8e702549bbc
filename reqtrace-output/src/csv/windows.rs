//! `windows.csv`: requests by the second in which they ended in, a line for each second and request type out, as soon as
//! nothing in it changes any more.

use std::io::Write;

use super::tray::Tray;
use super::{named, of_causes, times};
use crate::chunks::Limits;
use reqtrace_analysis::classify::columns::{Columns, causes};
use reqtrace_analysis::report::{Exporter, LossLine, Report, WindowRow};
use reqtrace_base::error::Result;

/// Columns before those of the sums.
const FIRST: [&str; 11] = [
    "start_unix_ns",
    "length_ns",
    "request",
    "requests",
    "records",
    "incomplete",
    "p50_ns",
    "p90_ns",
    "p99_ns",
    "max_ns",
    "slowest_id",
];
/// Quantiles among them.
const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

/// Writes `windows.csv`.
pub struct WindowsExporter {
    rows: Tray,
    /// Columns of the ledger; none when they are written.
    times: Option<Vec<String>>,
    named: Option<[usize; 2]>,
}

impl WindowsExporter {
    /// `name` is what errors call the output. It takes a chunk of rows with each write, or refuses it
    /// with [`std::io::ErrorKind::WouldBlock`].
    #[must_use]
    pub fn new(out: Box<dyn Write + Send>, name: &str, columns: &Columns, limits: Limits) -> Self {
        // Each row has all requests.
        let limits = Limits {
            slower_than_ns: 0,
            ..limits
        };
        Self {
            rows: Tray::new(out, name, limits),
            times: Some(columns.times().collect()),
            named: named(&columns.places),
        }
    }

    /// The header comes before the first row: a trace that comes to nothing writes nothing.
    fn begin(&mut self, has_causes: bool) -> Result<()> {
        let Some(mut names) = self.times.take() else {
            return Ok(());
        };
        if has_causes {
            names.extend(causes());
        }
        let names = names.iter().map(String::as_str);
        self.rows.header(FIRST.into_iter().chain(names))
    }
}

impl Exporter for WindowsExporter {
    fn window(&mut self, row: &WindowRow<'_>) -> Result<()> {
        if !self.rows.takes(u64::MAX) {
            return Ok(());
        }
        self.begin(row.has_causes)?;
        let (cell, rows) = (row.cell, &mut self.rows);
        rows.number(row.start_unix_ns);
        rows.number(row.length_ns);
        rows.text(row.request);
        rows.number(cell.sum.weight);
        rows.number(cell.count);
        rows.number(row.incomplete);
        for share in QUANTILES {
            match cell.latencies.quantile(share) {
                Some(ns) => rows.number(ns.min(cell.max_ns)),
                None => rows.text(""),
            }
        }
        match cell.slowest().next() {
            Some((latency_ns, id)) => {
                rows.number(latency_ns);
                rows.number(id);
            }
            None => (0..2).for_each(|_| rows.text("")),
        }
        times(rows, &cell.sum.ledger, self.named);
        if row.has_causes {
            of_causes(rows, &cell.sum.causes);
        }
        rows.end(row.start_unix_ns.saturating_add(row.length_ns))
    }

    fn wants_windows(&self) -> bool {
        true
    }

    fn left_out(&self) -> Vec<LossLine> {
        self.rows.left_out(
            [
                "windows_beyond_limit",
                "rows that are not in the file of --windows because of --max-rows or --max-bytes",
            ],
            [
                "windows_not_taken",
                "rows that are not in the file of --windows because its reader or its disk stood still",
            ],
        )
    }

    fn finish(&mut self, report: &Report) -> Result<()> {
        self.begin(report.blame.is_some())?;
        self.rows.hand_over()
    }
}
