//! The boundary of the state machine: hits of markers in; tables, clock and outputs that it uses.

use crate::loss::Loss;
use crate::thread::{RequestState, Thread};

use super::{KeyEntry, KeyId};

/// A marker of a type with a key that was hit.
#[derive(Clone, Copy, Debug)]
pub struct Hit {
    /// One of [`op`].
    pub op: u32,
    /// Bits of [`marker_flag`].
    pub flags: u32,
    /// Index of the place and 1; 0: none is given.
    pub place: u32,
    /// The key; of [`marker_flag::CURRENT`] only process and type count.
    pub id: KeyId,
    /// Of [`op::ADOPT`]: the key from here on.
    pub to: KeyId,
    /// The thread.
    pub tid: u32,
}

/// What a hit is counted as when it does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// No request has the key.
    Unknown,
    /// An end, and no request has the key.
    EndWithoutBegin,
    /// Another thread runs the request.
    Elsewhere,
    /// The thread is in a request of a type without a key.
    OtherType,
}

/// The tables, the clock and the outputs: maps in the kernel, vectors in tests.
pub trait World {
    /// A place in the table of keys.
    type Entry: Copy;

    /// The entry of a key.
    fn entry(&mut self, id: &KeyId) -> Option<Self::Entry>;
    /// Its value, at this moment.
    fn look(&mut self, entry: Self::Entry) -> KeyEntry;
    /// Stores a word if the entry still has the other one.
    fn exchange(&mut self, entry: Self::Entry, from: u64, to: u64) -> bool;
    /// Makes an entry, in the place of one that there may be.
    fn insert(&mut self, id: &KeyId, entry: &KeyEntry) -> bool;
    /// Takes an entry out.
    fn remove(&mut self, id: &KeyId);

    /// Puts a request into the table of those that no thread runs.
    fn store(&mut self, id: &KeyId, request: &RequestState) -> bool;
    /// Gives a request that lies there another key.
    fn store_again(&mut self, from: &KeyId, to: &KeyId) -> bool;
    /// Changes a request that lies there.
    fn with_stored(
        &mut self,
        id: &KeyId,
        change: impl FnOnce(&mut Self, &mut RequestState),
    ) -> bool;
    /// Moves a request from there to a thread.
    fn fetch(&mut self, id: &KeyId, into: &mut RequestState) -> bool;
    /// Takes a request out.
    fn discard(&mut self, id: &KeyId);

    /// The clock, `CLOCK_MONOTONIC` nanoseconds.
    fn now(&mut self) -> u64;
    /// A time a little before now that no other request has.
    fn unique_now(&mut self) -> u64;
    /// The scheduler's programs look at the thread from now on, or not, if its request is not recorded.
    fn enter(&mut self, thread: &mut Thread);
    /// They do not from now on. Returns when that was.
    fn leave(&mut self, thread: &mut Thread) -> u64;

    /// How many requests one that begins now stands for; 0: it is not recorded.
    fn weight(&mut self) -> u32;
    /// Reads the request's attributes and, if it is about to begin on this thread, its label.
    fn read(&mut self, request: &mut RequestState, is_begin: bool);
    /// Puts the name of the thread into its request's record.
    fn name(&mut self, thread: &mut Thread);
    /// Adds up and sends a request that was closed.
    fn send(&mut self, request: &mut RequestState);
    /// The request was at this place, until now: `place` and nanoseconds. `thread` ended that.
    fn was_away(&mut self, request: &RequestState, place: u32, until_ns: u64, thread: &Thread);
    /// Counts a begin.
    fn begun(&mut self, request_type: u32);
    /// Counts an end.
    fn ended(&mut self, request_type: u32);
    /// Counts what does not fit.
    fn misfit(&mut self, request_type: u32, what: Misfit);
    /// Counts a loss.
    fn lose(&mut self, loss: Loss);
}
