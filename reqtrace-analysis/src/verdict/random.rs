//! Random numbers that the data decide: the same trace gives the same report.

/// A generator (SplitMix64), seeded by times.
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn of(seed: impl Iterator<Item = u64>) -> Self {
        let mut random = Self(0);
        for value in seed {
            random.0 = random.next().wrapping_add(value);
        }
        random
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of 0 to `below`, which is not 0.
    pub(super) fn below(&mut self, below: usize) -> usize {
        (self.next() % below as u64) as usize
    }

    /// From 0 until before 1.
    pub(super) fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(super) fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, self.below(at + 1));
        }
    }
}
