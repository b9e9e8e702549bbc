//! Comparisons of made up sides, against what is known of how they were made.

mod world;

use proptest::prelude::*;
use reqtrace_analysis::report::blame::{Cause, Causes};

use self::world::{Service, begin, facts, ledger};
use crate::gate::{Answer, Condition};
use crate::model::{Comparison, Estimate, Measure, TypeComparison, Waterfall};
use crate::{One, Options, Side, compare};

const SECOND: u64 = 1_000_000_000;

fn compared(a: &Side, b: &Side) -> Comparison {
    compare(
        a,
        b,
        Options {
            slo_ns: Some(5_000_000),
            ..Options::default()
        },
    )
}

fn metric(of: &TypeComparison, measure: Measure) -> Estimate {
    of.metrics
        .iter()
        .find(|metric| metric.measure == measure)
        .unwrap()
        .relative
        .unwrap()
}

/// A request: second, on CPU, lock, disk in ns, weight.
type Made = (u64, u64, u64, u64, u32);

fn side(requests: &[Made], seconds: u64) -> Side {
    let mut side = Side::new(None);
    begin(&mut side);
    for (second, on_cpu, lock, disk, weight) in requests {
        let mut causes = Causes::default();
        causes.add(Cause::Disk, *disk);
        side.add(&One {
            request: "order",
            at_ns: second * SECOND,
            ledger: &ledger(*on_cpu, *lock, *disk),
            causes: Some(&causes),
            weight: *weight,
            group: None,
        });
    }
    side.end(facts(seconds));
    side
}

fn requests() -> impl Strategy<Value = Vec<Made>> {
    let ns = || 0_u64..5_000_000_000;
    prop::collection::vec((0_u64..40, ns(), ns(), ns(), 1_u32..9), 100..400)
}

