//! Which requests get a row, and how many each stands for: a request's id, latency and weight in; the weight of its row,
//! or none, out.
//!
//! Slow and incomplete requests are all kept. Each other one is drawn by itself, by a hash of its id and of a salt that
//! nobody knows: never by its latency, its time or its place in a sequence, with which load may go in step. So the sum of
//! the weights, and of weight × anything else, is that of all requests on average, with a variance of Σ w(w − 1)·x².
//!
//! One that a slow or incomplete request blames is kept for itself, too, whether it is drawn or not. Whom these blame, and
//! how long a row may wait for that, does not depend on its draw: so it is kept with a probability of 1, and what leaves the
//! sums as they are is the kernel's weight. Were it to count n times when it is drawn as well, the sums would be too large.
//! Whom a drawn or blamed one blames is not followed: where two blame each other, a request's own draw would decide what it
//! weighs.

use std::hash::{BuildHasher as _, DefaultHasher, Hash as _, Hasher as _, RandomState};

use reqtrace_analysis::report::KeptFor;
use serde::{Deserialize, Serialize};

/// How requests are chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    one_in: u32,
    salt: [u64; 2],
}

/// A row that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// How many requests it stands for.
    pub(crate) weight: u32,
    /// Whether it is slow; `None`: no limit is given.
    pub(crate) is_slow: Option<bool>,
    pub(crate) why: KeptFor,
}

impl Choice {
    /// The same with a salt that is known.
    #[cfg(test)]
    pub(crate) fn salted(one_in: u32, salt: u64) -> Self {
        Self {
            one_in,
            salt: [salt, salt ^ 0x9e37_79b9_7f4a_7c15],
        }
    }

    /// One in so many of the requests that are not slow, by a salt of its own.
    pub(crate) fn one_in(one_in: u32) -> Self {
        // It draws its keys from the kernel.
        let salt = [0_u8, 1].map(|half| RandomState::new().hash_one(half));
        Self { one_in, salt }
    }

    /// `weight` is how many requests the kernel recorded it for, and `slow_ns` the latency above which it is slow.
    pub(crate) fn of(
        &self,
        id: u64,
        latency_ns: u64,
        weight: u32,
        is_complete: bool,
        slow_ns: Option<u64>,
    ) -> Option<Kept> {
        let is_slow = slow_ns.map(|slow_ns| latency_ns > slow_ns);
        let for_itself = |why| {
            Some(Kept {
                weight,
                is_slow,
                why,
            })
        };
        match is_slow {
            _ if !is_complete => return for_itself(KeptFor::Incomplete),
            Some(true) => return for_itself(KeptFor::Slow),
            _ => {}
        }
        let drawn = Kept {
            weight: weight.saturating_mul(self.one_in),
            is_slow,
            why: KeptFor::Drawn,
        };
        self.draws(id).then_some(drawn)
    }

    /// Whether some have no row.
    pub(crate) fn leaves_out(&self) -> bool {
        self.one_in > 1
    }

    /// With a probability of 1 / n.
    fn draws(&self, id: u64) -> bool {
        let mut hasher = DefaultHasher::new();
        (self.salt, id).hash(&mut hasher);
        (u128::from(hasher.finish()) * u128::from(self.one_in)) >> 64 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW_NS: u64 = 20_000_000;

    /// A latency that goes with the time of its request in a period of 100 requests, and a tail.
    fn latency_ns(id: u64) -> u64 {
        let load = id % 100 * 200_000;
        let tail = if id.is_multiple_of(37) { 15_000_000 } else { 0 };
        100_000 + load + tail
    }

    /// Σ weight, Σ weight × latency; and the variance of both.
    fn sums(choice: Choice, requests: u64) -> ([f64; 2], [f64; 2]) {
        let (mut sums, mut variance) = ([0.0; 2], [0.0; 2]);
        for id in 1..=requests {
            let latency_ns = latency_ns(id);
            let Some(kept) = choice.of(id, latency_ns, 1, true, Some(SLOW_NS)) else {
                continue;
            };
            let weight = f64::from(kept.weight);
            for (at, x) in [1.0, latency_ns as f64].into_iter().enumerate() {
                sums[at] += weight * x;
                variance[at] += weight * (weight - 1.0) * x * x;
            }
        }
        (sums, variance)
    }

    #[test]
    fn sums_of_weights_are_those_of_all_requests_within_the_stated_error() {
        const REQUESTS: u64 = 20_000;
        const RUNS: u64 = 1_000;
        let all: f64 = (1..=REQUESTS).map(|id| latency_ns(id) as f64).sum();
        let truth = [REQUESTS as f64, all];
        let mut errors = [Vec::new(), Vec::new()];
        for run in 0..RUNS {
            let salt = [run, run ^ 0x9e37_79b9_7f4a_7c15];
            let (sums, variance) = sums(Choice { one_in: 100, salt }, REQUESTS);
            for at in 0..2 {
                errors[at].push((sums[at] - truth[at]) / variance[at].sqrt());
            }
        }
        for errors in errors {
            let mean = errors.iter().sum::<f64>() / RUNS as f64;
            // Errors and their estimated variance go together: the mean of their quotient is a little below 0.
            assert!(mean.abs() < 0.15, "biased: {mean}");
            let within = errors.iter().filter(|error| error.abs() <= 1.96).count();
            assert!((925..=975).contains(&within), "{within} of {RUNS}");
        }
    }

    #[test]
    fn sums_are_not_biased() {
        let runs = 1_000;
        let (mut sum, mut variance_of_all) = (0.0, 0.0);
        for run in 0..runs {
            let ([count, _], [variance, _]) = sums(
                Choice {
                    one_in: 10,
                    salt: [run, !run],
                },
                5_000,
            );
            sum += count - 5_000.0;
            variance_of_all += variance;
        }
        assert!(sum.abs() < 3.0 * f64::sqrt(variance_of_all), "{sum}");
    }

    #[test]
    fn slow_and_incomplete_ones_are_kept_for_themselves() {
        let choice = Choice::one_in(1_000_000);
        let kept = |weight, is_slow, why| {
            Some(Kept {
                weight,
                is_slow,
                why,
            })
        };
        for id in 0..100 {
            let slow = choice.of(id, SLOW_NS + 1, 3, true, Some(SLOW_NS));
            assert_eq!(slow, kept(3, Some(true), KeptFor::Slow));
            let incomplete = kept(4, None, KeptFor::Incomplete);
            assert_eq!(choice.of(id, 1, 4, false, None), incomplete);
        }
        // At one in one nothing is left out, and weights are the kernel's.
        let all = Choice::one_in(1);
        for id in 0..100 {
            assert_eq!(
                all.of(id, SLOW_NS, 1, true, Some(SLOW_NS)),
                kept(1, Some(false), KeptFor::Drawn)
            );
        }
        let huge = Choice {
            one_in: 1,
            salt: [0; 2],
        }
        .of(1, 1, u32::MAX, true, None);
        assert_eq!(huge, kept(u32::MAX, None, KeptFor::Drawn));
    }

    #[test]
    fn two_agents_draw_other_ones() {
        let drawn = |choice: Choice| (1..=10_000).filter(|id| choice.draws(*id)).count();
        let both = [Choice::one_in(10), Choice::one_in(10)];
        let common = (1..=10_000).filter(|id| both.iter().all(|one| one.draws(*id)));
        // 100 are expected, with a deviation of 10.
        let common = common.count();
        assert!((40..=170).contains(&common), "{common}");
        assert!((800..=1_200).contains(&drawn(both[0])));
    }
}
