//! A histogram with buckets of equal relative width, as Prometheus calls native ones: durations in, spans and differences out.

use std::collections::BTreeMap;

use super::latencies::seconds;
use super::protobuf::wire::{BucketSpan, Histogram};

/// Buckets a power of two: each is 4.4 % wider than the one before.
const SCHEMA: i32 = 4;
const PER_OCTAVE: f64 = 16.0;
/// What is less counts as nothing: of less than a nanosecond nothing is known.
const ZERO_THRESHOLD: f64 = 1e-9;

/// Durations of one request type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Native {
    /// By the number of the bucket: the bucket `i` ends at 2^(i/16) seconds.
    counts: BTreeMap<i32, u64>,
    zero: u64,
}

impl Native {
    pub(super) fn add(&mut self, ns: u64, count: u64) {
        match ns {
            0 | 1 => self.zero += count,
            ns => *self.counts.entry(bucket(ns)).or_default() += count,
        }
    }

    /// With the sum of the durations, ns.
    pub(super) fn message(&self, sum_ns: u128) -> Histogram {
        let mut spans: Vec<BucketSpan> = Vec::new();
        let mut deltas = Vec::with_capacity(self.counts.len());
        // The first span begins at its own number; others say how many empty buckets are before them.
        let (mut next, mut before) = (0, 0);
        for (&bucket, &count) in &self.counts {
            match spans.last_mut().filter(|_| bucket == next) {
                Some(span) => span.length = Some(span.length.unwrap_or(0) + 1),
                None => spans.push(BucketSpan {
                    offset: Some(bucket - next),
                    length: Some(1),
                }),
            }
            next = bucket + 1;
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            deltas.push(count - before);
            before = count;
        }
        Histogram {
            sample_count: Some(self.zero + self.counts.values().sum::<u64>()),
            sample_sum: Some(seconds(sum_ns)),
            schema: Some(SCHEMA),
            zero_threshold: Some(ZERO_THRESHOLD),
            zero_count: Some(self.zero),
            positive_span: spans,
            positive_delta: deltas,
            ..Histogram::default()
        }
    }
}

/// The bucket of a duration, which is the last in it or not.
fn bucket(ns: u64) -> i32 {
    let at = (seconds(ns.into()).log2() * PER_OCTAVE).ceil();
    // From 2^-30 to 2^35 seconds.
    at as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_the_bucket_that_ends_behind_it() {
        for ns in [2, 999, 1_000, 62_500_000, 1_000_000_000, 3_600_000_000_000] {
            let at = bucket(ns);
            let end = |at: i32| (f64::from(at) / PER_OCTAVE).exp2();
            let value = ns as f64 / 1e9;
            assert!(end(at - 1) < value * (1.0 + 1e-12), "{ns}");
            assert!(value <= end(at) * (1.0 + 1e-12), "{ns}");
        }
        assert_eq!(bucket(1_000_000_000), 0);
        assert_eq!(bucket(2_000_000_000), 16);
        assert_eq!(bucket(62_500_000), -64);
    }

    #[test]
    fn spans_and_differences_give_the_counts_again() {
        let mut native = Native::default();
        for (ns, count) in [
            (0, 2),
            (1_000_000_000, 5),
            (1_000_000_000, 1),
            (1_040_000_000, 9),
            (2_000_000_000, 4),
        ] {
            native.add(ns, count);
        }
        let message = native.message(7_500_000_000);
        assert_eq!(
            (message.sample_count, message.zero_count),
            (Some(21), Some(2))
        );
        assert_eq!(message.sample_sum, Some(7.5));
        let spans: Vec<_> = message
            .positive_span
            .iter()
            .map(|span| (span.offset.unwrap(), span.length.unwrap()))
            .collect();
        // The second one begins behind 14 empty buckets.
        assert_eq!(spans, [(0, 2), (14, 1)]);
        assert_eq!(message.positive_delta, [6, 3, -5]);
    }
}
