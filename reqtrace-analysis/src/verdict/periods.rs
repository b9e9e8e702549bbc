//! Periods: begins of episodes in; how often they come out, if they come regularly.
//!
//! A Rayleigh test over many periods: each begin is an angle, and regular ones point the same way. How large the
//! largest of so many tests gets by itself is seen with irregular episodes that come in bursts as these do: the gaps
//! between them, permuted, each by itself made shorter or longer.

use std::f64::consts::TAU;

use super::random::Random;
use crate::report::verdict::Cadence;

/// Fewer episodes have no period.
const FEWEST: usize = 6;
/// Episodes that are looked at, the first.
const MOST: usize = 32;
/// A period is as long as this part of the mean gap at least: a shorter one fits anything.
const SHORTEST: f64 = 0.5;
/// Times that the episodes last through a period, at least.
const FEWEST_TURNS: f64 = 3.0;
/// Steps of the frequency to a turn.
const STEPS: f64 = 8.0;
/// Permutations, and how many of them may be as regular: p ≤ 0.001.
const PERMUTATIONS: usize = 1_999;
const AS_REGULAR: usize = 1;
/// Parts of a period fit as well as the period: one that has this part of the largest power is the period, and the
/// largest is that of its half, third or fourth.
const NEARLY: f64 = 0.5;
const PARTS: [usize; 3] = [4, 3, 2];
/// What the tracer does by itself, ns: it looks at its rings, writes and refreshes.
const TICKS_NS: [f64; 4] = [50e6, 200e6, 1e9, 10e9];
/// A period is that of a tick if it differs by this part at most.
const IS_TICK: f64 = 0.002;

/// The period of episodes that began then, `CLOCK_MONOTONIC` ns, in order. `tracer`: the tracer itself may have made
/// them, so that one of its own periods is none.
pub(super) fn of(begins_ns: &[u64], tracer: bool) -> Option<Cadence> {
    let first = *begins_ns.first()?;
    let begins: Vec<f64> = begins_ns
        .iter()
        .take(MOST)
        .map(|begin| (begin - first) as f64)
        .collect();
    let span = *begins.last()?;
    if begins.len() < FEWEST || span <= 0.0 {
        return None;
    }
    let own = spectrum(&begins);
    let largest = own.iter().copied().fold(0.0, f64::max);
    let mut random = Random::of(begins_ns.iter().copied());
    let mut gaps: Vec<f64> = begins.windows(2).map(|two| two[1] - two[0]).collect();
    let mut as_regular = 0;
    for _ in 0..PERMUTATIONS {
        random.shuffle(&mut gaps);
        let mut at = 0.0;
        let mut other = vec![0.0];
        for gap in &gaps {
            at += gap * 2.0 * random.fraction();
            other.push(at);
        }
        let theirs = spectrum(&other).iter().copied().fold(0.0, f64::max);
        as_regular += usize::from(theirs >= largest);
        if as_regular > AS_REGULAR {
            return None;
        }
    }
    let turns = turns(&own, largest);
    let period_ns = span / turns;
    let is_tick = TICKS_NS
        .iter()
        .any(|tick| (period_ns / tick - 1.0).abs() < IS_TICK);
    (!(tracer && is_tick)).then(|| Cadence {
        period_ns: period_ns.round() as u64,
        p: (as_regular + 1) as f64 / (PERMUTATIONS + 1) as f64,
    })
}

/// Turns of the period in the whole time.
fn turns(spectrum: &[f64], largest: f64) -> f64 {
    let top = spectrum.iter().position(|power| *power >= largest);
    let mut at = top.unwrap_or(0);
    let first = (FEWEST_TURNS * STEPS) as usize;
    let width = STEPS as usize / 2;
    for part in PARTS {
        let middle = (at + first) / part;
        if middle < first {
            continue;
        }
        let near =
            (middle - first).saturating_sub(width)..(middle - first + width).min(spectrum.len());
        let peak = near.max_by(|one, other| spectrum[*one].total_cmp(&spectrum[*other]));
        if let Some(peak) = peak.filter(|peak| spectrum[*peak] >= NEARLY * largest) {
            at = peak;
            break;
        }
    }
    // The top of the parabola through the peak and its neighbours.
    let power = |at: Option<usize>| at.and_then(|at| spectrum.get(at)).copied();
    let shift = match (
        power(at.checked_sub(1)),
        power(Some(at)),
        power(Some(at + 1)),
    ) {
        (Some(before), Some(top), Some(after)) if before + after < 2.0 * top => {
            (before - after) / (before + after - 2.0 * top) / 2.0
        }
        _ => 0.0,
    };
    FEWEST_TURNS + (at as f64 + shift) / STEPS
}

/// Rayleigh's power at each number of turns: 0 to the number of episodes.
fn spectrum(begins: &[f64]) -> Vec<f64> {
    let count = begins.len() as f64;
    let span = begins.last().copied().unwrap_or(1.0).max(1.0);
    let most = (count - 1.0) / SHORTEST;
    let steps = ((most - FEWEST_TURNS) * STEPS).max(0.0) as usize + 1;
    let mut sums = vec![(0.0, 0.0); steps];
    for begin in begins {
        let angle = TAU * begin / span;
        let (mut sin, mut cos) = (angle * FEWEST_TURNS).sin_cos();
        let (step_sin, step_cos) = (angle / STEPS).sin_cos();
        for (x, y) in &mut sums {
            *x += cos;
            *y += sin;
            (cos, sin) = (
                cos * step_cos - sin * step_sin,
                sin * step_cos + cos * step_sin,
            );
        }
    }
    sums.into_iter()
        .map(|(x, y)| (x * x + y * y) / count)
        .collect()
}
