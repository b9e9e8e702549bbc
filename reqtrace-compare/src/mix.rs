//! Groups of both sides in: which of them changed, and whether other requests came or the same ones got slower, out.
//!
//! With s a group's share of the requests and l its mean latency, the change of the mean is Σ Δs · l̄ (mix) + Σ s̄ · Δl
//! (inside), with s̄ and l̄ the means of both sides. What is on one side only is mix.

use crate::bootstrap::Draws;
use crate::columns::Columns;
use crate::estimate::{Sampled, Scale, change};
use crate::groups::{Group, OTHER};
use crate::model::{GroupRow, Mix};
use crate::side::TypeSide;

/// Groups that are looked at one by one; the others are one.
const MOST: usize = 200;

/// Weight and latency of groups, of a side or of a draw of it.
type Sums = Vec<[f64; 2]>;

/// One side's groups, in the order of the names of both.
struct OfSide<'a> {
    groups: Vec<Option<&'a Group>>,
    all: Sums,
    draws: Vec<Sums>,
}

/// Parts of the mean, mix and inside of each group.
fn parts(a: &Sums, b: &Sums) -> Vec<[f64; 4]> {
    let weight = |sums: &Sums| sums.iter().map(|[weight, _]| weight).sum::<f64>();
    let mean = |sums: &Sums| sums.iter().map(|[_, ns]| ns).sum::<f64>() / weight(sums);
    let (all_a, all_b) = (weight(a), weight(b));
    let both = (mean(a) + mean(b)) / 2.0;
    let each = a.iter().zip(b).map(|([weight_a, ns_a], [weight_b, ns_b])| {
        let (part_a, part_b) = (ns_a / all_a, ns_b / all_b);
        let (share_a, share_b) = (weight_a / all_a, weight_b / all_b);
        let inside = match *weight_a > 0.0 && *weight_b > 0.0 {
            true => (share_a + share_b) / 2.0 * (ns_b / weight_b - ns_a / weight_a),
            false => 0.0,
        };
        // Shares add up to 1, so what all have in common cancels out: a group that is as slow as all changes nothing.
        let mix = part_b - part_a - inside - (share_b - share_a) * both;
        [part_a, part_b, mix, inside]
    });
    each.collect()
}

/// The groups of a type, and mix against inside; nothing where a side has no groups.
pub(crate) fn of_type(
    columns: &Columns,
    orders: [&[Option<usize>]; 2],
    sides: [&TypeSide; 2],
    draws: [Option<&Draws>; 2],
    independent: f64,
) -> Option<(Mix, Vec<GroupRow>)> {
    if sides.iter().any(|side| side.groups.all.is_empty()) {
        return None;
    }
    let mut names: Vec<&str> = sides.iter().flat_map(|side| side.groups.names()).collect();
    names.sort_unstable();
    names.dedup();
    let share_of = |name: &str| {
        let share = |side: &&TypeSide| {
            let all: u64 = side.blocks.iter().map(|block| block.latency_ns).sum();
            side.groups
                .get(name)
                .map_or(0.0, |group| group.latency_ns as f64 / all.max(1) as f64)
        };
        sides.iter().map(share).fold(0.0, f64::max)
    };
    let mut shares: Vec<(&str, f64)> = names
        .into_iter()
        .map(|name| (name, share_of(name)))
        .collect();
    shares.sort_by(|one, two| two.1.total_cmp(&one.1).then_with(|| one.0.cmp(two.0)));
    shares.retain(|(name, _)| *name != OTHER);
    shares.truncate(MOST);
    let names: Vec<&str> = shares.into_iter().map(|(name, _)| name).collect();
    let of = [0, 1].map(|side: usize| of_side(&names, sides[side], draws[side]));
    let [a, b] = &of;
    let now = parts(&a.all, &b.all);
    let drawn: Vec<Vec<[f64; 4]>> = a
        .draws
        .iter()
        .zip(&b.draws)
        .map(|(a, b)| parts(a, b))
        .collect();
    // The first side as it is, with the change of each draw: both sides are in it already.
    let whole = |which: usize| {
        let sum = |parts: &Vec<[f64; 4]>| parts.iter().map(|part| part[which]).sum();
        let b = Sampled {
            value: sum(&now),
            draws: drawn.iter().map(sum).collect(),
            runs: Vec::new(),
        };
        let a = Sampled {
            draws: vec![0.0; b.draws.len()],
            ..Sampled::default()
        };
        change(&a, &b, Scale::Difference, independent)
    };
    let mix = Mix {
        mix: whole(2),
        inside: whole(3),
    };
    let rows = names.iter().enumerate().map(|(at, name)| {
        let sampled = |which: usize| Sampled {
            value: now[at][which],
            draws: drawn.iter().map(|parts| parts[at][which]).collect(),
            runs: Vec::new(),
        };
        let mean = |side: usize| of[side].all[at][1] / of[side].all[at][0].max(1.0);
        GroupRow {
            name: (*name).to_owned(),
            count: [0, 1].map(|side: usize| of[side].groups[at].map_or(0, |group| group.weight)),
            mean_ns: [mean(0), mean(1)],
            part: change(&sampled(0), &sampled(1), Scale::Difference, independent),
            mix_ns: now[at][2],
            inside_ns: now[at][3],
            most: most(columns, orders, [a.groups[at], b.groups[at]]),
        }
    });
    Some((mix, rows.collect()))
}

