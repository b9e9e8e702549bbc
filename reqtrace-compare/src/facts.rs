//! What is unlike between two sides before any request is looked at.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::items::ItemKind;

/// What is known of a recording: how it was made, and what it lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Its name, for people.
    pub name: String,
    /// Which of its requests are compared; empty for all.
    pub which: String,
    /// Nanoseconds that are compared.
    pub length_ns: u64,
    /// What ought to be the same on both sides, by its name: profile, options, kernel, machine, build ids.
    pub alike: BTreeMap<String, String>,
    /// What was lost, by its name.
    pub losses: BTreeMap<String, u64>,
    /// Complete requests.
    pub complete: u64,
    /// Requests with no end, or a begin before the trace, in no mean.
    pub incomplete: u64,
    /// Requests that were open at the end, in no mean.
    pub open: u64,
    /// The greatest number of requests that one stands for.
    pub most_weight: u64,
    /// What is known of its items, in the order of [`ItemKind::ALL`].
    pub items: [Known; ItemKind::ALL.len()],
    /// What a reader has to know of it, a sentence each.
    pub notes: Vec<String>,
}

/// Whether items of a kind are known, and how they are named: only those that are named alike are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Known {
    /// All, with their full names.
    #[default]
    Whole,
    /// Stacks as lines of folded stacks.
    Folded,
    /// Nothing is known of them, which does not mean that there is none.
    Nothing,
}

/// Something that is not the same on both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unlike {
    /// What.
    pub what: String,
    /// On the first side.
    pub a: String,
    /// On the second.
    pub b: String,
}

/// So many times as long, or as often, is unlike.
const LONGER: u64 = 2;
/// Losses and requests without end: a larger share of all requests is shown, 1 of so many.
const ONE_OF: u64 = 1_000;

/// What is unlike, the most telling first.
pub(crate) fn unlike(a: &[Facts], b: &[Facts]) -> Vec<Unlike> {
    let mut unlike = Vec::new();
    let mut say = |what: &str, a: String, b: String| {
        unlike.push(Unlike {
            what: what.to_owned(),
            a,
            b,
        });
    };
    let names: Vec<&String> = a
        .iter()
        .chain(b)
        .flat_map(|facts| facts.alike.keys())
        .collect();
    let mut names: Vec<&String> = names.into_iter().collect();
    names.sort();
    names.dedup();
    for name in names {
        let of = |side: &[Facts]| {
            let mut values: Vec<&str> = side
                .iter()
                .map(|facts| facts.alike.get(name).map_or("-", String::as_str))
                .collect();
            values.sort_unstable();
            values.dedup();
            values.join(", ")
        };
        // What one side does not know is not unlike.
        let is_known = a
            .iter()
            .chain(b)
            .all(|facts| facts.alike.contains_key(name));
        let (a, b) = (of(a), of(b));
        if is_known && a != b {
            say(name, a, b);
        }
    }
    let sum = |side: &[Facts], of: fn(&Facts) -> u64| side.iter().map(of).sum::<u64>();
    let weights = [a, b].map(|side| {
        side.iter()
            .map(|facts| facts.most_weight)
            .max()
            .unwrap_or(1)
    });
    if weights[0] != weights[1] {
        let words = weights.map(|most| match most {
            0 | 1 => "each request recorded".to_owned(),
            most => format!("one request stands for up to {most}"),
        });
        let [a, b] = words;
        say("weights", a, b);
    }
    let complete = [a, b].map(|side| sum(side, |facts| facts.complete).max(1));
    for (what, of) in [
        (
            "incomplete requests",
            (|facts| facts.incomplete) as fn(&Facts) -> u64,
        ),
        ("requests open at the end", |facts| facts.open),
    ] {
        let counts = [sum(a, of), sum(b, of)];
        if is_telling(counts, complete) {
            say(what, counts[0].to_string(), counts[1].to_string());
        }
    }
    let mut lost: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    for (side, facts) in [(0, a), (1, b)] {
        for (name, count) in facts.iter().flat_map(|facts| &facts.losses) {
            lost.entry(name).or_default()[side] += count;
        }
    }
    for (name, counts) in lost {
        if is_telling(counts, complete) {
            say(
                &format!("lost: {name}"),
                counts[0].to_string(),
                counts[1].to_string(),
            );
        }
    }
    let lengths = [
        sum(a, |facts| facts.length_ns),
        sum(b, |facts| facts.length_ns),
    ];
    if lengths[0].max(lengths[1]) > LONGER * lengths[0].min(lengths[1]) {
        let [a, b] = lengths.map(reqtrace_base::figures::duration);
        say("length", a, b);
    }
    unlike
}

/// Whether counts are a part of all requests that is worth a word, and of one side's far more than of the other's.
fn is_telling(counts: [u64; 2], complete: [u64; 2]) -> bool {
    let shares = [0, 1].map(|side: usize| counts[side] as f64 / complete[side] as f64);
    let [least, most] = [shares[0].min(shares[1]), shares[0].max(shares[1])];
    most * ONE_OF as f64 > 1.0 && most > LONGER as f64 * least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_alike_is_not_named() {
        let facts = |kernel: &str| Facts {
            alike: [("kernel".to_owned(), kernel.to_owned())].into(),
            complete: 10_000,
            length_ns: 30_000_000_000,
            most_weight: 1,
            ..Facts::default()
        };
        let other = Facts {
            losses: [("ring_full".to_owned(), 500), ("few".to_owned(), 1)].into(),
            incomplete: 5,
            open: 20,
            most_weight: 8,
            length_ns: 61_000_000_000,
            ..facts("6.2")
        };
        assert_eq!(unlike(&[facts("6.1")], &[facts("6.1"), facts("6.1")]), []);
        let unlike = unlike(&[facts("6.1")], &[other]);
        let whats: Vec<&str> = unlike.iter().map(|one| one.what.as_str()).collect();
        let wanted = [
            "kernel",
            "weights",
            "requests open at the end",
            "lost: ring_full",
            "length",
        ];
        assert_eq!(whats, wanted);
    }
}
