//! The grid: requests by time and latency in, cells out.
//!
//! How long a trace will be is not known: when it gets longer than the grid, two columns become one. So do
//! they when cells hold too much; when the columns are few already, the smallest stacks of each cell are
//! put together.

use rustc_hash::FxHashMap;

use super::stacks::{StackNumber, Stacks};
use crate::blame::Causes;
use crate::cells::Sum;
use crate::cells::bucket::{bucket, lowest};
use crate::report::Ledger;
use crate::report::page::{Cell, StatementSum};

/// Columns at most, and half as many at least once there were as many.
const MAX_COLUMNS: u64 = 250;
/// Length of a column at the start: it doubles until a second is one, or some of them.
const FIRST_COLUMN_NS: u64 = 1_000_000_000 >> 9;
/// A row is a quarter of a power of two of the latency.
const ROW_BITS: u32 = 2;
/// Entries of all cells together: 16 bytes each, and some 8 of the page.
const MAX_ENTRIES: usize = 1 << 20;
/// Fewer columns than these are not made to save entries.
const FEW_COLUMNS: u64 = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    request: u32,
    column: u64,
    row: u32,
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

    fn entries(&self) -> usize {
        self.stacks.len() + self.samples.len() + self.statements.len() + self.holdings.len()
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

    /// Puts the smaller half of the stacks together. Returns how many gave up their frames.
    fn shrink(&mut self, stacks: &mut Stacks) -> u64 {
        smaller_half(&mut self.stacks, stacks) + smaller_half(&mut self.samples, stacks)
    }
}

fn smaller_half(sums: &mut FxHashMap<StackNumber, u64>, stacks: &mut Stacks) -> u64 {
    let mut all: Vec<(StackNumber, u64)> = sums.drain().collect();
    all.sort_unstable_by_key(|(stack, sum)| (std::cmp::Reverse(*sum), *stack));
    let mut merged = 0;
    let most = all.len() / 2;
    for (at, (stack, sum)) in all.into_iter().enumerate() {
        let other = if at < most { None } else { stacks.other(stack) };
        merged += u64::from(other.is_some());
        *sums.entry(other.unwrap_or(stack)).or_default() += sum;
    }
    merged
}

/// All cells.
#[derive(Debug)]
pub(super) struct Grid {
    column_ns: u64,
    cells: FxHashMap<Key, Sums>,
    /// Entries of all cells, and the number of requests at which they are counted again.
    entries: usize,
    since_counted: u32,
    pub(super) stacks_merged: u64,
}

impl Default for Grid {
    fn default() -> Self {
        Self {
            column_ns: FIRST_COLUMN_NS,
            cells: FxHashMap::default(),
            entries: 0,
            since_counted: 0,
            stacks_merged: 0,
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

    /// Keeps the number of entries below its bound.
    pub(super) fn bound(&mut self, stacks: &mut Stacks) {
        self.since_counted += 1;
        if self.since_counted < COUNTED_EVERY {
            return;
        }
        self.since_counted = 0;
        self.count();
        while self.entries > MAX_ENTRIES {
            let before = self.entries;
            if self.columns() > FEW_COLUMNS {
                self.widen();
            } else {
                for cell in self.cells.values_mut() {
                    self.stacks_merged += cell.shrink(stacks);
                }
            }
            self.count();
            if self.entries >= before && self.columns() <= FEW_COLUMNS {
                break;
            }
        }
    }

    fn count(&mut self) {
        self.entries = self.cells.values().map(Sums::entries).sum();
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
