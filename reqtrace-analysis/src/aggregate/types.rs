//! One request type: requests in, latency and sums out.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use reqtrace_common::histogram::{BUCKETS, lower_bound};
use reqtrace_recording::{Incomplete, Request, TypeTotals};

use super::before::Before;
use super::followed::Followed;
use super::tail::Tail;
use crate::report::{Latency, Ledger};

/// Latencies up to a day are told apart; longer ones count as a day in percentiles.
const MAX_LATENCY_NS: u64 = 86_400_000_000_000;
/// Significant decimal digits of percentiles.
const DIGITS: u8 = 3;

/// Requests whose records arrived.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrived {
    pub(super) rows: u64,
    /// Σ of their weights.
    pub(super) weight: u64,
    /// Σ of their ledgers, each times its weight.
    pub(super) ledger: Ledger,
}

impl Arrived {
    fn new(ledger: &Ledger) -> Self {
        Self {
            rows: 0,
            weight: 0,
            ledger: ledger.clone(),
        }
    }

    fn add(&mut self, ledger: &Ledger, weight: u64) {
        self.rows += 1;
        self.weight += weight;
        self.ledger.add_times(ledger, weight);
    }
}

/// One request type.
#[derive(Debug)]
pub(super) struct TypeState {
    pub(super) name: String,
    pub(super) complete: Arrived,
    /// Complete and incomplete.
    pub(super) all: Arrived,
    pub(super) incomplete: BTreeMap<Incomplete, u64>,
    histogram: Option<Histogram<u64>>,
    max_ns: u64,
    pub(super) tail: Tail,
    /// Only when the trace records it.
    pub(super) before: Option<Before>,
    /// Only of a type with a key.
    pub(super) followed: Option<Followed>,
}

impl TypeState {
    /// `empty` is a ledger without any time.
    pub(super) fn new(name: &str, empty: &Ledger, has_before: bool, is_keyed: bool) -> Self {
        Self {
            name: name.to_owned(),
            complete: Arrived::new(empty),
            all: Arrived::new(empty),
            incomplete: BTreeMap::new(),
            // These bounds are valid ones; without a histogram there are no percentiles.
            histogram: Histogram::new_with_bounds(1, MAX_LATENCY_NS, DIGITS).ok(),
            max_ns: 0,
            tail: Tail::default(),
            before: has_before.then(Before::new),
            followed: is_keyed.then(Followed::default),
        }
    }

    pub(super) fn add(&mut self, request: &Request<'_>, ledger: &Ledger) {
        let weight = u64::from(request.weight);
        self.all.add(ledger, weight);
        if let Some(reason) = request.incomplete {
            *self.incomplete.entry(reason).or_default() += weight;
            return;
        }
        self.complete.add(ledger, weight);
        if let Some(before) = &mut self.before {
            before.add(request);
        }
        if let Some(followed) = &mut self.followed {
            followed.add(request);
        }
        self.max_ns = self.max_ns.max(ledger.latency_ns);
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record_n(ledger.latency_ns, weight);
        }
    }

    /// Latency of the complete requests whose records arrived.
    pub(super) fn latency(&self) -> Option<Latency> {
        let histogram = self.histogram.as_ref()?;
        let at = |quantile| histogram.value_at_quantile(quantile).min(self.max_ns);
        let mean_ns = self
            .complete
            .ledger
            .latency_ns
            .checked_div(self.complete.weight)?;
        Some(Latency {
            mean_ns,
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p95_ns: at(0.95),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: self.max_ns,
            from_records: true,
        })
    }
}

/// Latency of all complete requests, from the kernel's totals.
pub(super) fn kernel_latency(totals: &TypeTotals) -> Option<Latency> {
    let mean_ns = totals.latency_ns.checked_div(totals.count)?;
    let counted: u64 = totals.histogram.iter().sum();
    let at = |permille: u64| {
        let wanted = (counted * permille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (bucket, count) in totals.histogram.iter().enumerate() {
            seen += count;
            if seen >= wanted && bucket + 1 < BUCKETS {
                return (lower_bound(bucket + 1) - 1).min(totals.max_ns);
            }
        }
        totals.max_ns
    };
    Some(Latency {
        mean_ns,
        p50_ns: at(500),
        p90_ns: at(900),
        p95_ns: at(950),
        p99_ns: at(990),
        p999_ns: at(999),
        max_ns: totals.max_ns,
        from_records: false,
    })
}

/// Splits `total` by `weights`, to the last unit; `None` when all weights are 0 and `total` is
/// not.
pub(super) fn split(total: u64, weights: &[u64]) -> Option<Vec<u64>> {
    let sum: u128 = weights.iter().copied().map(u128::from).sum();
    if sum == 0 {
        return (total == 0).then(|| vec![0; weights.len()]);
    }
    let mut parts: Vec<u64> = weights
        .iter()
        .map(|&weight| (u128::from(total) * u128::from(weight) / sum) as u64)
        .collect();
    // What rounding left goes to the greatest, where it shows least.
    let left = total - parts.iter().sum::<u64>();
    let greatest = (0..parts.len()).max_by_key(|&index| weights[index])?;
    parts[greatest] += left;
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqtrace_common::histogram::bucket;

    #[test]
    fn a_split_adds_up() {
        assert_eq!(split(10, &[1, 1, 1]).map(|p| p.iter().sum()), Some(10_u64));
        assert_eq!(split(7, &[0, 7]), Some(vec![0, 7]));
        assert_eq!(split(0, &[0, 0]), Some(vec![0, 0]));
        assert_eq!(split(1, &[0, 0]), None);
        let big = split(u64::MAX, &[u64::MAX, u64::MAX]).unwrap();
        assert_eq!(big[0] as u128 + big[1] as u128, u64::MAX as u128);
    }

    #[test]
    fn the_kernels_percentiles_are_at_most_a_bucket_too_high() {
        let mut totals = TypeTotals::ZERO;
        assert!(kernel_latency(&totals).is_none());
        for value in 1..=1000_u64 {
            let ns = value * 1_000;
            totals.count += 1;
            totals.latency_ns += ns;
            totals.max_ns = ns;
            totals.histogram[bucket(ns)] += 1;
        }
        let latency = kernel_latency(&totals).unwrap();
        assert!((500_000..=532_000).contains(&latency.p50_ns), "{latency:?}");
        assert!(
            (990_000..=1_000_000).contains(&latency.p99_ns),
            "{latency:?}"
        );
        assert_eq!(latency.max_ns, 1_000_000);
    }
}
