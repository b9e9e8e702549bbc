//! Events in, the bytes inside a block out, and back.
//!
//! A block holds requests as columns, which compress well, and all other events as entries. An entry
//! says how many requests of the block come before it, so that the order of all events is kept.
//!
//! Fields have numbers ([`numbers`], [`fields`]), and values have the form of `postcard`. Kinds and fields are never
//! renumbered: who reads takes fields that are missing for 0, nothing and empty, and leaves out those that it does
//! not know. [`legacy`] reads what was written before fields had numbers.

mod columns;
mod decode;
mod encode;
mod entries;
mod fields;
mod interval;
mod legacy;
mod numbers;
mod open;
pub(crate) mod sparse;

use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use columns::Columns;
use entries::Fields;

pub(crate) use decode::{decode_events, decode_header};
pub(crate) use encode::{Encoder, Entry, Payload, encode_header};

/// A payload that is none, although its checksum is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// What a block holds.
pub(crate) mod block_kind {
    /// A [`crate::Header`], alone. It is there more than once, so that damage cannot take it.
    pub(crate) const HEADER: u16 = 1;
    /// Events.
    pub(crate) const EVENTS: u16 = 2;
}

/// What an entry is. 1 is the header's block, 2 requests in columns; 12 is for wakes.
mod entry_kind {
    pub(super) const PROCESS: u32 = 3;
    pub(super) const OBJECT: u32 = 4;
    pub(super) const MAPPING: u32 = 5;
    pub(super) const FILE: u32 = 6;
    pub(super) const THREAD: u32 = 7;
    pub(super) const NAME: u32 = 8;
    pub(super) const STACK: u32 = 9;
    pub(super) const OPEN: u32 = 10;
    pub(super) const INTERVAL: u32 = 11;
    pub(super) const SAMPLE: u32 = 13;
    pub(super) const WINDOW: u32 = 14;
    pub(super) const LOSS: u32 = 15;
    pub(super) const COST: u32 = 16;
    pub(super) const TICK: u32 = 17;
    pub(super) const END: u32 = 18;
    pub(super) const STACKS_ANEW: u32 = 19;
    pub(super) const FUTEX: u32 = 20;
    pub(super) const AWAY: u32 = 21;
    pub(super) const ORIGIN: u32 = 22;
    pub(super) const SENT: u32 = 23;
    pub(super) const CLOCK: u32 = 24;
    pub(super) const CPU_WAIT: u32 = 25;
    pub(super) const DISK: u32 = 26;
    pub(super) const UNRECORDED: u32 = 27;
}

/// The payload of a block of events.
#[derive(Debug, Default)]
struct Events {
    // One value for each event that is no request.
    /// Requests of the block that come before it.
    after: Vec<u32>,
    /// One of [`entry_kind`].
    kind: Vec<u32>,
    /// Its fields.
    fields: Fields,
    requests: Columns,
}

impl Events {
    /// Leaves it empty, with the memory of before.
    fn clear(&mut self) {
        self.after.clear();
        self.kind.clear();
        self.fields.clear();
        self.requests = Columns::default();
    }
}

/// When all records before it have been seen.
#[derive(Debug, Default, Deserialize)]
struct Tick {
    now_ns: u64,
}

/// Elements of a list that has memory of its own for each: a block is full long before.
const MAX_ELEMENTS: usize = 1 << 17;

/// Reads a list of at most [`MAX_ELEMENTS`]: an empty text takes one byte of a file, and 24 here.
fn bounded<'de, D: Deserializer<'de>, T: Deserialize<'de>>(input: D) -> Result<Vec<T>, D::Error> {
    struct Bounded<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Bounded<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MAX_ELEMENTS}")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut elements = Vec::new();
            while let Some(element) = list.next_element()? {
                if elements.len() == MAX_ELEMENTS {
                    return Err(de::Error::invalid_length(MAX_ELEMENTS + 1, &self));
                }
                elements.push(element);
            }
            Ok(elements)
        }
    }

    input.deserialize_seq(Bounded(PhantomData))
}
