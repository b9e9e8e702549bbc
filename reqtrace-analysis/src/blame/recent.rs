//! Where a time lies among things in the order of time: mostly near their end, so it is looked for from there. Tens of thousands
//! lie before, none of which is in the cache.

use std::collections::VecDeque;

/// The same as [`VecDeque::partition_point`].
pub(super) fn partition_point<T>(all: &VecDeque<T>, is_before: impl Fn(&T) -> bool) -> usize {
    let (mut step, mut end) = (1, all.len());
    // All from `end` on are not before.
    while let Some(at) = end.checked_sub(step) {
        if is_before(&all[at]) {
            return between(all, at + 1, end, is_before);
        }
        end = at;
        step *= 2;
    }
    between(all, 0, end, is_before)
}

fn between<T>(
    all: &VecDeque<T>,
    mut from: usize,
    mut until: usize,
    is_before: impl Fn(&T) -> bool,
) -> usize {
    while from < until {
        let middle = from.midpoint(until);
        match is_before(&all[middle]) {
            true => from = middle + 1,
            false => until = middle,
        }
    }
    from
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_where_the_other_one_finds_it() {
        for len in 0..70_u32 {
            // The ring of the deque is split somewhere.
            let mut all: VecDeque<u32> = VecDeque::with_capacity(70);
            (0..40).for_each(|_| all.push_back(0));
            all.clear();
            all.extend((0..len).map(|at| at / 2));
            for wanted in 0..=len {
                let is_before = |one: &u32| *one < wanted;
                assert_eq!(
                    partition_point(&all, is_before),
                    all.partition_point(is_before),
                    "{wanted} of {len}"
                );
            }
        }
    }
}
