//! The slowest requests, and the chain of who held each up: trees in, lines out.

use super::super::page::{Page, frames};
use super::who;
use crate::words::NAME;
use reqtrace_analysis::report::blame::{Cause, CulpritKind, HeldRequest, Part, TypeBlame, What};
use reqtrace_base::figures::{cut, duration};
use reqtrace_base::names::clean;

/// Requests that are drawn; summary.json has a few more.
const REQUESTS: usize = 2;
/// Lines of one request.
const LINES: usize = 12;
/// Columns of a line before its frames.
const BEFORE_FRAMES: usize = 58;
/// Fewer columns than this say nothing.
const SHORTEST_FRAME: usize = 12;

pub(super) fn draw(page: &mut Page, blame: &TypeBlame) {
    for (index, request) in blame.slowest.iter().take(REQUESTS).enumerate() {
        let label = clean(&request.label);
        let name = if index == 0 { "Slowest" } else { "Next" };
        page.line(&format!(
            "  {name}: {} request {}, thread {} ({}) {label}",
            duration(request.latency_ns),
            request.id,
            request.tid,
            clean(&request.comm),
        ));
        let mut lines = Vec::new();
        for part in &request.parts {
            add(&mut lines, page.width, part, "", &blame.request, 2);
        }
        own(&mut lines, request);
        for line in lines.iter().take(LINES) {
            page.line(line);
        }
    }
}

/// What no thread held up.
fn own(lines: &mut Vec<String>, request: &HeldRequest) {
    let least = request.latency_ns / 50;
    for (ns, what) in [
        (request.run_queue_ns, Cause::RunQueue.words()),
        (request.preempted_ns, Cause::Preempted.words()),
        (request.queued_ns, "queued"),
    ] {
        if ns > least {
            lines.push(format!("    {:>8} {what}", duration(ns)));
        }
    }
}

/// A line for a part, and deeper ones for what held it up. `before` is who the lines above are about.
fn add(
    lines: &mut Vec<String>,
    width: usize,
    part: &Part,
    before: &str,
    victim: &str,
    depth: usize,
) {
    let mut whose = match part.whose.kind {
        CulpritKind::Interrupt => String::new(),
        _ => who(&part.whose, victim),
    };
    match (part.request_id, part.tid) {
        (0, 0) => {}
        (0, tid) => whose = format!("{whose} (thread {tid})"),
        (id, _) => whose = format!("{whose} (request {id})"),
    }
    if let Some(after) = &part.after {
        let label = clean(&after.label);
        whose = format!("{whose} after request {} {label}", after.request_id);
    }
    let is_new = !whose.is_empty() && whose != before;
    let what = match &part.what {
        What::Waited { class, .. } => cut(class, NAME),
        What::Ended(cause, None) => cause.words().to_owned(),
        What::Ended(_, Some(reason)) => format!("not known: {}", reason.words()),
    };
    let name = if is_new {
        format!("{what}, {whose}")
    } else {
        what
    };
    let mut line = format!(
        "{:indent$}{:>8} {name}",
        "",
        duration(part.ns),
        indent = 2 * depth
    );
    let (user, kernel): (&[String], &[String]) = match &part.what {
        What::Waited { user, kernel, .. } => (user, kernel),
        What::Ended(..) => (&part.woken_from, &[]),
    };
    if !(user.is_empty() && kernel.is_empty()) && width >= BEFORE_FRAMES + SHORTEST_FRAME {
        let user = user.iter().map(String::as_str);
        let kernel = kernel.iter().map(String::as_str);
        let used = line.chars().count().max(BEFORE_FRAMES);
        if used + SHORTEST_FRAME <= width {
            line = format!("{line:<used$} {}", frames(user, kernel, width - used - 1));
        }
    }
    lines.push(line);
    let whose = if whose.is_empty() { before } else { &whose };
    for inner in &part.parts {
        add(lines, width, inner, whose, victim, depth + 1);
    }
}
