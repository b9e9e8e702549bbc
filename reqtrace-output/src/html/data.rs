//! The data of the page: a report in, columns of numbers out, as `page/model.js` reads them.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use serde_json::Value;

use crate::json;
use reqtrace_analysis::report::blame::{Cause, Causes, Chain, CulpritName, Reason};
use reqtrace_analysis::report::page::{
    Cell, EndedBy, Holding, MAX_ROWS, MAX_SLOWEST, Page, PageRow, PageStack, SlowRequest, Timeline,
};
use reqtrace_analysis::report::palette::{self, Time};
use reqtrace_analysis::report::{Ledger, Report, StackKind};
use reqtrace_base::plain::Plain;

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

/// Cells by column.
#[derive(Default, Serialize)]
struct Cells {
    request: Vec<u32>,
    column: Vec<u32>,
    row: Vec<u32>,
    count: Vec<u64>,
    latency: Vec<u64>,
    on_cpu: Vec<u64>,
    run_queue: Vec<u64>,
    preempted: Vec<u64>,
    unattributed: Vec<u64>,
    /// All classes of the first cell, of the second, and so on.
    classes: Vec<u64>,
    /// All places where requests are parked of the first cell, and so on.
    parked: Vec<u64>,
    /// The same of those where they are queued.
    queued: Vec<u64>,
    /// All causes of the first cell, and so on.
    causes: Vec<u64>,
    /// How many stacks a cell has; then their numbers and nanoseconds.
    stacks: Vec<usize>,
    stack: Vec<u32>,
    stack_ns: Vec<u64>,
    /// How many stacks its samples have; then their numbers and samples.
    samples: Vec<usize>,
    sample: Vec<u32>,
    sample_count: Vec<u64>,
    statements: Vec<usize>,
    statement: Vec<u32>,
    /// Requests, latency, on CPU, blocked, longest latency; each of the first, and so on.
    statement_sums: Vec<u64>,
    holdings: Vec<usize>,
    holding: Vec<u32>,
    holding_ns: Vec<u64>,
}

impl Cells {
    fn of(cells: &[Cell], report: &Report) -> Self {
        let mut all = Self::default();
        for cell in cells {
            all.add(cell, report);
        }
        all
    }

    fn add(&mut self, cell: &Cell, report: &Report) {
        self.request.push(cell.request);
        self.column.push(cell.column);
        self.row.push(cell.row);
        self.count.push(cell.count);
        self.latency.push(cell.ledger.latency_ns);
        self.on_cpu.push(cell.ledger.on_cpu_ns);
        self.run_queue.push(cell.ledger.run_queue_ns);
        self.preempted.push(cell.ledger.preempted_ns);
        self.unattributed.push(cell.ledger.unattributed_ns);
        let whole = |times: &[u64], names: &[String]| -> Vec<u64> {
            let time = |index: usize| times.get(index).copied().unwrap_or(0);
            (0..names.len()).map(time).collect()
        };
        let (ledger, places) = (&cell.ledger, &report.places);
        self.classes.extend(whole(&ledger.classes, &report.classes));
        self.parked.extend(whole(&ledger.parked, &places.parked));
        self.queued.extend(whole(&ledger.queued, &places.queued));
        self.causes.extend(causes(&cell.causes));
        self.stacks.push(cell.stacks.len());
        for (stack, ns) in &cell.stacks {
            self.stack.push(*stack);
            self.stack_ns.push(*ns);
        }
        self.samples.push(cell.samples.len());
        for (stack, count) in &cell.samples {
            self.sample.push(*stack);
            self.sample_count.push(*count);
        }
        self.statements.push(cell.statements.len());
        for (statement, sum) in &cell.statements {
            self.statement.push(*statement);
            self.statement_sums.extend([
                sum.count,
                sum.latency_ns,
                sum.on_cpu_ns,
                sum.blocked_ns,
                sum.max_ns,
            ]);
        }
        self.holdings.push(cell.holdings.len());
        for (holding, ns) in &cell.holdings {
            self.holding.push(*holding);
            self.holding_ns.push(*ns);
        }
    }
}

/// The tree of all stacks: each node behind its parent. The root is not in it; its children have parent -1.
#[derive(Default, Serialize)]
struct Nodes {
    parent: Vec<i64>,
    frame: Vec<u32>,
}

