//! Hints: a report in, sentences about what a user should know or do out.

use reqtrace_common::limits::{MAX_KEYS, MAX_PARKED};
use reqtrace_recording::Incomplete;

use crate::report::blame::{Cause, CulpritKind, Reason};
use crate::report::{Grouping, Report, TypeReport};
use reqtrace_base::figures::{duration, number};
use reqtrace_profile::{RUNTIME, STOPPED};

use super::signs::Signs;
use super::warnings::{are_mixed_up, is_much, missing_most};

/// Share of the time that makes user stacks "mostly" shallow, in percent.
const MOSTLY: u64 = 50;
/// Share of the time in truncated stacks from which on there is a hint, in percent.
const TRUNCATED: u64 = 5;
/// Share of the time in stacks walked by frame pointers from which on there is a hint, in percent.
const BY_FRAME_POINTERS: u64 = 1;
/// Share of a type's latency in one place on the network that looks like idle time, in percent.
const NEARLY_ALL: u64 = 80;
/// Share of what requests waited for units that are none from which on there is a hint, in percent.
const HELD_BY_OTHERS: u64 = 20;
/// Types that a hint names before the rest is only counted.
const NAMED: usize = 5;
/// Begins in open requests from which on they look like a pile.
const PILE: u64 = 10;

/// All hints, the most important first.
pub(super) fn of(report: &Report, signs: &[Signs], kernel_is_nameless: bool) -> Vec<String> {
    let mut hints = Vec::new();
    // What the markers counted is of all requests.
    let all = report.filtered.is_none();
    if all {
        never_began(report, &mut hints);
    }
    for (request, signs) in report.requests.iter().zip(signs).filter(|_| all) {
        markers(report, request, signs, &mut hints);
        piles_up(request, signs, &mut hints);
        if !waits_for_requests(report, request) {
            idle(request, signs, &mut hints);
        }
        pool(request, signs, &mut hints);
        ends_with_next(request, &mut hints);
        held_by_others(report, request, &mut hints);
    }
    late_children(report, &mut hints);
    never_left(report, &mut hints);
    scattered(report, &mut hints);
    let unwinding = &report.unwinding;
    let all_ns = unwinding.all_ns();
    if all_ns > 0 && percent(unwinding.shallow_ns, all_ns) >= MOSTLY {
        hints.push(
            "most user stacks are only one frame deep: they were walked by frame pointers, and the \
             program has none. Waits named by `functions` cannot match there. Leave --unwind out \
             to unwind by .eh_frame"
                .to_owned(),
        );
    }
    // Go keeps them.
    let is_go = report.places.parked.iter().any(|name| name == STOPPED);
    let by_pointers = if is_go {
        0
    } else {
        unwinding.frame_pointers_ns
    };
    let shallow = all_ns > 0 && percent(unwinding.shallow_ns, all_ns) >= MOSTLY;
    if !shallow && all_ns > 0 && percent(by_pointers, all_ns) >= BY_FRAME_POINTERS {
        hints.push(format!(
            "{} % of the off-CPU time has user stacks walked by frame pointers, which is right only \
             for code that keeps them: generated code, and code that .eh_frame does not describe; -v says \
             which mappings have no unwind table",
            percent(by_pointers, all_ns),
        ));
    }
    let truncated_ns = unwinding.truncated_ns();
    if all_ns > 0 && percent(truncated_ns, all_ns) >= TRUNCATED {
        let reasons: Vec<String> = unwinding
            .truncated
            .iter()
            .map(|(reason, ns)| format!("{reason}: {}", duration(*ns)))
            .collect();
        hints.push(format!(
            "{} % of the off-CPU time has user stacks that end early ({}); they are marked \
             [truncated: …]",
            percent(truncated_ns, all_ns),
            reasons.join(", ")
        ));
    }
    silent_waits(report, &mut hints);
    hints.extend(report.trace.lacks.iter().cloned());
    if kernel_is_nameless {
        hints.push(
            "kernel functions have no names, so wait classes are taken from the system call: \
             the kernel hides its addresses; `sysctl -w kernel.kptr_restrict=0` shows them to root"
                .to_owned(),
        );
    }
    hints
}

