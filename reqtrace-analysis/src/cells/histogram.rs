//! Values counted in buckets, of which only those with a value take memory.

use super::bucket::{bucket, highest};

/// Values up to 39 hours of nanoseconds are distinguished; longer ones count as that.
const MAX: u64 = (1 << 47) - 1;

/// Buckets that are looked through: a cell has some sixteen.
const FEW: usize = 32;

/// Counts of values. A bucket is `1 / (1 << BITS)` of its value wide at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram<const BITS: u32> {
    /// In the order of their buckets.
    counts: Vec<(u16, u64)>,
}

impl<const BITS: u32> Histogram<BITS> {
    /// Counts a value so many times.
    pub fn add(&mut self, value: u64, count: u64) {
        // Its bucket is below 1 << 16 for 10 bits, the most that is used.
        let own = bucket(BITS, value.min(MAX)) as u16;
        let is_before = |one: &(u16, u64)| one.0 < own;
        let at = match self.counts.len() {
            // Without a jump that a CPU could not foretell.
            ..=FEW => self
                .counts
                .iter()
                .map(|one| usize::from(is_before(one)))
                .sum(),
            _ => self.counts.partition_point(is_before),
        };
        match self.counts.get_mut(at) {
            Some((bucket, sum)) if *bucket == own => *sum += count,
            _ => self.counts.insert(at, (own, count)),
        }
    }

    /// Adds the counts of another one.
    pub fn merge(&mut self, other: &Self) {
        let (last, first) = (self.counts.last(), other.counts.first());
        let is_behind = last.zip(first).is_none_or(|(last, first)| last.0 < first.0);
        self.counts.extend_from_slice(&other.counts);
        if is_behind {
            return;
        }
        self.counts.sort_unstable_by_key(|(bucket, _)| *bucket);
        self.counts.dedup_by(|next, sum| {
            let is_same = next.0 == sum.0;
            if is_same {
                sum.1 += next.1;
            }
            is_same
        });
    }

    /// All values of many.
    pub fn sum<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        let mut counts = vec![0; bucket(BITS, MAX) as usize + 1];
        for (bucket, count) in all.flat_map(|one| &one.counts) {
            counts[usize::from(*bucket)] += count;
        }
        let counts = (0..).zip(counts).filter(|(_, count)| *count > 0);
        Self {
            counts: counts.collect(),
        }
    }

    /// The buckets that have values, in order, and how many.
    pub fn buckets(&self) -> impl Iterator<Item = (u16, u64)> {
        self.counts.iter().copied()
    }

    /// How many values.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }

    /// The greatest value of the bucket that this share of all values reaches, 0 to 1; `None` without values.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let wanted = ((share * self.count() as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let reached = self.counts.iter().find(|(_, count)| {
            seen += count;
            seen >= wanted
        });
        reached.map(|(bucket, _)| highest(BITS, u32::from(*bucket)))
    }

    /// Bytes of memory, beside its own size.
    pub fn bytes(&self) -> usize {
        self.counts.capacity() * size_of::<(u16, u64)>()
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram as Hdr;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The oracle is the crate whose percentiles reports had before.
        #[test]
        fn quantiles_are_those_of_three_digits(
            values in prop::collection::vec((17_u32..64, any::<u64>(), 1_u64..300), 1..200),
            split in 0_usize..200,
        ) {
            let mut oracle = Hdr::<u64>::new_with_bounds(1, MAX, 3).unwrap();
            let (mut one, mut two) = (Histogram::<10>::default(), Histogram::<10>::default());
            for (at, (shift, value, count)) in values.iter().enumerate() {
                let value = value >> shift;
                oracle.saturating_record_n(value, *count);
                if at < split { &mut one } else { &mut two }.add(value, *count);
            }
            let mut turned = two.clone();
            turned.merge(&one);
            one.merge(&two);
            prop_assert_eq!(&one, &turned);
            prop_assert_eq!(one.count(), oracle.len());
            for share in [0.001, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0] {
                prop_assert_eq!(one.quantile(share), Some(oracle.value_at_quantile(share)));
            }
        }
    }
}
