//! Block bootstrap: sums of blocks of time in, how often each block was drawn out.
//!
//! Runs of blocks are drawn with replacement, as many as make the same length again (Politis and Romano, circular). How
//! long a run is follows from the autocorrelation (Politis and White 2004, with the correction of 2009).

use crate::chance::Random;

/// How often blocks are drawn.
pub(crate) const DRAWS: usize = 1_000;
/// Fewer blocks say nothing about noise.
pub(crate) const LEAST_BLOCKS: usize = 30;

/// Blocks of one side, drawn again and again.
#[derive(Debug)]
pub(crate) struct Draws {
    /// How often each block was drawn: all blocks of the first draw, of the second, ….
    times: Vec<u16>,
    blocks: usize,
    /// Blocks of a run.
    pub(crate) run: usize,
}

impl Draws {
    pub(crate) fn new(blocks: usize, run: usize, seed: u64) -> Self {
        let run = run.clamp(1, blocks.max(1));
        let mut random = Random::new(seed);
        let mut times = vec![0_u16; blocks * DRAWS];
        for draw in times.chunks_exact_mut(blocks.max(1)) {
            let mut left = blocks;
            while left > 0 {
                let first = random.below(blocks);
                for at in first..first + run.min(left) {
                    draw[at % blocks] = draw[at % blocks].saturating_add(1);
                }
                left -= run.min(left);
            }
        }
        Self { times, blocks, run }
    }

    /// How often each block was drawn, one draw after the other.
    pub(crate) fn each(&self) -> impl Iterator<Item = &[u16]> {
        self.times.chunks_exact(self.blocks.max(1))
    }

    /// How many runs are independent.
    pub(crate) fn runs(&self) -> f64 {
        self.blocks as f64 / self.run as f64
    }
}

/// How many values in a row have something in common.
pub(crate) fn run_length(values: &[f64]) -> usize {
    let count = values.len();
    if count < LEAST_BLOCKS {
        return 1;
    }
    let all = count as f64;
    let mean = values.iter().sum::<f64>() / all;
    let covariance = |lag: usize| {
        let pairs = values.iter().zip(&values[lag..]);
        pairs
            .map(|(one, two)| (one - mean) * (two - mean))
            .sum::<f64>()
            / all
    };
    let variance = covariance(0);
    if variance <= 0.0 {
        return 1;
    }
    // 10 % of correlations of noise are beyond it: a run that is too long costs little, one that is too short is wrong.
    let least = 1.645 / all.sqrt();
    let quiet = 5.max(all.log10().sqrt() as usize);
    let most = (all.sqrt() as usize + quiet).min(count - 1);
    let correlations: Vec<f64> = (0..=most).map(|lag| covariance(lag) / variance).collect();
    let is_quiet = |lag: usize| {
        let next = correlations.iter().skip(lag + 1).take(quiet);
        next.clone().count() == quiet && next.clone().all(|one| one.abs() < least)
    };
    let last = (0..=most).find(|lag| is_quiet(*lag)).unwrap_or(most);
    if last == 0 {
        return 1;
    }
    // A window that is flat, then falls to nothing.
    let window = (2 * last).min(count - 1);
    let (mut slope, mut level) = (0.0, variance);
    for lag in 1..=window {
        let share = lag as f64 / window as f64;
        let weight = (2.0 * (1.0 - share)).min(1.0);
        slope += 2.0 * weight * lag as f64 * covariance(lag);
        level += 2.0 * weight * covariance(lag);
    }
    if level <= 0.0 {
        return 1;
    }
    // Longer than what is best for the variance itself: a run that is cut off takes from it what it has beyond its end.
    let length = 2.0 * (1.5 * (slope / level).powi(2) * all).cbrt();
    let longest = (3.0 * all.sqrt()).min(all / 5.0);
    (length.min(longest).round() as usize).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: u64, count: usize, memory: f64) -> Vec<f64> {
        let mut random = Random::new(seed);
        let mut last = 0.0;
        let mut next = || {
            let sum: f64 = (0..12).map(|_| random.below(1_000) as f64 / 1_000.0).sum();
            last = memory * last + sum - 6.0;
            last
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn runs_are_as_long_as_their_values_have_to_do_with_each_other() {
        // Of noise one in ten correlations seems to be one.
        let median = |memory| {
            let mut lengths = [1, 2, 3, 4, 5, 6, 7, 8, 9].map(|seed| {
                let values = noise(seed, 300, memory);
                run_length(&values)
            });
            lengths.sort_unstable();
            lengths[4]
        };
        let [none, some, long] = [0.0, 0.4, 0.8].map(median);
        assert!(
            none <= 4 && none < some && some < long,
            "{none} {some} {long}"
        );
        assert!((5..=50).contains(&long), "{long}");
        let drift: Vec<f64> = (0..300).map(f64::from).collect();
        assert!(run_length(&drift) > 20);
        assert_eq!(run_length(&[1.0; 100]), 1);
        assert_eq!(run_length(&noise(7, 10, 0.9)), 1);
    }

    #[test]
    fn a_draw_is_as_long_as_the_side() {
        let draws = Draws::new(40, 7, 1);
        assert_eq!(draws.each().count(), DRAWS);
        assert!(draws.each().all(|times| times.iter().sum::<u16>() == 40));
        // Each block is drawn as often as the others.
        let mut sums = [0_u32; 40];
        for times in draws.each() {
            sums.iter_mut()
                .zip(times)
                .for_each(|(sum, times)| *sum += u32::from(*times));
        }
        assert!(
            sums.iter().all(|sum| (800..1_200).contains(sum)),
            "{sums:?}"
        );
        assert_eq!(Draws::new(0, 1, 1).each().count(), 0);
    }
}