/// Types whose markers were never hit, in one sentence.
fn never_began(report: &Report, hints: &mut Vec<String>) {
    let is_silent = |request: &&TypeReport| {
        request.begins + request.ends + request.count == 0 && request.incomplete.is_empty()
    };
    let silent: Vec<&TypeReport> = report.requests.iter().filter(is_silent).collect();
    let Some(first) = silent.first() else {
        return;
    };
    let shown: Vec<String> = silent
        .iter()
        .take(NAMED)
        .map(|request| format!("`{}`", request.name))
        .collect();
    let more = match silent.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let length = duration(report.trace.duration_ns);
    let is_probed = |request: &&&TypeReport| {
        let mut markers = report.trace.markers.iter();
        markers.any(|marker| marker.request == request.name)
    };
    let all_are_silent = silent.len() == report.requests.len();
    if all_are_silent && !silent.iter().any(|request| is_probed(&request)) {
        hints.push(format!(
            "no {}{more} began in {length}: when tracing began, no traced process ran a program that the profile \
             is made for. Was one started, and was there load?",
            shown.join(", ")
        ));
        return;
    }
    let begin = match silent.len() {
        1 => format!(
            "its begin ({}) is probed, and was",
            place(report, &first.name, "begin")
        ),
        _ => "their begins are probed, and were".to_owned(),
    };
    let what_now = if silent.len() < report.requests.len() {
        "The other types were: is there load of this kind?"
    } else if report.places.queued.iter().any(|name| name == RUNTIME) {
        "Was there load, and did any begin since the trace did? A task or goroutine that serves a kept connection begins with \
         that: then a request is what it does between two functions."
    } else {
        "Was there load? Does this process do the work itself, or a child, or a helper?"
    };
    hints.push(format!(
        "no {}{more} began: {begin} never hit in {length}. {what_now} `reqtrace check` shows what the \
         profile resolves to",
        shown.join(", ")
    ));
}

/// Ends without a begin that need no word: one per request that ran when tracing started.
fn expected_at_start(request: &TypeReport) -> u64 {
    let running = |(reason, _): &&(Incomplete, u64)| *reason == Incomplete::RunningAtStart;
    request
        .incomplete
        .iter()
        .find(running)
        .map_or(0, |(_, count)| *count)
}

/// What the counters of the markers say.
fn markers(report: &Report, request: &TypeReport, signs: &Signs, hints: &mut Vec<String>) {
    let name = &request.name;
    let incomplete: u64 = request.incomplete.iter().map(|(_, count)| count).sum();
    let seen = request.count + incomplete;
    if request.begins == 0 && seen == 0 && request.ends > 0 {
        hints.push(format!(
            "no `{name}` began, and its end ({}) was hit {} times: the begin ({}), which is probed \
             and was never hit, is the wrong one",
            place(report, name, "end"),
            number(request.ends),
            place(report, name, "begin"),
        ));
        return;
    }
    if request.begins > 0 && request.ends == 0 && request.count == 0 {
        let place = place(report, name, "end");
        hints.push(format!(
            "`{name}` began {} times and its end ({place}) was never hit: the end marker may be \
             the wrong one, or requests are longer than the trace",
            number(request.begins)
        ));
    }
    if request.ends_without_begin > expected_at_start(request) {
        hints.push(format!(
            "{} ends of `{name}` had no begin: requests that were already running when tracing \
             started (one per busy thread is normal); many more mean that the end marker is also \
             reached outside requests",
            number(request.ends_without_begin)
        ));
    }
    incomplete_ones(request, hints);
    parked_twice(report, request, hints);
    not_ready(report, request, hints);
    if request.other_type > 0 {
        hints.push(format!(
            "{} begins of `{name}` came inside a request of another type and are part of that",
            number(request.other_type)
        ));
    }
    let piles_up = signs.open_nested == request.nested && signs.open_nested >= PILE;
    if request.nested > 0 && !piles_up && !are_mixed_up(report, request) {
        hints.push(format!(
            "{} begins of `{name}` came inside a `{name}`; the outermost is the request",
            number(request.nested)
        ));
    }
}

