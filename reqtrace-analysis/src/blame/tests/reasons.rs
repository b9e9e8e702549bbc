//! Each reason why a root cause is not known.

use reqtrace_recording::{Comm, Header, Options, Unrecorded, WakerIs as Is};

use super::*;

fn sums(recorded: &Recorded) -> Vec<(Outcome, u64)> {
    recorded.blame(1, 50, 300).into_iter().collect()
}

/// Thread 1 is blocked from 100 to 200.
fn blocked(by: By) -> Recorded {
    let mut recorded = Recorded::new();
    recorded.interval(1, Some(50), [100, 200, 220], Some(by));
    recorded
}

#[test]
fn nobody_was_seen() {
    for reason in [Reason::NoWakeup, Reason::InterruptNotNamed] {
        assert_eq!(
            sums(&blocked(By::Nobody(reason))),
            [(unknown(reason, 0), 100)]
        );
    }
}

#[test]
fn the_waker_says_nothing() {
    for (is, reason) in [
        (Is::Unknown, Reason::WakerNotKnown),
        (Is::NotRecorded, Reason::NotRecorded),
        (Is::Helper(200), Reason::NotYetWatched),
    ] {
        let recorded = blocked(By::Thread(thread(2), is));
        assert_eq!(sums(&recorded), [(unknown(reason, 1), 100)]);
    }
}

#[test]
fn between_recorded_requests_there_may_be_others_when_requests_are_sampled() {
    let mut recorded = blocked(By::Thread(thread(2), Is::BetweenRequests));
    recorded.record(2, 90, 130, None, 4);
    assert_eq!(
        sums(&recorded),
        [
            (outcome(Cause::OnCpu, request_of(2, 90), 1), 30),
            (unknown(Reason::NotRecorded, 1), 70),
        ]
    );
}

/// Whoever is in no request then is between requests: all of them have been followed.
#[test]
fn a_record_that_was_chosen_at_its_end_hides_no_request() {
    for (weight, is_drawn) in [(100, false), (1, false), (8, true), (800, true)] {
        let mut recorded = Recorded::chosen(100);
        recorded.record(1, 10, 40, None, weight);
        assert_eq!(recorded.timelines.is_drawn, is_drawn, "{weight}");
        assert!(!recorded.timelines.is_sampled);
    }
    // The guard may have drawn those.
    let header = |one_in| Header {
        holders: true,
        options: Options {
            keep_slow_ns: 1,
            one_in,
            ..Options::default()
        },
        ..Header::default()
    };
    assert_eq!(
        [16, 100].map(|one_in| Unseen::of(&header(one_in)).one_in),
        [0, 100]
    );
}

/// A request with a key that is not recorded is where one that is would be: any thread may have run it.
#[test]
fn a_request_with_a_key_that_is_not_recorded_is_where_it_was() {
    let ran = |has_record: bool| {
        let mut recorded = Recorded::chosen(100);
        if has_record {
            recorded.keyed_record(2, 90, 230);
        } else {
            recorded.timelines.unrecorded(&Unrecorded {
                request_type: 1,
                tgid: 1,
                tid: 2,
                comm: Comm::default(),
                begin_ns: 90,
                end_ns: 230,
            });
        }
        let of = RequestOf {
            begin_ns: 90,
            request_type: 1,
        };
        assert!(recorded.timelines.is_keyed(of));
        [80, 95, 150, 229, 231].map(|at_ns| recorded.timelines.request_at(thread(2), at_ns))
    };
    assert_eq!(ran(false), ran(true));
}

/// Of a request that is not recorded it is known when it was.
#[test]
fn requests_that_are_not_recorded_hold_others_up_all_the_same() {
    let mut recorded = Recorded::with_holders();
    recorded.record(1, 10, 40, None, 16);
    let by = By::Thread(thread(2), Is::BetweenRequests);
    recorded.interval(1, Some(50), [100, 200, 220], Some(by));
    recorded.timelines.unrecorded(&Unrecorded {
        request_type: 0,
        tgid: 1,
        tid: 2,
        comm: Comm::default(),
        begin_ns: 90,
        end_ns: 130,
    });
    assert_eq!(
        sums(&recorded),
        [
            (outcome(Cause::OnCpu, request_of(2, 90), 1), 30),
            (
                outcome(Cause::BetweenRequests, Culprit::Thread(thread(2)), 1),
                70
            ),
        ]
    );
}

#[test]
fn a_request_that_ran_at_the_start_has_no_intervals() {
    let mut recorded = blocked(By::Thread(thread(2), Is::BetweenRequests));
    recorded.record(2, 0, 130, Some(Incomplete::RunningAtStart), 1);
    let between = outcome(Cause::BetweenRequests, Culprit::Thread(thread(2)), 1);
    assert_eq!(
        sums(&recorded),
        [(between, 70), (unknown(Reason::NotRecorded, 1), 30)]
    );
}

