//! The boundary of the state machine: hits of markers in; tables, clock and outputs that it uses.

use crate::loss::Loss;
use crate::thread::{RequestState, Thread};

use super::{Job, KeyId, Look};

/// A marker of a type with a key that was hit.
#[derive(Clone, Copy, Debug)]
pub struct Hit {
    /// One of [`op`](crate::marker::op).
    pub op: u32,
    /// Bits of [`marker_flag`](crate::marker::marker_flag).
    pub flags: u32,
    /// Index of the place and 1; 0: none is given.
    pub place: u32,
    /// The key; of [`marker_flag::CURRENT`](crate::marker::marker_flag::CURRENT) only process and type count.
    pub id: KeyId,
    /// Of [`op::ADOPT`](crate::marker::op::ADOPT): the key from here on.
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
    /// Another thread has the request.
    Elsewhere,
    /// The thread is in a request of a type without a key.
    OtherType,
    /// A park, and no thread runs the request.
    ParkedAlready,
}

/// What became of a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It is there.
    Done,
    /// There is one already.
    Exists,
    /// The table is full.
    Full,
}

/// A thread that goes on with a request or ends it, and the request that it runs.
#[derive(Clone, Copy, Debug)]
pub struct By {
    /// The thread.
    pub tid: u32,
    /// Whether it goes on with the request.
    pub is_own: bool,
    /// Whether it runs another one.
    pub is_in_request: bool,
    /// The type of that.
    pub request_type: u32,
    /// When that began; of a thread that runs none, since when its intervals are recorded, or 0.
    pub begin_ns: u64,
}

/// The tables, the clock and the outputs: maps in the kernel, vectors in tests.
pub trait World {
    /// A place in the table of keys. What stands there may be another key's by now, and its word with it.
    type Entry: Copy;

    /// No entry; it is never looked at.
    fn nowhere(&self) -> Self::Entry;
    /// The entry of a key.
    fn entry(&mut self, id: &KeyId) -> Option<Self::Entry>;
    /// What it says at this moment.
    fn look(&mut self, entry: Self::Entry) -> Look;
    /// Stores a word if the key's entry has the other one. By the key: an entry that was found before may be another key's, and
    /// was when it was looked at.
    fn exchange(&mut self, id: &KeyId, from: u64, to: u64) -> bool;
    /// Stores since when and where the request is that was left, and what is known of it.
    fn note_left(&mut self, entry: Self::Entry, left: &RequestState);
    /// Stores the weight of the request.
    fn note_weight(&mut self, entry: Self::Entry, weight: u32);
    /// Stores what another entry has, but for its word.
    fn note_all_of(&mut self, entry: Self::Entry, other: Self::Entry);
    /// Stores when it was made ready, and what it has waited for.
    fn note_ready(&mut self, entry: Self::Entry, ready_ns: u64, job: Job);
    /// Makes [`super::KeyEntry::NEW`], if there is none.
    fn insert(&mut self, id: &KeyId) -> Inserted;
    /// Takes an entry out. Only who has made its word [`super::Where::Busy`] does.
    fn remove(&mut self, id: &KeyId);
    /// A ticket that nothing else has.
    fn ticket(&mut self) -> u64;
    /// Closes requests that no thread runs, those that were touched least lately, as incomplete. With `recorded` only
    /// those that are. Whether there were any.
    fn make_room(&mut self, recorded: bool) -> bool;

    /// Puts a request into the table of those that no thread runs.
    fn store(&mut self, ticket: u64, request: &RequestState) -> bool;
    /// Puts one there that has not begun.
    fn store_new(&mut self, ticket: u64) -> bool;
    /// Puts a copy of what another thread runs there, as it is at this moment, if it has this ticket.
    fn store_running(&mut self, tid: u32, of: u64, ticket: u64) -> bool;
    /// Tells a thread that what it runs with this ticket was taken from it.
    fn tell_taken(&mut self, tid: u32, ticket: u64);
    /// Changes a request that lies there.
    fn with_stored(
        &mut self,
        ticket: u64,
        change: impl FnOnce(&mut Self, &mut RequestState),
    ) -> bool;
    /// Moves a request from there to a thread.
    fn fetch(&mut self, ticket: u64, into: &mut RequestState) -> bool;
    /// Takes a request out.
    fn discard(&mut self, ticket: u64);

    /// What the request of an entry has waited for if it is parked: what the current thread has just done, or where it comes from.
    fn waited_for(&mut self, thread: &Thread, id: &KeyId, entry: Self::Entry) -> Job;

    /// The clock, `CLOCK_MONOTONIC` nanoseconds.
    fn now(&mut self) -> u64;
    /// A time a little before now that no other request has.
    fn unique_now(&mut self) -> u64;
    /// The scheduler's programs look at the thread from now on, or not, if its request is not recorded.
    fn enter(&mut self, thread: &mut Thread);
    /// They do not from now on. Returns when that was.
    fn leave(&mut self, thread: &mut Thread) -> u64;

    /// How many requests one that begins at this hit stands for; 0: it is not recorded. As many as what the thread runs with
    /// [`marker_flag::OF_REQUEST`](crate::marker::marker_flag::OF_REQUEST).
    fn weight(&mut self, thread: &Thread, hit: &Hit) -> u32;
    /// Reads the request's attributes and, if it is about to begin, its label.
    fn read(&mut self, request: &mut RequestState, is_begin: bool);
    /// The same of one that is stored and about to begin. The kernel's programs do it outside of
    /// [`World::with_stored`]: the stacks of both would not fit beneath each other.
    fn read_stored(&mut self, ticket: u64)
    where
        Self: Sized,
    {
        self.with_stored(ticket, |world, request| world.read(request, true));
    }
    /// Puts the name of the current thread into a request's record.
    fn name(&mut self, request: &mut RequestState);
    /// Adds up and sends a request that was closed.
    fn send(&mut self, request: &mut RequestState);
    /// The same of one that is not recorded, and lies nowhere.
    fn count_unrecorded(&mut self, request_type: u32, reason: u32);
    /// A thread goes on with a request whose word was this one: see [`super::was_away`].
    fn count_resume(&mut self, word: u64);
    /// The request of an entry was parked until now.
    fn was_parked(&mut self, id: &KeyId, entry: Self::Entry, until_ns: u64, by: &By);
    /// This request was where it says until now. No thread had run it since `left_ns`, which is earlier if it was made
    /// ready meanwhile.
    fn was_away(&mut self, request: &RequestState, left_ns: u64, until_ns: u64, by: &By);
    /// [`super::part`], with room made where there is none. The kernel's programs call it as a function that the
    /// verifier goes over once, and make room outside of it: the stacks of both would not fit beneath each other.
    fn part(&mut self, thread: &mut Thread, how: u64)
    where
        Self: Sized,
    {
        let again = super::part(self, thread, how);
        if again != 0 {
            self.make_room(true);
            let _ = super::part(self, thread, again);
        }
    }
    /// [`super::close_taken`], in the same way.
    fn close_taken(&mut self, thread: &Thread, stored: u64, why: u64, found: &Look)
    where
        Self: Sized,
    {
        super::close_taken(self, thread, stored, why, found);
    }

    /// Counts a begin.
    fn begun(&mut self, request_type: u32);
    /// Counts an end.
    fn ended(&mut self, request_type: u32);
    /// Counts what does not fit.
    fn misfit(&mut self, request_type: u32, what: Misfit);
    /// Counts a loss.
    fn lose(&mut self, loss: Loss);
}
