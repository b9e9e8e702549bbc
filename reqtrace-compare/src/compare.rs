//! Both sides in, the comparison out.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use reqtrace_analysis::cells::bucket::{bucket as bucket_of, lowest};
use reqtrace_base::figures::duration;

use crate::bootstrap::{Draws, LEAST_BLOCKS, run_length};
use crate::columns::Columns;
use crate::facts::{Facts, unlike};
use crate::items::ItemKind;
use crate::judge::{mark, rows};
use crate::metrics::{self, Looked};
use crate::mix;
use crate::model::{
    Comparison, Estimate, HEAT_BITS, Heat, Rows, SideSummary, Tail, TypeComparison,
};
use crate::side::{Run, Side, TypeSide};
use crate::sums::BLOCK_BITS;
use crate::waterfall::{bars, of_all, of_slowest};

/// The slowest one of so many, the first of which enough requests are kept.
const SLOWEST: [u64; 3] = [100, 1_000, 10_000];

/// How to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The objective for latency, ns; that of the sides.
    pub slo_ns: Option<u64>,
    /// Rows of a table.
    pub most_rows: usize,
    /// Keep rows that are noise.
    pub keeps_noise: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            slo_ns: None,
            most_rows: 1_000,
            keeps_noise: false,
        }
    }
}

/// Both sides, and the blocks that are drawn of each.
pub(crate) struct Pair<'a> {
    pub(crate) sides: [&'a Side; 2],
    pub(crate) draws: [Option<Draws>; 2],
    runs: [Vec<Range<usize>>; 2],
    /// How long each block is.
    lengths_ns: [Vec<u64>; 2],
    /// Independent runs of the lesser side.
    independent: f64,
    columns: Columns,
    /// Where the columns of both are on each side.
    orders: [Vec<Option<usize>>; 2],
}

/// Compares two sides, each with one recording at least.
#[must_use]
pub fn compare(a: &Side, b: &Side, options: Options) -> Comparison {
    let pair = Pair::new([a, b]);
    let names: BTreeSet<&String> = a.types.keys().chain(b.types.keys()).collect();
    let mut types: Vec<TypeComparison> = names
        .into_iter()
        .map(|name| pair.of_type(name, options))
        .collect();
    let moved = |of: &TypeComparison| {
        let change_ns = of
            .parts
            .as_ref()
            .map_or(0, |parts| parts.change_ns.unsigned_abs());
        (
            u128::from(change_ns) * u128::from(of.count[0].max(of.count[1])),
            of.count[0].max(of.count[1]),
        )
    };
    types.sort_by_key(|of| std::cmp::Reverse(moved(of)));
    mark(
        types
            .iter_mut()
            .flat_map(|of| of.metrics.iter_mut())
            .flat_map(|metric| metric.relative.iter_mut()),
    );
    mark(
        types
            .iter_mut()
            .flat_map(|of| of.metrics.iter_mut())
            .map(|metric| &mut metric.absolute),
    );
    mark(
        types
            .iter_mut()
            .flat_map(|of| of.mix.iter_mut())
            .flat_map(|mix| [&mut mix.mix, &mut mix.inside]),
    );
    mark(
        types
            .iter_mut()
            .flat_map(|of| of.groups.rows.iter_mut())
            .map(|row| &mut row.part),
    );
    mark(types.iter_mut().flat_map(estimates_of_bars));
    for of in &mut types {
        let groups = std::mem::take(&mut of.groups.rows);
        of.groups = rows(
            "fingerprints",
            groups,
            options.most_rows,
            options.keeps_noise,
            |row| &row.part,
        );
    }
    Comparison {
        sides: [0, 1].map(|side: usize| pair.summary(side)),
        unlike: unlike(&a.facts, &b.facts),
        too_short: pair.too_short(),
        notes: pair.notes(),
        slo_ns: options.slo_ns,
        items: ItemKind::ALL
            .into_iter()
            .filter_map(|kind| pair.items(kind, options))
            .collect(),
        stacks: pair.stacks(),
        types,
    }
}

fn estimates_of_bars(of: &mut TypeComparison) -> impl Iterator<Item = &mut Estimate> {
    let (tail, tail_causes) = match &mut of.tail {
        Some(tail) => (Some(&mut tail.parts), tail.causes.as_mut()),
        None => (None, None),
    };
    let all = of
        .parts
        .iter_mut()
        .chain(&mut of.causes)
        .chain(tail)
        .chain(tail_causes);
    all.flat_map(|waterfall| waterfall.bars.iter_mut())
        .map(|bar| &mut bar.estimate)
}

