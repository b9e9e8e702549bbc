//! Who held requests up: names in, each once and by number, out.

use rustc_hash::FxHashMap;

use crate::blame::HeldKey;

/// Different ones that held requests up.
const MAX_HOLDINGS: usize = 1 << 14;

/// Those so far.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    numbers: FxHashMap<HeldKey, u32>,
    /// By number.
    keys: Vec<HeldKey>,
    /// How often one found no room.
    pub(super) merged: u64,
}

impl Holdings {
    /// The number of one, at whatever depth.
    pub(super) fn number(&mut self, key: &HeldKey) -> u32 {
        let key = key.at_any_depth();
        if self.keys.len() < MAX_HOLDINGS || self.numbers.contains_key(&key) {
            return self.insert(key);
        }
        self.merged += 1;
        self.insert(key.without_names())
    }

    /// The number of all others that did the same; `None` for one of them.
    pub(super) fn other(&mut self, holding: u32) -> Option<u32> {
        let key = self.keys.get(holding as usize)?.without_names();
        let other = self.insert(key);
        (other != holding).then_some(other)
    }

    /// All, by number.
    pub(super) fn keys(&self) -> &[HeldKey] {
        &self.keys
    }

    fn insert(&mut self, key: HeldKey) -> u32 {
        let next = self.keys.len() as u32;
        *self.numbers.entry(key).or_insert_with(|| {
            self.keys.push(key);
            next
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_without_a_name_are_one() {
        let mut holdings = Holdings::default();
        let mut number = |comm| holdings.number(&HeldKey::of_thread(comm));
        assert_eq!([number(7), number(8), number(7)], [0, 1, 0]);
        assert_eq!(
            [0, 1, 2].map(|number| holdings.other(number)),
            [Some(2), Some(2), None]
        );
        assert_eq!((holdings.keys().len(), holdings.merged), (3, 0));
    }
}
