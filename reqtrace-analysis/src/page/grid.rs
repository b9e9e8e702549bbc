//! The grid: requests by time and latency in, cells out.
//!
//! How long a trace will be is not known: when it gets longer than the grid, two columns become one. So do
//! they when cells hold too much; when the columns are few already, what cells have most of loses its names: the
//! smallest stacks, statements or holdings of each are put together.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use super::stacks::{StackNumber, Stacks};
use super::statements;
use crate::blame::Causes;
use crate::bounded::take_smallest;
use crate::cells::Sum;
use crate::cells::bucket::{bucket, lowest};
use crate::report::Ledger;
use crate::report::page::{Cell, Merged, StatementSum};

/// Columns at most, and half as many at least once there were as many.
const MAX_COLUMNS: u64 = 250;
/// Length of a column at the start: it doubles until a second is one, or some of them.
const FIRST_COLUMN_NS: u64 = 1_000_000_000 >> 9;
/// A row is a quarter of a power of two of the latency.
const ROW_BITS: u32 = 2;
/// Entries of all cells together: 16 bytes each, and some 8 of the page.
const MAX_ENTRIES: usize = 1 << 20;
/// A statement takes as much as so many other entries.
const STATEMENT_ENTRIES: usize = 3;
/// Fewer columns than these are not made to save entries.
const FEW_COLUMNS: u64 = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    request: u32,
    column: u64,
    row: u32,
}

/// What a cell may have many of.
#[derive(Clone, Copy, Debug)]
enum Many {
    Stacks,
    Samples,
    Statements,
    Holdings,
}

impl Many {
    const ALL: [Self; 4] = [
        Self::Stacks,
        Self::Samples,
        Self::Statements,
        Self::Holdings,
    ];
}

/// What is added up of one cell.
#[derive(Debug, Default)]
pub(super) struct Sums {
    sum: Sum,
    stacks: FxHashMap<StackNumber, u64>,
    samples: FxHashMap<StackNumber, u64>,
    statements: FxHashMap<u32, StatementSum>,
    holdings: FxHashMap<u32, u64>,
}

impl Sums {
    pub(super) fn add(&mut self, ledger: &Ledger, causes: Option<&Causes>, weight: u64) {
        self.sum.add(ledger, weight);
        if let Some(causes) = causes {
            self.sum.causes.add_times(causes, weight);
        }
    }

    pub(super) fn statement(&mut self, statement: u32, ledger: &Ledger, weight: u64) {
        self.statements
            .entry(statement)
            .or_default()
            .add(&StatementSum {
                count: weight,
                latency_ns: ledger.latency_ns * weight,
                on_cpu_ns: ledger.on_cpu_ns * weight,
                blocked_ns: (ledger.blocked_ns() + ledger.unattributed_ns) * weight,
                max_ns: ledger.latency_ns,
            });
    }

    pub(super) fn stack(&mut self, stack: StackNumber, ns: u64) {
        *self.stacks.entry(stack).or_default() += ns;
    }

    pub(super) fn sample(&mut self, stack: StackNumber, count: u64) {
        *self.samples.entry(stack).or_default() += count;
    }

    pub(super) fn held(&mut self, holding: u32, ns: u64) {
        *self.holdings.entry(holding).or_default() += ns;
    }

    fn entries(&self, of: Many) -> usize {
        match of {
            Many::Stacks => self.stacks.len(),
            Many::Samples => self.samples.len(),
            Many::Statements => STATEMENT_ENTRIES * self.statements.len(),
            Many::Holdings => self.holdings.len(),
        }
    }

    fn merge(&mut self, other: Self) {
        self.sum.merge(&other.sum);
        for (stack, ns) in other.stacks {
            self.stack(stack, ns);
        }
        for (stack, count) in other.samples {
            self.sample(stack, count);
        }
        for (statement, more) in other.statements {
            self.statements.entry(statement).or_default().add(&more);
        }
        for (holding, ns) in other.holdings {
            self.held(holding, ns);
        }
    }

    /// Puts the smaller half of these together, and counts what gave up its name.
    fn shrink(
        &mut self,
        of: Many,
        stacks: &mut Stacks,
        other_holding: impl FnMut(u32) -> Option<u32>,
        merged: &mut Merged,
    ) {
        match of {
            Many::Stacks => merged.stacks += fold(&mut self.stacks, |stack| stacks.other(stack)),
            Many::Samples => merged.stacks += fold(&mut self.samples, |stack| stacks.other(stack)),
            Many::Statements => merged.statements += fold_statements(&mut self.statements),
            Many::Holdings => merged.holdings += fold(&mut self.holdings, other_holding),
        }
    }
}

