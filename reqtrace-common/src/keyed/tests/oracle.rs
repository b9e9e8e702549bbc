//! Events in; all requests and their times out, added up as time passes, without words, tables or copies.

use super::{Event, THREADS};
use crate::keyed::{PARKED, QUEUED};
use crate::record::PLACES;

/// What a request of the oracle is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Running(u32),
    /// Where, whether queued, and since when.
    Away(u32, bool, u64),
}

/// A request as the oracle has it: it adds up as time passes.
#[derive(Clone, Debug)]
pub(super) struct Believed {
    pub(super) key: u64,
    pub(super) begin_ns: u64,
    pub(super) state: State,
    pub(super) away_ns: [u64; PLACES],
    pub(super) moves: u32,
    pub(super) last_tid: u32,
    pub(super) ready: Option<u32>,
}

/// The oracle: all requests that have not ended, and nothing else.
#[derive(Default)]
pub(super) struct Oracle {
    pub(super) now: u64,
    pub(super) live: Vec<Believed>,
    pub(super) plain: [bool; THREADS as usize],
    /// Keys of requests that were taken from threads, which do not know it yet.
    pub(super) late: [Option<u64>; THREADS as usize],
    /// Begin, end, time away by place, moves, whether the end was seen.
    pub(super) done: Vec<Done>,
}

pub(super) type Done = (u64, u64, [u64; PLACES], u32, bool);

impl Oracle {
    pub(super) fn pass(&mut self, ns: u64) {
        self.now += ns;
        for request in &mut self.live {
            if let State::Away(place, ..) = request.state {
                request.away_ns[place as usize] += ns;
            }
        }
    }

    /// What the thread runs.
    pub(super) fn run_by(&self, tid: u32) -> Option<usize> {
        self.live
            .iter()
            .position(|request| request.state == State::Running(tid))
    }

    /// The request of a key.
    fn of(&self, key: u64) -> Option<usize> {
        self.live.iter().position(|request| request.key == key)
    }

    /// What the thread runs, if that has the key.
    fn mine(&self, tid: u32, key: Option<u64>) -> Option<usize> {
        let index = self.run_by(tid)?;
        key.is_none_or(|key| self.live[index].key == key)
            .then_some(index)
    }

    fn finish(&mut self, index: usize, is_complete: bool) {
        let request = self.live.remove(index);
        self.done.push((
            request.begin_ns,
            self.now,
            request.away_ns,
            request.moves,
            is_complete,
        ));
    }

    fn park(&mut self, index: usize, place: u32, queued: bool) {
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

    /// The thread goes on with the request of a key, whoever ran it.
    fn resume(&mut self, tid: u32, key: u64, named: u32) {
        if self.plain[tid as usize] || self.of(key).is_none() {
            return;
        }
        self.turn(tid);
        let now = self.now;
        let Some(index) = self.of(key) else {
            return;
        };
        self.take(index);
        let request = &mut self.live[index];
        if let (State::Away(place, false, since), true) = (request.state, named != 0) {
            request.away_ns[place as usize] -= now - since;
            request.away_ns[named as usize - 1] += now - since;
        }
        request.moves += u32::from(request.last_tid != tid);
        request.last_tid = tid;
        request.ready = None;
        request.state = State::Running(tid);
    }

    /// Somebody else has it from now on.
    fn take(&mut self, index: usize) {
        if let State::Running(tid) = self.live[index].state {
            self.late[tid as usize] = Some(self.live[index].key);
        }
    }

    /// A key gets another request.
    fn give_up(&mut self, key: u64) {
        if let Some(index) = self.of(key) {
            self.take(index);
            self.finish(index, false);
        }
    }

    pub(super) fn event(&mut self, tid: u32, event: Event) {
        let is_plain = self.plain[tid as usize];
        let late = match event {
            Event::PlainEnd => None,
            _ => self.late[tid as usize].take(),
        };
        match event {
            Event::Park { key, .. } | Event::Ready { key, .. }
                if late.is_some() && (key.is_none() || key == late) => {}
            Event::Begin {
                key,
                or_resume,
                queued,
            } => {
                let is_mine = self.mine(tid, Some(key));
                if or_resume && is_mine.is_none() && self.of(key).is_some() {
                    self.resume(tid, key, 0);
                    return;
                }
                if is_plain && !queued {
                    return;
                }
                if let Some(index) = is_mine {
                    self.finish(index, false);
                }
                if !queued {
                    self.turn(tid);
                }
                self.give_up(key);
                self.live.push(Believed {
                    key,
                    begin_ns: self.now,
                    state: if queued {
                        State::Away(QUEUED, true, self.now)
                    } else {
                        State::Running(tid)
                    },
                    away_ns: [0; PLACES],
                    moves: 0,
                    last_tid: tid,
                    ready: None,
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
                let is_complete = self.is_away(key);
                self.take(index);
                self.finish(index, is_complete);
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