/// Stacks by number.
#[derive(Default, Serialize)]
struct Stacks {
    /// Innermost frame; -1 for none.
    node: Vec<i64>,
    kind: Vec<u32>,
    /// Wait class; -1 for none.
    class: Vec<i64>,
}

/// Puts stacks with the same callers together.
fn tree(stacks: &[PageStack]) -> (Nodes, Stacks) {
    let mut nodes = Nodes::default();
    let mut known: HashMap<(i64, u32), i64> = HashMap::new();
    let mut all = Stacks::default();
    for stack in stacks {
        let mut at = -1;
        for frame in &stack.frames {
            at = *known.entry((at, *frame)).or_insert_with(|| {
                nodes.parent.push(at);
                nodes.frame.push(*frame);
                nodes.frame.len() as i64 - 1
            });
        }
        all.node.push(at);
        all.kind.push(match stack.kind {
            StackKind::Blocked => 0,
            StackKind::RunQueue => 1,
            StackKind::Preempted => 2,
            StackKind::OnCpu => 3,
            StackKind::Parked => 4,
            StackKind::Queued => 5,
        });
        all.class.push(stack.class.map_or(-1, i64::from));
    }
    (nodes, all)
}

/// Chains of waits of the whole trace.
#[derive(Default, Serialize)]
struct Chains {
    /// Frames of each.
    frames: Vec<Vec<u32>>,
    ns: Vec<u64>,
}

/// Chains that are told apart on the page.
const MAX_CHAINS: usize = 2_048;
/// The frame of all others, as in `chains.folded`.
const OTHER_CHAINS: &str = "[other chains]";

impl Chains {
    /// Chains, the most time first; names that are new are put behind the others.
    fn of<'a>(chains: &'a [Chain], names: &mut Vec<&'a str>) -> Self {
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        for (at, name) in (0..).zip(names.iter()) {
            numbers.insert(name, at);
        }
        let mut number = |name: &'a str| {
            *numbers.entry(name).or_insert_with(|| {
                names.push(name);
                names.len() as u32 - 1
            })
        };
        let (first, rest) = chains.split_at(chains.len().min(MAX_CHAINS));
        let mut all = Self::default();
        for chain in first {
            let frames = chain.frames.iter().map(|name| number(name)).collect();
            all.frames.push(frames);
            all.ns.push(chain.ns);
        }
        let mut others: BTreeMap<&str, u64> = BTreeMap::new();
        for chain in rest {
            *others
                .entry(chain.frames.first().map_or("", String::as_str))
                .or_default() += chain.ns;
        }
        for (request, ns) in others {
            all.frames.push(vec![number(request), number(OTHER_CHAINS)]);
            all.ns.push(ns);
        }
        all
    }
}

/// Who held whom up.
#[derive(Serialize)]
struct Held<'a> {
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

/// A line of blame as a holding has it: who waited, in which class, for whom, and the root cause.
type HeldLine<'a> = (&'a str, &'a str, &'a CulpritName, Cause);

/// The threads of lines of blame that one thread alone held up.
fn threads(report: &Report) -> BTreeMap<HeldLine<'_>, Option<(u32, u32)>> {
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
    fn of(
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

/// Requests by column.
#[derive(Default, Serialize)]
struct Rows {
    id: Vec<u64>,
    request: Vec<u32>,
    tid: Vec<u32>,
    begin: Vec<u64>,
    statement: Vec<u32>,
    latency: Vec<u64>,
    on_cpu: Vec<u64>,
    run_queue: Vec<u64>,
    preempted: Vec<u64>,
    blocked: Vec<u64>,
    parked: Vec<u64>,
    queued: Vec<u64>,
}

impl Rows {
    fn of(rows: &[PageRow]) -> Self {
        let mut all = Self::default();
        for row in rows {
            all.id.push(row.id);
            all.request.push(row.request);
            all.tid.push(row.tid);
            all.begin.push(row.begin_ns);
            all.statement.push(row.statement);
            all.latency.push(row.latency_ns);
            all.on_cpu.push(row.on_cpu_ns);
            all.run_queue.push(row.run_queue_ns);
            all.preempted.push(row.preempted_ns);
            all.blocked.push(row.blocked_ns);
            all.parked.push(row.parked_ns);
            all.queued.push(row.queued_ns);
        }
        all
    }
}

/// A slow request.
#[derive(Serialize)]
struct Slow<'a> {
    id: u64,
    request: u32,
    pid: u32,
    tid: u32,
    comm: &'a str,
    label: &'a str,
    statement: u32,
    begin: u64,
    latency: u64,
    on_cpu: u64,
    run_queue: u64,
    preempted: u64,
    unattributed: u64,
    classes: &'a [u64],
    parked: &'a [u64],
    queued: &'a [u64],
    causes: Option<Vec<u64>>,
    timeline: Option<Line<'a>>,
}

