//! The state machine against an oracle that adds up nanosecond by nanosecond, over arbitrary orders of
//! markers: lost, repeated, swapped, and on any thread.

mod oracle;
mod tables;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use self::oracle::{Done, Oracle, State};
use self::tables::Tables;
use super::*;
use crate::cookie::Reentry;
use crate::marker::MAX_PLACES;
use crate::record::RequestRecord;
use crate::thread::{Begin, BeginAction, RequestState};

const THREADS: u32 = 3;
const KEYS: u64 = 4;
const TYPE: u32 = 0;
/// A request type without a key.
const PLAIN: u32 = 1;

/// What happens, a while after what happened before.
#[derive(Clone, Copy, Debug)]
enum Event {
    Begin {
        key: u64,
        or_resume: bool,
        queued: bool,
    },
    Resume {
        key: u64,
        place: u32,
        touch: bool,
    },
    Park {
        key: Option<u64>,
        place: u32,
    },
    Ready {
        key: Option<u64>,
        place: u32,
    },
    Adopt {
        key: u64,
        to: u64,
    },
    End {
        key: Option<u64>,
    },
    PlainBegin,
    PlainEnd,
}

/// Drives the state machine as the kernel programs do.
struct Driver {
    tables: Tables,
}

/// A thread takes a hit, if it takes none just now.
fn take(tables: &mut Tables, tid: u32, event: Event) {
    let Some(mut thread) = tables.threads[tid as usize].take() else {
        return;
    };
    tables.tell(tid, &mut thread);
    match event {
        Event::PlainBegin | Event::PlainEnd => plain(&mut thread, tables.now, event),
        event => hit(tables, &mut thread, &hit_of(tid, event)),
    }
    tables.tell(tid, &mut thread);
    tables.threads[tid as usize] = Some(thread);
}

fn id(key: u64) -> KeyId {
    KeyId {
        tgid: 7,
        request_type: TYPE,
        key: [key, 3],
    }
}

fn hit_of(tid: u32, event: Event) -> Hit {
    let mut of = Hit {
        op: op::NONE,
        flags: 0,
        place: 0,
        id: id(0),
        to: id(0),
        tid,
    };
    let keyed = |hit: &mut Hit, key: Option<u64>| match key {
        Some(key) => hit.id = id(key),
        None => hit.flags |= marker_flag::CURRENT,
    };
    match event {
        Event::Begin {
            key,
            or_resume,
            queued,
        } => {
            of.op = op::BEGIN;
            keyed(&mut of, Some(key));
            if or_resume {
                of.flags |= marker_flag::OR_RESUME;
            }
            if queued {
                of.flags |= marker_flag::QUEUED;
            }
        }
        Event::Resume { key, place, touch } => {
            of.op = op::RESUME;
            of.place = place;
            keyed(&mut of, Some(key));
            if touch {
                of.flags |= marker_flag::TOUCH;
            }
        }
        Event::Park { key, place } => {
            of.op = op::PARK;
            of.place = place + 1;
            keyed(&mut of, key);
        }
        Event::Ready { key, place } => {
            of.op = op::READY;
            of.place = place + 1;
            keyed(&mut of, key);
        }
        Event::Adopt { key, to } => {
            of.op = op::ADOPT;
            keyed(&mut of, Some(key));
            of.to = id(to);
        }
        Event::End { key } => {
            of.op = op::END;
            keyed(&mut of, key);
        }
        Event::PlainBegin | Event::PlainEnd => {}
    }
    of
}

/// What `request_begin` and `request_end` do.
fn plain(thread: &mut Thread, now: u64, event: Event) {
    let is_open = thread.request.status == status::OPEN;
    let begin = Begin {
        now,
        request_type: PLAIN,
        reentry: Reentry::Nest,
        sp: 0,
        return_address: 0,
        weight: 1,
    };
    if matches!(event, Event::PlainBegin) {
        if matches!(thread.request.on_begin(&begin), BeginAction::Open) {
            thread.open(&begin);
        }
    } else if is_open && thread.request.keyed.is_keyed == 0 {
        thread.close(now, reason::COMPLETE);
    }
}

