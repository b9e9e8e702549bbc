//! What is known of one type: latencies of its requests, with times by pattern, in; sums by latency, and the slowest, out.

use std::collections::BTreeMap;

use super::patterns::Times;
use super::slow::Slowest;
use crate::cells::bucket::bucket;

/// Buckets of latency: 1.6 % wide, as cells are.
pub(super) const BITS: u32 = 6;

/// Requests of about the same latency.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    pub(super) weight: u64,
    pub(super) latency_ns: u64,
    pub(super) times: Times,
}

/// What is known of one type.
#[derive(Clone, Debug, Default)]
pub(super) struct OfType {
    pub(super) buckets: BTreeMap<u32, Sum>,
    pub(super) slow: Slowest,
}

impl OfType {
    /// Adds a request, which stands for so many, to those of its latency.
    pub(super) fn add(&mut self, latency_ns: u64, weight: u64, times: &Times) {
        let sum = self.buckets.entry(bucket(BITS, latency_ns)).or_default();
        sum.weight += weight;
        sum.latency_ns += latency_ns * weight;
        for (sum, ns) in sum.times.iter_mut().zip(times) {
            *sum += ns * weight;
        }
    }
}
