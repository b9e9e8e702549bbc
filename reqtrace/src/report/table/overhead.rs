//! What tracing took, and what it left out because of that: a line each.

use super::page::Page;
use crate::classify::table::WaitClass;
use crate::report::text::duration;
use crate::report::{Ledger, Report};

/// Draws them, if it was measured.
pub(super) fn draw(page: &mut Page, report: &Report) {
    let Some(overhead) = &report.trace.overhead else {
        return;
    };
    let requests: u64 = report.requests.iter().map(|request| request.begins).sum();
    let each = match overhead.tracing_ns().checked_div(requests) {
        Some(ns) => format!(", {} a request", duration(ns)),
        None => String::new(),
    };
    let waited = match waited_ns(report) {
        0 => String::new(),
        ns => format!("; requests waited {} in probes", duration(ns)),
    };
    page.line("");
    page.wrapped(
        "Tracing took ",
        &format!(
            "{:.1} % of the CPU time{each} (traps {}, kernel programs {}, reqtrace {}){waited}",
            overhead.share() * 100.0,
            duration(overhead.traps_ns),
            duration(overhead.programs_ns),
            duration(overhead.tracer_ns)
        ),
    );
    if report.trace.shed.is_empty() {
        return;
    }
    let seconds = |ns: u64| format!("{:.1}", ns as f64 / 1e9);
    let spans = report.trace.shed.iter().map(|span| {
        format!(
            "{} from {} to {} s",
            span.what,
            seconds(span.from_ns),
            seconds(span.to_ns)
        )
    });
    page.wrapped(
        "Left out, as it was above --max-overhead: ",
        &format!(
            "{}. Counts and times in the tables above cover all requests",
            spans.collect::<Vec<_>>().join("; ")
        ),
    );
}

/// How long requests were blocked in probes.
fn waited_ns(report: &Report) -> u64 {
    let class = report
        .classes
        .iter()
        .position(|name| name == WaitClass::Tracing.name());
    let of = |ledger: &Ledger| class.and_then(|class| ledger.classes.get(class).copied());
    let requests = report.requests.iter();
    requests.filter_map(|request| of(&request.ledger)).sum()
}
