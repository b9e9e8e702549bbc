//! Chance: random numbers that a seed decides, quantiles of Student's t, which of many rows are more than noise.

use statrs::distribution::{ContinuousCDF as _, Normal, StudentsT};

/// Rows that are marked although nothing changed: at most so many of all that are marked.
const FALSE_SHARE: f64 = 0.05;

/// A generator (SplitMix64): the same sides give the same comparison.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of 0 to `below`, which is not 0.
    pub(crate) fn below(&mut self, below: usize) -> usize {
        (self.next() % below as u64) as usize
    }
}

/// Student's t with so many degrees of freedom, 1 at least.
fn student(freedom: f64) -> Option<StudentsT> {
    StudentsT::new(0.0, 1.0, freedom.max(1.0)).ok()
}

/// So many standard errors to each side make an interval of 95 %.
pub(crate) fn reach(freedom: f64) -> f64 {
    student(freedom).map_or(f64::INFINITY, |student| student.inverse_cdf(0.975))
}

/// How probable a value so many standard errors away from 0, or farther, is by chance.
pub(crate) fn probability(errors: f64, freedom: f64) -> f64 {
    student(freedom).map_or(1.0, |student| 2.0 * student.sf(errors.abs()))
}

/// The share of a normal distribution that is below so many standard deviations.
pub(crate) fn below(deviations: f64) -> f64 {
    Normal::standard().cdf(deviations)
}

/// The other way round.
pub(crate) fn deviations(share: f64) -> f64 {
    Normal::standard().inverse_cdf(share)
}

/// Which of these probabilities are more than noise, when all are looked at together (Benjamini and Hochberg).
pub(crate) fn clear(probabilities: &[f64]) -> Vec<bool> {
    let mut sorted = probabilities.to_vec();
    sorted.sort_by(f64::total_cmp);
    let all = sorted.len() as f64;
    let is_below = |(rank, p): (usize, &f64)| *p <= FALSE_SHARE * (rank + 1) as f64 / all;
    let last = sorted.iter().enumerate().rev().find(|one| is_below(*one));
    let most = last.map(|(_, p)| *p);
    let is_clear = |p: &f64| most.is_some_and(|most| *p <= most);
    probabilities.iter().map(is_clear).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From tables of the distribution.
    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, wanted) in [(1.0, 12.706), (9.0, 2.262), (29.0, 2.045), (1e6, 1.960)] {
            assert!((reach(freedom) - wanted).abs() < 0.001, "{freedom}");
            assert!((probability(wanted, freedom) - 0.05).abs() < 0.0002);
            assert!((probability(-wanted, freedom) - 0.05).abs() < 0.0002);
        }
        assert!((below(deviations(0.3)) - 0.3).abs() < 1e-9);
    }

    /// The example of Benjamini and Hochberg (1995), section 3.2.
    #[test]
    fn of_many_rows_those_are_clear_that_stay_so_together() {
        let probabilities = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262,
            0.5719, 0.6528, 0.7590, 1.0,
        ];
        let clear = clear(&probabilities);
        assert_eq!(clear.iter().filter(|clear| **clear).count(), 4);
        assert!(clear[3] && !clear[4]);
        assert!(super::clear(&[]).is_empty());
    }
}