impl<'a> Slow<'a> {
    fn of(slow: &'a SlowRequest) -> Self {
        let Ledger {
            latency_ns,
            on_cpu_ns,
            run_queue_ns,
            preempted_ns,
            unattributed_ns,
            ref classes,
            ref parked,
            ref queued,
        } = slow.ledger;
        Self {
            id: slow.id,
            request: slow.request,
            pid: slow.pid,
            tid: slow.tid,
            comm: &slow.comm,
            label: &slow.label,
            statement: slow.statement,
            begin: slow.begin_ns,
            latency: latency_ns,
            on_cpu: on_cpu_ns,
            run_queue: run_queue_ns,
            preempted: preempted_ns,
            unattributed: unattributed_ns,
            classes,
            parked,
            queued,
            causes: slow.causes.as_ref().map(|of| causes(of).collect()),
            timeline: slow.timeline.as_ref().map(Line::of),
        }
    }
}

/// A timeline; its segments by column.
#[derive(Serialize)]
struct Line<'a> {
    /// Process, thread, name.
    lanes: Vec<(u32, u32, &'a str)>,
    /// Id, request type, label, whether it had ended.
    others: Vec<(u64, u32, &'a str, bool)>,
    lane: Vec<u32>,
    from: Vec<u64>,
    ns: Vec<u64>,
    did: Vec<usize>,
    stack: Vec<i64>,
    woken_from: Vec<i64>,
    class: Vec<i64>,
    by: Vec<i64>,
    other: Vec<i64>,
    left_out: [(u64, u64); 2],
    lanes_left_out: u64,
    missing: u64,
}

impl<'a> Line<'a> {
    fn of(timeline: &'a Timeline) -> Self {
        let lanes = timeline.lanes.iter();
        let others = timeline.others.iter();
        let mut line = Self {
            lanes: lanes
                .map(|lane| (lane.pid, lane.tid, lane.comm.as_str()))
                .collect(),
            others: others
                .map(|other| {
                    let label = other.label.as_str();
                    (other.id, other.request, label, other.has_ended)
                })
                .collect(),
            lane: Vec::new(),
            from: Vec::new(),
            ns: Vec::new(),
            did: Vec::new(),
            stack: Vec::new(),
            woken_from: Vec::new(),
            class: Vec::new(),
            by: Vec::new(),
            other: Vec::new(),
            left_out: timeline.left_out,
            lanes_left_out: timeline.lanes_left_out,
            missing: timeline.missing_ns,
        };
        let number = |number: Option<u32>| number.map_or(-1, i64::from);
        for segment in &timeline.segments {
            line.lane.push(segment.lane);
            line.from.push(segment.from_ns);
            line.ns.push(segment.ns);
            line.did.push(segment.did as usize);
            line.stack.push(number(segment.stack));
            line.woken_from.push(number(segment.woken_from));
            line.class.push(number(segment.class));
            line.by.push(segment.ended_by.map_or(-1, by));
            line.other.push(number(segment.other));
        }
        line
    }
}

/// A lane from 0 on; -1 is nobody, -2 a thread without a lane; interrupts are from -10 downwards, and reasons
/// why it is not known from -30.
fn by(ended_by: EndedBy) -> i64 {
    match ended_by {
        EndedBy::Lane(lane) => i64::from(lane),
        EndedBy::Thread => -2,
        EndedBy::Interrupt(cause) => -10 - cause as i64,
        EndedBy::Unknown(reason) => -30 - reason as i64,
    }
}

fn causes(causes: &Causes) -> impl Iterator<Item = u64> {
    Cause::ALL.into_iter().map(|cause| causes.get(cause))
}

/// The data of a report and its page.
pub(super) fn of<'a>(report: &'a Report, page: &'a Page) -> Data<'a> {
    let (nodes, stacks) = tree(&page.stacks);
    let mut frames: Vec<&str> = page.frames.iter().map(String::as_str).collect();
    let chains = report
        .blame
        .as_ref()
        .map(|blame| Chains::of(&blame.chains, &mut frames));
    let threads = threads(report);
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
