//! The slowest requests of a type: each with what a verdict needs of it in; those above a latency, in order, out. Of more than
//! there is room for the fastest are given up first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::patterns::Times;
use super::shares::{Share, Who};
use super::stood::Behind;
use crate::blame::ThreadId;

/// Slow requests that are kept of one type: some 10 MB.
const MAX_SLOW: usize = 1 << 13;

/// A slow request.
#[derive(Clone, Debug)]
pub(super) struct Slow {
    pub(super) thread: ThreadId,
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
    pub(super) weight: u64,
    pub(super) times: Times,
    /// The most time first.
    pub(super) shares: Vec<Share>,
    /// Its own statement.
    pub(super) statement: u32,
    /// Behind whom it stood, the longest first.
    pub(super) behind: Vec<Behind>,
    /// Those of who held it up: of the one whose time most of it was, and of those behind whom it stood longest.
    pub(super) by_culprit: Vec<(Who, Vec<u32>)>,
}

impl Slow {
    pub(super) fn latency_ns(&self) -> u64 {
        self.end_ns - self.begin_ns
    }

    /// One of which nothing else is known.
    #[cfg(test)]
    pub(super) fn bare(begin_ns: u64, latency_ns: u64) -> Self {
        Self {
            thread: ThreadId { tgid: 1, tid: 1 },
            begin_ns,
            end_ns: begin_ns + latency_ns,
            weight: 1,
            times: Times::default(),
            shares: Vec::new(),
            statement: 0,
            behind: Vec::new(),
            by_culprit: Vec::new(),
        }
    }
}

/// The slowest of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Slowest {
    slow: Vec<Slow>,
    /// The fastest first: its latency, its number, and where it is in `slow`. The requests themselves are too large to be moved
    /// with each that comes.
    fastest: BinaryHeap<Reverse<(u64, u64, usize)>>,
    /// How many have come.
    count: u64,
}

impl Slowest {
    /// Whether a request of this latency would be kept.
    pub(super) fn takes(&self, latency_ns: u64) -> bool {
        self.slow.len() < MAX_SLOW
            || self
                .fastest
                .peek()
                .is_none_or(|Reverse((least_ns, ..))| latency_ns > *least_ns)
    }

    /// Takes a request that is to be kept.
    pub(super) fn add(&mut self, latency_ns: u64, slow: Slow) {
        self.count += 1;
        if self.slow.len() < MAX_SLOW {
            let at = self.slow.len();
            self.fastest.push(Reverse((latency_ns, self.count, at)));
            self.slow.push(slow);
        } else if let Some(mut fastest) = self.fastest.peek_mut() {
            let Reverse((_, _, at)) = *fastest;
            *fastest = Reverse((latency_ns, self.count, at));
            self.slow[at] = slow;
        }
    }

    /// All that are kept.
    pub(super) fn all(&self) -> impl Iterator<Item = &Slow> {
        self.slow.iter()
    }

    /// Those that took so long at least, the fastest first.
    pub(super) fn since(&self, latency_ns: u64) -> Vec<&Slow> {
        let mut order: Vec<_> = self.fastest.iter().map(|Reverse(one)| *one).collect();
        order.retain(|(its_ns, ..)| *its_ns >= latency_ns);
        order.sort_unstable();
        order.iter().map(|(_, _, at)| &self.slow[*at]).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::verdict::random::Random;

    #[test]
    fn those_that_are_kept_are_the_slowest_and_come_in_order() {
        let mut random = Random::of([1].into_iter());
        let mut slowest = Slowest::default();
        let mut oracle = BTreeMap::new();
        for number in 0..3 * MAX_SLOW as u64 {
            // Few latencies, so that many are alike.
            let latency_ns = random.below(5_000) as u64;
            let least_ns = oracle.first_key_value().map(|((least_ns, _), _)| *least_ns);
            let is_full = oracle.len() == MAX_SLOW;
            let is_taken = !is_full || least_ns.is_none_or(|least_ns| latency_ns > least_ns);
            assert_eq!(slowest.takes(latency_ns), is_taken, "{number}");
            if !is_taken {
                continue;
            }
            if is_full {
                oracle.pop_first();
            }
            oracle.insert((latency_ns, number), ());
            slowest.add(latency_ns, Slow::bare(number, latency_ns));
        }
        for since_ns in [0, 2_500, 4_990, 5_000] {
            let kept = slowest.since(since_ns);
            let kept = kept.iter().map(|slow| (slow.latency_ns(), slow.begin_ns));
            let wanted = oracle.range((since_ns, 0)..).map(|(key, ())| *key);
            assert!(kept.eq(wanted), "since {since_ns} ns");
        }
    }
}
