//! Events in, payloads of blocks out.

use super::columns::Builder;
use super::interval::WireInterval;
use super::numbers::{Numbered, write};
use super::open::WireOpen;
use super::{Events, Tick, block_kind, entry_kind};
use crate::event::{Event, Header, Request};

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
        let mut fields = Vec::new();
        let kind = put(event, &mut fields)?;
        Some(Self { kind, fields })
    }
}

/// Appends the fields of an event, and returns its kind; `None` for a request.
fn put(event: &Event<'_>, out: &mut Vec<u8>) -> Option<u32> {
    let kind = match *event {
        Event::Request(_) => return None,
        Event::Process(process) => put_as(entry_kind::PROCESS, process, out),
        Event::Object(object) => put_as(entry_kind::OBJECT, object, out),
        Event::Mapping(mapping) => put_as(entry_kind::MAPPING, mapping, out),
        Event::File(file) => put_as(entry_kind::FILE, file, out),
        Event::Thread(thread) => put_as(entry_kind::THREAD, thread, out),
        Event::Name(name) => put_as(entry_kind::NAME, name, out),
        Event::Stack(stack) => put_as(entry_kind::STACK, stack, out),
        Event::Open(open) => put_as(entry_kind::OPEN, &WireOpen::from(open), out),
        Event::Interval(interval) => {
            put_as(entry_kind::INTERVAL, &WireInterval::from(interval), out)
        }
        Event::Futex(futex) => put_as(entry_kind::FUTEX, futex, out),
        Event::Away(away) => put_as(entry_kind::AWAY, away, out),
        Event::CpuWait(wait) => put_as(entry_kind::CPU_WAIT, wait, out),
        Event::Disk(disk) => put_as(entry_kind::DISK, disk, out),
        Event::Unrecorded(request) => put_as(entry_kind::UNRECORDED, request, out),
        Event::Origin(origin) => put_as(entry_kind::ORIGIN, origin, out),
        Event::Sample(sample) => put_as(entry_kind::SAMPLE, sample, out),
        Event::Tick(now_ns) => put_as(entry_kind::TICK, &Tick { now_ns }, out),
        Event::Sent(sent) => put_as(entry_kind::SENT, sent, out),
        Event::Clock(step) => put_as(entry_kind::CLOCK, step, out),
        Event::Window(window) => put_as(entry_kind::WINDOW, window, out),
        Event::Loss(loss) => put_as(entry_kind::LOSS, loss, out),
        Event::Cost(cost) => put_as(entry_kind::COST, cost, out),
        Event::StacksAnew => entry_kind::STACKS_ANEW,
        Event::End(end) => put_as(entry_kind::END, end, out),
    };
    Some(kind)
}

fn put_as(kind: u32, fields: &impl Numbered, out: &mut Vec<u8>) -> u32 {
    fields.put(out);
    kind
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
        if let Event::Request(request) = event {
            return self.request(request);
        }
        let mut kind = None;
        self.push(|fields| kind = put(event, fields));
        self.events.kind.extend(kind);
        self.take_full()
    }

    fn request(&mut self, request: &Request<'_>) -> Option<Payload> {
        let before = (!self.requests.follows(request)).then(|| self.take());
        self.size += self.requests.add(request);
        before.flatten().or_else(|| self.take_full())
    }

    /// Takes an event that is no request.
    pub(crate) fn entry(&mut self, entry: &Entry) -> Option<Payload> {
        self.push(|fields| fields.extend_from_slice(&entry.fields));
        self.events.kind.push(entry.kind);
        self.take_full()
    }

    fn push(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        self.events.after.push(self.requests.len() as u32);
        self.size += self.events.fields.push(put) + 8;
    }

    fn take_full(&mut self) -> Option<Payload> {
        if self.size < FULL { None } else { self.take() }
    }

    /// What was gathered; `None` when that is nothing.
    pub(crate) fn take(&mut self) -> Option<Payload> {
        if self.events.kind.is_empty() && self.requests.len() == 0 {
            return None;
        }
        self.events.requests = self.requests.take();
        let mut bytes = Vec::with_capacity(2 * self.size);
        self.events.put(&mut bytes);
        self.events.clear();
        self.size = 0;
        Some(Payload {
            kind: block_kind::EVENTS,
            bytes,
        })
    }
}
