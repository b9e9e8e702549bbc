//! The tables as the state machine is to see them, in the place of the kernel's maps. Before each step that other
//! threads can see, another thread may come in between and take its own hits.

use std::collections::HashMap;

use crate::keyed::{
    By, Hit, Inserted, Job, KeyEntry, KeyId, Look, Misfit, Where, Word, World, close_stored,
    waits_at, was_away,
};
use crate::loss::Loss;
use crate::record::{ExtraRecord, RequestRecord, reason};
use crate::thread::{RequestState, Thread, status};

use super::{Event, take};

/// The tables as they are meant.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) now: u64,
    /// Of a thread that takes a hit just now, nothing.
    pub(super) threads: Vec<Option<Thread>>,
    /// What others see of the requests that threads run.
    pub(super) seen: HashMap<u32, RequestState>,
    /// Threads that were told that their request was taken, while they took a hit.
    pub(super) told: Vec<(u32, u64)>,
    /// After so many steps a thread comes in between.
    pub(super) script: Vec<(u32, u32, Event)>,
    pub(super) keys: HashMap<KeyId, usize>,
    pub(super) entries: Vec<KeyEntry>,
    /// Entries that were taken out: the next key gets the last one.
    pub(super) free: Vec<usize>,
    pub(super) parked: HashMap<u64, RequestState>,
    pub(super) sent: Vec<(RequestRecord, ExtraRecord)>,
    pub(super) aways: Vec<(u64, u64, u64)>,
    pub(super) misfits: Vec<Misfit>,
    /// Begins of the requests whose attributes were read later.
    pub(super) read: Vec<u64>,
    pub(super) losses: u32,
    /// Resumes of requests that no thread ran; those that nothing had made ready.
    pub(super) resumed: u32,
    pub(super) not_ready: u32,
    pub(super) room: usize,
    pub(super) room_parked: usize,
    pub(super) weight: u32,
    pub(super) begins: u32,
    /// Requests that were not recorded: complete, incomplete.
    pub(super) unrecorded: (u32, u32),
    pub(super) flags: HashMap<u32, bool>,
    pub(super) tickets: u64,
    /// Which driver makes requests ready, and the places of all drivers: see [`waits_at`].
    pub(super) waker: (u32, u32),
}

impl Tables {
    /// Others come in between here.
    fn step(&mut self) {
        let Some((after, tid, event)) = self.script.pop() else {
            return;
        };
        if after > 0 {
            self.script.push((after - 1, tid, event));
            return;
        }
        self.now += 1;
        take(self, tid, event);
    }

    fn found(&self, entry: usize) -> Look {
        let entry = &self.entries[entry];
        Look {
            word: entry.word,
            ready_ns: entry.ready_ns,
            job: entry.job,
            weight: entry.weight,
        }
    }

    /// What a thread was told meanwhile.
    pub(super) fn tell(&mut self, tid: u32, thread: &mut Thread) {
        for (_, ticket) in self.told.extract_if(.., |(told, _)| *told == tid) {
            thread.request.keyed.tell_taken(ticket);
        }
    }

    /// Where requests are, by their words: running, away, and in between.
    pub(super) fn words(&self) -> Vec<(KeyId, Word, u32)> {
        let words = self.keys.iter().map(|(id, &index)| {
            let entry = &self.entries[index];
            (*id, Word::decode(entry.word), entry.weight)
        });
        words.collect()
    }
}

impl World for Tables {
    type Entry = usize;

    fn nowhere(&self) -> usize {
        usize::MAX
    }

    fn entry(&mut self, id: &KeyId) -> Option<usize> {
        self.step();
        self.keys.get(id).copied()
    }

    fn look(&mut self, entry: usize) -> Look {
        self.step();
        self.found(entry)
    }

    fn exchange(&mut self, id: &KeyId, from: u64, to: u64) -> bool {
        self.step();
        let Some(index) = self.keys.get(id) else {
            return false;
        };
        let word = &mut self.entries[*index].word;
        let is_it = *word == from;
        if is_it {
            *word = to;
        }
        is_it
    }

    fn note_left(&mut self, entry: usize, left: &RequestState) {
        self.step();
        let entry = &mut self.entries[entry];
        entry.since_ns = left.keyed.since_ns;
        entry.begin_ns = left.record.begin_ns;
        entry.may_be_at = left.keyed.may_be_at();
    }

    fn note_weight(&mut self, entry: usize, weight: u32) {
        self.step();
        self.entries[entry].weight = weight;
    }

    fn note_all_of(&mut self, entry: usize, other: usize) {
        self.step();
        let word = self.entries[entry].word;
        self.entries[entry] = KeyEntry {
            word,
            ..self.entries[other]
        };
    }

    fn note_ready(&mut self, entry: usize, ready_ns: u64, job: Job) {
        self.step();
        self.entries[entry].ready_ns = ready_ns;
        self.entries[entry].job = job;
    }

    fn insert(&mut self, id: &KeyId) -> Inserted {
        self.step();
        if self.keys.contains_key(id) {
            return Inserted::Exists;
        }
        if self.keys.len() >= self.room {
            return Inserted::Full;
        }
        let index = self.free.pop().unwrap_or(self.entries.len());
        if index == self.entries.len() {
            self.entries.push(KeyEntry::NEW);
        }
        self.entries[index] = KeyEntry::NEW;
        self.keys.insert(*id, index);
        Inserted::Done
    }

