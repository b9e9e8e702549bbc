//! What tracing took, and what it left out because of that: a line each.

use super::page::Page;
use reqtrace_analysis::classify::class::WaitClass;
use reqtrace_analysis::report::{Ledger, Overhead, Report, Untraced};
use reqtrace_base::figures::{duration, range};

/// Hits from which on a mean says something.
const FEWEST_HITS: u64 = 100;

/// Draws them, if it was measured.
pub(super) fn draw(page: &mut Page, report: &Report) {
    let Some(overhead) = &report.trace.overhead else {
        return;
    };
    let requests: u64 = report.requests.iter().map(|request| request.begins).sum();
    let inside_ns = overhead.inside_ns(report.trace.cold_percent);
    let each = match inside_ns.map(|ns| ns.checked_div(requests)) {
        [Some(least), Some(most)] => {
            format!(", {} a request", from_to(duration(least), &duration(most)))
        }
        _ => String::new(),
    };
    // Of the time on a CPU: a process that mostly sleeps would make it little.
    let takes = range(overhead.shares(report.trace.cold_percent));
    let waited = match waited_ns(report) {
        0 => String::new(),
        ns => format!("; requests waited {} in probes", duration(ns)),
    };
    page.line("");
    page.wrapped(
        "Tracing took ",
        &format!(
            "{takes} of the processes' CPU time{each} (traps {}, kernel programs {}); reqtrace itself \
             {}{}{waited}",
            duration(overhead.traps_ns),
            duration(overhead.programs_ns),
            duration(overhead.tracer_ns),
            before(overhead, report.trace.untraced),
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

/// A range, or one of both where they are alike.
fn from_to(least: String, most: &str) -> String {
    if least == most {
        return least;
    }
    format!("{least} to {most}")
}

/// The processes' CPU time for each hit of a probe, now and before: a figure that needs no calibration.
fn before(overhead: &Overhead, untraced: Option<Untraced>) -> String {
    let each = |ns: u64, hits: u64| (hits >= FEWEST_HITS).then(|| duration(ns / hits));
    let now = each(overhead.processes_ns, overhead.hits);
    let untraced = untraced.and_then(|before| each(before.work_ns, before.hits));
    match (now, untraced) {
        (Some(now), Some(before)) => {
            format!(
                "; per hit of a probe the processes used {now} of CPU time, {before} before the trace"
            )
        }
        _ => String::new(),
    }
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
