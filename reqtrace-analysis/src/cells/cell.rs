//! One cell: requests in, their sums out. Adding and merging are exact, and their order makes no difference.

use std::cmp::Reverse;

use super::Merge;
use super::histogram::Histogram;
use crate::report::Ledger;
use crate::report::blame::{Cause, Causes};

/// Slowest requests that a cell names.
const SLOWEST: usize = 3;

/// A request that is added.
#[derive(Clone, Copy, Debug)]
pub struct One<'a> {
    /// As in `requests.csv`.
    pub id: u64,
    /// Where its time went. All of one table have as many classes and places.
    pub ledger: &'a Ledger,
    /// How many it stands for.
    pub weight: u32,
}

/// Times of requests, each as often as its weight says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Σ of the weights.
    pub weight: u64,
    /// Σ of the ledgers.
    pub ledger: Ledger,
    /// Their blocked and parked time by root cause, as far as that is known yet.
    pub causes: Causes,
}

impl Sum {
    /// Adds a request that stands for so many.
    pub fn add(&mut self, ledger: &Ledger, weight: u64) {
        self.weight += weight;
        self.ledger.add_times(ledger, weight);
    }

    /// Adds what another one has.
    pub fn merge(&mut self, other: &Self) {
        self.weight += other.weight;
        self.ledger.add(&other.ledger);
        self.causes.add_times(&other.causes, 1);
    }
}

/// Requests that have something in common, added up. All times in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell<const BITS: u32> {
    /// How many records.
    pub count: u64,
    /// Where their time went.
    pub sum: Sum,
    /// Σ weight × x² of each part of the ledger, in the order of [`Ledger::parts`].
    squares: Vec<u128>,
    /// Latencies, each as often as its weight says.
    pub latencies: Histogram<BITS>,
    /// The least latency, if there is a request.
    pub min_ns: u64,
    /// The greatest.
    pub max_ns: u64,
    /// Latency and id, the slowest first, of equals the one with the lower id.
    slowest: [Option<(Reverse<u64>, u64)>; SLOWEST],
    /// What of the root causes came too late.
    late_ns: u64,
}

impl<const BITS: u32> Cell<BITS> {
    /// Adds a request.
    pub fn add(&mut self, one: &One<'_>) {
        let (latency_ns, weight) = (one.ledger.latency_ns, u64::from(one.weight));
        self.min_ns = match self.count {
            0 => latency_ns,
            _ => self.min_ns.min(latency_ns),
        };
        self.max_ns = self.max_ns.max(latency_ns);
        self.count += 1;
        self.sum.add(one.ledger, weight);
        if self.squares.is_empty() {
            self.squares = vec![0; one.ledger.parts().count()];
        }
        let mut squares = self.squares.iter_mut();
        one.ledger.parts().for_each(|ns| {
            let sum = squares.next();
            // Most parts of a request are 0.
            if let Some(sum) = sum.filter(|_| ns > 0) {
                *sum += u128::from(ns) * u128::from(ns) * u128::from(one.weight);
            }
        });
        self.latencies.add(latency_ns, weight);
        self.slow((Reverse(latency_ns), one.id));
    }

    fn slow(&mut self, one: (Reverse<u64>, u64)) {
        let is_before = |kept: &Option<_>| kept.is_some_and(|kept| kept <= one);
        let at = self.slowest.partition_point(is_before);
        if let Some(after) = self.slowest.get_mut(at..).filter(|after| !after.is_empty()) {
            after.rotate_right(1);
            after[0] = Some(one);
        }
    }

    /// What is known of the root causes of a request that was added.
    pub fn book(&mut self, causes: &Causes, weight: u64) {
        self.sum.causes.add_times(causes, weight);
    }

    /// What of the root causes is `not known: late`.
    pub fn late_ns(&self) -> u64 {
        self.late_ns
    }

    /// Σ weight × x² of each part of the ledger, in the order of [`Ledger::parts`].
    pub fn squares(&self) -> &[u128] {
        &self.squares
    }

    /// Latency and id, the slowest first.
    pub fn slowest(&self) -> impl Iterator<Item = (u64, u64)> {
        let kept = self.slowest.iter().flatten();
        kept.map(|(latency_ns, id)| (latency_ns.0, *id))
    }
}

impl<const BITS: u32> Merge for Cell<BITS> {
    fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.min_ns = match self.count {
            0 => other.min_ns,
            _ => self.min_ns.min(other.min_ns),
        };
        self.max_ns = self.max_ns.max(other.max_ns);
        self.count += other.count;
        self.sum.merge(&other.sum);
        if self.squares.is_empty() {
            self.squares.clone_from(&other.squares);
        } else {
            let squares = self.squares.iter_mut().zip(&other.squares);
            squares.for_each(|(sum, square)| *sum += square);
        }
        self.latencies.merge(&other.latencies);
        for one in other.slowest.iter().flatten() {
            self.slow(*one);
        }
        self.late_ns += other.late_ns;
    }

    fn seal(&mut self) {
        let known_ns = self.sum.causes.sum();
        let late_ns = self.sum.ledger.held_up_ns().saturating_sub(known_ns);
        self.sum.causes.add(Cause::Unknown, late_ns);
        self.late_ns += late_ns;
    }

    fn bytes(&self) -> usize {
        let ledger = &self.sum.ledger;
        let lists = [&ledger.classes, &ledger.parked, &ledger.queued];
        let times: usize = lists.iter().map(|list| list.capacity()).sum();
        let squares = self.squares.capacity() * size_of::<u128>();
        size_of::<Self>() + times * size_of::<u64>() + squares + self.latencies.bytes()
    }
}