#[test]
fn lost_intervals_leave_a_gap() {
    let mut recorded = blocked(By::Thread(thread(2), Is::InRequest(began(150))));
    recorded.interval(2, Some(40), [80, 80, 105], None).lose(2);
    recorded
        .interval(2, Some(150), [180, 180, 190], None)
        .request(2, 40, 120);
    assert_eq!(
        sums(&recorded),
        [
            (outcome(Cause::OnCpu, request_of(2, 150), 1), 10),
            (outcome(Cause::Preempted, request_of(2, 40), 1), 5),
            (outcome(Cause::Preempted, request_of(2, 150), 1), 10),
            // Outside its requests it needs no intervals.
            (
                outcome(Cause::BetweenRequests, Culprit::Thread(thread(2)), 1),
                30
            ),
            (unknown(Reason::Lost, 1), 15 + 30),
        ]
    );
    // The same for a helper.
    let mut recorded = blocked(By::Thread(thread(2), Is::Helper(60)));
    recorded.interval(2, None, [70, 70, 105], None).lose(2);
    recorded.interval(2, None, [180, 180, 190], None);
    let helper = Culprit::Thread(thread(2));
    assert_eq!(
        sums(&recorded),
        [
            (outcome(Cause::OnCpu, helper, 1), 10),
            (outcome(Cause::Preempted, helper, 1), 5 + 10),
            (unknown(Reason::Lost, 1), 75),
        ]
    );
}

#[test]
fn the_end_of_a_request_without_record_is_not_known() {
    let mut recorded = blocked(By::Thread(thread(2), Is::BetweenRequests));
    recorded.interval(2, Some(80), [110, 110, 120], None);
    assert_eq!(
        sums(&recorded),
        [
            (outcome(Cause::OnCpu, request_of(2, 80), 1), 10),
            (outcome(Cause::Preempted, request_of(2, 80), 1), 10),
            (unknown(Reason::Lost, 1), 80),
        ]
    );
}

#[test]
fn what_was_forgotten_is_not_made_up() {
    let mut recorded = Recorded::new();
    recorded
        .interval(
            2,
            Some(20),
            [100, 110, 115],
            Some(By::Interrupt(Cause::Disk)),
        )
        .interval(
            2,
            Some(20),
            [130, 140, 145],
            Some(By::Interrupt(Cause::Disk)),
        )
        .interval(1, Some(50), [90, 200, 220], by(2, Is::InRequest(began(20))));
    recorded.timelines.forget_oldest();
    let whose = request_of(2, 20);
    assert_eq!(
        sums(&recorded),
        [
            (outcome(Cause::OnCpu, whose, 1), 15 + 55),
            (outcome(Cause::RunQueue, whose, 1), 5),
            (outcome(Cause::Disk, whose, 1), 10),
            (unknown(Reason::Forgotten, 1), 25),
        ]
    );
    // Of a request that is forgotten nobody says that its thread was between requests.
    recorded.timelines.forget_oldest();
    let sums = sums(&recorded);
    assert!(!sums.is_empty());
    assert!(
        sums.iter()
            .all(|(outcome, _)| outcome.cause != Cause::BetweenRequests),
        "{sums:?}"
    );
}

#[test]
fn a_chain_has_an_end() {
    let mut recorded = Recorded::new();
    let deepest = u32::from(MAX_DEPTH) + 1;
    for tid in 1..=deepest {
        let waker = by(tid + 1, Is::InRequest(began(50)));
        recorded.interval(tid, Some(50), [100, 200 - u64::from(tid), 210], waker);
    }
    recorded.interval(
        deepest + 1,
        Some(50),
        [100, 120, 210],
        Some(By::Interrupt(Cause::Timer)),
    );
    let sums = recorded.blame(1, 50, 300);
    assert_eq!(sums.values().sum::<u64>(), 99);
    // 1 waits for 2, and so on until the last of as many as are looked at, which waits for one more.
    let left = sums[&unknown(Reason::TooDeep, MAX_DEPTH)];
    assert_eq!(left, 200 - u64::from(deepest) - 100);
    let last = outcome(Cause::RunQueue, request_of(deepest, 50), MAX_DEPTH);
    assert_eq!(sums[&last], 1);
}

#[test]
fn the_work_for_a_request_has_an_end() {
    let mut recorded = Recorded::new();
    let preemptions = 2 * MAX_PIECES as u64;
    for at in 0..preemptions {
        recorded.interval(2, None, [10 * at + 100, 10 * at + 100, 10 * at + 105], None);
    }
    let end = 10 * preemptions + 100;
    recorded.interval(1, Some(50), [100, end, end + 1], by(2, Is::Helper(60)));
    let sums = recorded.blame(1, 50, end + 2);
    assert_eq!(sums.values().sum::<u64>(), end - 100);
    let left = sums[&unknown(Reason::TooMany, 1)];
    assert!((end / 2..end).contains(&left), "{left} of {end}");
}

#[test]
fn threads_that_come_and_go_take_no_memory_without_end() {
    const MOST: usize = 32 << 20;
    let mut recorded = Recorded::of_at_most(MOST);
    for tid in 0..300_000 {
        let at = u64::from(tid) * 10 + 100;
        recorded
            .interval(
                tid,
                Some(at),
                [at + 1, at + 2, at + 3],
                Some(By::Interrupt(Cause::Disk)),
            )
            .request(tid, at, at + 5);
        let bytes = recorded.timelines.bytes;
        assert!(bytes <= MOST + (1 << 10), "{bytes} bytes at {tid}");
    }
    let (threads, intervals, requests) = recorded.timelines.kept();
    assert!(
        intervals > 20_000 && requests > 20_000,
        "{intervals} {requests}"
    );
    assert!(threads <= (1 << 15) + intervals + requests, "{threads}");
}
