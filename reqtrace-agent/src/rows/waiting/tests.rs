//! Who is kept, in which order, and that the sums stay what they are.

use reqtrace_analysis::report::{Ledger, Origin, RequestRow};
use reqtrace_base::plain::Plain;

use super::*;
use crate::choice::Choice;

const MS: u64 = 1_000_000;
const SLOW_NS: u64 = 20 * MS;

fn key(id: u64) -> RequestKey {
    RequestKey {
        pid: 1,
        tid: 2,
        since_start_ns: id as i64,
    }
}

pub(crate) fn row(id: u64, latency_ns: u64, kept: Kept) -> Row {
    let ledger = Ledger {
        latency_ns,
        ..Ledger::default()
    };
    let none = Plain::default();
    let row = RequestRow {
        id,
        origin: Origin::default(),
        start_unix_ns: 0,
        since_start_ns: id as i64,
        request: "command",
        pid: 1,
        tid: 2,
        comm: &none,
        label: &none,
        attributes: &[],
        ledger: &ledger,
        blocks: 0,
        preemptions: 0,
        incomplete: None,
        weight: kept.weight,
        slow: None,
        waited_before_ns: None,
        lost: None,
        is_keyed: false,
        causes: None,
        blames: &[],
        kept: None,
    };
    Row::of(&row, kept, false)
}

fn kept(weight: u32, why: KeptFor) -> Kept {
    Kept {
        weight,
        is_slow: Some(why == KeptFor::Slow),
        why,
    }
}

impl Waiting {
    /// A request that is not slow, and stands for three; the kernel draws one in ten.
    fn add(&mut self, id: u64, is_drawn: bool, now: Instant) {
        let drawn = is_drawn.then(|| kept(30, KeptFor::Drawn));
        let fate = Fate::of(drawn, 3, Some(false), true).unwrap();
        let row = row(id, MS, kept(3, KeptFor::Blamed));
        self.push(key(id), row, fate, now);
    }

    fn leave_all(&mut self, now: Instant) -> Vec<(u64, u32, KeptFor)> {
        let mut all = Vec::new();
        while let Some(row) = self.next(now) {
            let lent = row.lend("", "", 0);
            all.push((lent.id, lent.weight, lent.kept.unwrap()));
        }
        all
    }
}

#[test]
fn one_that_is_blamed_counts_for_itself_whether_it_is_drawn_or_not() {
    let (mut waiting, begin) = (Waiting::default(), Instant::now());
    // It is named before its row comes.
    waiting.blame(&key(6));
    for id in 1..=6 {
        waiting.add(id, id.is_multiple_of(2), begin);
    }
    let slow = Fate::of(Some(kept(3, KeptFor::Slow)), 3, Some(true), true).unwrap();
    waiting.push(
        key(7),
        row(7, SLOW_NS + 1, kept(3, KeptFor::Slow)),
        slow,
        begin,
    );
    // A slow one may be named, too.
    for id in [3, 4, 7] {
        waiting.blame(&key(id));
    }
    let before = begin + PATIENCE - Duration::from_nanos(1);
    assert_eq!(waiting.leave_all(before), [], "it waits");
    let wanted = [
        (2, 30, KeptFor::Drawn),
        (3, 3, KeptFor::Blamed),
        (4, 3, KeptFor::Blamed),
        (6, 3, KeptFor::Blamed),
        (7, 3, KeptFor::Slow),
    ];
    assert_eq!(waiting.leave_all(begin + PATIENCE), wanted);
    assert_eq!(waiting.take_missed(), [0, 0]);
    assert_eq!((waiting.bytes, waiting.open.len()), (0, 0));
    // The row of 1 was left out, that of 2 is there.
    waiting.blame(&key(1));
    waiting.blame(&key(2));
    assert_eq!(waiting.take_missed(), [0, 1]);
    assert_eq!(waiting.take_missed(), [0, 0], "it is counted once");
}

#[test]
fn without_room_the_first_leave_drawn_or_not_and_are_counted() {
    let (mut waiting, now) = (Waiting::default(), Instant::now());
    waiting.add(1, false, now);
    waiting.most_bytes = 3 * waiting.bytes;
    waiting.blame(&key(1));
    for id in 2..=7 {
        waiting.add(id, id == 3, now);
    }
    let wanted = [(1, 3, KeptFor::Blamed), (3, 30, KeptFor::Drawn)];
    assert_eq!(waiting.leave_all(now), wanted);
    assert_eq!(waiting.rows.len(), 3);
    // 1 had been decided; 2, 3 and 4 had not.
    assert_eq!(waiting.take_missed(), [3, 0]);
    // At the end nobody comes any more who could name them.
    assert!(waiting.next_of_all(false).is_none());
    assert_eq!(waiting.take_missed(), [0, 0]);
    waiting.add(8, true, now);
    assert!(waiting.next_of_all(true).is_some());
    assert_eq!(waiting.take_missed(), [1, 0]);
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut waiting = Waiting::default();
    for id in 0..2 * MOST_KEYS as u64 {
        waiting.blame(&key(id));
    }
    assert_eq!(waiting.named.order.len(), MOST_KEYS);
    assert!(waiting.named.set.len() <= MOST_KEYS);
    let now = Instant::now();
    let last = 2 * MOST_KEYS as u64 - 1;
    waiting.add(last, false, now);
    waiting.add(0, false, now);
    let wanted = [(last, 3, KeptFor::Blamed)];
    assert_eq!(waiting.leave_all(now + PATIENCE), wanted);
}

