//! Log-linear buckets: values in, buckets out. Each power of two is cut into `1 << bits` equal parts, and values below
//! that have a bucket each. Buckets of fewer bits hold whole buckets of more.

/// The bucket of a value.
#[must_use]
pub fn bucket(bits: u32, value: u64) -> u32 {
    if value < 1 << bits {
        return value as u32;
    }
    let shift = value.ilog2() - bits;
    ((shift + 1) << bits) + ((value >> shift) as u32 - (1 << bits))
}

/// The lowest value of a bucket; of the one behind the last, the largest number.
#[must_use]
pub fn lowest(bits: u32, bucket: u32) -> u64 {
    if bucket < 1 << bits {
        return u64::from(bucket);
    }
    let shift = (bucket >> bits) - 1;
    u64::from((1 << bits) + (bucket & ((1 << bits) - 1)))
        .saturating_mul(1_u64.checked_shl(shift).unwrap_or(u64::MAX))
}

/// The highest value of a bucket.
#[must_use]
pub fn highest(bits: u32, bucket: u32) -> u64 {
    lowest(bits, bucket + 1) - 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_bucket_holds_its_values_and_whole_buckets_of_more_bits(
            value: u64,
            shift in 0_u32..64,
            bits in 0_u32..=10,
            more in 0_u32..=4,
        ) {
            let value = value >> shift;
            let own = bucket(bits, value);
            prop_assert!(lowest(bits, own) <= value);
            prop_assert!(value <= highest(bits, own) || highest(bits, own) == u64::MAX - 1);
            prop_assert!(value - lowest(bits, own) <= value >> bits);
            let finer = bucket(bits + more, value);
            prop_assert_eq!(bucket(bits, lowest(bits + more, finer)), own);
        }
    }

    #[test]
    fn buckets_join_without_gap() {
        for bits in 0..=10 {
            for index in 1..(40 << bits) {
                assert_eq!(bucket(bits, lowest(bits, index)), index);
                assert_eq!(bucket(bits, lowest(bits, index) - 1), index - 1);
            }
        }
    }
}
