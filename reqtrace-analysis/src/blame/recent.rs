//! Where a time lies among things in the order of time: what comes in lies near their end, what is looked at later near what was
//! looked at before, so it is looked for from there. Tens of thousands lie before, none of which is in the cache.

use std::collections::VecDeque;

/// The same as [`VecDeque::partition_point`], from the end.
pub(super) fn partition_point<T>(all: &VecDeque<T>, is_before: impl Fn(&T) -> bool) -> usize {
    back_from(all, all.len(), is_before)
}

/// The same, from somewhere.
pub(super) fn partition_near<T>(
    all: &VecDeque<T>,
    near: usize,
    is_before: impl Fn(&T) -> bool,
) -> usize {
    let (mut step, mut from) = (1, near.min(all.len()));
    if !all.get(from).is_some_and(&is_before) {
        return back_from(all, from, is_before);
    }
    // All until `from` are before.
    while let Some(one) = all.get(from + step) {
        if !is_before(one) {
            return between(all, from + 1, from + step, is_before);
        }
        from += step;
        step *= 2;
    }
    between(all, from + 1, all.len(), is_before)
}

fn back_from<T>(all: &VecDeque<T>, end: usize, is_before: impl Fn(&T) -> bool) -> usize {
    let (mut step, mut end) = (1, end);
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
                for near in 0..=len as usize + 1 {
                    assert_eq!(
                        partition_near(&all, near, is_before),
                        all.partition_point(is_before),
                        "{wanted} of {len}, near {near}"
                    );
                }
            }
        }
    }
}