/// Parks of what is parked.
fn parked_twice(report: &Report, request: &TypeReport, hints: &mut Vec<String>) {
    let of_type = report.trace.markers.iter();
    let of_type = of_type.filter(|info| info.request == request.name);
    let counts = of_type.filter_map(|info| info.counts);
    let parks = counts.filter(|counts| counts.parked_already > 0);
    let (twice, hits) = parks.fold((0, 0), |(twice, hits), counts| {
        (twice + counts.parked_already, hits + counts.hits)
    });
    if is_much(twice, hits) {
        hints.push(format!(
            "{} parks of `{}` found the request parked or queued already{}, and were left out: it is where the first \
             one put it. If it ran in between, a `resume` is missing there, and that time counts as parked",
            number(twice),
            request.name,
            missing_most(report, request, |counts| counts.parked_already),
        ));
    }
}

/// Resumes without a ready, where the profile has markers for that.
fn not_ready(report: &Report, request: &TypeReport, hints: &mut Vec<String>) {
    let of_type = || {
        let markers = report.trace.markers.iter();
        markers.filter(|info| info.request == request.name)
    };
    if !of_type().any(|info| info.marker == "ready") {
        return;
    }
    let counts = of_type().filter_map(|info| info.counts);
    let (unready, all) = counts.fold((0, 0), |(unready, all), counts| {
        (unready + counts.not_ready, all + counts.resumed)
    });
    if is_much(unready, all) {
        hints.push(format!(
            "{} of {} resumes of `{}` ({} %) came without a ready{}: how long those requests were queued is not known, \
             and is in their parked time",
            number(unready),
            number(all),
            request.name,
            percent(unready, all),
            missing_most(report, request, |counts| counts.not_ready),
        ));
    }
}

/// Why requests are incomplete, and what would mend that.
fn incomplete_ones(request: &TypeReport, hints: &mut Vec<String>) {
    let name = &request.name;
    for (reason, count) in &request.incomplete {
        let count = number(*count);
        match reason {
            Incomplete::NoEnd if request.is_keyed => hints.push(format!(
                "{count} of `{name}` have no end: a begin came with the key of a request that was open, or an end from \
                 a thread that did not run it. A way in which requests end is not marked, such as a panic or an exception \
                 that leaves the function, a client that goes away, for which a server drops what would have answered it, \
                 or the key is that of something that requests share"
            )),
            Incomplete::NoEnd => hints.push(format!(
                "{count} of `{name}` have no end: an exception or longjmp left the function, its stack was moved \
                 (Go), or `reentry = \"restart\"` closed them"
            )),
            Incomplete::NoRoom => hints.push(format!(
                "{count} of `{name}` were closed for want of room (`no room`): {} requests with a key can be open at once, \
                 {} of those that are recorded can be parked, and these were left for longest. If so many do not \
                 live at once, their end is not marked everywhere",
                number(u64::from(MAX_KEYS)),
                number(u64::from(MAX_PARKED)),
            )),
            _ => {}
        }
    }
}

/// Whether most of its blocked time is known to be a traced service's: then it waits for an answer, not
/// for work.
fn waits_for_requests(report: &Report, request: &TypeReport) -> bool {
    let Some(blame) = &report.blame else {
        return false;
    };
    let own = blame.rows.iter();
    let own = own.filter(|row| row.victim_request == request.name);
    let (mut all_ns, mut theirs_ns) = (0, 0);
    for row in own {
        all_ns += row.ns;
        let is_service = match row.culprit.kind {
            CulpritKind::Request => true,
            CulpritKind::Thread => row.cause == Cause::BetweenRequests,
            _ => false,
        };
        theirs_ns += if is_service { row.ns } else { 0 };
    }
    theirs_ns > 0 && percent(theirs_ns, all_ns) >= MOSTLY
}

