//! Intervals: a statistic of each draw in, how sure its change is out.
//!
//! Percentiles of the draws, taken so far out as Student's t with the number of independent runs asks for: plain ones are too
//! narrow where runs are few. Several recordings of a side differ from each other by more than their blocks tell: what of
//! that is beyond the draws widens the interval.

use crate::chance::{below, deviations, probability, reach};
use crate::model::{Estimate, Value};

/// A statistic of one side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sampled {
    pub(crate) value: f64,
    /// Of each draw; empty when blocks are too few.
    pub(crate) draws: Vec<f64>,
    /// Of each recording.
    pub(crate) runs: Vec<f64>,
}

/// On which scale sides are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// The second over the first, less 1.
    Ratio,
    /// The second less the first.
    Difference,
}

impl Scale {
    /// Makes differences of what is compared.
    fn of(self, value: f64) -> f64 {
        match self {
            Self::Ratio => value.ln(),
            Self::Difference => value,
        }
    }

    fn back(self, change: f64) -> f64 {
        match self {
            Self::Ratio => change.exp_m1(),
            Self::Difference => change,
        }
    }
}

/// Draws farther out than this are too few to count.
const FAR: f64 = 2.6;

/// The value of one side, which is not below 0, with its interval; so many runs of its blocks are independent.
pub(crate) fn value(sampled: &Sampled, runs: f64) -> Value {
    let value = sampled.value;
    let own = runs - 1.0;
    let of_draws = |draws: Vec<f64>| {
        let (_, variance) = moments(&draws);
        let (wider, freedom) = between(&[sampled], Scale::Difference, variance, own);
        let reached = wider * reach(freedom) / reach(own);
        interval(&draws, runs, own).map(|end| (value + (end - value) * reached).max(0.0))
    };
    Value {
        value,
        interval: finite(&sampled.draws).map(of_draws),
    }
}

/// The change from one side to the other; of the lesser so many runs of blocks are independent.
pub(crate) fn change(a: &Sampled, b: &Sampled, scale: Scale, runs: f64) -> Estimate {
    let centre = scale.of(b.value) - scale.of(a.value);
    let estimate = Estimate {
        change: scale.back(centre),
        ..Estimate::default()
    };
    if !centre.is_finite() {
        return estimate;
    }
    let pairs = a.draws.iter().zip(&b.draws);
    let draws: Vec<f64> = pairs.map(|(a, b)| scale.of(*b) - scale.of(*a)).collect();
    let Some(draws) = finite(&draws) else {
        return estimate;
    };
    let (mean, variance) = moments(&draws);
    if variance == 0.0 {
        // Nothing differs within the sides.
        let is_same = centre == 0.0;
        return Estimate {
            interval: Some([estimate.change; 2]),
            p: Some(if is_same { 1.0 } else { 0.0 }),
            ..estimate
        };
    }
    let own = freedom(a, b, scale, runs);
    let [low, high] = interval(&draws, runs, own);
    let (wider, freedom) = between(&[a, b], scale, variance, own);
    let reached = wider * reach(freedom) / reach(own);
    let interval = [low, high].map(|end| scale.back(centre + (end - centre) * reached));
    // How far 0 is from the middle of the draws.
    let beyond = draws.partition_point(|draw| *draw <= 0.0);
    let share = (beyond as f64 + 0.5) / (draws.len() as f64 + 1.0);
    let mut errors = deviations(share).abs();
    if errors > FAR {
        errors = FAR.max(mean.abs() / variance.sqrt());
    }
    let errors = errors / small(runs) / wider;
    Estimate {
        interval: Some(interval),
        p: Some(probability(errors, freedom)),
        ..estimate
    }
}

/// The mean and the variance of values.
fn moments(values: &[f64]) -> (f64, f64) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value - mean).powi(2));
    (mean, squares.sum::<f64>() / count)
}

