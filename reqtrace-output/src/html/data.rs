//! The data of the page: a report in, columns of numbers out, as `page/model.js` reads them.

mod cells;
mod held;
mod slow;
mod stacks;

use serde::Serialize;
use serde_json::Value;

use crate::json;
use cells::{Cells, Rows};
use held::Held;
use reqtrace_analysis::report::Report;
use reqtrace_analysis::report::blame::{Cause, Reason};
use reqtrace_analysis::report::page::{MAX_ROWS, MAX_SLOWEST, Page};
use reqtrace_analysis::report::palette::{self, Time};
use reqtrace_base::plain::Plain;
use slow::Slow;
use stacks::{Chains, Nodes, Stacks, tree};

/// Grows when the page's script could not read it.
const VERSION: u32 = 1;

/// Everything.
#[derive(Serialize)]
pub(super) struct Data<'a> {
    version: u32,
    /// As in `summary.json`.
    summary: Value,
    /// A number that JavaScript would round.
    start_unix_ns: String,
    class_colors: Vec<String>,
    /// Of on CPU, run queue, preempted, and blocked in a lost stack.
    colors: [String; 4],
    /// Where requests are parked, and where they are queued, in words; none when no type has a key.
    places: [Vec<String>; 2],
    /// Their colours.
    place_colors: [Vec<String>; 2],
    causes: Vec<[&'static str; 2]>,
    cause_colors: Vec<String>,
    reasons: Vec<&'static str>,
    column_ns: u64,
    edges_ns: &'a [u64],
    cells: Cells,
    statements: Vec<&'a str>,
    frames: Vec<&'a str>,
    nodes: Nodes,
    stacks: Stacks,
    /// The stack of on-CPU time that no sample has met.
    not_sampled: u32,
    chains: Option<Chains>,
    holdings: Vec<Held<'a>>,
    rows: Option<Rows>,
    slowest: Vec<Slow<'a>>,
    has_blame: bool,
    merged: [u64; 3],
    max_rows: usize,
    max_slowest: usize,
}

/// The data of a report and its page.
pub(super) fn of<'a>(report: &'a Report, page: &'a Page) -> Data<'a> {
    let (nodes, stacks) = tree(&page.stacks);
    let mut frames: Vec<&str> = page.frames.iter().map(String::as_str).collect();
    let chains = report
        .blame
        .as_ref()
        .map(|blame| Chains::of(&blame.chains, &mut frames));
    let threads = held::threads(report);
    Data {
        version: VERSION,
        summary: json::summary(report),
        start_unix_ns: report.trace.start_unix_ns.to_string(),
        class_colors: (0..report.classes.len())
            .map(|class| Time::Blocked(class).colour(report).hex())
            .collect(),
        colors: [
            Time::OnCpu,
            Time::RunQueue,
            Time::Preempted,
            Time::Unattributed,
        ]
        .map(|time| time.colour(report).hex()),
        places: {
            let (parked, queued) = (&report.places.parked, &report.places.queued);
            let places = &report.places;
            [
                (0..parked.len())
                    .map(|place| places.parked_words(place))
                    .collect(),
                (0..queued.len())
                    .map(|place| places.queued_words(place))
                    .collect(),
            ]
        },
        place_colors: {
            let colour = |time: Time| time.colour(report).hex();
            let places = &report.places;
            [
                (0..places.parked.len())
                    .map(|place| colour(Time::Parked(place)))
                    .collect(),
                (0..places.queued.len())
                    .map(|place| colour(Time::Queued(place)))
                    .collect(),
            ]
        },
        causes: Cause::ALL
            .iter()
            .map(|cause| [cause.name(), cause.words()])
            .collect(),
        cause_colors: Cause::ALL
            .iter()
            .map(|cause| palette::of_cause(*cause).hex())
            .collect(),
        reasons: Reason::ALL.iter().map(|reason| reason.words()).collect(),
        column_ns: page.column_ns,
        edges_ns: &page.edges_ns,
        cells: Cells::of(&page.cells, report),
        statements: page.statements.iter().map(Plain::as_str).collect(),
        frames,
        nodes,
        stacks,
        not_sampled: page.not_sampled,
        chains,
        holdings: page
            .holdings
            .iter()
            .map(|holding| Held::of(holding, &report.classes, &threads))
            .collect(),
        rows: page.rows.as_deref().map(Rows::of),
        slowest: page.slowest.iter().map(Slow::of).collect(),
        has_blame: report.blame.is_some(),
        merged: [
            page.merged.stacks,
            page.merged.statements,
            page.merged.holdings,
        ],
        max_rows: MAX_ROWS,
        max_slowest: MAX_SLOWEST,
    }
}
