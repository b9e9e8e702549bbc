//! Who held up requests, on the page: holdings in; who that was, with its thread, out.

use std::collections::BTreeMap;

use serde::Serialize;

use reqtrace_analysis::report::Report;
use reqtrace_analysis::report::blame::{Cause, CulpritName};
use reqtrace_analysis::report::page::Holding;

/// One who held up requests.
#[derive(Serialize)]
pub(super) struct Held<'a> {
    victim: &'a str,
    class: i64,
    kind: &'static str,
    request: &'a str,
    label: &'a str,
    comm: &'a str,
    /// Process and thread; none when several were it.
    thread: Option<(u32, u32)>,
    cause: usize,
}

/// A line of blame as a holding has it: who waited, in which class, who held it up, and the root cause.
pub(super) type HeldLine<'a> = (&'a str, &'a str, &'a CulpritName, Cause);

/// The threads of lines of blame that one thread alone held up.
pub(super) fn threads(report: &Report) -> BTreeMap<HeldLine<'_>, Option<(u32, u32)>> {
    let mut threads = BTreeMap::new();
    for row in report.blame.iter().flat_map(|blame| &blame.rows) {
        let line: HeldLine<'_> = (
            row.victim_label.as_str(),
            row.wait_class.as_str(),
            &row.culprit,
            row.cause,
        );
        let known = threads.entry(line).or_insert(row.thread);
        *known = known.filter(|_| *known == row.thread);
    }
    threads
}

impl<'a> Held<'a> {
    pub(super) fn of(
        holding: &'a Holding,
        classes: &'a [String],
        threads: &BTreeMap<HeldLine<'a>, Option<(u32, u32)>>,
    ) -> Self {
        let class = holding.class.and_then(|class| classes.get(class as usize));
        let class = class.map_or("unattributed", String::as_str);
        let line = (
            holding.victim.as_str(),
            class,
            &holding.culprit,
            holding.cause,
        );
        let culprit = &holding.culprit;
        Self {
            victim: &holding.victim,
            class: holding.class.map_or(-1, i64::from),
            kind: culprit.kind.name(),
            request: &culprit.request,
            label: &culprit.label,
            comm: &culprit.comm,
            thread: threads.get(&line).copied().flatten(),
            cause: holding.cause as usize,
        }
    }
}