/// A request that is nearly all one wait for something to read is likely to count the time between
/// requests.
fn idle(request: &TypeReport, signs: &Signs, hints: &mut Vec<String>) {
    let Some((function, ns)) = &signs.network_read else {
        return;
    };
    let latency_ns = request.ledger.latency_ns;
    let part = percent((*ns).min(latency_ns), latency_ns);
    if request.count > 0 && part >= NEARLY_ALL {
        let place = if function.is_empty() {
            String::new()
        } else {
            format!(" ({function})")
        };
        hints.push(format!(
            "`{}` waits to read from the network in one place{place} for {part} % of its time: it \
             probably begins before the request has been read, as MySQL's do_command does, or ends \
             after the next was waited for, as a connection that is kept alive does, so that \
             waiting for work counts as latency. Begin it where the request has arrived, and end it \
             where it was answered; docs/measured/do-command.md has the measured example",
            request.name,
        ));
    }
}

/// Requests with a key that end when the next one comes: most of their time nobody ran them, and an end and a begin
/// are one step.
fn ends_with_next(request: &TypeReport, hints: &mut Vec<String>) {
    let ledger = &request.ledger;
    let parked = percent(ledger.parked_ns().min(ledger.latency_ns), ledger.latency_ns);
    if request.ends_with_next && parked >= MOSTLY {
        hints.push(format!(
            "`{}` was parked for {parked} % of its time, and nearly each one began right after the end of another one in \
             the same thread: its end may come only with the next request of the same client, so that the time in \
             which that asked nothing counts as latency. End it where its answer was sent",
            request.name,
        ));
    }
}

/// Requests that wait for tasks or goroutines of which nothing is known, as they are none.
fn held_by_others(report: &Report, request: &TypeReport, hints: &mut Vec<String>) {
    let types = report.blame.iter().flat_map(|blame| &blame.types);
    let Some(blame) = types.into_iter().find(|one| one.request == request.name) else {
        return;
    };
    let reasons = blame.unknown.iter();
    let of_these: u64 = reasons
        .filter(|(reason, _)| *reason == Reason::NoRequest)
        .map(|(_, ns)| ns)
        .sum();
    let part = percent(of_these, blame.causes.sum());
    let of_latency = percent(of_these * 10, request.ledger.latency_ns);
    if part < HELD_BY_OTHERS || of_latency < HELD_BY_OTHERS {
        return;
    }
    let what = match request.children {
        Some(1..) => {
            "`children = true` follows those that it starts, and a request type of their own all others"
        }
        _ => "a request type of their own follows them",
    };
    hints.push(format!(
        "{part} % of the waiting time of `{}` was for tasks or goroutines that are no requests, so what these did is not known: \
         {what}; see docs/runtimes.md",
        request.name
    ));
}

/// Threads that were in one request for the whole trace.
fn never_left(report: &Report, hints: &mut Vec<String>) {
    let whole = report.trace.duration_ns / 10 * 9;
    let stuck = report
        .open
        .iter()
        .filter(|open| whole > 0 && open.running_ns >= whole);
    let mut by_type: Vec<(&str, usize, u32)> = Vec::new();
    for open in stuck {
        match by_type
            .iter_mut()
            .find(|(name, _, _)| *name == open.request)
        {
            Some((_, count, _)) => *count += 1,
            None => by_type.push((&open.request, 1, open.tid)),
        }
    }
    for (name, count, tid) in by_type {
        let threads = match count {
            1 => format!("thread {tid} was"),
            more => format!("{more} threads (thread {tid} first) were"),
        };
        let of_type = report.requests.iter().find(|request| request.name == name);
        let others = match of_type.map_or(0, |request| request.count) {
            0 => String::new(),
            others => format!(", while {} others came and went", number(others)),
        };
        hints.push(format!(
            "{threads} in one `{name}` for nearly the whole trace{others}: a hung request, or a \
             begin that is the thread's main loop"
        ));
    }
}

