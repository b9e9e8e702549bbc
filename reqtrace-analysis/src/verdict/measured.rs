//! The measure: slow requests of a type in; their episodes, how much they took more than typical ones, and the numbers of that, out.

use super::episodes::{self, Episode, Excess};
use super::facts::{Facts, Judge};
use super::numbers::{FEWEST_SLOW, WEIGHT, mille};
use super::patterns::Family;
use super::slow::Slow;
use super::tail::Tail;
use crate::report::verdict::Evidence;

/// What slow requests come to.
pub(super) struct Measured {
    pub(super) evidence: Evidence,
    pub(super) episodes: Vec<Episode>,
    pub(super) excess: Excess,
    /// The part of the requests whose records were lost.
    pub(super) lost: f64,
}

impl Measured {
    /// Whether it is so little of the time of its type that it is the tail of a healthy service.
    pub(super) fn is_light(&self, tail: &Tail<'_>) -> bool {
        self.excess.all + tail.unkept_ns() < WEIGHT * tail.all.latency_ns as f64
    }
}

impl<F: Facts> Judge<'_, F> {
    /// Episodes and excess of a tail, and its numbers but for those of a cause; `None` of too few requests.
    pub(super) fn measured(&self, tail: &Tail<'_>, slow: &[&Slow]) -> Option<Measured> {
        if slow.len() < FEWEST_SLOW {
            return None;
        }
        let episodes = episodes::of(slow, &tail.typical);
        let mut excess = Excess::default();
        episodes
            .iter()
            .for_each(|episode| excess.add(&episode.excess));
        let lost = (1.0 - self.of.rows as f64 / self.of.sent.max(1) as f64).max(0.0);
        let not_known = excess.share(Family::NotKnown).max(0.0) + lost;
        let evidence = Evidence {
            slow: tail.weight(&self.of_type.buckets, slow),
            requests: tail.all.weight,
            median_ns: tail.median_ns,
            p99_ns: tail.p99_ns,
            of_excess: tail.of_excess,
            episodes: episodes.len() as u64,
            excess_ns: (excess.all + tail.unkept_ns()) as u64,
            not_known: mille(not_known),
            ..Evidence::default()
        };
        Some(Measured {
            evidence,
            episodes,
            excess,
            lost,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::of_type::OfType;
    use crate::verdict::patterns::Times;

    const MS: u64 = 1_000_000;

    /// Requests of 1 ms, so many, and one of each of these latencies.
    fn of_type(typical: u64, slow: impl Iterator<Item = u64>) -> OfType {
        let mut of_type = OfType::default();
        of_type.add(MS, typical, &Times::default());
        for (latency_ns, begin_ns) in slow.zip(0..) {
            of_type.add(latency_ns, 1, &Times::default());
            if of_type.slow.takes(latency_ns) {
                let slow = Slow::bare(begin_ns, latency_ns);
                of_type.slow.add(latency_ns, slow);
            }
        }
        of_type
    }

    fn measured(tail: &Tail<'_>) -> Measured {
        let mut excess = Excess::default();
        for slow in &tail.slow {
            excess.add(&Excess::of(slow, &tail.typical));
        }
        Measured {
            evidence: Evidence::default(),
            episodes: Vec::new(),
            excess,
            lost: 0.0,
        }
    }

    /// They have half of all time, and those that are kept a sixth.
    #[test]
    fn slow_requests_that_are_not_kept_have_weight() {
        const SLOW: usize = 24_000;
        let of_type = of_type(1_176_000, std::iter::repeat_n(50 * MS, SLOW));
        let mut tail = Tail::of(&of_type).unwrap();
        let measured = measured(&tail);
        assert!(tail.slow.len() < SLOW / 2);
        assert!(measured.excess.all < WEIGHT * tail.all.latency_ns as f64);
        assert!(!measured.is_light(&tail));
        let excess_ns = measured.excess.all + tail.unkept_ns();
        let wanted_ns = SLOW as f64 * 49.0 * MS as f64;
        assert!((excess_ns / wanted_ns - 1.0).abs() < 0.001, "{excess_ns}");
        // The rest has a part of them.
        let all_ns = tail.unkept_ns();
        tail.of_excess = 250;
        assert!((tail.unkept_ns() / all_ns - 0.25).abs() < 0.001);
    }

    #[test]
    fn where_all_slow_requests_are_kept_none_is_missing() {
        let of_type = of_type(10_000, (0..200).map(|number| 5 * MS + number * MS / 10));
        let tail = Tail::of(&of_type).unwrap();
        assert_eq!(tail.slow.len(), 200);
        assert_eq!(tail.unkept_ns(), 0.0);
    }
}
