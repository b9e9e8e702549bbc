//! Events in, payloads of blocks out.

use super::columns::Builder;
use super::interval::WireInterval;
use super::numbers::write;
use super::open::WireOpen;
use super::{Events, Tick, block_kind, entry_kind};
use crate::event::{Event, Header};

/// Bytes of a payload, about, from which on a block is full.
const FULL: usize = 256 << 10;

/// What one block holds, before it is compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Payload {
    /// One of [`block_kind`].
    pub(crate) kind: u16,
    /// The bytes.
    pub(crate) bytes: Vec<u8>,
}

/// An event that is no request, as it is in a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    kind: u32,
    fields: Vec<u8>,
}

impl Entry {
    /// `None` for a request.
    pub(crate) fn of(event: &Event<'_>) -> Option<Self> {
        let (kind, fields) = match *event {
            Event::Request(_) => return None,
            Event::Process(process) => (entry_kind::PROCESS, write(process)),
            Event::Object(object) => (entry_kind::OBJECT, write(object)),
            Event::Mapping(mapping) => (entry_kind::MAPPING, write(mapping)),
            Event::File(file) => (entry_kind::FILE, write(file)),
            Event::Thread(thread) => (entry_kind::THREAD, write(thread)),
            Event::Name(name) => (entry_kind::NAME, write(name)),
            Event::Stack(stack) => (entry_kind::STACK, write(stack)),
            Event::Open(open) => (entry_kind::OPEN, write(&WireOpen::from(open))),
            Event::Interval(interval) => {
                (entry_kind::INTERVAL, write(&WireInterval::from(interval)))
            }
            Event::Futex(futex) => (entry_kind::FUTEX, write(futex)),
            Event::Away(away) => (entry_kind::AWAY, write(away)),
            Event::CpuWait(wait) => (entry_kind::CPU_WAIT, write(wait)),
            Event::Disk(disk) => (entry_kind::DISK, write(disk)),
            Event::Unrecorded(request) => (entry_kind::UNRECORDED, write(request)),
            Event::Origin(origin) => (entry_kind::ORIGIN, write(origin)),
            Event::Sample(sample) => (entry_kind::SAMPLE, write(sample)),
            Event::Tick(now_ns) => (entry_kind::TICK, write(&Tick { now_ns })),
            Event::Sent(sent) => (entry_kind::SENT, write(sent)),
            Event::Clock(step) => (entry_kind::CLOCK, write(step)),
            Event::Window(window) => (entry_kind::WINDOW, write(window)),
            Event::Loss(loss) => (entry_kind::LOSS, write(loss)),
            Event::Cost(cost) => (entry_kind::COST, write(cost)),
            Event::StacksAnew => (entry_kind::STACKS_ANEW, Vec::new()),
            Event::End(end) => (entry_kind::END, write(end)),
        };
        Some(Self { kind, fields })
    }
}

/// The payload of a header.
pub(crate) fn encode_header(header: &Header) -> Payload {
    Payload {
        kind: block_kind::HEADER,
        bytes: write(header),
    }
}

/// Gathers events for the next block.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    requests: Builder,
    /// But for the requests.
    events: Events,
    size: usize,
}

impl Encoder {
    /// Takes an event. Returns a payload when it is full.
    pub(crate) fn event(&mut self, event: &Event<'_>) -> Option<Payload> {
        match Entry::of(event) {
            Some(entry) => self.entry(entry),
            None => self.request(event),
        }
    }

    fn request(&mut self, event: &Event<'_>) -> Option<Payload> {
        let Event::Request(request) = event else {
            return None;
        };
        let before = (!self.requests.follows(request)).then(|| self.take());
        self.size += self.requests.add(request);
        before.flatten().or_else(|| self.take_full())
    }

    /// Takes an event that is no request.
    pub(crate) fn entry(&mut self, Entry { kind, fields }: Entry) -> Option<Payload> {
        self.size += fields.len() + 8;
        self.events.after.push(self.requests.len() as u32);
        self.events.kind.push(kind);
        self.events.fields.push(fields);
        self.take_full()
    }

    fn take_full(&mut self) -> Option<Payload> {
        if self.size < FULL { None } else { self.take() }
    }

    /// What was gathered; `None` when that is nothing.
    pub(crate) fn take(&mut self) -> Option<Payload> {
        if self.events.kind.is_empty() && self.requests.len() == 0 {
            return None;
        }
        self.size = 0;
        let events = Events {
            requests: self.requests.take(),
            ..std::mem::take(&mut self.events)
        };
        Some(Payload {
            kind: block_kind::EVENTS,
            bytes: write(&events),
        })
    }
}