/// Bars add up, and so do both sides.
fn closes(of: &Waterfall) {
    for side in 0..2 {
        assert_eq!(
            of.bars.iter().map(|bar| bar.sides_ns[side]).sum::<u64>(),
            of.total_ns[side]
        );
    }
    assert_eq!(
        of.bars.iter().map(|bar| bar.change_ns).sum::<i64>(),
        of.change_ns
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Means are those of the definition, to the nanosecond, and all waterfalls close.
    #[test]
    fn the_waterfall_is_the_change_of_the_mean_to_the_nanosecond(a in requests(), b in requests()) {
        let comparison = compared(&side(&a, 40), &side(&b, 40));
        let of = &comparison.types[0];
        let parts = of.parts.as_ref().unwrap();
        for (at, made) in [&a, &b].into_iter().enumerate() {
            let weight: u128 = made.iter().map(|one| u128::from(one.4)).sum();
            let sum: u128 = made.iter().map(|one| u128::from(one.1 + one.2 + one.3) * u128::from(one.4)).sum();
            prop_assert_eq!(u128::from(parts.total_ns[at]), (sum + weight / 2) / weight);
        }
        closes(parts);
        closes(of.causes.as_ref().unwrap());
        let tail = of.tail.as_ref().unwrap();
        closes(&tail.parts);
        closes(tail.causes.as_ref().unwrap());
        // Whatever has no cause is a bar.
        let unknown = of.causes.as_ref().unwrap().bars.iter().find(|bar| bar.name.ends_with("not known")).unwrap();
        let lock = parts.bars.iter().find(|bar| bar.name == "lock").unwrap();
        prop_assert!(unknown.sides_ns[0].abs_diff(lock.sides_ns[0]) <= 1);
        // The slowest 1 %, each request split in hundredths.
        let mut hundredths: Vec<u64> = Vec::new();
        for one in &a {
            hundredths.extend(std::iter::repeat_n(one.1 + one.2 + one.3, one.4 as usize * 100));
        }
        hundredths.sort_unstable_by(|one, two| two.cmp(one));
        let kept = hundredths.len() / 100;
        let sum: u128 = hundredths[..kept].iter().map(|ns| u128::from(*ns)).sum();
        let mean = (sum + kept as u128 / 2) / kept as u128;
        prop_assert_eq!(u128::from(tail.parts.total_ns[0]), mean);
    }
}

#[test]
fn a_side_against_itself_has_no_change() {
    let side = Service::default().side(1);
    let comparison = compared(&side, &side);
    let of = &comparison.types[0];
    assert!(
        of.metrics
            .iter()
            .all(|metric| metric.absolute.is_clear != Some(true))
    );
    assert_eq!(of.parts.as_ref().unwrap().change_ns, 0);
    assert!(of.groups.rows.is_empty() && of.groups.noise == 2);
}

#[test]
fn what_changed_is_found_and_what_did_not_is_noise() {
    let (mut marked, mut rows, mut means, mut tails) = (0, 0, 0, 0);
    let service = Service {
        memory: 0.3,
        ..Service::default()
    };
    for seed in 0..10 {
        let a = service.side(seed);
        let null = compared(&a, &service.side(100 + seed));
        for metric in &null.types[0].metrics {
            rows += 1;
            marked += i32::from(metric.relative.unwrap().is_clear == Some(true));
        }
        let slower = Service {
            slower: 1.2,
            ..service
        };
        let slower = compared(&a, &slower.side(200 + seed));
        means += i32::from(metric(&slower.types[0], Measure::Mean).is_clear == Some(true));
        let tail = Service {
            tail: 1.5,
            ..service
        };
        let tail = compared(&a, &tail.side(300 + seed));
        tails += i32::from(metric(&tail.types[0], Measure::P99).is_clear == Some(true));
    }
    assert!(marked * 20 <= rows, "{marked} of {rows}");
    assert!(means >= 8 && tails >= 8, "{means} {tails}");
}

#[test]
fn below_thirty_seconds_nothing_is_known() {
    let short = Service {
        seconds: 29,
        ..Service::default()
    }
    .side(1);
    let comparison = compared(&short, &Service::default().side(2));
    assert!(
        comparison
            .too_short
            .as_ref()
            .unwrap()
            .contains("A has 29.0 s")
    );
    let of = &comparison.types[0];
    assert!(
        of.metrics
            .iter()
            .all(|metric| metric.absolute.interval.is_none() && metric.absolute.is_clear.is_none())
    );
    let answers = Condition::parse("p50 > +10%")
        .unwrap()
        .of(&comparison)
        .unwrap();
    assert!(
        matches!(&answers[..], [Answer::CannotTell(_, Some(30))]),
        "{answers:?}"
    );
}

#[test]
fn a_rare_quantile_has_no_interval() {
    let service = Service {
        rate: 200,
        ..Service::default()
    };
    let comparison = compared(&service.side(1), &service.side(2));
    let interval = |measure| metric(&comparison.types[0], measure).interval;
    // 12,000 requests have 120 beyond p99, and 12 beyond p99.9.
    assert!(interval(Measure::P99).is_some() && interval(Measure::P999).is_none());
    let answers = Condition::parse("order p99.9 > +10%")
        .unwrap()
        .of(&comparison)
        .unwrap();
    assert!(
        matches!(&answers[..], [Answer::CannotTell(_, Some(100))]),
        "{answers:?}"
    );
}

#[test]
fn other_requests_are_told_from_slower_ones() {
    let made = |slow: u64, all: u64| {
        let mut side = Side::new(None);
        begin(&mut side);
        for second in 0..60 {
            for at in 0..all {
                let (group, ns) = if at < slow {
                    ("slow", 9_000_000)
                } else {
                    ("fast", 1_000_000)
                };
                let wobble = (second * 7 + at * 13) % 11 * 1_000;
                side.add(&One {
                    request: "order",
                    at_ns: second * SECOND,
                    ledger: &ledger(ns + wobble, 0, 0),
                    causes: None,
                    weight: 1,
                    group: Some(group),
                });
            }
        }
        side.end(facts(60));
        side
    };
    let comparison = compared(&made(5, 100), &made(10, 100));
    let of = &comparison.types[0];
    let mix = of.mix.as_ref().unwrap();
    assert!((mix.mix.change - 400_000.0).abs() < 2_000.0, "{mix:?}");
    assert!(mix.inside.change.abs() < 2_000.0);
    assert_eq!(of.groups.rows[0].name, "slow");
    let change = of.parts.as_ref().unwrap().change_ns as f64;
    assert!((mix.mix.change + mix.inside.change - change).abs() < 2.0);
}

#[test]
fn recordings_that_differ_widen_the_interval() {
    let alike = compared(
        &recorded(&[1.0, 1.0, 1.0], 1),
        &recorded(&[1.1, 1.1, 1.1], 10),
    );
    let apart = compared(
        &recorded(&[0.9, 1.0, 1.1], 1),
        &recorded(&[1.0, 1.1, 1.2], 10),
    );
    let [alike, apart] =
        [alike, apart].map(|comparison| metric(&comparison.types[0], Measure::Mean));
    assert!(
        alike.is_clear == Some(true) && apart.is_clear == Some(false),
        "{alike:?} {apart:?}"
    );
    let width = |estimate: Estimate| estimate.interval.map(|[low, high]| high - low).unwrap();
    assert!(width(apart) > 3.0 * width(alike));
}

/// A side with a recording for each of these factors of all latencies.
fn recorded(moods: &[f64], seed: u64) -> Side {
    let mut side = Side::new(None);
    for (at, mood) in (0..).zip(moods) {
        let service = Service {
            slower: *mood,
            ..Service::default()
        };
        service.record(&mut side, seed + at);
    }
    side
}

#[test]
fn of_one_recording_against_several_the_spread_of_these_stands_for_both() {
    let one = recorded(&[1.0], 1);
    let mean = |a: &Side, b: &Side| {
        metric(&compared(a, b).types[0], Measure::Mean)
            .interval
            .unwrap()
    };
    let alike = recorded(&[1.1, 1.1, 1.1], 10);
    let apart = recorded(&[0.9, 1.1, 1.3], 10);
    for sides in [[&one, &alike], [&alike, &one]] {
        let [low, high] = mean(sides[0], sides[1]);
        assert!(high - low < 0.25, "{low} {high}");
    }
    let [low, high] = mean(&one, &apart);
    assert!(high.is_finite() && low < -0.1 && high > 0.3, "{low} {high}");
}

#[test]
fn a_value_of_recordings_that_differ_has_a_wider_interval() {
    let answer = |b: &Side| {
        let comparison = compared(&recorded(&[1.0, 1.0, 1.0], 1), b);
        let condition = Condition::parse("order p50 > 1400us").unwrap();
        let answer = condition.of(&comparison).unwrap().remove(0);
        let metrics = &comparison.types[0].metrics;
        let p50 = metrics.iter().find(|one| one.measure == Measure::P50);
        let [low, high] = p50.unwrap().sides[1].interval.unwrap();
        (answer, high - low)
    };
    let (alike, narrow) = answer(&recorded(&[1.5, 1.5, 1.5], 10));
    let (apart, wide) = answer(&recorded(&[1.4, 1.5, 1.6], 10));
    assert!(matches!(alike, Answer::Fails(_)), "{alike:?}");
    assert!(matches!(apart, Answer::CannotTell(..)), "{apart:?}");
    assert!(wide > 3.0 * narrow, "{narrow} {wide}");
}

/// Requests of a millisecond: type, tenths of a second between two of them, and how many.
fn paced(types: &[(&str, u64, u64)], length_ns: u64) -> Side {
    let mut side = Side::new(None);
    begin(&mut side);
    for (request, tenths, count) in types {
        for at in 0..*count {
            side.add(&One {
                request,
                at_ns: at * tenths * SECOND / 10,
                ledger: &ledger(1_000_000 + at % 7, 0, 0),
                causes: None,
                weight: 1,
                group: None,
            });
        }
    }
    side.end(crate::Facts {
        length_ns,
        ..facts(0)
    });
    side
}

fn answer_of(comparison: &Comparison, words: &str) -> Answer {
    let condition = Condition::parse(words).unwrap();
    condition.of(comparison).unwrap().remove(0)
}

#[test]
fn a_type_that_is_gone_or_new_is_a_sure_answer_where_there_is_one() {
    let with = paced(&[("order", 1, 600), ("pay", 1, 600)], 60 * SECOND);
    let without = paced(&[("pay", 1, 600)], 60 * SECOND);
    let gone = compared(&with, &without);
    for words in ["order rate < -5%", "order rate < -1/s", "order rate < 1/s"] {
        let answer = answer_of(&gone, words);
        assert!(matches!(answer, Answer::Fails(_)), "{words}: {answer:?}");
    }
    let answer = answer_of(&gone, "order rate > +5%");
    assert!(matches!(answer, Answer::Passes(_)), "{answer:?}");
    let order = gone.types.iter().find(|of| of.name == "order").unwrap();
    let rate = metric(order, Measure::Rate);
    assert_eq!((rate.change, rate.interval), (-1.0, Some([-1.0; 2])));
    assert_eq!(rate.is_clear, Some(true));
    let new = compared(&without, &with);
    let Answer::CannotTell(words, None) = answer_of(&new, "order rate > +10%") else {
        panic!("{:?}", answer_of(&new, "order rate > +10%"));
    };
    assert_eq!(words, "order rate: A has none, so there is no share of it");
    let answer = answer_of(&new, "order rate > +1/s");
    assert!(matches!(answer, Answer::Fails(_)), "{answer:?}");
    // Two requests may be missing by chance.
    let few = paced(&[("order", 300, 2), ("pay", 1, 600)], 60 * SECOND);
    let answer = answer_of(&compared(&few, &without), "order rate < -5%");
    assert!(matches!(answer, Answer::CannotTell(..)), "{answer:?}");
}

#[test]
fn what_is_too_little_needs_more_than_is_there() {
    let few = paced(&[("order", 300, 2), ("pay", 1, 600)], 60 * SECOND);
    let answer = answer_of(&compared(&few, &few), "order mean > +5%");
    let Answer::CannotTell(_, Some(120)) = answer else {
        panic!("{answer:?}");
    };
}

#[test]
fn the_last_block_of_a_recording_is_as_long_as_what_is_left() {
    let steady = paced(&[("order", 1, 619)], 61_900_000_000);
    let comparison = compared(&steady, &steady);
    let rate = &comparison.types[0].metrics[0];
    assert_eq!(rate.sides[0].value, 10.0);
    assert_eq!(rate.sides[0].interval, Some([10.0; 2]));
    assert_eq!(rate.absolute.interval, Some([0.0; 2]));
}

#[test]
fn of_many_recordings_each_keeps_a_block() {
    let (sender, done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut side = Side::new(None);
        for _ in 0..1_300 {
            begin(&mut side);
            for at in 0..3 {
                side.add(&One {
                    request: "order",
                    at_ns: at * SECOND,
                    ledger: &ledger(1_000_000, 0, 0),
                    causes: None,
                    weight: 1,
                    group: None,
                });
            }
            side.end(facts(3));
        }
        sender.send(Box::new(side))
    });
    // It would never end.
    let side = done
        .recv_timeout(std::time::Duration::from_secs(60))
        .unwrap();
    assert_eq!(side.blocks(), 1_300);
    let blocks = &side.types["order"].blocks;
    assert!(blocks.iter().all(|block| block.weight == 3));
    assert!(side.lengths_ns().iter().all(|ns| *ns == 3 * SECOND));
}

