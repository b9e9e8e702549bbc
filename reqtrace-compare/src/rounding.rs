//! Fractions in, whole numbers that add up out (the largest remainders are rounded up).

/// Rounds each `value / denominator` to a multiple of `quantum`, so that the results add up to the rounded sum. Each differs
/// from its value by less than one quantum.
///
/// ```
/// // Three thirds of 100, and all of it.
/// assert_eq!(reqtrace_compare::add_up(&[100, 100, 100], 3, 1), (100, vec![34, 33, 33]));
/// ```
#[must_use]
pub fn add_up(values: &[u128], denominator: u128, quantum: u64) -> (u64, Vec<u64>) {
    let unit = denominator.max(1) * u128::from(quantum.max(1));
    let whole = |units: u128| u64::try_from(units * u128::from(quantum)).unwrap_or(u64::MAX);
    let mut units: Vec<u128> = values.iter().map(|value| value / unit).collect();
    let total = (values.iter().sum::<u128>() + unit / 2) / unit;
    let missing = total.saturating_sub(units.iter().sum());
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(values[*at] % unit));
    for at in order.into_iter().take(missing as usize) {
        units[at] += 1;
    }
    (whole(total), units.into_iter().map(whole).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rounded_parts_add_up_and_are_near(
            values in prop::collection::vec(0_u128..1 << 90, 0..60),
            denominator in (1_u128 << 40)..(1 << 50),
            quantum in 1_u64..1_000_000,
        ) {
            let (total, parts) = add_up(&values, denominator, quantum);
            prop_assert_eq!(parts.iter().sum::<u64>(), total);
            let near = |part: u64, value: u128| {
                (u128::from(part) * denominator).abs_diff(value) < denominator * u128::from(quantum)
            };
            prop_assert!(parts.iter().zip(&values).all(|(part, value)| near(*part, *value)));
            let sum = values.iter().sum::<u128>();
            prop_assert!((u128::from(total) * denominator).abs_diff(sum) * 2 <= denominator * u128::from(quantum));
            prop_assert!(parts.iter().all(|part| part % quantum == 0));
        }
    }
}
