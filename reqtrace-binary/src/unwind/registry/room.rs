//! Room in an array of the kernel programs: lengths in, places out. What is given back is used again.

use std::collections::BTreeMap;

use reqtrace_common::unwind::BLOCK;

/// Places, in whole blocks.
#[derive(Clone, Debug)]
pub(super) struct Room {
    /// One past the last place that was ever given.
    end: u32,
    most: u32,
    /// What was given back below `end`: starts and lengths, no two side by side.
    free: BTreeMap<u32, u32>,
}

impl Room {
    /// So much, nothing of it taken.
    pub(super) fn new(most: u32) -> Self {
        Self {
            end: 0,
            most,
            free: BTreeMap::new(),
        }
    }

    /// No more than this from now on.
    pub(super) fn limit(&mut self, most: u32) {
        self.most = most;
    }

    pub(super) fn most(&self) -> u32 {
        self.most
    }

    /// Whether there would be a place for so many if nothing was taken.
    pub(super) fn is_for(&self, length: usize) -> bool {
        blocks(length).is_some_and(|length| length <= self.most)
    }

    /// Whether there is a place for so many.
    pub(super) fn fits(&self, length: usize) -> bool {
        self.clone().take(length).is_some()
    }

    /// A place for so many: the smallest that was given back and is large enough, or a new one.
    pub(super) fn take(&mut self, length: usize) -> Option<u32> {
        let length = blocks(length)?;
        let fitting = self.free.iter().filter(|(_, free)| **free >= length);
        if let Some((&start, &free)) = fitting.min_by_key(|(_, free)| **free) {
            self.free.remove(&start);
            if free > length {
                self.free.insert(start + length, free - length);
            }
            return Some(start);
        }
        let end = self.end.checked_add(length)?;
        (end <= self.most).then(|| std::mem::replace(&mut self.end, end))
    }

    /// Takes back what was given.
    pub(super) fn give_back(&mut self, start: u32, length: usize) {
        // It was given, so it can be counted.
        let mut length = blocks(length).unwrap_or_default();
        if let Some(after) = self.free.remove(&(start + length)) {
            length += after;
        }
        let before = self.free.range(..start).next_back();
        let before = before.map(|(start, length)| (*start, *length));
        match before {
            Some((first, before)) if first + before == start => {
                self.free.insert(first, before + length);
            }
            _ => {
                self.free.insert(start, length);
            }
        }
        if let Some((&last, &length)) = self.free.last_key_value()
            && last + length == self.end
        {
            self.free.remove(&last);
            self.end = last;
        }
    }

    /// How much is taken.
    pub(super) fn taken(&self) -> u32 {
        self.end - self.free.values().sum::<u32>()
    }
}

fn blocks(length: usize) -> Option<u32> {
    u32::try_from(length.checked_next_multiple_of(BLOCK)?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a table of who has each block.
        #[test]
        fn places_never_overlap_and_all_comes_back(
            steps in prop::collection::vec((any::<bool>(), 1_usize..5 * BLOCK, any::<prop::sample::Index>()), 1..200),
        ) {
            let most = 64 * BLOCK as u32;
            let mut room = Room::new(most);
            let mut held: Vec<(u32, usize)> = Vec::new();
            for (takes, length, which) in steps {
                if takes || held.is_empty() {
                    let largest_free = (0..=64).rev().find(|free| {
                        (0..=64 - free).any(|at| held.iter().all(|&(start, held)| {
                            let (from, to) = (at * BLOCK as u32, (at + free) * BLOCK as u32);
                            start >= to || start + blocks(held).unwrap() <= from
                        }))
                    });
                    match room.take(length) {
                        Some(start) => {
                            prop_assert!(start % BLOCK as u32 == 0);
                            let end = start + blocks(length).unwrap();
                            prop_assert!(end <= most);
                            for &(other, len) in &held {
                                prop_assert!(end <= other || other + blocks(len).unwrap() <= start);
                            }
                            held.push((start, length));
                        }
                        None => prop_assert!(
                            largest_free.unwrap_or(0) * (BLOCK as u32) < blocks(length).unwrap()
                        ),
                    }
                } else {
                    let (start, length) = held.swap_remove(which.index(held.len()));
                    room.give_back(start, length);
                }
                let taken: u32 = held.iter().map(|(_, length)| blocks(*length).unwrap()).sum();
                prop_assert_eq!(room.taken(), taken);
            }
            for (start, length) in held {
                room.give_back(start, length);
            }
            prop_assert_eq!((room.end, room.free.len()), (0, 0));
        }
    }
}
