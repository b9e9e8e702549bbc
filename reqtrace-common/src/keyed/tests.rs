//! The state machine against an oracle that adds up nanosecond by nanosecond, over arbitrary orders of
//! markers: lost, repeated, swapped, and on any thread.

mod oracle;
mod tables;

use proptest::prelude::*;

use self::oracle::{Done, Oracle, State};
use self::tables::Tables;
use super::*;
use crate::cookie::Reentry;
use crate::marker::MAX_PLACES;

const THREADS: u32 = 3;
const KEYS: u64 = 4;
const TYPE: u32 = 0;
/// A request type without a key.
const PLAIN: u32 = 1;

/// What happens, a while after what happened before.
#[derive(Clone, Copy, Debug)]
enum Event {
    Begin { key: u64, or_resume: bool },
    Resume { key: u64, place: u32, touch: bool },
    Park { key: Option<u64>, place: u32 },
    Ready { key: Option<u64>, place: u32 },
    Adopt { key: u64, to: u64 },
    End { key: Option<u64> },
    PlainBegin,
    PlainEnd,
}

/// Drives the state machine as the kernel programs do.
struct Driver {
    tables: Tables,
    threads: Vec<Thread>,
}

impl Driver {
    fn new() -> Self {
        let mut threads = vec![Thread::ZERO; THREADS as usize];
        for (tid, thread) in threads.iter_mut().enumerate() {
            thread.state.tid = tid as u32;
        }
        Self {
            tables: Tables {
                now: 1000,
                room: 1000,
                weight: 1,
                ..Tables::default()
            },
            threads,
        }
    }

    fn event(&mut self, tid: u32, event: Event) {
        let id = |key| KeyId {
            tgid: 7,
            request_type: TYPE,
            key,
        };
        let mut of = Hit {
            op: op::NONE,
            flags: 0,
            place: 0,
            id: id(0),
            to: id(0),
            tid,
        };
        let keyed = |hit: &mut Hit, key: Option<u64>| match key {
            Some(key) => hit.id.key = key,
            None => hit.flags |= marker_flag::CURRENT,
        };
        match event {
            Event::Begin { key, or_resume } => {
                of.op = op::BEGIN;
                keyed(&mut of, Some(key));
                if or_resume {
                    of.flags |= marker_flag::OR_RESUME;
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
            Event::PlainBegin | Event::PlainEnd => return self.plain(tid, event),
        }
        hit(&mut self.tables, &mut self.threads[tid as usize], &of);
    }

    /// What `request_begin` and `request_end` do.
    fn plain(&mut self, tid: u32, event: Event) {
        let thread = &mut self.threads[tid as usize];
        let is_open = thread.request.status == status::OPEN;
        if matches!(event, Event::PlainBegin) && !is_open {
            thread.open(&Begin {
                now: self.tables.now,
                request_type: PLAIN,
                reentry: Reentry::Nest,
                sp: 0,
                return_address: 0,
                weight: 1,
            });
        } else if matches!(event, Event::PlainEnd) && is_open && thread.request.keyed.is_keyed == 0
        {
            thread.close(self.tables.now, reason::COMPLETE);
        }
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
        4 => (key(), any::<bool>()).prop_map(|(key, or_resume)| Event::Begin { key, or_resume }),
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
            for (tid, thread) in driver.threads.iter().enumerate() {
                let runs = thread.request.status == status::OPEN && thread.request.keyed.is_keyed != 0;
                let believed = oracle.run_by(tid as u32).map(|index| oracle.live[index].begin_ns);
                let begin_ns = thread.request.record.begin_ns;
                prop_assert_eq!(runs.then_some(begin_ns), believed);
                let is_looked_at = driver.tables.flags.get(&(tid as u32)).copied();
                prop_assert_eq!(is_looked_at.unwrap_or(false), runs);
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
    assert_eq!(driver.tables.misfits, 0);
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
    assert_eq!(driver.tables.misfits, 1);
    driver.event(
        0,
        Event::Resume {
            key: 9,
            place: 0,
            touch: true,
        },
    );
    assert_eq!(driver.tables.misfits, 1);
    driver.event(0, Event::End { key: Some(9) });
    driver.event(0, Event::End { key: None });
    assert_eq!(driver.tables.misfits, 3);
}

#[test]
fn two_threads_in_one_request_are_counted_and_the_first_keeps_it() {
    let mut driver = Driver::new();
    driver.event(0, begin(1));
    driver.event(1, resume(1));
    assert_eq!(driver.tables.misfits, 1);
    driver.pass(10);
    driver.event(0, Event::End { key: Some(1) });
    assert_eq!(driver.tables.sent[0].0.latency_ns(), 10);
}

#[test]
fn full_tables_are_counted() {
    let mut driver = Driver::new();
    driver.tables.room = 1;
    driver.event(0, begin(1));
    driver.event(1, begin(2));
    assert_eq!(driver.tables.losses, 1);
    // The one that had room goes on.
    driver.event(
        0,
        Event::Park {
            key: None,
            place: 0,
        },
    );
    driver.pass(7);
    driver.event(1, resume(1));
    driver.event(1, Event::End { key: Some(1) });
    assert_eq!(driver.tables.sent.len(), 1);
    assert_eq!(driver.tables.sent[0].1.away_ns[0], 7);
    // No room to park.
    driver.event(0, begin(1));
    driver.tables.room = 0;
    driver.event(
        0,
        Event::Park {
            key: None,
            place: 0,
        },
    );
    assert_eq!(driver.tables.losses, 2);
    assert_eq!(driver.tables.sent[1].0.reason, reason::NO_END);
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
    assert_eq!(driver.tables.misfits, 0);
    assert!(driver.tables.sent.is_empty());
    assert!(driver.tables.keys.is_empty());
}

#[test]
fn words_come_back_as_they_were() {
    for place in [
        Where::Away,
        Where::Busy,
        Where::Running(0, None),
        Where::Running(u32::MAX, Some(0)),
        Where::Running(4, Some(9)),
    ] {
        assert_eq!(Where::decode(place.encode()), place);
    }
}
