//! The main tables: requests with their latency, and where the time of each type went.

use super::page::{Page, bar, frames};
use crate::words::NAME;
use reqtrace_analysis::report::{LostOfType, Report, StackKind, TypeReport, WaitedBefore};
use reqtrace_base::figures::{cut, duration, number, rate, share};
use reqtrace_base::text::children_of;

/// Columns left of the frames of a class.
const BEFORE_FRAMES: usize = 59;
/// Room that a frame needs to say something.
const SHORTEST_FRAME: usize = 12;

/// All request types.
pub(super) fn requests(page: &mut Page, report: &Report) {
    let widest = report
        .requests
        .iter()
        .map(|request| request.name.chars().count());
    let name = widest.max().unwrap_or(0).clamp("REQUEST".len(), NAME);
    let narrow = page.is_narrow();
    let mut row = |name_: &str, count: &str, per_second: &str, columns: [&str; 5]| {
        let mut line = format!("{name_:name$} {count:>12} {per_second:>8}");
        for (index, column) in columns.into_iter().enumerate() {
            // The mean, the 99th percentile and the maximum say most.
            if !narrow || [0, 3, 4].contains(&index) {
                line.push_str(&format!(" {column:>8}"));
            }
        }
        page.line(&line);
    };
    row(
        "REQUEST",
        "COUNT",
        "/s",
        ["MEAN", "P50", "P95", "P99", "MAX"],
    );
    for request in &report.requests {
        let columns = match &request.latency {
            Some(latency) => [
                latency.mean_ns,
                latency.p50_ns,
                latency.p95_ns,
                latency.p99_ns,
                latency.max_ns,
            ]
            .map(duration),
            None => [(); 5].map(|()| "-".to_owned()),
        };
        let count = request.best_count();
        row(
            &cut(&request.name, NAME),
            &number(count),
            &rate(count, report.trace.duration_ns),
            columns.each_ref().map(String::as_str),
        );
    }
    for request in &report.requests {
        if request.is_estimate {
            page.wrapped(
                "  ",
                &format!(
                    "`{}`: {} records stand for about {} requests (--sample, --keep-slow): all numbers are estimates.",
                    request.name,
                    number(request.rows),
                    number(request.count)
                ),
            );
        }
        if request.is_sampled() {
            page.wrapped(
                "  ",
                &format!(
                    "`{}`: {} of {} requests were recorded (--sample). COUNT and /s are exact; \
                     sums and percentiles are estimates from those.",
                    request.name,
                    number(request.recorded),
                    number(request.exact_count)
                ),
            );
        }
        if request.sent < request.recorded
            && let (Some(slow_ns), Some(one_in)) = (report.trace.keep_slow_ns, report.trace.one_in)
        {
            page.wrapped(
                "  ",
                &format!(
                    "`{}`: {} of {} requests have a record (--keep-slow): each from {} on, and one in {} of the others, \
                     which stands for so many. Table and ledger are of all: percentiles by the kernel's histogram, classes \
                     by its stacks. All else is estimated from the records.",
                    request.name,
                    number(request.sent),
                    number(request.recorded),
                    duration(slow_ns),
                    number(u64::from(one_in)),
                ),
            );
        }
        if request.rows < request.sent {
            page.wrapped(
                "  ",
                &format!(
                    "`{}`: the records of {} of {} requests arrived. Counts and sums cover all; \
                     percentiles are from the kernel's histogram; the split by class is estimated.",
                    request.name,
                    number(request.rows),
                    number(request.sent)
                ),
            );
        }
    }
}

/// The time of one request type.
pub(super) fn ledger(page: &mut Page, report: &Report, request: &TypeReport) {
    let ledger = &request.ledger;
    page.line("");
    let title = format!("Time of `{}`", cut(&request.name, 18));
    page.line(&format!("{title:<29} {:>7} {:>11}", "share", "per request"));
    let width = page.width;
    let mut row = |indent: usize, name: &str, ns: u64, hint: &str| {
        let label = format!("{:indent$}{}", "", cut(name, NAME));
        let per_request = match ns.checked_div(request.count).unwrap_or(0) {
            0 if ns > 0 => "<1 ns".to_owned(),
            mean => duration(mean),
        };
        page.line(&format!(
            "{label:<29} {:>7} {per_request:>11} {:8} {hint}",
            share(ns, ledger.latency_ns),
            bar(ns, ledger.latency_ns),
        ));
    };
    row(2, "on CPU", ledger.on_cpu_ns, "");
    for (name, ns) in lost(request) {
        row(5, name, ns, "");
    }
    row(2, "run queue", ledger.run_queue_ns, "");
    row(2, "preempted", ledger.preempted_ns, "");
    row(2, "blocked", ledger.blocked_ns(), "");
    let mut classes: Vec<_> = ledger.classes.iter().enumerate().collect();
    classes.retain(|(_, ns)| **ns > 0);
    classes.sort_by_key(|(index, ns)| (std::cmp::Reverse(**ns), *index));
    for (class, ns) in classes {
        let name = report.classes.get(class).map_or("?", String::as_str);
        row(5, name, *ns, &top_frames(report, request, class, width));
    }
    if ledger.unattributed_ns > 0 {
        row(2, "unattributed", ledger.unattributed_ns, "");
    }
    parked(&mut row, report, request);
    if let Some(waited) = &request.waited_before {
        page.wrapped("  Before the begin: ", &before(waited, report, request));
    }
    // They are known of all requests only.
    let children = request.children.filter(|_| report.filtered.is_none());
    if let Some(children) = children.filter(|children| *children > 0) {
        let theirs = children_of(&request.name);
        let what_they_do = match report.requests.iter().any(|one| one.name == theirs) {
            true => format!("what they do is in `{theirs}`"),
            false => "what they do is no part of its requests".to_owned(),
        };
        let spawned = format!(
            "tasks or goroutines that are no `{}`: {}; {what_they_do}",
            request.name,
            number(children)
        );
        page.wrapped("  Spawned: ", &spawned);
    }
}