#[test]
fn conditions_are_met_passed_or_open() {
    let service = Service {
        rate: 500,
        ..Service::default()
    };
    let comparison = compared(
        &service.side(1),
        &Service {
            slower: 1.3,
            ..service
        }
        .side(2),
    );
    let answer = |words: &str| {
        Condition::parse(words)
            .unwrap()
            .of(&comparison)
            .unwrap()
            .remove(0)
    };
    assert!(matches!(answer("order mean > +10%"), Answer::Fails(_)));
    assert!(matches!(answer("mean > +60%"), Answer::Passes(_)));
    assert!(matches!(answer("mean > +1us"), Answer::Fails(_)));
    assert!(matches!(answer("order p50 > 10ms"), Answer::Passes(_)));
    assert!(matches!(answer("order p50 < 10ms"), Answer::Fails(_)));
    assert!(matches!(answer("slow > 0.1%"), Answer::Fails(_)));
    let change = metric(&comparison.types[0], Measure::Mean).change * 100.0;
    let near = format!("mean > +{:.2}%", change - 0.5);
    assert!(
        matches!(answer(&near), Answer::CannotTell(_, Some(61..))),
        "{near}: {:?}",
        answer(&near)
    );
    let unknown = Condition::parse("pay p99 > +1%")
        .unwrap()
        .of(&comparison)
        .unwrap_err();
    assert_eq!(
        (unknown.exit_code(), unknown.advice()),
        (2, Some("request types are order"))
    );
    for words in [
        "p99",
        "p98 > 1ms",
        "p99 > ",
        "p99 > 10%",
        "p99 > 5",
        "p99 > 5/s",
        "rate > 5ms",
        "mean > +1%/s",
        "> 5ms",
    ] {
        assert_eq!(
            Condition::parse(words).unwrap_err().exit_code(),
            2,
            "{words}"
        );
    }
}