fn of_side<'a>(names: &[&str], side: &'a TypeSide, draws: Option<&Draws>) -> OfSide<'a> {
    let groups: Vec<Option<&Group>> = names.iter().map(|name| side.groups.get(name)).collect();
    // What is left of each block belongs to the others.
    let mut rest: Vec<[f64; 2]> = side
        .blocks
        .iter()
        .map(|block| [block.weight as f64, block.latency_ns as f64])
        .collect();
    for (block, weight, ns) in groups.iter().flatten().flat_map(|group| &group.blocks) {
        rest[*block as usize][0] -= *weight as f64;
        rest[*block as usize][1] -= *ns as f64;
    }
    let sums = |times_of: &dyn Fn(usize) -> u16| {
        let add = |sum: [f64; 2], block: usize, weight: f64, ns: f64| {
            let times = f64::from(times_of(block));
            [sum[0] + times * weight, sum[1] + times * ns]
        };
        let of_group = |group: &Option<&Group>| {
            let blocks = group.iter().flat_map(|group| &group.blocks);
            blocks.fold([0.0; 2], |sum, (block, weight, ns)| {
                add(sum, *block as usize, *weight as f64, *ns as f64)
            })
        };
        let others = rest.iter().enumerate();
        let others = others.fold([0.0; 2], |sum, (block, [weight, ns])| {
            add(sum, block, *weight, *ns)
        });
        groups
            .iter()
            .map(of_group)
            .chain([others])
            .collect::<Sums>()
    };
    OfSide {
        all: sums(&|_| 1),
        draws: draws
            .into_iter()
            .flat_map(Draws::each)
            .map(|times| sums(&|at| times[at]))
            .collect(),
        groups,
    }
}

/// The part of the ledger whose mean changed most.
fn most(
    columns: &Columns,
    orders: [&[Option<usize>]; 2],
    groups: [Option<&Group>; 2],
) -> Option<String> {
    let mean = |side: usize, column: usize| {
        let group = groups[side]?;
        let ns = orders[side][column]
            .and_then(|at| group.columns.get(at))
            .copied()
            .unwrap_or(0);
        Some(ns as f64 / group.weight.max(1) as f64)
    };
    let change = |column: usize| mean(1, column).unwrap_or(0.0) - mean(0, column).unwrap_or(0.0);
    let by_change = |one: &usize, two: &usize| change(*one).abs().total_cmp(&change(*two).abs());
    let most = columns.by_part().max_by(by_change)?;
    (change(most) != 0.0).then(|| columns.name(most).to_owned())
}
