//! The waterfall: sums of both sides in, bars that add up to the change of the mean out.
//!
//! Sums are whole numbers, and means are fractions of one denominator a side, so nothing is lost before the last step: each
//! side's means are rounded to nanoseconds that add up.

use std::ops::Range;

use crate::bootstrap::Draws;
use crate::columns::Columns;
use crate::estimate::{Sampled, Scale, change};
use crate::model::{Bar, Waterfall};
use crate::rounding::add_up;
use crate::side::TypeSide;
use crate::slowest::Slowest;

/// Sums of the columns of one side: Σ times over a denominator are means. Whatever is drawn again has the same columns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Means {
    pub(crate) sums: Vec<u128>,
    pub(crate) denominator: u128,
    /// Means of each draw, column by column; empty when blocks are too few.
    pub(crate) draws: Vec<Vec<f64>>,
    /// Means of each recording.
    pub(crate) runs: Vec<Vec<f64>>,
}

impl Means {
    fn sampled(&self, column: usize) -> Sampled {
        let of = |all: &[Vec<f64>]| all.iter().map(|means| means[column]).collect();
        Sampled {
            value: self.sums[column] as f64 / self.denominator.max(1) as f64,
            draws: of(&self.draws),
            runs: of(&self.runs),
        }
    }

    /// With the columns of both sides in one order.
    pub(crate) fn in_order(self, order: &[Option<usize>]) -> Self {
        let means = |all: Vec<Vec<f64>>| {
            let one = |means: &Vec<f64>| {
                order
                    .iter()
                    .map(|at| at.map_or(0.0, |at| means[at]))
                    .collect()
            };
            all.iter().map(one).collect()
        };
        Self {
            sums: order
                .iter()
                .map(|at| at.map_or(0, |at| self.sums[at]))
                .collect(),
            draws: means(self.draws),
            runs: means(self.runs),
            ..self
        }
    }
}

/// All requests of a type.
pub(crate) fn of_all(
    of: &TypeSide,
    columns: usize,
    draws: Option<&Draws>,
    runs: &[Range<usize>],
) -> Means {
    let mut sums = vec![0_u128; columns];
    for block in &of.blocks {
        for (sum, ns) in sums.iter_mut().zip(&block.columns) {
            *sum += u128::from(*ns);
        }
    }
    let weight: u64 = of.blocks.iter().map(|block| block.weight).sum();
    // Most columns of a block are 0.
    let kept: Vec<Cell> = of
        .blocks
        .iter()
        .enumerate()
        .filter(|(_, sums)| sums.weight > 0)
        .map(|(block, sums)| {
            let times = sums.columns.iter().enumerate().filter(|(_, ns)| **ns > 0);
            Cell {
                block,
                weight: sums.weight,
                times: times.map(|(column, ns)| (column, *ns as f64)).collect(),
            }
        })
        .collect();
    let means = |times_of: &dyn Fn(usize) -> u16| {
        let mut sums = vec![0.0; columns];
        let mut weight = 0.0;
        for cell in &kept {
            let times = f64::from(times_of(cell.block));
            if times > 0.0 {
                weight += times * cell.weight as f64;
                cell.times
                    .iter()
                    .for_each(|(column, ns)| sums[*column] += times * ns);
            }
        }
        sums.iter_mut().for_each(|sum| *sum /= weight);
        sums
    };
    let each = draws.into_iter().flat_map(Draws::each);
    Means {
        sums,
        denominator: weight.into(),
        draws: each.map(|times| means(&|at| times[at])).collect(),
        runs: runs
            .iter()
            .map(|run| means(&|at| u16::from(run.contains(&at))))
            .collect(),
    }
}

/// Requests of one block, or a slow one: times that are not 0, by column, each as often as the weight says.
#[derive(Clone, Debug)]
struct Cell {
    block: usize,
    weight: u64,
    times: Vec<(usize, f64)>,
}

/// The slowest `one_of`th of the requests of a type; `None` when not as many are kept. A request across the line counts in
/// part. Those of each draw are chosen again.
pub(crate) fn of_slowest(
    slowest: &Slowest,
    weight: u64,
    one_of: u64,
    columns: usize,
    draws: Option<&Draws>,
    weights: &[u64],
) -> Option<Means> {
    if slowest.weight().saturating_mul(one_of) < weight || weight < one_of {
        return None;
    }
    let mut sums = vec![0_u128; columns];
    let mut left = weight;
    // Draws go deeper where they miss slow blocks.
    let deep = weight / one_of * 10;
    let (mut seen, mut cells) = (0, Vec::<Cell>::new());
    for row in slowest.rows() {
        let part = (row.weight * one_of).min(left);
        left -= part;
        for (column, ns) in &row.times {
            sums[*column] += u128::from(*ns) * u128::from(part);
        }
        if left == 0 && (seen > deep || draws.is_none()) {
            break;
        }
        seen += row.weight;
        let times = row
            .times
            .iter()
            .map(|(column, ns)| (*column, *ns as f64 * row.weight as f64));
        cells.push(Cell {
            block: row.block,
            weight: row.weight,
            times: times.collect(),
        });
    }
    let draw = |times_of: &[u16]| {
        let all: u64 = weights
            .iter()
            .zip(times_of)
            .map(|(weight, times)| weight * u64::from(*times))
            .sum();
        let wanted = all as f64 / one_of as f64;
        let (mut sums, mut left) = (vec![0.0; columns], wanted);
        for cell in &cells {
            let weight = f64::from(times_of[cell.block]) * cell.weight as f64;
            if weight == 0.0 {
                continue;
            }
            let part = weight.min(left);
            let share = part / cell.weight as f64;
            cell.times
                .iter()
                .for_each(|(column, ns)| sums[*column] += ns * share);
            left -= part;
            if left <= 0.0 {
                break;
            }
        }
        sums.iter_mut()
            .for_each(|sum| *sum /= wanted - left.max(0.0));
        sums
    };
    Some(Means {
        sums,
        denominator: weight.into(),
        draws: draws.into_iter().flat_map(Draws::each).map(draw).collect(),
        runs: Vec::new(),
    })
}

/// Bars of some of the columns, which add up to the latency.
pub(crate) fn bars(
    columns: &Columns,
    range: Range<usize>,
    sides: &[Means; 2],
    independent: f64,
) -> Waterfall {
    let rounded = [0, 1]
        .map(|side: usize| add_up(&sides[side].sums[range.clone()], sides[side].denominator, 1));
    let total_ns = [rounded[0].0, rounded[1].0];
    let less = |ns: [u64; 2]| ns[1] as i64 - ns[0] as i64;
    let is_there = |column: &usize| (0..2).any(|side| sides[side].sums[*column] > 0);
    let bar = |column: usize| {
        let at = column - range.start;
        let sides_ns = [rounded[0].1[at], rounded[1].1[at]];
        let [a, b] = [0, 1].map(|side: usize| sides[side].sampled(column));
        Bar {
            name: columns.name(column).to_owned(),
            sides_ns,
            change_ns: less(sides_ns),
            estimate: change(&a, &b, Scale::Difference, independent),
        }
    };
    let mut bars: Vec<Bar> = range.clone().filter(is_there).map(bar).collect();
    bars.sort_by_key(|bar| std::cmp::Reverse(bar.change_ns.unsigned_abs()));
    Waterfall {
        total_ns,
        change_ns: less(total_ns),
        bars,
    }
}
