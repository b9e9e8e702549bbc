//! Periods: of episodes that have one, and of those that have none.

use crate::report::verdict::Cadence;
use crate::verdict::periods;
use crate::verdict::random::Random;

const SECOND: f64 = 1e9;
/// Incidents without a period in which one may be found.
const FOUND_BY_CHANCE: usize = 3;

fn period(begins: &[f64]) -> Option<Cadence> {
    let mut begins: Vec<u64> = begins.iter().map(|begin| *begin as u64).collect();
    begins.sort_unstable();
    periods::of(&begins, true)
}

/// Some time after which something comes that comes at random, of this mean.
fn waits(random: &mut Random, mean: f64) -> f64 {
    -mean * (1.0 - random.fraction()).ln()
}

fn at_random(random: &mut Random, count: usize) -> Vec<f64> {
    let mut at = 0.0;
    let times = (0..count).map(|_| {
        at += waits(random, SECOND);
        at
    });
    times.collect()
}

/// Bursts at random, of a few episodes each.
fn in_bursts(random: &mut Random, count: usize) -> Vec<f64> {
    let mut all = Vec::new();
    let mut at = 0.0;
    while all.len() < count {
        at += waits(random, 5.0 * SECOND);
        let mut within = at;
        for _ in 0..=random.below(8) {
            all.push(within);
            within += waits(random, SECOND / 10.0);
        }
        at = within;
    }
    all
}

/// One after the other, none sooner than after some time, as episodes that do not overlap are.
fn with_rests(random: &mut Random, count: usize) -> Vec<f64> {
    let mut at = 0.0;
    let times = (0..count).map(|_| {
        at += 0.3 * SECOND + waits(random, SECOND);
        at
    });
    times.collect()
}

#[test]
fn episodes_without_a_period_have_none() {
    let mut random = Random::of([7].into_iter());
    let kinds: [fn(&mut Random, usize) -> Vec<f64>; 3] = [at_random, in_bursts, with_rests];
    for (which, make) in kinds.iter().enumerate() {
        let found = (0..1_000).filter(|number| {
            let count = 6 + number % 60;
            period(&make(&mut random, count)).is_some()
        });
        let found = found.count();
        assert!(found <= FOUND_BY_CHANCE, "{which}: {found}");
    }
}

#[test]
fn regular_episodes_have_their_period() {
    let mut random = Random::of([8].into_iter());
    // How many, how far from their time, how many are missing of 100, others per regular one of 100.
    for (count, shaken, missing, others, least) in [
        (8, 0.01, 0, 0, 38),
        (16, 0.05, 0, 0, 38),
        (24, 0.05, 10, 10, 35),
        (40, 0.1, 10, 20, 32),
    ] {
        let mut found = 0;
        for _ in 0..40 {
            let every = SECOND * (0.2 + 3.0 * random.fraction());
            let mut begins = Vec::new();
            for turn in 0..count {
                if random.below(100) >= missing {
                    let off = (random.fraction() - 0.5) * 2.0 * shaken;
                    begins.push(every * (f64::from(turn) + 1.0 + off));
                }
                if random.below(100) < others {
                    begins.push(every * f64::from(count) * random.fraction());
                }
            }
            if let Some(cadence) = period(&begins) {
                let off = cadence.period_ns as f64 / every - 1.0;
                assert!(off.abs() < 0.05, "{count} {shaken}: {off}");
                assert!(cadence.p <= 0.001);
                found += 1;
            }
        }
        assert!(
            found >= least,
            "{count} {shaken} {missing} {others}: {found}"
        );
    }
}

#[test]
fn few_episodes_and_the_ticks_of_the_tracer_have_no_period() {
    let every = |every: f64, count: i32| -> Vec<u64> {
        (1..=count)
            .map(|turn| (every * f64::from(turn)) as u64)
            .collect()
    };
    assert_eq!(periods::of(&every(SECOND, 5), false), None);
    assert_eq!(periods::of(&[], false), None);
    assert_eq!(periods::of(&[5; 9], false), None);
    let ticks = every(SECOND, 20);
    assert_eq!(periods::of(&ticks, true), None);
    let by_another = periods::of(&ticks, false).unwrap();
    assert!(
        by_another.period_ns.abs_diff(1_000_000_000) < 10_000_000,
        "{by_another:?}"
    );
    assert_eq!(periods::of(&ticks, false), Some(by_another));
}