    fn remove(&mut self, id: &KeyId) {
        self.step();
        let index = self.keys.remove(id).expect("an entry was taken out twice");
        let word = Word::decode(self.entries[index].word);
        assert_eq!(word.at, Where::Busy, "an entry of others was taken out");
        self.free.push(index);
    }

    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    fn make_room(&mut self, recorded: bool) -> bool {
        let away = self
            .words()
            .into_iter()
            .filter(|(_, word, weight)| word.at == Where::Away && (*weight != 0 || !recorded));
        let oldest = away.min_by_key(|(id, ..)| self.entries[self.keys[id]].since_ns);
        let Some((id, word, weight)) = oldest else {
            return false;
        };
        let index = self.keys[&id];
        let found = self.found(index);
        self.entries[index].word = Word::busy(word.ticket).encode();
        if weight == 0 {
            self.unrecorded.1 += 1;
        } else {
            let mut request = self.parked.remove(&word.ticket).expect("it is parked");
            close_stored(&mut request, &found, self.now, reason::NO_ROOM);
            self.send(&mut request);
        }
        self.remove(&id);
        true
    }

    fn store(&mut self, ticket: u64, request: &RequestState) -> bool {
        self.step();
        if self.parked.len() >= self.room_parked {
            return false;
        }
        let before = self.parked.insert(ticket, *request);
        assert!(before.is_none(), "a request was written over");
        true
    }

    fn store_new(&mut self, ticket: u64) -> bool {
        self.store(ticket, &RequestState::ZERO)
    }

    fn store_running(&mut self, tid: u32, of: u64, ticket: u64) -> bool {
        self.step();
        let Some(request) = self.seen.get(&tid).copied() else {
            return false;
        };
        let is_it = request.keyed.ticket == of && request.status == status::OPEN;
        is_it && self.store(ticket, &request)
    }

    fn tell_taken(&mut self, tid: u32, ticket: u64) {
        self.step();
        match &mut self.threads[tid as usize] {
            Some(thread) => thread.request.keyed.tell_taken(ticket),
            None => self.told.push((tid, ticket)),
        }
    }

    fn with_stored(
        &mut self,
        ticket: u64,
        change: impl FnOnce(&mut Self, &mut RequestState),
    ) -> bool {
        let Some(mut request) = self.parked.remove(&ticket) else {
            return false;
        };
        change(self, &mut request);
        self.parked.insert(ticket, request);
        true
    }

    fn fetch(&mut self, ticket: u64, into: &mut RequestState) -> bool {
        self.step();
        let Some(request) = self.parked.remove(&ticket) else {
            return false;
        };
        *into = request;
        true
    }

    fn discard(&mut self, ticket: u64) {
        self.step();
        let was_there = self.parked.remove(&ticket).is_some();
        assert!(was_there, "a request of others was taken out");
    }

    fn waited_for(&mut self, thread: &Thread, _id: &KeyId, entry: usize) -> Job {
        let job = thread.state.units.job();
        let (by, drivers) = self.waker;
        match self.entries[entry].may_be_at {
            places if job == Job::NONE && places != 0 => waits_at(places, by, drivers),
            _ => job,
        }
    }

    fn now(&mut self) -> u64 {
        self.now
    }

    fn unique_now(&mut self) -> u64 {
        self.now
    }

    fn enter(&mut self, thread: &mut Thread) {
        self.flags.insert(thread.state.tid, true);
        self.seen.insert(thread.state.tid, thread.request);
        self.step();
    }

    fn leave(&mut self, thread: &mut Thread) -> u64 {
        self.step();
        self.flags.insert(thread.state.tid, false);
        self.now
    }

    fn weight(&mut self, _thread: &Thread, _hit: &Hit) -> u32 {
        self.weight
    }

    fn read(&mut self, request: &mut RequestState, is_begin: bool) {
        if !is_begin {
            assert_eq!(request.keyed.is_keyed, 1, "read of no request");
            self.read.push(request.record.begin_ns);
        }
        self.step();
    }

    fn name(&mut self, _request: &mut RequestState) {}

    fn send(&mut self, request: &mut RequestState) {
        if request.record.weight == 0 {
            return self.count_unrecorded(0, request.record.reason);
        }
        let extra = if request.keyed.has_extra == 0 {
            ExtraRecord::ZERO
        } else {
            request.keyed.extra
        };
        self.sent.push((request.record, extra));
    }

    fn count_unrecorded(&mut self, _request_type: u32, why: u32) {
        if why == reason::COMPLETE {
            self.unrecorded.0 += 1;
        } else {
            self.unrecorded.1 += 1;
        }
    }

    fn was_parked(&mut self, _id: &KeyId, entry: usize, until_ns: u64, _by: &By) {
        let entry = &self.entries[entry];
        self.aways.push((entry.begin_ns, entry.since_ns, until_ns));
    }

    fn was_away(&mut self, request: &RequestState, _left_ns: u64, until_ns: u64, _by: &By) {
        self.aways
            .push((request.record.begin_ns, request.keyed.since_ns, until_ns));
    }

    fn begun(&mut self, _request_type: u32) {
        self.begins += 1;
    }

    fn ended(&mut self, _request_type: u32) {}

    fn misfit(&mut self, _request_type: u32, what: Misfit) {
        self.misfits.push(what);
    }

    fn count_resume(&mut self, word: u64) {
        let (was_away, was_ready) = was_away(word);
        self.resumed += u32::from(was_away);
        self.not_ready += u32::from(was_away && !was_ready);
    }

    fn lose(&mut self, _loss: Loss) {
        self.losses += 1;
    }
}