impl Driver {
    fn new() -> Self {
        let mut threads = vec![Some(Thread::ZERO); THREADS as usize];
        for (tid, thread) in threads.iter_mut().flatten().enumerate() {
            thread.state.tid = tid as u32;
        }
        Self {
            tables: Tables {
                now: 1000,
                room: 1000,
                room_parked: 1000,
                weight: 1,
                threads,
                ..Tables::default()
            },
        }
    }

    fn event(&mut self, tid: u32, event: Event) {
        take(&mut self.tables, tid, event);
    }

    /// What a thread runs.
    fn runs(&self, tid: u32) -> Option<&RequestState> {
        let thread = self.tables.threads[tid as usize].as_ref()?;
        let request = &thread.request;
        let runs = request.status == status::OPEN
            && request.keyed.is_keyed != 0
            && !request.keyed.is_taken();
        runs.then_some(request)
    }

    fn pass(&mut self, ns: u64) {
        self.tables.now += ns;
    }

    fn sent(&self) -> Vec<Done> {
        let sent = self.tables.sent.iter();
        sent.map(|(record, extra)| {
            (
                record.begin_ns,
                record.end_ns,
                extra.away_ns,
                extra.moves,
                record.reason == reason::COMPLETE,
            )
        })
        .collect()
    }
}

fn key() -> impl Strategy<Value = u64> {
    0..KEYS
}

fn maybe_key() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![2 => key().prop_map(Some), 1 => Just(None)]
}