/// Begins that pile up in requests which do not end: the end marker is elsewhere.
fn piles_up(request: &TypeReport, signs: &Signs, hints: &mut Vec<String>) {
    if signs.open_nested >= PILE && signs.open_nested == request.nested {
        hints.push(format!(
            "{} begins of `{}` came inside requests that are still open, and the depth only grew: \
             the end marker is not reached where a begin was. Is it in the same function, or one \
             that runs once per begin?",
            number(signs.open_nested),
            request.name
        ));
    }
}

/// A thread pool may park a request and let another thread resume it, which requests with a key survive.
fn pool(request: &TypeReport, signs: &Signs, hints: &mut Vec<String>) {
    if signs.pools.is_empty() || request.is_keyed {
        return;
    }
    let functions: Vec<&str> = signs.pools.iter().map(String::as_str).collect();
    hints.push(format!(
        "`{}` runs in a thread pool ({} is on its stacks). MariaDB's (thread_handling = \
         pool-of-threads) parks a command whose commit must wait for the redo log: the function \
         returns early and is called again, maybe by another thread. Such a command counts as two \
         requests, and the wait between is in neither. The built-in profile mysql takes it as one: \
         it gives requests a key where a pool runs",
        request.name,
        functions.join(", ")
    ));
}

/// Requests that nobody saw because the probes came after the process.
fn late_children(report: &Report, hints: &mut Vec<String>) {
    let late = report.trace.late_children;
    if late.count == 0 {
        return;
    }
    let processes = if late.count == 1 {
        "1 process".to_owned()
    } else {
        format!("{} processes", number(late.count))
    };
    hints.push(format!(
        "{processes} got probes up to {} after the start of their program: requests that began before are \
         not counted, or have no begin. It is so with markers in a library, and in the first process of a \
         program that begins while tracing; all others have those in their executable from their start",
        duration(late.slowest_ns)
    ));
}

/// Labels with values in them: the table of labels has a row for each value.
fn scattered(report: &Report, hints: &mut Vec<String>) {
    for (request, groups) in report.requests.iter().zip(&report.labels) {
        let shown: u64 = groups.shown.iter().map(|group| group.count).sum();
        let others = groups.rest.count;
        if groups.by == Grouping::Label && percent(others, shown + others) >= MOSTLY {
            hints.push(format!(
                "most of `{}` have a label that few others have; `--group-by fingerprint` puts \
                 together labels that differ by numbers and quoted strings only",
                request.name
            ));
        }
    }
}

/// Named waits that a program without symbols hides.
fn silent_waits(report: &Report, hints: &mut Vec<String>) {
    let mut waits: Vec<String> = Vec::new();
    let mut patterns = 0;
    for (wait, functions) in &report.trace.unmatched_waits {
        patterns += functions.len() as u64;
        let quoted = format!("`{wait}`");
        if !waits.contains(&quoted) {
            waits.push(quoted);
        }
    }
    // Without a request nothing was waited for, under whatever name.
    if waits.is_empty() || report.requests.iter().all(|request| request.begins == 0) {
        return;
    }
    hints.push(format!(
        "the program has no symbol table, so {} function patterns of {} match nothing; these waits \
         are known by their other matchers only, or counted as built-in classes. `reqtrace check` \
         lists the patterns; a program with debug symbols has the names",
        number(patterns),
        waits.join(", ")
    ));
}

fn place(report: &Report, request: &str, marker: &str) -> String {
    let found = report
        .trace
        .markers
        .iter()
        .find(|info| info.request == request && info.marker == marker);
    found.map_or_else(
        || "not probed".to_owned(),
        |info| format!("{} in {}", info.place, info.object),
    )
}

/// Rounded down; 0 of 0 is 0.
fn percent(part: u64, whole: u64) -> u64 {
    (u128::from(part) * 100)
        .checked_div(u128::from(whole))
        .map_or(0, |share| share as u64)
}

#[cfg(test)]
mod tests;
