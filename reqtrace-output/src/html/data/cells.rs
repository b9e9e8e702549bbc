//! Cells of the page, and its requests: rows in, columns of numbers out.

use serde::Serialize;

use reqtrace_analysis::report::Report;
use reqtrace_analysis::report::blame::{Cause, Causes};
use reqtrace_analysis::report::page::{Cell, PageRow};

/// Cells by column.
#[derive(Default, Serialize)]
pub(super) struct Cells {
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
    pub(super) fn of(cells: &[Cell], report: &Report) -> Self {
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

/// Requests by column.
#[derive(Default, Serialize)]
pub(super) struct Rows {
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
    pub(super) fn of(rows: &[PageRow]) -> Self {
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

/// Times by cause, in the order of all causes.
pub(super) fn causes(causes: &Causes) -> impl Iterator<Item = u64> {
    Cause::ALL.into_iter().map(|cause| causes.get(cause))
}
