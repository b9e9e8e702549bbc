//! Items of both sides in, rows of those that changed out; and all stacks.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::bootstrap::{Draws, LEAST_BLOCKS};
use crate::compare::{Options, Pair, seed};
use crate::estimate::{Sampled, Scale, change};
use crate::facts::Known;
use crate::items::{ItemKind, Items, Key};
use crate::judge::{mark, rows};
use crate::model::{ItemRow, Rows, StackChange};

/// Items are looked at one by one if they have so much of the mean latency on a side: one part in so many.
const LEAST_PART: f64 = 200.0;

impl Pair<'_> {
    /// Whether items of a kind are known of both sides, and named alike.
    fn are_alike(&self, kind: ItemKind) -> bool {
        let facts = self.sides.iter().flat_map(|side| &side.facts);
        let mut known = facts.filter_map(|facts| {
            let mut all = ItemKind::ALL.into_iter().zip(facts.items);
            all.find_map(|(of, known)| (of == kind).then_some(known))
        });
        let first = known.next().unwrap_or_default();
        first != Known::Nothing && known.all(|known| known == first)
    }

    /// Kinds of which one side has items that cannot be compared, in words; `None` when there is none.
    pub(crate) fn left_out(&self) -> Option<String> {
        let has = |kind: ItemKind| {
            let mut keys = self.sides.iter().flat_map(|side| side.items.all.keys());
            keys.any(|key| key.kind == kind)
        };
        let kinds = ItemKind::ALL.into_iter();
        let kinds = kinds.filter(|kind| !self.are_alike(*kind) && has(*kind));
        let words: Vec<&str> = kinds.map(ItemKind::words).collect();
        (!words.is_empty()).then(|| {
            format!(
                "not compared, as they are not known of both sides in the same way: {}; recordings have them",
                words.join(", ")
            )
        })
    }

    /// All stacks, in order.
    pub(crate) fn stacks(&self) -> Vec<StackChange> {
        if !self.are_alike(ItemKind::Stack) {
            return Vec::new();
        }
        let sides = self.sides.map(|side| &side.items);
        let keys = sides.iter().flat_map(|side| side.all.keys());
        let keys: BTreeSet<&Key> = keys.filter(|key| key.kind == ItemKind::Stack).collect();
        let counts = sides.map(Items::counts);
        let stack = |key: &Key| {
            let count = |side: usize| {
                u128::from(counts[side].get(key.request.as_str()).copied().unwrap_or(0))
            };
            // Without requests on one side there is nothing to scale by.
            let (over, under) = match (count(1), count(0)) {
                (0, _) | (_, 0) => (1, 1),
                scale => scale,
            };
            let scaled_ns = u128::from(sides[0].total(key)) * over / under;
            StackChange {
                request: key.request.clone(),
                name: key.name.clone(),
                sides_ns: [
                    u64::try_from(scaled_ns).unwrap_or(u64::MAX),
                    sides[1].total(key),
                ],
            }
        };
        keys.into_iter()
            .map(stack)
            .filter(|stack| stack.sides_ns != [0; 2])
            .collect()
    }

    /// Items of one kind; `None` when neither side has one.
    pub(crate) fn items(&self, kind: ItemKind, options: Options) -> Option<Rows<ItemRow>> {
        if !self.are_alike(kind) {
            return None;
        }
        let sides = self.sides.map(|side| &side.items);
        let keys: BTreeSet<&Key> = sides
            .iter()
            .flat_map(|side| side.all.keys())
            .filter(|key| key.kind == kind)
            .collect();
        let mut most: Vec<(&Key, [u64; 2])> = keys
            .into_iter()
            .map(|key| (key, sides.map(|side| side.total(key))))
            .collect();
        if most.is_empty() {
            return None;
        }
        let counts = sides.map(Items::counts);
        let each = |key: &Key, totals: [u64; 2]| {
            [0, 1].map(|side: usize| {
                let requests = counts[side].get(key.request.as_str()).copied().unwrap_or(0);
                totals[side] as f64 / requests.max(1) as f64
            })
        };
        most.sort_by(|(one, one_ns), (two, two_ns)| {
            let most = |key: &Key, ns: [u64; 2]| each(key, ns).into_iter().fold(0.0, f64::max);
            most(two, *two_ns)
                .total_cmp(&most(one, *one_ns))
                .then_with(|| one.cmp(two))
        });
        let all = most.len();
        most.retain(|(key, totals)| {
            let each = each(key, *totals);
            (0..2).any(|side| each[side] * LEAST_PART >= self.mean_ns(side, &key.request))
        });
        let beyond = (all - most.len()) as u64;
        let is_long = sides.iter().all(|side| side.requests.len() >= LEAST_BLOCKS);
        let draws = [0, 1].map(|side: usize| {
            let stretches = sides[side].requests.len();
            is_long.then(|| {
                Draws::new(
                    stretches,
                    self.together_of(side, stretches),
                    seed(self.sides[side], 2 + side as u64),
                )
            })
        });
        let independent = draws
            .iter()
            .flatten()
            .map(Draws::runs)
            .fold(f64::INFINITY, f64::min);
        let mut weights: FxHashMap<&str, [Vec<f64>; 2]> = FxHashMap::default();
        let mut found: Vec<ItemRow> = Vec::new();
        for (key, total_ns) in most {
            let weights = weights.entry(&key.request).or_insert_with(|| {
                [0, 1]
                    .map(|side: usize| weights_of(sides[side], &key.request, draws[side].as_ref()))
            });
            let each_ns = each(key, total_ns);
            let sampled = [0, 1].map(|side: usize| Sampled {
                value: each_ns[side],
                draws: drawn(sides[side], key, draws[side].as_ref(), &weights[side]),
                runs: Vec::new(),
            });
            found.push(ItemRow {
                kind,
                request: key.request.clone(),
                name: key.name.clone(),
                total_ns,
                each_ns,
                estimate: change(&sampled[0], &sampled[1], Scale::Difference, independent),
            });
        }
        mark(found.iter_mut().map(|row| &mut row.estimate));
        let mut rows = rows(
            kind.words(),
            found,
            options.most_rows,
            options.keeps_noise,
            |row| &row.estimate,
        );
        rows.small += beyond;
        Some(rows)
    }

    /// The mean latency of a type on one side.
    fn mean_ns(&self, side: usize, request: &str) -> f64 {
        let blocks = self.sides[side]
            .types
            .get(request)
            .into_iter()
            .flat_map(|of| &of.blocks);
        let sum = blocks.fold([0.0, 0.0], |sum, block| {
            [
                sum[0] + block.latency_ns as f64,
                sum[1] + block.weight as f64,
            ]
        });
        sum[0] / sum[1].max(1.0)
    }

    /// Stretches that have to do with each other: as much time as blocks that do.
    fn together_of(&self, side: usize, stretches: usize) -> usize {
        let run = self.draws[side].as_ref().map_or(1, |draws| draws.run);
        (run * stretches)
            .div_ceil(self.sides[side].blocks().max(1))
            .max(1)
    }
}

/// Requests of a type in each draw.
fn weights_of(items: &Items, request: &str, draws: Option<&Draws>) -> Vec<f64> {
    let each: Vec<f64> = items
        .requests
        .iter()
        .map(|counts| counts.get(request).copied().unwrap_or(0) as f64)
        .collect();
    let sum = |times: &[u16]| {
        each.iter()
            .zip(times)
            .map(|(count, times)| count * f64::from(*times))
            .sum()
    };
    draws.into_iter().flat_map(Draws::each).map(sum).collect()
}

/// Time of an item a request, in each draw.
fn drawn(items: &Items, key: &Key, draws: Option<&Draws>, weights: &[f64]) -> Vec<f64> {
    let item = items.all.get(key);
    let each = draws.into_iter().flat_map(Draws::each).zip(weights);
    each.map(|(times, weight)| {
        let parts = item.iter().flat_map(|item| &item.each);
        parts
            .map(|(stretch, ns)| *ns as f64 * f64::from(times[*stretch as usize]))
            .sum::<f64>()
            / weight
    })
    .collect()
}
