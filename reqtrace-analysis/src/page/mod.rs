//! The page: requests with their stacks and with who held them up in, one at a time; the model of
//! `report.html` out.
//!
//! Memory is bounded: cells get longer when a trace does, and what has too many different names loses the
//! names and no time. Rows are kept of the first requests only, and given up when there are more.

mod grid;
mod holdings;
mod slowest;
mod stacks;
mod statements;
mod timeline;

use reqtrace_common::record::STACK_NONE;
use reqtrace_recording::{AddressSpace, BlockSite, Comm};

use crate::blame::{Causes, Few, HeldKey, Kept, Naming, Parts, Timelines, Victim};
use crate::label::label_text;
use crate::report::page::{
    Holding, MAX_ROWS, MAX_SLOWEST, Merged, Page, PageRow, SlowRequest, Timeline,
};
use crate::report::{Ledger, OfText, StackKind};

use grid::Grid;
use holdings::Holdings;
use slowest::Slowest;
pub(crate) use stacks::StackNumber;
use stacks::Stacks;
use statements::Statements;
use timeline::Of;

/// A complete request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct One<'a> {
    pub(crate) id: u64,
    pub(crate) request: u32,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) comm: Comm,
    pub(crate) label: &'a [u8],
    /// `CLOCK_MONOTONIC` ns.
    pub(crate) begin_ns: u64,
    pub(crate) ledger: &'a Ledger,
    pub(crate) weight: u32,
    pub(crate) stacks: &'a OwnStacks,
}

/// Stacks of a request that come with its record.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnStacks {
    /// Where it was blocked: nanoseconds.
    pub(crate) blocked: Box<[(StackNumber, u64)]>,
    /// Where it was parked: the number of the place, and nanoseconds.
    pub(crate) parks: Box<[(StackNumber, usize, u64)]>,
    /// Where it was met on a CPU: samples, each as often as the request's weight.
    pub(crate) samples: Box<[(StackNumber, u64)]>,
}

/// Gathers a page.
#[derive(Debug)]
pub(crate) struct Collector {
    start_ns: u64,
    grid: Grid,
    stacks: Stacks,
    statements: Statements,
    holdings: Holdings,
    /// `None` when there are too many.
    rows: Option<Vec<PageRow>>,
    slowest: Slowest,
    /// Off-CPU time of the request that comes next, by stack.
    off: Vec<(StackNumber, u64)>,
    timeline: Option<Timeline>,
    names: u64,
}

impl Collector {
    /// For so many request types.
    pub(crate) fn new(types: usize, start_ns: u64, grouping: Option<OfText>) -> Self {
        Self {
            start_ns,
            grid: Grid::default(),
            stacks: Stacks::default(),
            statements: Statements::new(grouping),
            holdings: Holdings::default(),
            rows: Some(Vec::new()),
            slowest: Slowest::new(types, MAX_SLOWEST),
            off: Vec::new(),
            timeline: None,
            names: 0,
        }
    }

    /// The number of the stack that a request was blocked in.
    pub(crate) fn blocked_in(
        &mut self,
        naming: &mut impl Naming,
        space: AddressSpace,
        site: &BlockSite,
        class: Option<usize>,
    ) -> StackNumber {
        let class = class.map(|class| class as u32);
        self.stacks
            .number(naming, space, site, StackKind::Blocked, class)
    }

    /// The number of the stack at which a request was parked.
    pub(crate) fn parked_at(
        &mut self,
        naming: &mut impl Naming,
        space: AddressSpace,
        site: &BlockSite,
        place: usize,
    ) -> StackNumber {
        let class = Some(place as u32);
        self.stacks
            .number(naming, space, site, StackKind::Parked, class)
    }

    /// The number of the stack that a sample has met a request in.
    pub(crate) fn sampled_in(
        &mut self,
        naming: &mut impl Naming,
        space: AddressSpace,
        site: &BlockSite,
    ) -> StackNumber {
        self.stacks
            .number(naming, space, site, StackKind::OnCpu, None)
    }

    /// How often the names of stacks were decided again: those that are remembered may have other names.
    pub(crate) fn names_are(&mut self, decided_anew: u64) {
        if self.names != decided_anew {
            self.names = decided_anew;
            self.stacks.forget();
        }
    }