/// A million requests against a million: the bound is that of optimised code, with room for other load.
#[test]
fn a_million_requests_take_seconds() {
    let service = Service {
        seconds: 500,
        rate: 2_000,
        ..Service::default()
    };
    let (a, b) = (service.side(1), service.side(2));
    let begin = std::time::Instant::now();
    let comparison = compared(&a, &b);
    let took = begin.elapsed();
    assert_eq!(comparison.types[0].count, [1_000_000; 2]);
    println!("{took:?}");
    assert!(took.as_secs() < 30, "{took:?}");
}

/// Blocks get longer, and lose nothing.
#[test]
fn hours_are_kept_in_as_many_blocks_as_minutes() {
    let made: Vec<Made> = (0..9_000)
        .map(|second| (second, 1_000_000 + second, 0, 0, 1))
        .collect();
    let long = side(&made, 9_000);
    let comparison = compared(&long, &long);
    let summary = &comparison.sides[0];
    assert_eq!(summary.block_ns, 16 * SECOND);
    assert_eq!((summary.blocks, summary.requests), (562, 9_000));
    assert_eq!(
        comparison.types[0].parts.as_ref().unwrap().total_ns[0],
        1_004_500
    );
}

/// Culprits and stacks are sums until now; stretches without a request are none.
#[test]
fn items_that_grew_are_new_or_gone_are_told_from_noise() {
    use crate::items::ItemKind::{Culprit, Stack};
    let made = |janitor_ns: u64, seed: u64, stretches: u64| {
        let mut random = crate::chance::Random::new(seed);
        let mut side = Side::new(None);
        begin(&mut side);
        let (mut requests, mut timer, mut janitor) = (0, 0, 0);
        for second in 0..stretches {
            for at in 0..50 {
                let one = ledger(200_000, 800_000 + at * 1_000, 0);
                side.add(&One {
                    request: "order",
                    at_ns: second * SECOND,
                    ledger: &one,
                    causes: None,
                    weight: 1,
                    group: None,
                });
            }
            requests += 50;
            timer += 50 * (300_000 + random.next() % 40_000);
            janitor += 50 * (janitor_ns + random.next() % 4_000);
            let sums = [
                (Culprit, "order".to_owned(), "own: timer".to_owned(), timer),
                (
                    Culprit,
                    "order".to_owned(),
                    "thread janitor: timer".to_owned(),
                    janitor,
                ),
                (Stack, "order".to_owned(), "shop;main;pay".to_owned(), timer),
            ];
            let sums = sums
                .into_iter()
                .filter(|(.., name, _)| janitor_ns > 0 || name != "thread janitor: timer");
            assert!(side.cut([("order".to_owned(), requests)], sums));
            assert!(!side.cut([("order".to_owned(), requests)], []));
        }
        side.end(facts(stretches));
        side
    };
    let [a, mut b] = [made(0, 1, 40), made(90_000, 2, 80)];
    // Whatever becomes one stays as much.
    b.join_cuts(80);
    let comparison = compared(&a, &b);
    let culprits = &comparison.items[0];
    assert_eq!(
        (culprits.rows.len(), culprits.noise),
        (1, 1),
        "{culprits:?}"
    );
    let row = &culprits.rows[0];
    assert_eq!(row.name, "thread janitor: timer");
    assert_eq!(
        crate::Fate::of(row.total_ns, row.estimate.change),
        crate::Fate::New
    );
    assert!((90_000.0..94_000.0).contains(&row.estimate.change));
    assert_eq!(row.total_ns[1] / 4_000, row.each_ns[1] as u64);
    // Stacks of A are scaled to as many requests as B has.
    let stack = &comparison.stacks[0];
    assert!(
        stack.sides_ns[0].abs_diff(stack.sides_ns[1]) * 50 < stack.sides_ns[1],
        "{stack:?}"
    );
    // What is not known of one side is no change of the other.
    let mut unknown = a;
    unknown.facts[0].items = [crate::Known::Nothing; 4];
    let comparison = compared(&unknown, &b);
    assert!(comparison.items.is_empty() && comparison.stacks.is_empty());
    let note = "in the same way: culprits, stacks";
    assert!(
        comparison.notes.iter().any(|words| words.contains(note)),
        "{:?}",
        comparison.notes
    );
}