/// Puts the smaller half together, each with all others of its kind. Returns how many these are.
fn fold(sums: &mut FxHashMap<u32, u64>, mut other: impl FnMut(u32) -> Option<u32>) -> u64 {
    let mut merged = 0;
    for (own, sum) in smaller_half(sums, |sum| *sum) {
        let other = other(own);
        merged += u64::from(other.is_some());
        *sums.entry(other.unwrap_or(own)).or_default() += sum;
    }
    sums.shrink_to_fit();
    merged
}

/// The same of statements. Returns how many requests these have.
fn fold_statements(sums: &mut FxHashMap<u32, StatementSum>) -> u64 {
    let mut merged = 0;
    for (own, sum) in smaller_half(sums, |sum| sum.latency_ns) {
        let other = statements::other(own);
        merged += other.map_or(0, |_| sum.count);
        sums.entry(other.unwrap_or(own)).or_default().add(&sum);
    }
    sums.shrink_to_fit();
    merged
}

fn smaller_half<S>(sums: &mut FxHashMap<u32, S>, size: impl Fn(&S) -> u64) -> Vec<(u32, S)> {
    // Two would still be two.
    if sums.len() <= 2 {
        return Vec::new();
    }
    let most = sums.len() / 2;
    take_smallest(sums, most, size)
}

/// All cells.
#[derive(Debug)]
pub(super) struct Grid {
    column_ns: u64,
    cells: FxHashMap<Key, Sums>,
    max_entries: usize,
    /// Requests since entries were counted.
    since_counted: u32,
    /// What gave up its name in a cell.
    pub(super) merged: Merged,
}

impl Default for Grid {
    fn default() -> Self {
        Self {
            column_ns: FIRST_COLUMN_NS,
            cells: FxHashMap::default(),
            max_entries: MAX_ENTRIES,
            since_counted: 0,
            merged: Merged::default(),
        }
    }
}

/// Requests after which entries are counted: each brings fewer than a hundred, mostly known ones.
const COUNTED_EVERY: u32 = 8_192;

impl Grid {
    /// The cell of requests that began then, since the start, and took so long.
    pub(super) fn cell(&mut self, request: u32, begin_ns: u64, latency_ns: u64) -> &mut Sums {
        while begin_ns / self.column_ns >= MAX_COLUMNS {
            self.widen();
        }
        let key = Key {
            request,
            column: begin_ns / self.column_ns,
            row: bucket(ROW_BITS, latency_ns),
        };
        self.cells.entry(key).or_default()
    }

    /// Keeps the number of entries below its bound. `other_holding` gives the number of all others of a holding.
    pub(super) fn bound(
        &mut self,
        stacks: &mut Stacks,
        mut other_holding: impl FnMut(u32) -> Option<u32>,
    ) {
        self.since_counted += 1;
        if self.since_counted < COUNTED_EVERY {
            return;
        }
        self.since_counted = 0;
        while self.is_large() && self.columns() > FEW_COLUMNS {
            self.widen();
        }
        while self.is_large() && self.shrink(stacks, &mut other_holding) {}
    }

    /// Puts small ones of what there is most of together; where that makes them no fewer, of what there is less of. False
    /// when nothing gets less.
    fn shrink(
        &mut self,
        stacks: &mut Stacks,
        other_holding: &mut impl FnMut(u32) -> Option<u32>,
    ) -> bool {
        let mut all = Many::ALL.map(|of| (self.entries(of), of));
        all.sort_by_key(|(entries, _)| Reverse(*entries));
        all.into_iter().any(|(before, of)| {
            for cell in self.cells.values_mut() {
                cell.shrink(of, stacks, &mut *other_holding, &mut self.merged);
            }
            self.entries(of) < before
        })
    }

    fn is_large(&self) -> bool {
        let entries = Many::ALL.map(|of| self.entries(of));
        entries.iter().sum::<usize>() > self.max_entries
    }

    fn entries(&self, of: Many) -> usize {
        self.cells.values().map(|cell| cell.entries(of)).sum()
    }

    fn columns(&self) -> u64 {
        let last = self.cells.keys().map(|key| key.column).max();
        last.map_or(0, |last| last + 1)
    }

    /// Makes one of two columns.
    fn widen(&mut self) {
        self.column_ns *= 2;
        for (key, sums) in std::mem::take(&mut self.cells) {
            let key = Key {
                column: key.column / 2,
                ..key
            };
            self.cells.entry(key).or_default().merge(sums);
        }
    }

