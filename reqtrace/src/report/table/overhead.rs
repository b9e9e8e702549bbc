//! What tracing took, and what it left out because of that: a line each.

use super::page::Page;
use crate::report::Report;
use crate::report::text::duration;

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
    page.line("");
    page.wrapped(
        "Tracing took ",
        &format!(
            "{:.1} % of the CPU time{each} (traps {}, kernel programs {}, reqtrace {})",
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