/// What took the CPU from requests while they ran, as a part of the ledger: it is known of those whose records arrived.
fn lost(request: &TypeReport) -> Vec<(&'static str, u64)> {
    let Some(LostOfType { requests, lost }) = &request.lost else {
        return Vec::new();
    };
    let of_all = |ns: u64| {
        let all = u128::from(ns) * u128::from(request.count);
        all.checked_div(u128::from(*requests)).unwrap_or(0) as u64
    };
    let steal = lost.steal_ns.map(|ns| ("steal", of_all(ns)));
    let parts = [
        ("interrupts", of_all(lost.interrupts_ns)),
        ("softirqs", of_all(lost.softirqs_ns)),
    ];
    parts.into_iter().chain(steal).collect()
}

/// Time in which no thread ran requests.
fn parked(row: &mut impl FnMut(usize, &str, u64, &str), report: &Report, request: &TypeReport) {
    let ledger = &request.ledger;
    if request.is_keyed {
        let places = &report.places;
        for (name, names, times) in [
            ("parked", &places.parked, &ledger.parked),
            ("queued", &places.queued, &ledger.queued),
        ] {
            row(2, name, times.iter().sum(), "");
            for (place, ns) in of_places(names, times) {
                row(5, place, ns, "");
            }
        }
    }
}

/// Why it is known of no request of a type.
fn why_unknown(report: &Report, request: &TypeReport) -> String {
    let sockets = &report.trace.sockets;
    let has = |kind: &str| sockets.iter().any(|socket| socket == kind);
    if has("UDP") && !has("TCP") && !has("Unix") {
        return "the sockets of the processes are UDP, of which it is not recorded".to_owned();
    }
    let mut markers = report.trace.markers.iter();
    let begin = markers.find(|info| info.request == request.name && info.marker == "begin");
    if let Some(begin) = begin.filter(|info| is_accept(&info.place)) {
        return format!(
            "they begin where a connection is accepted ({}), and nothing of it was read by then. Begin them where \
             the request has been read",
            begin.place
        );
    }
    let udp = if has("UDP") {
        ", or it came by UDP, of which it is not recorded"
    } else {
        ""
    };
    format!(
        "their threads had read nothing from a TCP or Unix socket when they began. They begin before their data is \
         read, or another thread reads it{udp}"
    )
}

/// Whether a marker is where a connection is accepted.
fn is_accept(place: &str) -> bool {
    let function = place.split([' ', '@']).next().unwrap_or(place);
    matches!(
        function.trim_start_matches('_'),
        "accept" | "accept4" | "libc_accept" | "libc_accept4"
    )
}

/// How long data had been waiting.
fn before(waited: &WaitedBefore, report: &Report, request: &TypeReport) -> String {
    if waited.known == 0 {
        return format!(
            "how long data had been waiting at a socket is known of none of {} requests: {}",
            number(waited.requests),
            why_unknown(report, request)
        );
    }
    format!(
        "the data of {} of {} requests ({}) had been waiting at a socket: mean {}, p50 {}, p99 {}, max {}. \
         This is no part of the time above",
        number(waited.known),
        number(waited.requests),
        share(waited.known, waited.requests),
        duration(waited.mean_ns),
        duration(waited.p50_ns),
        duration(waited.p99_ns),
        duration(waited.max_ns),
    )
}

/// Times by place, the most first; none when nothing of it has a name.
fn of_places<'a>(names: &'a [String], times: &[u64]) -> Vec<(&'a str, u64)> {
    let times = names.iter().map(String::as_str).zip(times.iter().copied());
    let mut times: Vec<_> = times.filter(|(_, ns)| *ns > 0).collect();
    if times.iter().all(|(name, _)| name.is_empty()) {
        return Vec::new();
    }
    times.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let named = times.into_iter().map(|(name, ns)| match name {
        "" => ("(no name)", ns),
        name => (name, ns),
    });
    named.collect()
}

/// `← innermost ← its caller` of the stack that has most time of a class.
fn top_frames(report: &Report, request: &TypeReport, class: usize, width: usize) -> String {
    let biggest = report
        .stacks
        .iter()
        .filter(|line| line.kind == StackKind::Blocked && line.class == Some(class))
        .filter(|line| line.request == request.name)
        .max_by_key(|line| line.ns);
    let Some(line) = biggest.filter(|_| width >= BEFORE_FRAMES + SHORTEST_FRAME) else {
        return String::new();
    };
    // Stacks of the report are outermost first.
    let user = line.user.iter().rev().map(String::as_str);
    let kernel = line.kernel.iter().rev().map(String::as_str);
    frames(user, kernel, width - BEFORE_FRAMES)
}
