//! A span: a slow request with its longest wait in; the message that a collector takes out.

use reqtrace_analysis::report::blame::Cause;
use reqtrace_analysis::report::{IntervalKind, IntervalRow, IntervalWaker, Places, RequestRow};

use super::wire::{KeyValue, SERVER, Span};
use crate::ids::Ids;
use crate::metrics::parts;

/// What the spans of a session have in common.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) service: String,
    /// Names of the parts of a ledger.
    pub(crate) classes: Vec<String>,
    pub(crate) places: Places,
    /// Names of the attributes of its profile.
    pub(crate) attributes: Vec<String>,
    pub(crate) texts: bool,
}

/// The longest time in which a request did not run, of those that have come.
#[derive(Clone, Debug, Default)]
pub(super) struct Longest {
    ns: u64,
    attributes: Vec<KeyValue>,
}

impl Longest {
    /// Takes one more of the same request.
    pub(super) fn add(&mut self, row: &IntervalRow<'_>) {
        let ns = row.off_ns + row.run_queue_ns;
        if ns > self.ns {
            *self = Self {
                ns,
                attributes: of_wait(row, ns),
            };
        }
    }
}

/// Whose fault it was, as far as the kernel tells: who ended the wait, and who held the lock.
fn of_wait(row: &IntervalRow<'_>, ns: u64) -> Vec<KeyValue> {
    let key = |name: &str| format!("reqtrace.longest_wait.{name}");
    let kind = match row.kind {
        IntervalKind::Blocked => "blocked",
        IntervalKind::Preempted => "preempted",
        IntervalKind::Parked => "parked",
        IntervalKind::Queued => "queued",
    };
    let mut all = vec![
        KeyValue::number(key("ns"), ns),
        KeyValue::text(key("kind"), kind),
    ];
    for (name, text) in [
        ("class", row.class),
        ("place", row.place),
        ("waker.name", row.waker_comm),
    ] {
        if !text.is_empty() {
            all.push(KeyValue::text(key(name), text));
        }
    }
    let mut numbers = vec![
        ("holder.tid", u64::from(row.holder_tid)),
        ("holder.request_id", row.holder_request_id),
    ];
    match row.waker {
        Some(IntervalWaker::Interrupt(cause)) => {
            all.push(KeyValue::text(key("waker.interrupt"), cause.name()));
        }
        Some(IntervalWaker::Thread {
            pid,
            tid,
            request_id,
            ..
        }) => numbers.extend([
            ("waker.pid", pid.into()),
            ("waker.tid", tid.into()),
            ("waker.request_id", request_id),
        ]),
        Some(IntervalWaker::Unknown) | None => {}
    }
    let known = numbers.into_iter().filter(|(_, number)| *number != 0);
    all.extend(known.map(|(name, number)| KeyValue::number(key(name), number)));
    all
}

/// A complete request that took longer than `slow_ns`.
pub(super) fn span(
    row: &RequestRow<'_>,
    ids: Ids,
    slow_ns: u64,
    longest: Longest,
    about: &About,
) -> Span {
    let mut attributes = vec![
        KeyValue::number("process.pid", row.pid.into()),
        KeyValue::number("thread.id", row.tid.into()),
        KeyValue::text("thread.name", row.comm.as_str()),
        KeyValue::number("reqtrace.request_id", row.id),
        KeyValue::number("reqtrace.weight", row.weight.into()),
        KeyValue::number("reqtrace.slow_above_ns", slow_ns),
        KeyValue::number("reqtrace.blocks", row.blocks.into()),
        KeyValue::number("reqtrace.preemptions", row.preemptions.into()),
    ];
    if let Some(ns) = row.waited_before_ns {
        attributes.push(KeyValue::number("reqtrace.waited_before_ns", ns));
    }
    let parts = parts(row.ledger, &about.classes, &about.places);
    add_times(&mut attributes, "part", parts);
    if let Some(causes) = &row.causes {
        let all = Cause::ALL.into_iter();
        let all = all.map(|cause| (cause.name().to_owned(), causes.get(cause)));
        add_times(&mut attributes, "cause", all);
    }
    attributes.extend(longest.attributes);
    if about.texts {
        add_texts(&mut attributes, row, about);
    }
    Span {
        trace_id: ids.trace.into(),
        span_id: ids.span.into(),
        name: row.request.to_owned(),
        kind: SERVER,
        start_time_unix_nano: row.start_unix_ns,
        end_time_unix_nano: row.start_unix_ns.saturating_add(row.ledger.latency_ns),
        attributes,
    }
}

/// Times above 0 as `reqtrace.KIND.NAME`, ns, and which is the longest as `reqtrace.main_KIND`.
fn add_times(to: &mut Vec<KeyValue>, kind: &str, times: impl Iterator<Item = (String, u64)>) {
    let mut longest = (0, String::new());
    for (name, ns) in times.filter(|(_, ns)| *ns > 0) {
        to.push(KeyValue::number(format!("reqtrace.{kind}.{name}"), ns));
        if ns > longest.0 {
            longest = (ns, name);
        }
    }
    if longest.0 > 0 {
        to.push(KeyValue::text(format!("reqtrace.main_{kind}"), longest.1));
    }
}

fn add_texts(to: &mut Vec<KeyValue>, row: &RequestRow<'_>, about: &About) {
    if !row.label.is_empty() {
        to.push(KeyValue::text("reqtrace.label", row.label.as_str()));
    }
    for (name, value) in about.attributes.iter().zip(row.attributes) {
        if !value.is_empty() {
            let key = format!("reqtrace.attribute.{name}");
            to.push(KeyValue::text(key, value.as_str()));
        }
    }
}
