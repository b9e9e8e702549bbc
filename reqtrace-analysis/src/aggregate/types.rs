//! One request type: its cells in, latency and sums out.

use std::collections::BTreeMap;

use reqtrace_common::histogram::{BUCKETS, lower_bound};
use reqtrace_recording::{Header, Incomplete, TypeTotals};

use super::before::Before;
use super::followed::Followed;
use super::lost::Lost;
use super::tail::{Longest, bands};
use crate::cells::{Cell, Histogram, Sum, Which};
use crate::report::slow::Band;
use crate::report::{Latency, Ledger};

/// One request type, beside its cells.
#[derive(Debug)]
pub(super) struct TypeState {
    pub(super) name: String,
    pub(super) longest: Longest,
    /// Only when the trace records it.
    pub(super) before: Option<Before>,
    /// Only when the trace records it.
    pub(super) lost: Option<Lost>,
    /// Only of a type with a key.
    pub(super) followed: Option<Followed>,
}

impl TypeState {
    pub(super) fn new(name: &str, header: &Header, is_keyed: bool) -> Self {
        Self {
            name: name.to_owned(),
            longest: Longest::default(),
            before: header.before.then(Before::default),
            lost: Lost::of(header),
            followed: is_keyed.then(Followed::default),
        }
    }
}

/// Requests of one type whose records arrived.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    /// Records of complete requests.
    pub(super) rows: u64,
    pub(super) complete: Sum,
    /// Σ of the ledgers of complete and incomplete requests.
    pub(super) all: Ledger,
    /// Why, and how many.
    pub(super) incomplete: Vec<(Incomplete, u64)>,
    latencies: Histogram<10>,
    max_ns: u64,
    /// Typical and slowest requests.
    pub(super) bands: Option<(Band, Band)>,
}

impl Arrived {
    /// Those of these cells. `empty` is a ledger without any time.
    pub(super) fn new(cells: &BTreeMap<Which, Cell>, empty: &Ledger) -> Self {
        let mut arrived = Self {
            all: empty.clone(),
            ..Self::default()
        };
        arrived.complete.ledger.clone_from(empty);
        let mut complete = Vec::new();
        for (which, cell) in cells {
            arrived.all.add(&cell.sum.ledger);
            if let Which::Incomplete(reason) = which {
                arrived.incomplete.push((*reason, cell.sum.weight));
                continue;
            }
            arrived.rows += cell.count;
            arrived.complete.merge(&cell.sum);
            arrived.max_ns = arrived.max_ns.max(cell.max_ns);
            complete.push(cell);
        }
        arrived.latencies = Histogram::sum(complete.iter().map(|cell| &cell.latencies));
        arrived.bands = bands(&complete);
        arrived
    }

    /// Latency of the complete ones.
    pub(super) fn latency(&self) -> Option<Latency> {
        let all = &self.complete;
        let mean_ns = all.ledger.latency_ns.checked_div(all.weight)?;
        let at = |share| {
            let ns = self.latencies.quantile(share);
            ns.map_or(self.max_ns, |ns| ns.min(self.max_ns))
        };
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
