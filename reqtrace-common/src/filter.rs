//! Which off-CPU intervals go into the stacks, the histogram of their lengths, and which complete requests are sent: the same
//! decision and the same arithmetic on both sides.

/// Which intervals are kept in stacks; everything is in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackFilter {
    /// Least length, ns.
    pub min_ns: u64,
    /// Greatest length, ns.
    pub max_ns: u64,
    /// Mask of task states, 0 for threads that were runnable, or [`ANY_STATE`].
    pub state: u64,
}

/// Whatever the state was.
pub const ANY_STATE: u64 = u64::MAX;

impl StackFilter {
    /// Keeps all.
    pub const ALL: Self = Self {
        min_ns: 0,
        max_ns: u64::MAX,
        state: ANY_STATE,
    };

    /// Whether an interval is kept: `state` is the task's state at switch-out, 0 when it was
    /// preempted; `length_ns` is from switch-out to switch-in.
    ///
    /// A state is a mask with flags (`TASK_FREEZABLE`, 6.1): one common bit is enough.
    #[must_use]
    #[inline]
    pub const fn keeps(&self, state: u32, length_ns: u64) -> bool {
        if length_ns < self.min_ns || length_ns > self.max_ns {
            return false;
        }
        match self.state {
            ANY_STATE => true,
            0 => state == 0,
            mask => state as u64 & mask != 0,
        }
    }
}

/// Which complete requests are sent at their end. Totals and stacks are of all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepSlow {
    /// From this latency on each is sent, ns; 0: all are.
    pub slow_ns: u64,
    /// Of the others one in so many is, at least 1.
    pub one_in: u32,
}

impl KeepSlow {
    /// All are sent.
    pub const ALL: Self = Self {
        slow_ns: 0,
        one_in: 1,
    };

    /// How many requests one of this latency stands for when it is sent; 0: it is not sent. Each draws by itself, a number that
    /// is `random` in 32 bits, so that no rhythm of the load is in step with it.
    #[must_use]
    #[inline(always)]
    pub fn stands_for(&self, latency_ns: u64, random: impl FnOnce() -> u32) -> u32 {
        if latency_ns >= self.slow_ns || self.one_in <= 1 {
            return 1;
        }
        if (u64::from(random()) * u64::from(self.one_in)) >> 32 == 0 {
            self.one_in
        } else {
            0
        }
    }
}

/// Powers of two of microseconds in a histogram of lengths; the last holds all from 2^31 µs (36
/// minutes) on.
pub const POWERS: usize = 32;

/// Lengths of the intervals of one key of the sums per stack pair, counted by powers of two of
/// microseconds: 0 to 1, 2 to 3, 4 to 7, ….
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthHistogram {
    /// Intervals.
    pub counts: [u64; POWERS],
}

impl LengthHistogram {
    /// Nothing counted.
    pub const ZERO: Self = Self {
        counts: [0; POWERS],
    };
}

/// The power of two of a length, below [`POWERS`].
#[must_use]
#[inline]
pub const fn power(length_ns: u64) -> usize {
    let mut rest = length_ns / 1_000;
    let mut power = 0;
    // By halving: BPF has no instruction for the highest bit before version 4.
    if rest >> 32 != 0 {
        return POWERS - 1;
    }
    if rest >> 16 != 0 {
        rest >>= 16;
        power += 16;
    }
    if rest >> 8 != 0 {
        rest >>= 8;
        power += 8;
    }
    if rest >> 4 != 0 {
        rest >>= 4;
        power += 4;
    }
    if rest >> 2 != 0 {
        rest >>= 2;
        power += 2;
    }
    if rest >> 1 != 0 {
        power += 1;
    }
    power
}

/// The least length of a power in microseconds.
#[must_use]
pub const fn least_us(power: usize) -> u64 {
    if power == 0 { 0 } else { 1 << power }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERRUPTIBLE: u32 = 1;
    const UNINTERRUPTIBLE: u32 = 2;
    const FREEZABLE: u32 = 0x2000;

    #[test]
    fn states_are_masks() {
        let filter = |state| StackFilter {
            state,
            ..StackFilter::ALL
        };
        assert!(filter(ANY_STATE).keeps(0, 0) && filter(ANY_STATE).keeps(INTERRUPTIBLE, 0));
        assert!(filter(1).keeps(INTERRUPTIBLE | FREEZABLE, 0));
        assert!(!filter(1).keeps(UNINTERRUPTIBLE | FREEZABLE, 0));
        assert!(filter(3).keeps(UNINTERRUPTIBLE, 0) && !filter(3).keeps(0, 0));
        assert!(filter(0).keeps(0, 0) && !filter(0).keeps(INTERRUPTIBLE, 0));
    }

    #[test]
    fn lengths_are_within_their_bounds() {
        let filter = StackFilter {
            min_ns: 10,
            max_ns: 20,
            state: ANY_STATE,
        };
        for (length, kept) in [(9, false), (10, true), (20, true), (21, false)] {
            assert_eq!(filter.keeps(1, length), kept, "{length}");
        }
    }

    #[test]
    fn slow_requests_are_sent_and_one_in_so_many_of_the_others() {
        let keep = KeepSlow {
            slow_ns: 1_000,
            one_in: 100,
        };
        assert_eq!(keep.stands_for(1_000, || panic!("it is slow")), 1);
        assert_eq!(KeepSlow::ALL.stands_for(0, || panic!("all are sent")), 1);
        // The 100th part of all numbers.
        let last = u32::MAX / 100;
        for (random, stands_for) in [(0, 100), (last, 100), (last + 1, 0), (u32::MAX, 0)] {
            assert_eq!(keep.stands_for(999, || random), stands_for, "{random}");
        }
    }

    #[test]
    fn powers_join_without_gap() {
        assert_eq!(power(0), 0);
        assert_eq!(power(1_999), 0);
        for index in 1..POWERS {
            let least = least_us(index) * 1_000;
            assert_eq!(power(least), index);
            assert_eq!(power(least - 1), index - 1);
        }
        assert_eq!(power(u64::MAX), POWERS - 1);
    }
}
