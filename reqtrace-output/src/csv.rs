//! `requests.csv`: rows in, one line each out, as they come.

mod intervals;
mod read;
mod tray;
mod windows;

use std::io::Write;

use reqtrace_analysis::classify::columns::{AFTER, BEFORE_BEGIN, Columns, LOST, causes};
use reqtrace_analysis::report::blame::{Cause, Causes};
use reqtrace_analysis::report::{Exporter, Ledger, LossLine, Places, Report, RequestRow};
use reqtrace_base::error::Result;

pub use crate::chunks::Limits;
pub use intervals::IntervalsExporter;
pub use read::CsvFile;
use tray::Tray;
pub use windows::WindowsExporter;

/// Writes `requests.csv`.
pub struct CsvExporter {
    rows: Tray,
    /// Columns before and after those of root causes; none when they are written.
    header: Option<(Vec<String>, [&'static str; AFTER.len()])>,
    /// Which places have columns of their own, of those where requests are parked and queued; `None` when no
    /// request type has a key.
    named: Option<[usize; 2]>,
    has_before: bool,
    has_lost: bool,
}

/// How many places have a name: all but the last, of each kind.
pub(crate) fn named(places: &Places) -> Option<[usize; 2]> {
    let named = |names: &[String]| names.len().saturating_sub(1);
    (!places.is_empty()).then(|| [named(&places.parked), named(&places.queued)])
}

impl CsvExporter {
    /// `name` is what errors call the output. It takes a chunk of rows with each write, or refuses it
    /// with [`std::io::ErrorKind::WouldBlock`].
    #[must_use]
    pub fn new(out: Box<dyn Write + Send>, name: &str, columns: &Columns, limits: Limits) -> Self {
        Self {
            rows: Tray::new(out, name, limits),
            header: Some((columns.before(), AFTER)),
            named: named(&columns.places),
            has_before: columns.has_before,
            has_lost: columns.has_lost,
        }
    }

    fn maybe(&mut self, ns: Option<u64>) {
        match ns {
            Some(ns) => self.rows.number(ns),
            None => self.rows.text(""),
        }
    }

    /// The header comes before the first row: a trace that comes to nothing writes nothing.
    fn begin(&mut self, has_blame: bool) -> Result<()> {
        let Some((mut names, after)) = self.header.take() else {
            return Ok(());
        };
        if has_blame {
            names.extend(causes());
        }
        let names = names.iter().map(String::as_str);
        let before = self.has_before.then_some(BEFORE_BEGIN);
        let lost = self.has_lost.then_some(LOST).into_iter().flatten();
        self.rows
            .header(names.chain(after).chain(before).chain(lost))
    }
}

/// The ledger's columns.
fn times(line: &mut Tray, ledger: &Ledger, named: Option<[usize; 2]>) {
    line.number(ledger.latency_ns);
    line.number(ledger.on_cpu_ns);
    line.number(ledger.run_queue_ns);
    line.number(ledger.preempted_ns);
    line.number(ledger.blocked_ns());
    line.number(ledger.unattributed_ns);
    for ns in &ledger.classes {
        line.number(*ns);
    }
    if let Some([parked, queued]) = named {
        line.number(ledger.parked_ns());
        line.number(ledger.queued_ns());
        let parked = ledger.parked.iter().take(parked);
        for ns in parked.chain(ledger.queued.iter().take(queued)) {
            line.number(*ns);
        }
    }
}

fn of_causes(line: &mut Tray, causes: &Causes) {
    for cause in Cause::ALL {
        line.number(causes.get(cause));
    }
}

/// One row, without a copy of a field: a server has 100,000 of them in a second.
fn line(line: &mut Tray, row: &RequestRow<'_>, named: Option<[usize; 2]>) {
    let ledger = row.ledger;
    line.number(row.id);
    line.number(row.start_unix_ns);
    line.text(row.request);
    line.number(row.pid.into());
    line.number(row.tid.into());
    line.text(row.comm);
    line.text(row.label);
    for attribute in row.attributes {
        line.text(attribute);
    }
    times(line, ledger, named);
    if let Some(causes) = &row.causes {
        of_causes(line, causes);
    }
    line.number(row.blocks.into());
    line.number(row.preemptions.into());
    let (complete, reason) = row
        .incomplete
        .map_or(("true", ""), |incomplete| ("false", incomplete.reason()));
    line.text(complete);
    line.text(reason);
    line.number(row.weight.into());
}

impl Exporter for CsvExporter {
    fn request(&mut self, row: &RequestRow<'_>) -> Result<()> {
        if !self.rows.takes(row.ledger.latency_ns) {
            return Ok(());
        }
        self.begin(row.causes.is_some())?;
        line(&mut self.rows, row, self.named);
        if self.has_before {
            self.maybe(row.waited_before_ns);
        }
        if self.has_lost {
            self.maybe(row.lost.map(|lost| lost.interrupts_ns));
            self.maybe(row.lost.map(|lost| lost.softirqs_ns));
            self.maybe(row.lost.and_then(|lost| lost.steal_ns));
        }
        self.rows
            .end(row.start_unix_ns.saturating_add(row.ledger.latency_ns))
    }

    fn wants_requests(&self) -> bool {
        true
    }

    fn left_out(&self) -> Vec<LossLine> {
        self.rows.left_out(
            [
                "rows_beyond_limit",
                "requests that are not in requests.csv because of --max-rows or --max-bytes; everything \
                 else has them",
            ],
            [
                "rows_not_taken",
                "requests that are not in requests.csv because its reader or its disk stood still; \
                 everything else has them",
            ],
        )
    }

    fn finish(&mut self, report: &Report) -> Result<()> {
        self.begin(report.blame.is_some())?;
        self.rows.hand_over()
    }
}