    /// What intervals say of the request that comes next. `is_named` tells whether the stacks of a place
    /// have their names still.
    pub(crate) fn intervals(
        &mut self,
        victim: &Victim<'_>,
        parts: &Parts<'_>,
        timelines: &Timelines,
        is_named: impl Fn(&Kept) -> bool,
        naming: &mut impl Naming,
    ) {
        self.off.clear();
        self.timeline = None;
        if !victim.is_complete {
            return;
        }
        // Most requests never leave their CPU.
        let intervals = match victim.ledger.on_cpu_ns == victim.ledger.latency_ns {
            true => Few::new(),
            false => timelines.of_request(victim.thread, victim.of, victim.end_ns),
        };
        for kept in intervals {
            // Parked and queued time is in the ledger, with its names.
            if kept.away.is_some() {
                continue;
            }
            let (kind, ns) = match kept.by {
                Some(_) => (StackKind::RunQueue, kept.run_queue_ns()),
                None => (StackKind::Preempted, kept.off_ns()),
            };
            if ns > 0 && is_named(kept) {
                let place = &kept.place;
                let stack = self
                    .stacks
                    .number(naming, place.space, &place.site, kind, None);
                self.off.push((stack, ns));
            }
        }
        if self
            .slowest
            .takes(victim.of.request_type, victim.ledger.latency_ns)
        {
            let stacks = &mut self.stacks;
            let timeline = timeline::of(victim, parts, timelines, |kept, of| {
                if !is_named(kept) || kept.away.is_some() {
                    return None;
                }
                let (space, site, kind, class) = match of {
                    Of::Block => {
                        let class = kept.class.map(u32::from);
                        let place = kept.place;
                        (place.space, place.site, StackKind::Blocked, class)
                    }
                    Of::Waker => {
                        let from = kept.woken_from?;
                        let site = BlockSite {
                            user_stack: from.user_stack,
                            kernel_stack: STACK_NONE,
                            ..kept.place.site
                        };
                        (from.space, site, StackKind::OnCpu, None)
                    }
                };
                Some(stacks.number(naming, space, &site, kind, class))
            });
            self.timeline = Some(timeline.named(naming, timelines));
        }
    }

    /// Takes a request, and who held it up: nanoseconds of each.
    pub(crate) fn request<'k>(
        &mut self,
        one: &One<'_>,
        causes: Option<Causes>,
        held: impl Iterator<Item = (&'k HeldKey, u64)>,
        naming: &mut impl Naming,
    ) {
        let ledger = one.ledger;
        let weight = u64::from(one.weight);
        let begin_ns = one.begin_ns.saturating_sub(self.start_ns);
        let statement = self.statements.number(one.label);
        self.stacks
            .complete(&mut self.off, one.stacks, ledger, naming);
        let cell = self.grid.cell(one.request, begin_ns, ledger.latency_ns);
        cell.add(ledger, causes.as_ref(), weight);
        cell.statement(statement, ledger, weight);
        for (stack, ns) in &self.off {
            cell.stack(*stack, ns * weight);
        }
        for (stack, count) in &one.stacks.samples {
            cell.sample(*stack, *count);
        }
        for (key, ns) in held {
            cell.held(self.holdings.number(key), ns * weight);
        }
        let holdings = &mut self.holdings;
        self.grid
            .bound(&mut self.stacks, |holding| holdings.other(holding));
        self.row(one, begin_ns, statement);
        let timeline = self.timeline.take();
        if self.slowest.takes(one.request, ledger.latency_ns) {
            self.slowest.add(SlowRequest {
                id: one.id,
                request: one.request,
                pid: one.pid,
                tid: one.tid,
                comm: one.comm.text(),
                label: label_text(one.label),
                statement,
                begin_ns,
                ledger: ledger.clone(),
                causes,
                timeline,
            });
        }
        self.off.clear();
    }

    fn row(&mut self, one: &One<'_>, begin_ns: u64, statement: u32) {
        let Some(rows) = &mut self.rows else { return };
        if rows.len() >= MAX_ROWS {
            self.rows = None;
            return;
        }
        let ledger = one.ledger;
        rows.push(PageRow {
            id: one.id,
            request: one.request,
            tid: one.tid,
            begin_ns,
            statement,
            latency_ns: ledger.latency_ns,
            on_cpu_ns: ledger.on_cpu_ns,
            run_queue_ns: ledger.run_queue_ns,
            preempted_ns: ledger.preempted_ns,
            blocked_ns: ledger.blocked_ns() + ledger.unattributed_ns,
            parked_ns: ledger.parked_ns(),
            queued_ns: ledger.queued_ns(),
        });
    }

    /// The page of a trace of this length. `named` gives a holding its names.
    pub(crate) fn finish(
        mut self,
        length_ns: u64,
        named: impl Fn(&HeldKey) -> Holding,
        naming: &mut impl Naming,
    ) -> Page {
        let of_cells = self.grid.merged;
        let merged = Merged {
            stacks: self.stacks.merged + of_cells.stacks,
            statements: self.statements.merged + of_cells.statements,
            holdings: self.holdings.merged + of_cells.holdings,
        };
        let holdings = self.holdings.keys().iter().map(named).collect();
        let not_sampled = self.stacks.not_sampled(naming);
        let (frames, stacks) = self.stacks.named(naming);
        let (column_ns, edges_ns, cells) = self.grid.finish(length_ns);
        Page {
            column_ns,
            edges_ns,
            cells,
            statements: self.statements.finish(),
            frames,
            stacks,
            not_sampled,
            holdings,
            rows: self.rows,
            slowest: self.slowest.finish(),
            merged,
        }
    }
}

#[cfg(test)]
mod tests;