/// Degrees of freedom of a difference of two sides (Welch 1947): as many as one side has if only that one spreads, twice as
/// many if both do alike.
fn freedom(a: &Sampled, b: &Sampled, scale: Scale, runs: f64) -> f64 {
    let [a, b] = [a, b].map(|side| {
        let values: Vec<f64> = side.draws.iter().map(|draw| scale.of(*draw)).collect();
        moments(&finite(&values).unwrap_or_default()).1
    });
    let squares = a * a + b * b;
    let sides = if squares > 0.0 {
        (a + b).powi(2) / squares
    } else {
        1.0
    };
    (runs - 1.0) * sides
}

/// Draws of few runs lie closer together than what they stand for.
fn small(runs: f64) -> f64 {
    (runs / (runs - 1.0).max(1.0)).sqrt()
}

/// Sorted; `None` when there are none, or many cannot be compared.
fn finite(draws: &[f64]) -> Option<Vec<f64>> {
    let mut kept: Vec<f64> = draws
        .iter()
        .copied()
        .filter(|draw| draw.is_finite())
        .collect();
    kept.sort_by(f64::total_cmp);
    let is_enough = !kept.is_empty() && kept.len() * 20 >= draws.len() * 19;
    is_enough.then_some(kept)
}

/// 95 % of sorted draws, and farther out the fewer runs there are.
fn interval(draws: &[f64], runs: f64, freedom: f64) -> [f64; 2] {
    let share = below(-reach(freedom) * small(runs));
    let at = |share: f64| {
        let place = share * (draws.len() + 1) as f64 - 1.0;
        let place = place.clamp(0.0, (draws.len() - 1) as f64);
        let (one, two) = (draws[place.floor() as usize], draws[place.ceil() as usize]);
        one + (two - one) * place.fract()
    };
    [at(share), at(1.0 - share)]
}

/// What recordings of one side differ by, beyond what their blocks tell: how much wider that makes the interval, and with
/// how many degrees of freedom. A recording alone has no spread of its own: that of the other side stands for both. `variance`
/// is that of the draws of all these sides together.
fn between(sides: &[&Sampled], scale: Scale, variance: f64, own: f64) -> (f64, f64) {
    let values = |side: &&Sampled| side.runs.iter().map(|run| scale.of(*run)).collect();
    let values: Vec<Vec<f64>> = sides.iter().map(values).collect();
    let freedom: usize = values
        .iter()
        .map(|values| values.len().saturating_sub(1))
        .sum();
    let is_known = variance > 0.0 && values.iter().flatten().all(|value| value.is_finite());
    if freedom == 0 || !is_known {
        return (1.0, own);
    }
    let squares = values.iter().map(|values| {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        values
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>()
    });
    let spread = squares.sum::<f64>() / freedom as f64;
    let recordings = values.iter().map(|values| values.len().max(1));
    let shares: f64 = recordings.map(|recordings| 1.0 / recordings as f64).sum();
    // Of a recording alone; all sides together have `variance`.
    let within = variance / shares;
    let more = (spread - within).max(0.0) * shares;
    if more == 0.0 {
        return (1.0, own);
    }
    let all = variance + more;
    let freedom = all.powi(2) / (variance.powi(2) / own.max(1.0) + more.powi(2) / freedom as f64);
    ((all / variance).sqrt(), freedom)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(by: f64) -> Sampled {
        let draws = [-1.0, 1.0].repeat(50);
        Sampled {
            draws: draws.iter().map(|draw| 10.0 + by * draw).collect(),
            ..Sampled::default()
        }
    }

    #[test]
    fn freedom_is_of_whatever_spreads() {
        let of = |a, b| freedom(&spread(a), &spread(b), Scale::Difference, 13.0);
        assert_eq!(of(1.0, 1.0), 24.0);
        assert_eq!(of(1.0, 0.0), 12.0);
        assert_eq!(of(0.0, 0.0), 12.0);
        // (1 + 4)² / (1 + 16) of one side.
        assert!((of(1.0, 2.0) - 12.0 * 25.0 / 17.0).abs() < 1e-9);
    }
}