/// A service whose latency goes with the load in a period of 100 requests, and where one in 50 is slow: it was held up by
/// longer ones before it, of which some have left, and by one that ends later.
fn latency_ns(id: u64) -> u64 {
    match id % 50 {
        0 => SLOW_NS + 1 + id,
        at => 100_000 + (at + 50 * (id / 50 % 2)) * 150_000,
    }
}

fn held_up(id: u64) -> [u64; 4] {
    [id - 3, id - 9, id - 45, id + 4]
}

/// Σ weight and Σ weight × latency: of what is kept, of the same if those that are blamed and drawn counted n times, and the
/// variance of the first. How many were blamed, how many left early.
struct Sums {
    kept: [f64; 2],
    wrong: [f64; 2],
    variance: [f64; 2],
    blamed: u64,
    early: u64,
}

fn simulated(salt: u64, requests: u64, one_in: u32) -> Sums {
    let choice = Choice::salted(one_in, salt);
    let choose = |id: u64| choice.of(id, latency_ns(id), 1, true, Some(SLOW_NS));
    let mut waiting = Waiting {
        // Room for some 30 rows.
        most_bytes: 20_000,
        ..Waiting::default()
    };
    let mut sums = Sums {
        kept: [0.0; 2],
        wrong: [0.0; 2],
        variance: [0.0; 2],
        blamed: 0,
        early: 0,
    };
    let mut add = |row: &Row| {
        let lent = row.lend("", "", 0);
        let weight = f64::from(lent.weight);
        let is_blamed = lent.kept == Some(KeptFor::Blamed);
        let is_drawn = choose(lent.id).is_some();
        let wrong = match is_blamed && is_drawn {
            true => weight * f64::from(one_in),
            false => weight,
        };
        sums.blamed += u64::from(is_blamed);
        for (at, x) in [1.0, lent.ledger.latency_ns as f64].into_iter().enumerate() {
            sums.kept[at] += weight * x;
            sums.wrong[at] += wrong * x;
            sums.variance[at] += weight * (weight - 1.0) * x * x;
        }
    };
    let now = Instant::now();
    for id in 100..100 + requests {
        let chosen = choose(id);
        let fate = Fate::of(chosen, 1, Some(latency_ns(id) > SLOW_NS), true).unwrap();
        if matches!(fate, Fate::Kept(_)) {
            for other in held_up(id) {
                waiting.blame(&key(other));
            }
        }
        let (Fate::Kept(kept) | Fate::Open { blamed: kept, .. }) = fate;
        waiting.push(key(id), row(id, latency_ns(id), kept), fate, now);
        while let Some(row) = waiting.next(now) {
            add(&row);
        }
    }
    while let Some(row) = waiting.next_of_all(false) {
        add(&row);
    }
    sums.early = waiting.take_missed()[0];
    sums
}

#[test]
fn blame_leaves_the_sums_as_they_are() {
    const REQUESTS: u64 = 4_000;
    const RUNS: u64 = 300;
    let all: u64 = (100..100 + REQUESTS).map(latency_ns).sum();
    let truth = [REQUESTS as f64, all as f64];
    let (mut kept, mut wrong, mut variance) = ([0.0; 2], [0.0; 2], [0.0; 2]);
    let mut within = [0; 2];
    for salt in 0..RUNS {
        let sums = simulated(salt, REQUESTS, 10);
        assert!(sums.early > REQUESTS / 2, "{} left early", sums.early);
        // Of four that each slow one names two are there in time, and one comes later.
        assert!(sums.blamed >= 2 * REQUESTS / 50, "{}", sums.blamed);
        for at in 0..2 {
            let error = sums.kept[at] - truth[at];
            kept[at] += error;
            wrong[at] += sums.wrong[at] - truth[at];
            variance[at] += sums.variance[at];
            within[at] += u64::from(error.abs() <= 1.96 * sums.variance[at].sqrt());
        }
    }
    for at in 0..2 {
        let deviation = variance[at].sqrt();
        assert!(kept[at].abs() < 3.0 * deviation, "{} {deviation}", kept[at]);
        assert!(
            (275..=297).contains(&within[at]),
            "{} of {RUNS}",
            within[at]
        );
        // The other rule shows in the same runs: this test can tell.
        assert!(wrong[at] > 6.0 * deviation, "{} {deviation}", wrong[at]);
    }
}
