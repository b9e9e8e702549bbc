//! Tables of a bounded size: the entries with the least time leave, to be put together.

use std::cmp::Reverse;
use std::hash::Hash;

use rustc_hash::FxHashMap;

/// Takes all entries out but the `most` with the most time, and gives them, in an order that is always
/// the same.
pub(crate) fn take_smallest<K: Hash + Ord, V>(
    table: &mut FxHashMap<K, V>,
    most: usize,
    ns: impl Fn(&V) -> u64,
) -> Vec<(K, V)> {
    let mut entries = in_order(table.drain(), ns);
    let small = entries.split_off(most.min(entries.len()));
    table.extend(entries);
    small
}

/// Entries with the most time first, and then by their keys.
pub(crate) fn in_order<K: Ord, V>(
    entries: impl Iterator<Item = (K, V)>,
    ns: impl Fn(&V) -> u64,
) -> Vec<(K, V)> {
    let mut entries: Vec<(K, V)> = entries.collect();
    entries.sort_unstable_by(|(one, one_value), (two, two_value)| {
        let time = |value| Reverse(ns(value));
        (time(one_value), one).cmp(&(time(two_value), two))
    });
    entries
}
