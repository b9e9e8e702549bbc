//! Events in; all requests and their times out, added up as time passes, without words, tables or copies.

use super::{Event, THREADS};
use crate::keyed::PARKED;
use crate::marker::MAX_PLACES;

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
    pub(super) away_ns: [u64; MAX_PLACES + 2],
    pub(super) moves: u32,
    pub(super) last_tid: u32,
    pub(super) ready: Option<u32>,
    /// Another request has its key.
    pub(super) is_orphan: bool,
}

/// The oracle: all requests that have not ended, and nothing else.
#[derive(Default)]
pub(super) struct Oracle {
    pub(super) now: u64,
    pub(super) live: Vec<Believed>,
    pub(super) plain: [bool; THREADS as usize],
    /// Begin, end, time away by place, moves, whether the end was seen.
    pub(super) done: Vec<Done>,
}

pub(super) type Done = (u64, u64, [u64; MAX_PLACES + 2], u32, bool);

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

    pub(super) fn event(&mut self, tid: u32, event: Event) {
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
                } else {
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