fn event() -> impl Strategy<Value = Event> {
    let place = 0..MAX_PLACES as u32;
    prop_oneof![
        4 => (key(), 0..4).prop_map(|(key, way)| Event::Begin {
            key,
            or_resume: way == 1,
            queued: way == 2,
        }),
        6 => (key(), 0..=MAX_PLACES as u32, any::<bool>())
            .prop_map(|(key, place, touch)| Event::Resume { key, place, touch }),
        4 => (maybe_key(), place.clone()).prop_map(|(key, place)| Event::Park { key, place }),
        3 => (maybe_key(), place).prop_map(|(key, place)| Event::Ready { key, place }),
        1 => (key(), key()).prop_map(|(key, to)| Event::Adopt { key, to }),
        3 => maybe_key().prop_map(|key| Event::End { key }),
        1 => Just(Event::PlainBegin),
        1 => Just(Event::PlainEnd),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn every_order_of_markers_is_what_the_oracle_says(
        events in prop::collection::vec((0..THREADS, 1_u64..1000, event()), 1..80),
    ) {
        let mut driver = Driver::new();
        let mut oracle = Oracle { now: 1000, ..Oracle::default() };
        for (tid, ns, event) in events {
            driver.pass(ns);
            oracle.pass(ns);
            driver.event(tid, event);
            oracle.event(tid, event);
            prop_assert_eq!(&driver.sent(), &oracle.done);
            for tid in 0..THREADS {
                let believed = oracle.run_by(tid).map(|index| oracle.live[index].begin_ns);
                let runs = driver.runs(tid).map(|request| request.record.begin_ns);
                prop_assert_eq!(runs, believed);
                let is_looked_at = driver.tables.flags.get(&tid).copied();
                prop_assert!(runs.is_none() || is_looked_at == Some(true));
            }
        }
        // What is parked at the end has its time, and the ledger closes.
        let away = oracle.live.iter().filter(|request| matches!(request.state, State::Away(..)));
        prop_assert_eq!(driver.tables.parked.len(), away.count());
        for (record, extra) in &driver.tables.sent {
            prop_assert!(extra.sum_ns() <= record.latency_ns());
            prop_assert!(extra.queued_ns <= extra.sum_ns());
        }
        let in_intervals: u64 = driver.tables.aways.iter().map(|(_, since, until)| until - since).sum();
        let in_requests: u64 = driver.tables.sent.iter().map(|(_, extra)| extra.sum_ns()).sum();
        prop_assert!(in_requests <= in_intervals);
    }
}

fn begin(key: u64) -> Event {
    Event::Begin {
        key,
        or_resume: false,
        queued: false,
    }
}

fn resume(key: u64) -> Event {
    Event::Resume {
        key,
        place: 0,
        touch: false,
    }
}

#[test]
fn a_pool_has_queued_time_and_a_move() {
    let mut driver = Driver::new();
    driver.event(0, begin(1));
    driver.pass(10);
    driver.event(
        0,
        Event::Ready {
            key: Some(1),
            place: 2,
        },
    );
    driver.pass(30);
    driver.event(1, resume(1));
    driver.pass(5);
    driver.event(1, Event::End { key: Some(1) });
    let (record, extra) = driver.tables.sent[0];
    assert_eq!(
        (record.begin_ns, record.end_ns, record.tid),
        (1000, 1045, 1)
    );
    assert_eq!(
        (extra.away_ns[2], extra.queued_ns, extra.moves),
        (30, 30, 1)
    );
    assert!(driver.tables.misfits.is_empty());
}

#[test]
fn a_resume_of_what_nothing_made_ready_is_counted() {
    let mut driver = Driver::new();
    let ready = || Event::Ready {
        key: Some(1),
        place: 2,
    };
    let park = || Event::Park {
        key: None,
        place: 1,
    };
    driver.event(0, begin(1));
    // Made ready after it was parked, before, and not at all.
    driver.event(0, park());
    driver.event(1, ready());
    driver.event(1, resume(1));
    driver.event(2, ready());
    driver.event(1, park());
    driver.event(1, resume(1));
    assert_eq!((driver.tables.resumed, driver.tables.not_ready), (2, 0));
    driver.event(1, park());
    driver.event(0, resume(1));
    // Taken from the thread that runs it.
    driver.event(2, resume(1));
    assert_eq!((driver.tables.resumed, driver.tables.not_ready), (3, 1));
    // An end that finds it parked resumes nothing.
    driver.event(2, park());
    driver.event(0, Event::End { key: Some(1) });
    assert_eq!((driver.tables.resumed, driver.tables.sent.len()), (3, 1));
}

#[test]
fn a_request_that_is_ready_before_it_is_parked_is_queued_at_once() {
    let mut driver = Driver::new();
    driver.event(0, begin(1));
    driver.event(
        1,
        Event::Ready {
            key: Some(1),
            place: 3,
        },
    );
    driver.pass(10);
    driver.event(
        0,
        Event::Park {
            key: None,
            place: 1,
        },
    );
    driver.pass(20);
    driver.event(0, resume(1));
    driver.event(0, Event::End { key: None });
    let (_, extra) = driver.tables.sent[0];
    assert_eq!((extra.away_ns[1], extra.away_ns[3]), (0, 20));
}

#[test]
fn an_end_on_behalf_of_another_request_leaves_the_own_one_alone() {
    let mut driver = Driver::new();
    driver.event(0, begin(1));
    let parked = Event::Park {
        key: None,
        place: 1,
    };
    driver.event(0, parked);
    driver.pass(10);
    driver.event(0, begin(2));
    driver.pass(5);
    driver.event(0, Event::End { key: Some(1) });
    let read = driver.tables.read.last().copied();
    assert_eq!(
        read,
        Some(1000),
        "attributes at the end are those of the request that ends"
    );
    driver.pass(5);
    driver.event(0, Event::End { key: None });
    let [(one, of_one), (two, of_two)] = driver.tables.sent[..] else {
        panic!("{} requests", driver.tables.sent.len());
    };
    assert_eq!((one.latency_ns(), of_one.away_ns[1]), (15, 15));
    assert_eq!((two.latency_ns(), of_two.sum_ns()), (10, 0));
}

#[test]
fn unknown_keys_are_counted_unless_they_are_expected() {
    let mut driver = Driver::new();
    driver.event(0, resume(9));
    assert_eq!(driver.tables.misfits.len(), 1);
    driver.event(
        0,
        Event::Resume {
            key: 9,
            place: 0,
            touch: true,
        },
    );
    assert_eq!(driver.tables.misfits.len(), 1);
    driver.event(0, Event::End { key: Some(9) });
    driver.event(0, Event::End { key: None });
    assert_eq!(driver.tables.misfits.len(), 3);
}

/// A hit with the key of a unit, which may be no request.
fn of_unit(driver: &mut Driver, tid: u32, key: u64, op: u32, flags: u32) {
    let Some(mut thread) = driver.tables.threads[tid as usize].take() else {
        return;
    };
    driver.tables.tell(tid, &mut thread);
    let of_unit = Hit {
        op,
        flags: flags | marker_flag::TOUCH,
        place: 0,
        id: id(key),
        to: id(0),
        tid,
    };
    hit(&mut driver.tables, &mut thread, &of_unit);
    driver.tables.threads[tid as usize] = Some(thread);
}

#[test]
fn units_that_are_no_request_pass() {
    let mut driver = Driver::new();
    for op in [op::RESUME, op::PARK, op::READY, op::END] {
        of_unit(&mut driver, 0, 9, op, 0);
    }
    of_unit(&mut driver, 0, 9, op::END, marker_flag::DROPS);
    assert_eq!(driver.tables.misfits, []);
    assert!(driver.tables.sent.is_empty() && driver.runs(0).is_none());
}

#[test]
fn a_unit_goes_through_its_queue_to_its_end() {
    let mut driver = Driver::new();
    let begin = Event::Begin {
        key: 1,
        or_resume: false,
        queued: true,
    };
    driver.event(0, begin);
    driver.pass(10);
    of_unit(&mut driver, 1, 1, op::RESUME, 0);
    driver.pass(5);
    // It leaves woken, and goes on elsewhere.
    of_unit(&mut driver, 1, 1, op::READY, 0);
    driver.pass(3);
    of_unit(&mut driver, 0, 1, op::RESUME, 0);
    of_unit(&mut driver, 0, 1, op::PARK, 0);
    driver.pass(7);
    of_unit(&mut driver, 1, 1, op::READY, 0);
    driver.pass(2);
    // Another one of before has taken nothing with it.
    of_unit(&mut driver, 1, 1, op::RESUME, 0);
    of_unit(&mut driver, 1, 1, op::END, 0);
    let [(request, extra)] = driver.tables.sent[..] else {
        panic!("{} requests", driver.tables.sent.len());
    };
    assert_eq!(request.reason, reason::COMPLETE);
    assert_eq!(
        (request.latency_ns(), extra.queued_ns, extra.sum_ns()),
        (27, 15, 22)
    );
    assert_eq!(driver.tables.misfits, []);
}

#[test]
fn what_is_within_a_unit_that_is_done_has_no_end() {
    for is_parked in [false, true] {
        let mut driver = Driver::new();
        let begin = Event::Begin {
            key: 1,
            or_resume: false,
            queued: false,
        };
        driver.event(0, begin);
        if is_parked {
            of_unit(&mut driver, 0, 1, op::PARK, 0);
        }
        of_unit(&mut driver, 0, 1, op::END, marker_flag::DROPS);
        let [(request, _)] = driver.tables.sent[..] else {
            panic!("{} requests", driver.tables.sent.len());
        };
        assert_eq!(request.reason, reason::NO_END, "{is_parked}");
        assert_eq!(driver.tables.misfits, []);
        assert!(driver.tables.words().is_empty());
    }
}

/// Each request is sent once or is somewhere, whoever comes in between at any step, and its ledger closes.
fn adds_up(driver: &Driver) -> Result<(), TestCaseError> {
    let tables = &driver.tables;
    let words = tables.words();
    prop_assert!(words.iter().all(|(_, word, _)| word.at != Where::Busy));
    for (id, word, weight) in &words {
        match word.at {
            Where::Away => prop_assert_eq!(
                tables.parked.contains_key(&word.ticket),
                *weight != 0,
                "{:?}",
                id
            ),
            Where::Running(tid) => {
                let request = driver.runs(tid).map(|request| request.keyed);
                let held = request.map(|keyed| (keyed.id, keyed.ticket));
                prop_assert_eq!(held, Some((*id, word.ticket)));
            }
            Where::Busy => {}
        }
    }
    let running = (0..THREADS)
        .filter(|tid| driver.runs(*tid).is_some())
        .count();
    let away = words.iter().filter(|(_, word, _)| word.at == Where::Away);
    prop_assert_eq!(running + away.count(), words.len());
    let recorded = words
        .iter()
        .filter(|(_, word, weight)| word.at == Where::Away && *weight != 0);
    prop_assert_eq!(tables.parked.len(), recorded.count());
    let (complete, incomplete) = tables.unrecorded;
    let done = tables.sent.len() as u32 + complete + incomplete;
    let refused = [Misfit::OtherType, Misfit::Elsewhere];
    let refused = tables
        .misfits
        .iter()
        .filter(|what| refused.contains(what))
        .count() as u32;
    let open = words.len() as u32;
    prop_assert!(
        done + open <= tables.begins,
        "{} and {} of {}",
        done,
        open,
        tables.begins
    );
    prop_assert!(done + open + refused + tables.losses >= tables.begins);
    for (record, extra) in &tables.sent {
        prop_assert!(extra.sum_ns() <= record.latency_ns(), "{:?}", extra);
        prop_assert!(extra.queued_ns <= extra.sum_ns());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn threads_that_come_in_between_lose_nothing(
        events in prop::collection::vec((0..THREADS, 1_u64..1000, event()), 1..60),
        between in prop::collection::vec((0_u32..24, 0..THREADS, event()), 0..60),
        (room, room_parked) in (2_usize..6, 1_usize..6),
        weights in prop::collection::vec(0_u32..3, 1..8),
    ) {
        let mut driver = Driver::new();
        (driver.tables.room, driver.tables.room_parked) = (room, room_parked);
        driver.tables.script = between;
        for (number, (tid, ns, event)) in events.into_iter().enumerate() {
            driver.pass(ns);
            driver.tables.weight = weights[number % weights.len()];
            driver.event(tid, event);
            adds_up(&driver)?;
        }
    }
}

#[test]
fn the_later_resume_wins_and_a_late_park_is_no_fault() {
    let mut driver = Driver::new();
    driver.event(0, begin(1));
    driver.pass(10);
    // Handed over before the first thread has left it.
    driver.event(1, resume(1));
    driver.pass(5);
    let late = Event::Park {
        key: Some(1),
        place: 0,
    };
    driver.event(0, late);
    driver.pass(5);
    driver.event(1, Event::End { key: Some(1) });
    assert!(driver.tables.misfits.is_empty());
    let [(record, extra)] = driver.tables.sent[..] else {
        panic!("{} requests", driver.tables.sent.len());
    };
    assert_eq!((record.latency_ns(), record.tid), (20, 1));
    assert_eq!((extra.sum_ns(), extra.moves), (0, 1));
    assert_eq!(record.reason, reason::COMPLETE);
}

#[test]
fn a_thread_whose_switch_in_went_unseen_brings_no_interval_to_its_next_request() {
    let mut driver = Driver::new();
    driver.event(0, begin(1));
    let thread = driver.tables.threads[0].as_mut().unwrap();
    thread.state.phase = phase::PREEMPTED;
    let parks = Event::Park {
        key: None,
        place: 0,
    };
    driver.event(0, parks);
    let thread = driver.tables.threads[0].as_ref().unwrap();
    assert_eq!(thread.state.phase, phase::ON_CPU);
}

#[test]
fn a_begin_that_is_queued_leaves_the_thread_with_what_it_runs() {
    let mut driver = Driver::new();
    driver.event(0, begin(1));
    driver.pass(10);
    let queued = Event::Begin {
        key: 2,
        or_resume: false,
        queued: true,
    };
    driver.event(0, queued);
    driver.pass(30);
    driver.event(1, resume(2));
    driver.pass(5);
    driver.event(1, Event::End { key: Some(2) });
    driver.event(0, Event::End { key: None });
    let [(two, of_two), (one, of_one)] = driver.tables.sent[..] else {
        panic!("{} requests", driver.tables.sent.len());
    };
    assert_eq!(
        (two.latency_ns(), of_two.queued_ns, of_two.moves),
        (35, 30, 1)
    );
    assert_eq!((one.latency_ns(), of_one.sum_ns()), (45, 0));
    assert!(driver.tables.misfits.is_empty());
}

#[test]
fn a_full_table_closes_what_was_left_for_longest() {
    for weight in [0, 1] {
        let mut driver = Driver::new();
        (driver.tables.room, driver.tables.weight) = (4, weight);
        for key in 0..100 {
            driver.pass(1);
            driver.event(0, begin(key));
        }
        let before = driver.tables.unrecorded.1 as usize + driver.tables.sent.len();
        assert_eq!((before, driver.tables.losses), (96, 0));
        let no_room = |(record, _): &(RequestRecord, _)| record.reason == reason::NO_ROOM;
        assert!(driver.tables.sent.iter().all(no_room));
        driver.event(0, Event::End { key: Some(99) });
        driver.event(0, begin(200));
        driver.event(0, Event::End { key: None });
        let complete = |(record, _): &&(RequestRecord, _)| record.reason == reason::COMPLETE;
        let complete = driver.tables.sent.iter().filter(complete).count();
        assert_eq!(complete + driver.tables.unrecorded.0 as usize, 2);
    }
}

#[test]
fn full_tables_are_counted() {
    let mut driver = Driver::new();
    driver.tables.room = 1;
    driver.event(0, begin(1));
    // What a thread runs is not closed.
    driver.event(1, begin(2));
    assert_eq!(driver.tables.losses, 1);
    let park = Event::Park {
        key: None,
        place: 0,
    };
    driver.tables.room_parked = 0;
    driver.event(0, park);
    assert_eq!(driver.tables.losses, 2);
    assert_eq!(driver.tables.sent[0].0.reason, reason::NO_END);
    assert!(driver.tables.keys.is_empty());
}

#[test]
fn a_request_that_is_not_recorded_moves_all_the_same() {
    let mut driver = Driver::new();
    driver.tables.weight = 0;
    driver.event(0, begin(1));
    driver.event(
        0,
        Event::Park {
            key: None,
            place: 0,
        },
    );
    assert!(driver.tables.parked.is_empty());
    driver.event(1, resume(1));
    driver.event(1, Event::End { key: None });
    assert!(driver.tables.misfits.is_empty());
    assert!(driver.tables.sent.is_empty());
    assert!(driver.tables.keys.is_empty());
}

#[test]
fn words_come_back_as_they_were() {
    for at in [
        Where::Away,
        Where::Busy,
        Where::Running(0),
        Where::Running(4_194_303),
    ] {
        for ready in [None, Some(0), Some(QUEUED)] {
            for ticket in [0, 1, TICKETS - 1] {
                let word = Word { at, ready, ticket };
                assert_eq!(Word::decode(word.encode()), word);
            }
        }
    }
}
