//! A log-linear histogram of nanoseconds, the same arithmetic on both sides.
//!
//! Each power of two is cut into [`SUB_BUCKETS`] equal parts, so a bucket is at most 1/16 (6.25 %)
//! wide. Percentiles come from here only when ring records were lost; otherwise from the records.

/// Parts per power of two.
pub const SUB_BUCKETS: usize = 1 << SUB_BITS;
const SUB_BITS: u32 = 4;
/// Powers of two covered: values from 2^44 ns (4.9 hours) on share the last bucket.
const MAX_BIT: u32 = 43;
/// Number of buckets.
pub const BUCKETS: usize = ((MAX_BIT - SUB_BITS + 2) as usize) << SUB_BITS;

/// The bucket of a value.
#[must_use]
#[inline]
pub const fn bucket(value: u64) -> usize {
    if value < SUB_BUCKETS as u64 {
        return value as usize;
    }
    let top = highest_bit(value);
    if top > MAX_BIT {
        return BUCKETS - 1;
    }
    let shift = top - SUB_BITS;
    (((shift + 1) as usize) << SUB_BITS) + ((value >> shift) as usize - SUB_BUCKETS)
}

/// The lowest value of a bucket.
#[must_use]
pub const fn lower_bound(bucket: usize) -> u64 {
    if bucket < SUB_BUCKETS {
        return bucket as u64;
    }
    let shift = (bucket >> SUB_BITS) - 1;
    ((SUB_BUCKETS + (bucket & (SUB_BUCKETS - 1))) as u64) << shift
}

/// The index of the highest set bit, by halving: BPF before version 4 has no such instruction.
#[inline]
const fn highest_bit(value: u64) -> u32 {
    let mut rest = value;
    let mut bit = 0;
    if rest >> 32 != 0 {
        rest >>= 32;
        bit += 32;
    }
    if rest >> 16 != 0 {
        rest >>= 16;
        bit += 16;
    }
    if rest >> 8 != 0 {
        rest >>= 8;
        bit += 8;
    }
    if rest >> 4 != 0 {
        rest >>= 4;
        bit += 4;
    }
    if rest >> 2 != 0 {
        rest >>= 2;
        bit += 2;
    }
    if rest >> 1 != 0 {
        bit += 1;
    }
    bit
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_join_without_gap() {
        for index in 1..BUCKETS {
            let low = lower_bound(index);
            assert_eq!(bucket(low), index);
            assert_eq!(bucket(low - 1), index - 1);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    proptest! {
        #[test]
        fn a_bucket_is_at_most_a_sixteenth_wide(value in 16_u64..1 << 44) {
            let low = lower_bound(bucket(value));
            prop_assert!(low <= value);
            prop_assert!(value - low <= low / 16);
        }
    }
}