    /// Length of a column, lowest latencies of rows, and the cells in order, of a trace of this length.
    pub(super) fn finish(mut self, length_ns: u64) -> (u64, Vec<u64>, Vec<Cell>) {
        while length_ns / self.column_ns >= MAX_COLUMNS {
            self.widen();
        }
        let rows = || self.cells.keys().map(|key| key.row);
        let (Some(first), Some(last)) = (rows().min(), rows().max()) else {
            return (self.column_ns, Vec::new(), Vec::new());
        };
        let edges = (first..=last + 1)
            .map(|row| lowest(ROW_BITS, row))
            .collect();
        let mut cells: Vec<(Key, Sums)> = self.cells.into_iter().collect();
        cells.sort_unstable_by_key(|(key, _)| *key);
        let cells = cells.into_iter().map(|(key, sums)| {
            let mut cell = Cell {
                request: key.request,
                column: key.column as u32,
                row: key.row - first,
                count: sums.sum.weight,
                ledger: sums.sum.ledger,
                causes: sums.sum.causes,
                stacks: sums.stacks.into_iter().collect(),
                samples: sums.samples.into_iter().collect(),
                statements: sums.statements.into_iter().collect(),
                holdings: sums.holdings.into_iter().collect(),
            };
            cell.stacks.sort_unstable();
            cell.samples.sort_unstable();
            cell.statements.sort_unstable_by_key(|(at, _)| *at);
            cell.holdings.sort_unstable();
            cell
        });
        (self.column_ns, edges, cells.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_those_of_the_whole_trace_however_early_its_requests_were() {
        let mut grid = Grid::default();
        grid.cell(0, 500_000, 10);
        let (column_ns, _, cells) = grid.finish(60_000_000_000);
        assert_eq!(column_ns, 250_000_000);
        assert_eq!(cells.len(), 1);
    }

    /// Thousands of statements and culprits leave the few stacks alone.
    #[test]
    fn what_there_is_most_of_gives_up_its_names_and_no_time() {
        let mut grid = Grid {
            max_entries: 4_000,
            ..Grid::default()
        };
        let mut stacks = Stacks::default();
        let ledger = Ledger {
            latency_ns: 100,
            ..Ledger::default()
        };
        let all = 4 * COUNTED_EVERY;
        for at in 0..all {
            let cell = grid.cell(0, u64::from(at % 20) * FIRST_COLUMN_NS, 100);
            cell.add(&ledger, None, 1);
            cell.stack(at % 200, 100);
            cell.statement(2 + at % 3_000, &ledger, 1);
            cell.held(1 + at % 10_000, 100);
            grid.bound(&mut stacks, |holding| (holding > 0).then_some(0));
        }
        assert!(!grid.is_large());
        let merged = grid.merged;
        assert!(
            merged.statements > 10_000 && merged.holdings > 10_000,
            "{merged:?}"
        );
        assert_eq!(merged.stacks, 0);
        let (_, _, cells) = grid.finish(20 * FIRST_COLUMN_NS);
        let mut statements = StatementSum::default();
        let (mut held_ns, mut blocked_ns) = (0, 0);
        for cell in &cells {
            assert_eq!(cell.stacks.len(), 10);
            blocked_ns += cell.stacks.iter().map(|(_, ns)| ns).sum::<u64>();
            held_ns += cell.holdings.iter().map(|(_, ns)| ns).sum::<u64>();
            for (_, sum) in &cell.statements {
                statements.add(sum);
            }
        }
        let all_ns = 100 * u64::from(all);
        assert_eq!((held_ns, blocked_ns), (all_ns, all_ns));
        assert_eq!(
            (statements.count, statements.latency_ns),
            (u64::from(all), all_ns)
        );
    }

    #[test]
    fn a_longer_trace_has_longer_columns_and_the_same_sums() {
        let mut grid = Grid::default();
        let mut all = 0;
        for begin in 0..10_000_u64 {
            let ledger = Ledger {
                latency_ns: begin + 1,
                ..Ledger::default()
            };
            all += begin + 1;
            grid.cell(0, begin * 700_000, begin + 1)
                .add(&ledger, None, 1);
        }
        let (column_ns, edges, cells) = grid.finish(7_000_000_000);
        assert_eq!(column_ns, 31_250_000);
        assert_eq!(cells.iter().map(|cell| cell.count).sum::<u64>(), 10_000);
        let sum: u64 = cells.iter().map(|cell| cell.ledger.latency_ns).sum();
        assert_eq!(sum, all);
        for cell in cells {
            let mean = cell.ledger.latency_ns / cell.count;
            let row = cell.row as usize;
            assert!(edges[row] <= mean && mean < edges[row + 1]);
        }
    }
}
