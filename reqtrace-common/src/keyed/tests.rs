//! The state machine against an oracle that adds up nanosecond by nanosecond, over arbitrary orders of
//! markers: lost, repeated, swapped, and on any thread.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::cookie::Reentry;
use crate::record::RequestRecord;

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

/// The tables as they are meant: no words, no copies.
#[derive(Default)]
struct Tables {
    now: u64,
    keys: HashMap<KeyId, usize>,
    entries: Vec<KeyEntry>,
    parked: HashMap<KeyId, RequestState>,
    sent: Vec<(RequestRecord, ExtraRecord)>,
    aways: Vec<(u64, u64, u64)>,
    misfits: u32,
    losses: u32,
    room: usize,
    weight: u32,
    flags: HashMap<u32, bool>,
}

impl World for Tables {
    type Entry = usize;

    fn entry(&mut self, id: &KeyId) -> Option<usize> {
        self.keys.get(id).copied()
    }

    fn look(&mut self, entry: usize) -> KeyEntry {
        self.entries[entry]
    }

    fn exchange(&mut self, entry: usize, from: u64, to: u64) -> bool {
        let word = &mut self.entries[entry].word;
        let is_it = *word == from;
        if is_it {
            *word = to;
        }
        is_it
    }

    fn insert(&mut self, id: &KeyId, entry: &KeyEntry) -> bool {
        if self.keys.len() >= self.room && !self.keys.contains_key(id) {
            return false;
        }
        self.entries.push(*entry);
        self.keys.insert(*id, self.entries.len() - 1);
        true
    }

    fn remove(&mut self, id: &KeyId) {
        self.keys.remove(id);
    }

    fn store(&mut self, id: &KeyId, request: &RequestState) -> bool {
        if self.parked.len() >= self.room {
            return false;
        }
        let before = self.parked.insert(*id, *request);
        assert!(before.is_none(), "a request was written over");
        true
    }

    fn store_again(&mut self, from: &KeyId, to: &KeyId) -> bool {
        let Some(mut request) = self.parked.get(from).copied() else {
            return false;
        };
        request.keyed.id = *to;
        self.store(to, &request)
    }

    fn with_stored(
        &mut self,
        id: &KeyId,
        change: impl FnOnce(&mut Self, &mut RequestState),
    ) -> bool {
        let Some(mut request) = self.parked.get(id).copied() else {
            return false;
        };
        change(self, &mut request);
        self.parked.insert(*id, request);
        true
    }

    fn fetch(&mut self, id: &KeyId, into: &mut RequestState) -> bool {
        match self.parked.remove(id) {
            Some(request) => {
                *into = request;
                true
            }
            None => false,
        }
    }

    fn discard(&mut self, id: &KeyId) {
        self.parked.remove(id);
    }

    fn now(&mut self) -> u64 {
        self.now
    }

    fn unique_now(&mut self) -> u64 {
        self.now
    }

    fn enter(&mut self, thread: &mut Thread) {
        self.flags.insert(thread.state.tid, true);
    }

    fn leave(&mut self, thread: &mut Thread) -> u64 {
        self.flags.insert(thread.state.tid, false);
        self.now
    }

    fn weight(&mut self) -> u32 {
        self.weight
    }

    fn read(&mut self, thread: &mut Thread, is_begin: bool) {
        if !is_begin {
            assert_eq!(thread.request.status, status::OPEN, "read of no request");
        }
    }

    fn name(&mut self, _thread: &mut Thread) {}

    fn send(&mut self, request: &mut RequestState) {
        if request.record.weight == 0 {
            return;
        }
        let extra = if request.keyed.has_extra == 0 {
            ExtraRecord::ZERO
        } else {
            request.keyed.extra
        };
        self.sent.push((request.record, extra));
    }

    fn was_away(&mut self, request: &RequestState, _place: u32, until_ns: u64, _thread: &Thread) {
        self.aways
            .push((request.record.begin_ns, request.keyed.since_ns, until_ns));
    }

    fn begun(&mut self, _request_type: u32) {}
    fn ended(&mut self, _request_type: u32) {}

    fn misfit(&mut self, _request_type: u32, _what: Misfit) {
        self.misfits += 1;
    }

    fn lose(&mut self, _loss: Loss) {
        self.losses += 1;
    }
}

/// What a request of the oracle is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running(u32),
    /// Where, whether queued, and since when.
    Away(u32, bool, u64),
}

/// A request as the oracle has it: it adds up as time passes.
#[derive(Clone, Debug)]
struct Believed {
    key: u64,
    begin_ns: u64,
    state: State,
    away_ns: [u64; MAX_PLACES + 2],
    moves: u32,
    last_tid: u32,
    ready: Option<u32>,
    /// Another request has its key.
    is_orphan: bool,
}

/// The oracle: all requests that have not ended, and nothing else.
#[derive(Default)]
struct Oracle {
    now: u64,
    live: Vec<Believed>,
    plain: [bool; THREADS as usize],
    /// Begin, end, time away by place, moves, whether the end was seen.
    done: Vec<Done>,
}

type Done = (u64, u64, [u64; MAX_PLACES + 2], u32, bool);

impl Oracle {
    fn pass(&mut self, ns: u64) {
        self.now += ns;
        for request in &mut self.live {
            if let State::Away(place, ..) = request.state {
                request.away_ns[place as usize] += ns;
            }
        }
    }

