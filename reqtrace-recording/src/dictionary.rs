//! What later events may refer to: events in; those that a new file of the trace has to begin with out.
//!
//! Its size does not grow with time: who makes events sends all that he refers to again after
//! [`Event::StacksAnew`], and what belongs to an address space goes some time after that.

use std::collections::{BTreeMap, BTreeSet};

use reqtrace_common::record::{FileId, StackId};

use crate::event::{Address, AddressSpace, Event, Process, ProcessChange};
use crate::wire::{Encoder, Entry, Payload};

/// Records of a process that has left, or runs another program, come for so long at most, ns.
const LATEST_NS: u64 = 20_000_000_000;

/// What an event says something of; objects come before their addresses, these before stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Object(u32),
    Mapping(AddressSpace, u64, u64, u32),
    File(FileId),
    Thread(u32, u32),
    Name(Address, bool),
    Stack(Option<AddressSpace>, StackId),
    Futex(AddressSpace, u64),
}

impl Key {
    fn of(event: &Event<'_>) -> Option<Self> {
        Some(match event {
            Event::Object(object) => Self::Object(object.id),
            Event::Mapping(of) => Self::Mapping(of.space, of.start, of.end, of.object),
            Event::File(file) => Self::File(file.file),
            Event::Thread(thread) => Self::Thread(thread.tgid, thread.tid),
            Event::Name(name) => Self::Name(name.address, name.is_return),
            Event::Stack(stack) => Self::Stack(stack.space, stack.id),
            Event::Futex(futex) => Self::Futex(futex.space, futex.address),
            _ => return None,
        })
    }

    fn space(&self) -> Option<AddressSpace> {
        match self {
            Self::Mapping(space, ..) | Self::Futex(space, _) => Some(*space),
            Self::Stack(space, _) => *space,
            _ => None,
        }
    }
}

/// Events that are needed, as they are written.
#[derive(Debug, Default)]
pub(crate) struct Dictionary {
    processes: BTreeMap<AddressSpace, Process>,
    entries: BTreeMap<Key, Entry>,
    /// Files of before the last [`Event::StacksAnew`]; and threads, of which those that have left have no name later.
    before: BTreeMap<Key, Entry>,
    /// Address spaces that nobody has any more, since the last turn and before.
    left: [BTreeSet<AddressSpace>; 2],
    turned_ns: u64,
}

impl Dictionary {
    /// Takes an event.
    pub(crate) fn take(&mut self, event: &Event<'_>) {
        match event {
            Event::Process(process) => self.process(process),
            Event::Tick(now_ns) => self.turn(*now_ns),
            Event::Window(window) => self.turn(window.until_ns),
            Event::StacksAnew => {
                let stays =
                    |key: &Key, _: &mut Entry| matches!(key, Key::File(_) | Key::Thread(..));
                self.before = self.entries.extract_if(.., stays).collect();
                self.entries.clear();
            }
            _ => {
                let entry = Key::of(event).zip(Entry::of(event));
                self.entries.extend(entry);
            }
        }
    }

    /// All of it, in blocks.
    pub(crate) fn head(&self) -> Vec<Payload> {
        let mut encoder = Encoder::default();
        let processes = self.processes.values().flat_map(|process| {
            let is_there = Process {
                change: ProcessChange::Start,
                parent: 0,
                time_ns: 0,
                ..process.clone()
            };
            let has_left = process.change == ProcessChange::Exit;
            let as_it_is = has_left.then(|| process.clone());
            std::iter::once(is_there).chain(as_it_is)
        });
        let processes = processes.filter_map(|process| Entry::of(&Event::Process(&process)));
        let others = self.before.values().chain(self.entries.values());
        let all = processes.chain(others.cloned());
        let mut blocks: Vec<Payload> = all.filter_map(|entry| encoder.entry(&entry)).collect();
        blocks.extend(encoder.take());
        blocks
    }

    fn process(&mut self, process: &Process) {
        let space = process.space;
        let first = AddressSpace {
            exec_generation: 0,
            ..space
        };
        let others = self.processes.range(first..);
        let others = others.map(|(other, _)| *other);
        let others = others.take_while(|other| other.tgid == space.tgid);
        self.left[0].extend(others.filter(|other| *other != space));
        for left in &mut self.left {
            left.remove(&space);
        }
        let mut process = process.clone();
        if process.change == ProcessChange::Exit {
            self.left[0].insert(space);
            if let Some(known) = self
                .processes
                .get(&space)
                .filter(|_| process.name.is_empty())
            {
                process.name.clone_from(&known.name);
            }
        }
        self.processes.insert(space, process);
    }

    /// Forgets what left long ago.
    fn turn(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.turned_ns) < LATEST_NS {
            return;
        }
        self.turned_ns = now_ns;
        let [left, before] = &mut self.left;
        let gone = std::mem::replace(before, std::mem::take(left));
        if gone.is_empty() {
            return;
        }
        self.processes.retain(|space, _| !gone.contains(space));
        let pids: BTreeSet<u32> = gone.iter().map(|space| space.tgid).collect();
        let processes = &self.processes;
        let has_left = |pid: &u32| {
            let first = AddressSpace {
                tgid: *pid,
                exec_generation: 0,
            };
            let one = processes.range(first..).next();
            pids.contains(pid) && one.is_none_or(|(space, _)| space.tgid != *pid)
        };
        self.entries.retain(|key, _| match key {
            Key::Thread(tgid, _) => !has_left(tgid),
            key => key.space().is_none_or(|space| !gone.contains(&space)),
        });
    }

    /// Events that are kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.processes.len() + self.entries.len() + self.before.len()
    }
}
