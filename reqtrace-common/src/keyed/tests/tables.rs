//! The tables as the state machine is to see them, in the place of the kernel's maps.

use std::collections::HashMap;

use crate::keyed::{KeyEntry, KeyId, Misfit, World};
use crate::loss::Loss;
use crate::record::{ExtraRecord, RequestRecord};
use crate::thread::{RequestState, Thread};

/// The tables as they are meant: no words, no copies.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) now: u64,
    pub(super) keys: HashMap<KeyId, usize>,
    pub(super) entries: Vec<KeyEntry>,
    pub(super) parked: HashMap<KeyId, RequestState>,
    pub(super) sent: Vec<(RequestRecord, ExtraRecord)>,
    pub(super) aways: Vec<(u64, u64, u64)>,
    pub(super) misfits: u32,
    /// Begins of the requests whose attributes were read later.
    pub(super) read: Vec<u64>,
    pub(super) losses: u32,
    pub(super) room: usize,
    pub(super) weight: u32,
    pub(super) flags: HashMap<u32, bool>,
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

    fn read(&mut self, request: &mut RequestState, is_begin: bool) {
        if !is_begin {
            assert_eq!(request.keyed.is_keyed, 1, "read of no request");
            self.read.push(request.record.begin_ns);
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