    /// What the thread runs.
    fn run_by(&self, tid: u32) -> Option<usize> {
        self.live
            .iter()
            .position(|request| request.state == State::Running(tid))
    }

    /// The request of a key.
    fn of(&self, key: u64) -> Option<usize> {
        self.live
            .iter()
            .position(|request| request.key == key && !request.is_orphan)
    }

    /// What the thread runs, if that has the key. An orphan still counts.
    fn mine(&self, tid: u32, key: Option<u64>) -> Option<usize> {
        let index = self.run_by(tid)?;
        key.is_none_or(|key| self.live[index].key == key)
            .then_some(index)
    }

    fn finish(&mut self, index: usize, is_complete: bool) {
        let request = self.live.remove(index);
        let is_complete = is_complete && !request.is_orphan;
        self.done.push((
            request.begin_ns,
            self.now,
            request.away_ns,
            request.moves,
            is_complete,
        ));
    }

    fn park(&mut self, index: usize, place: u32, queued: bool) {
        if self.live[index].is_orphan {
            return self.finish(index, false);
        }
        let request = &mut self.live[index];
        request.state = match request.ready.take() {
            Some(place) => State::Away(place, true, self.now),
            None => State::Away(place, queued, self.now),
        };
    }

    /// The thread turns to something else.
    fn turn(&mut self, tid: u32) {
        if let Some(index) = self.run_by(tid) {
            self.park(index, PARKED, false);
        }
    }

    fn is_away(&self, key: u64) -> bool {
        self.of(key)
            .is_some_and(|index| matches!(self.live[index].state, State::Away(..)))
    }

    /// Whether the thread runs it now.
    fn resume(&mut self, tid: u32, key: u64, named: u32) -> bool {
        if self.plain[tid as usize] || !self.is_away(key) {
            return false;
        }
        self.turn(tid);
        let now = self.now;
        let Some(index) = self.of(key) else {
            return false;
        };
        let request = &mut self.live[index];
        if let (State::Away(place, false, since), true) = (request.state, named != 0) {
            request.away_ns[place as usize] -= now - since;
            request.away_ns[named as usize - 1] += now - since;
        }
        request.moves += u32::from(request.last_tid != tid);
        request.last_tid = tid;
        request.state = State::Running(tid);
        true
    }

    /// A key gets another request.
    fn give_up(&mut self, key: u64) {
        if let Some(index) = self.of(key) {
            if self.is_away(key) {
                self.finish(index, false);
            } else {
                self.live[index].is_orphan = true;
            }
        }
    }

    fn event(&mut self, tid: u32, event: Event) {
        let is_plain = self.plain[tid as usize];
        match event {
            Event::Begin { key, or_resume } => {
                let is_mine = self.mine(tid, Some(key));
                if or_resume && is_mine.is_none() && self.is_away(key) {
                    self.resume(tid, key, 0);
                    return;
                }
                if is_plain {
                    return;
                }
                if let Some(index) = is_mine {
                    self.finish(index, false);
                }
                self.turn(tid);
                self.give_up(key);
                self.live.push(Believed {
                    key,
                    begin_ns: self.now,
                    state: State::Running(tid),
                    away_ns: [0; MAX_PLACES + 2],
                    moves: 0,
                    last_tid: tid,
                    ready: None,
                    is_orphan: false,
                });
            }
            Event::Resume { key, place, .. } => {
                if self.mine(tid, Some(key)).is_none() {
                    self.resume(tid, key, place);
                }
            }
            Event::Park { key, place } => {
                if let Some(index) = self.mine(tid, key) {
                    self.park(index, place, false);
                }
            }
            Event::Ready { key, place } => {
                if let Some(index) = self.mine(tid, key) {
                    return self.park(index, place, true);
                }
                let now = self.now;
                let found = key.and_then(|key| self.of(key));
                let Some(request) = found.map(|index| &mut self.live[index]) else {
                    return;
                };
                match request.state {
                    State::Away(_, false, _) => request.state = State::Away(place, true, now),
                    State::Running(_) if request.ready.is_none() => request.ready = Some(place),
                    _ => {}
                }
            }
            Event::Adopt { key, to } => {
                let Some(index) = self.of(key).filter(|_| key != to) else {
                    return;
                };
                let state = self.live[index].state;
                if state == State::Running(tid) || matches!(state, State::Away(..)) {
                    let begin_ns = self.live[index].begin_ns;
                    self.give_up(to);
                    let mut live = self.live.iter_mut();
                    let adopted = live.find(|request| request.begin_ns == begin_ns);
                    adopted.unwrap().key = to;
                }
            }
            Event::End { key } => {
                if let Some(index) = self.mine(tid, key) {
                    return self.finish(index, true);
                }
                let Some(key) = key else { return };
                let Some(index) = self.of(key) else { return };
                if !self.is_away(key) {
                    self.live[index].is_orphan = true;
                } else if is_plain {
                    self.finish(index, true);
                } else {
                    self.resume(tid, key, 0);
                    let index = self.of(key).unwrap();
                    self.finish(index, true);
                }
            }
            Event::PlainBegin => {
                if self.run_by(tid).is_none() {
                    self.plain[tid as usize] = true;
                }
            }
            Event::PlainEnd => self.plain[tid as usize] = false,
        }
    }
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
