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
        self.excess.all < WEIGHT * tail.all.latency_ns as f64
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
            excess_ns: excess.all as u64,
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