/// A number that the data decide: the same sides are drawn in the same way.
pub(crate) fn seed(side: &Side, which: u64) -> u64 {
    let weight: u64 = side.types.values().map(|of| of.latencies.count()).sum();
    weight
        .wrapping_mul(31)
        .wrapping_add(side.blocks() as u64)
        .wrapping_mul(2)
        .wrapping_add(which)
}

/// Blocks that have to do with each other: of the type for which that is most.
fn together(side: &Side) -> usize {
    let of_type = |of: &TypeSide| {
        let weights: Vec<f64> = of.blocks.iter().map(|block| block.weight as f64).collect();
        let all: f64 = weights.iter().sum();
        let mean = of
            .blocks
            .iter()
            .map(|block| block.latency_ns as f64)
            .sum::<f64>()
            / all.max(1.0);
        // What a block adds to the mean.
        let means = of
            .blocks
            .iter()
            .map(|block| block.latency_ns as f64 - mean * block.weight as f64);
        run_length(&means.collect::<Vec<_>>()).max(run_length(&weights))
    };
    // Of a few requests nothing is known.
    let many = side
        .types
        .values()
        .filter(|of| of.latencies.count() >= side.blocks() as u64);
    many.map(of_type).max().unwrap_or(1)
}

impl<'a> Pair<'a> {
    fn new(sides: [&'a Side; 2]) -> Self {
        let is_long = sides.iter().all(|side| side.blocks() >= LEAST_BLOCKS);
        let draws = [0, 1].map(|side: usize| {
            let own = sides[side];
            is_long.then(|| Draws::new(own.blocks(), together(own), seed(own, side as u64)))
        });
        let independent = draws
            .iter()
            .flatten()
            .map(Draws::runs)
            .fold(f64::INFINITY, f64::min);
        let mut columns = Columns::new();
        for side in sides {
            columns.find(side.columns.parts());
        }
        let orders = sides.map(|side| {
            let place = |column: usize| {
                let is_cause = columns.by_cause().contains(&column);
                let own = || {
                    side.columns
                        .by_part()
                        .find(|own| side.columns.name(*own) == columns.name(column))
                };
                if is_cause { Some(column) } else { own() }
            };
            (0..columns.len()).map(place).collect()
        });
        // One recording tells nothing of others.
        let range = |run: &Run| run.first..run.first + run.blocks;
        let runs = sides.map(|side| match side.runs.as_slice() {
            [_] => Vec::new(),
            runs => runs.iter().map(range).collect(),
        });
        Self {
            sides,
            draws,
            runs,
            lengths_ns: sides.map(Side::lengths_ns),
            independent,
            columns,
            orders,
        }
    }

    fn summary(&self, at: usize) -> SideSummary {
        let side = self.sides[at];
        let sum = |of: fn(&Facts) -> u64| side.facts.iter().map(of).sum();
        let mut which: Vec<String> = side.facts.iter().map(|facts| facts.which.clone()).collect();
        which.retain(|which| !which.is_empty());
        which.dedup();
        SideSummary {
            names: side.facts.iter().map(|facts| facts.name.clone()).collect(),
            which,
            length_ns: sum(|facts| facts.length_ns),
            requests: side.types.values().map(|of| of.latencies.count()).sum(),
            incomplete: sum(|facts| facts.incomplete),
            open: sum(|facts| facts.open),
            block_ns: side.block_ns,
            blocks: side.blocks() as u64,
            drawn_together: self.draws[at].as_ref().map_or(1, |draws| draws.run as u64),
        }
    }

    fn too_short(&self) -> Option<String> {
        let words: Vec<String> = ["A", "B"]
            .into_iter()
            .zip(self.sides)
            .filter(|(_, side)| side.blocks() < LEAST_BLOCKS)
            .map(|(name, side)| {
                let length_ns = side.facts.iter().map(|facts| facts.length_ns).sum();
                format!("{name} has {}", duration(length_ns))
            })
            .collect();
        (!words.is_empty()).then(|| {
            format!(
                "too short: {}; below {LEAST_BLOCKS} s of either side nothing tells a change from noise",
                words.join(", ")
            )
        })
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.too_short().is_none() && self.runs.iter().all(Vec::is_empty) {
            notes.push(
                "one recording a side: how much recordings differ from each other is in no interval; give several, A1 A2 -- \
                 B1 B2"
                    .to_owned(),
            );
        }
        if self.independent < 10.0 {
            notes.push(format!(
                "seconds have much in common with those before: there are {:.0} independent stretches, and intervals are wide",
                self.independent
            ));
        }
        notes.extend(self.left_out());
        let of_facts = self.sides.iter().flat_map(|side| &side.facts);
        for note in of_facts.flat_map(|facts| &facts.notes) {
            if !notes.contains(note) {
                notes.push(note.clone());
            }
        }
        notes
    }

    fn of_type(&self, name: &str, options: Options) -> TypeComparison {
        let none = TypeSide::default();
        let own = self.sides.map(|side| side.types.get(name).unwrap_or(&none));
        let count = own.map(|of| of.latencies.count());
        let columns = self.columns.len();
        let has_causes = self.sides.iter().all(|side| side.has_causes);
        let looked = [0, 1].map(|side: usize| Looked {
            of: own[side],
            draws: self.draws[side].as_ref(),
            runs: &self.runs[side],
            lengths_ns: &self.lengths_ns[side],
        });
        let metrics = metrics::of_type(looked, options.slo_ns.is_some(), self.independent);
        let is_both = count.iter().all(|count| *count > 0);
        let all = is_both.then(|| {
            [0, 1].map(|side: usize| {
                let own_columns = self.sides[side].columns.len();
                let means = of_all(
                    own[side],
                    own_columns,
                    self.draws[side].as_ref(),
                    &self.runs[side],
                );
                means.in_order(&self.orders[side])
            })
        });
        let causes = |sides: &_| {
            has_causes.then(|| {
                bars(
                    &self.columns,
                    self.columns.by_cause(),
                    sides,
                    self.independent,
                )
            })
        };
        let parts = |sides: &_| {
            bars(
                &self.columns,
                self.columns.by_part(),
                sides,
                self.independent,
            )
        };
        let tail = SLOWEST.into_iter().filter(|_| is_both).find_map(|one_of| {
            let means = |side: usize| {
                let mut slowest = own[side].slowest.clone();
                slowest.sort();
                let weights: Vec<u64> = own[side].blocks.iter().map(|block| block.weight).collect();
                let own_columns = self.sides[side].columns.len();
                let draws = self.draws[side].as_ref();
                let means = of_slowest(&slowest, count[side], one_of, own_columns, draws, &weights);
                Some(means?.in_order(&self.orders[side]))
            };
            let sides = [means(0)?, means(1)?];
            Some(Tail {
                share: 1.0 / one_of as f64,
                parts: parts(&sides),
                causes: causes(&sides),
            })
        });
        let orders = [0, 1].map(|side: usize| self.orders[side].as_slice());
        let draws = [0, 1].map(|side: usize| self.draws[side].as_ref());
        let groups = is_both
            .then(|| mix::of_type(&self.columns, orders, own, draws, self.independent))
            .flatten();
        debug_assert!(columns >= self.sides[0].columns.len());
        let (mix, groups) = groups.map_or((None, Vec::new()), |(mix, groups)| (Some(mix), groups));
        TypeComparison {
            name: name.to_owned(),
            count,
            records: own.map(|of| of.records),
            metrics,
            parts: all.as_ref().map(parts),
            causes: all.as_ref().and_then(causes),
            tail,
            mix,
            heat: [0, 1].map(|side: usize| heat(self.sides[side], own[side])),
            groups: Rows {
                what: String::new(),
                rows: groups,
                noise: 0,
                small: 0,
            },
        }
    }
}

/// Requests by block and latency.
fn heat(side: &Side, of: &TypeSide) -> Heat {
    let mut cells: BTreeMap<(u32, u16), u64> = BTreeMap::new();
    for (block, sums) in (0..).zip(&of.blocks) {
        for (bucket, count) in sums.latencies.buckets() {
            // Buckets of fewer bits hold whole buckets of more.
            let row = bucket_of(HEAT_BITS, lowest(BLOCK_BITS, bucket.into())) as u16;
            *cells.entry((block, row)).or_default() += count;
        }
    }
    Heat {
        block_ns: side.block_ns,
        blocks: side.blocks(),
        cells: cells
            .into_iter()
            .map(|((block, row), count)| (block, row, count))
            .collect(),
    }
}
