//! The tail: requests of a type by their latencies in; which of them are slow, and what a typical one takes, out.

use std::collections::BTreeMap;

use super::numbers::{SLOW, TYPICAL, WEIGHT};
use super::of_type::{BITS, OfType, Sum};
use super::slow::Slow;
use crate::cells::bucket::lowest;

/// The slow requests of a type, or the rest of them.
pub(super) struct Tail<'a> {
    pub(super) slow: Vec<&'a Slow>,
    pub(super) typical: Sum,
    pub(super) all: Sum,
    pub(super) median_ns: u64,
    pub(super) p99_ns: u64,
    /// Of the excess of all, that of these: per mille.
    pub(super) of_excess: u16,
    /// What slow requests that are not kept took more than as many typical ones, ns.
    unkept_ns: f64,
}

impl<'a> Tail<'a> {
    /// That of a type, if it is a long or a heavy one.
    pub(super) fn of(of_type: &'a OfType) -> Option<Self> {
        let buckets = &of_type.buckets;
        let all = buckets.values().fold(Sum::default(), with);
        let median_ns = quantile(buckets, all.weight, 50);
        let p99_ns = quantile(buckets, all.weight, 99);
        let slow_ns = SLOW * median_ns.max(1);
        // Of few clients that wait for each answer few requests are slow, even where all stood half of the time.
        let over = slow_in(buckets, slow_ns);
        let excess_ns = over
            .latency_ns
            .saturating_sub(over.weight.saturating_mul(median_ns));
        if p99_ns < slow_ns && (excess_ns as f64) < WEIGHT * all.latency_ns as f64 {
            return None;
        }
        let slow = of_type.slow.since(slow_ns);
        let typical = typical(buckets, all.weight);
        Some(Self {
            unkept_ns: unkept_ns(&over, &slow, &typical),
            slow,
            typical,
            all,
            median_ns,
            p99_ns,
            of_excess: 1_000,
        })
    }

    /// The excess of slow requests that are not kept, ns. Which cause they have is not known: these have as much of it as
    /// of the excess of those that are kept.
    pub(super) fn unkept_ns(&self) -> f64 {
        self.unkept_ns * f64::from(self.of_excess) / 1_000.0
    }

    /// How many requests those are of which these are kept.
    pub(super) fn weight(&self, buckets: &BTreeMap<u32, Sum>, these: &[&Slow]) -> u64 {
        let of = |slow: &[&Slow]| -> u64 { slow.iter().map(|slow| slow.weight).sum() };
        let (kept, these) = (of(&self.slow), of(these));
        let all = match self.of_excess {
            1_000 => slow_in(buckets, SLOW * self.median_ns.max(1)).weight,
            _ => kept,
        };
        all.max(kept) - (kept - these)
    }
}

fn with(mut sum: Sum, other: &Sum) -> Sum {
    sum.weight += other.weight;
    sum.latency_ns += other.latency_ns;
    for (sum, ns) in sum.times.iter_mut().zip(other.times) {
        *sum += ns;
    }
    sum
}

/// The latency that so many percent have at most, to the width of a bucket.
fn quantile(buckets: &BTreeMap<u32, Sum>, all: u64, percent: u64) -> u64 {
    let rank = (all * percent).div_ceil(100);
    let mut before = 0;
    let bucket = buckets.iter().find(|(_, sum)| {
        before += sum.weight;
        before >= rank
    });
    bucket.map_or(0, |(bucket, _)| lowest(BITS, *bucket))
}

/// Requests in buckets of slow ones.
fn slow_in(buckets: &BTreeMap<u32, Sum>, slow_ns: u64) -> Sum {
    let slow = buckets
        .iter()
        .filter(|(bucket, _)| lowest(BITS, **bucket) >= slow_ns);
    slow.map(|(_, sum)| sum).fold(Sum::default(), with)
}

/// What all slow requests but those that are kept took more than as many typical ones, ns.
fn unkept_ns(all: &Sum, kept: &[&Slow], typical: &Sum) -> f64 {
    let mean_ns = typical.latency_ns as f64 / typical.weight.max(1) as f64;
    let excess_ns = |latency_ns: u64, weight: u64| latency_ns as f64 - weight as f64 * mean_ns;
    let weight: u64 = kept.iter().map(|slow| slow.weight).sum();
    let latency_ns = kept.iter().map(|slow| slow.latency_ns() * slow.weight);
    let kept_ns = excess_ns(latency_ns.sum(), weight);
    (excess_ns(all.latency_ns, all.weight) - kept_ns).max(0.0)
}

/// Requests of about the median latency.
fn typical(buckets: &BTreeMap<u32, Sum>, all: u64) -> Sum {
    let (low, high) = (all * TYPICAL.0 / 100 + 1, (all * TYPICAL.1).div_ceil(100));
    let mut before = 0;
    let mut typical = Sum::default();
    for sum in buckets.values() {
        let (first, last) = (before + 1, before + sum.weight);
        if last >= low && first <= high {
            typical = with(typical, sum);
        }
        before = last;
    }
    typical
}
