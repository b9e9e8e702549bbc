//! Requests that are known by a key, and not by their thread: markers of such types in; which thread runs
//! which request, and for how long none does, out.
//!
//! ```text
//!            begin                        end
//!   (none) ────────► running on a thread ─────► (closed)
//!                     │   ▲        │  ▲
//!                park │   │ resume │  │ resume
//!                     ▼   │  ready ▼  │
//!                    parked ─────► queued
//!                           ready
//! ```
//!
//! A running request lies in its thread's state, so that the scheduler's programs treat it as any other. One
//! that no thread runs lies in a table of its own. A third table says of each key where its request is, in one
//! word that is changed by compare-and-exchange: two threads can never take the same request.
//!
//! A thread runs one request at most: if it turns to another one, it parks the one before.

use crate::loss::Loss;
use crate::marker::{MAX_PLACES, marker_flag, op};
use crate::record::{ExtraRecord, kind, reason};
use crate::thread::{Begin, RequestState, Thread, status};

/// Index of parked time without a name in [`ExtraRecord::away_ns`].
pub const PARKED: u32 = MAX_PLACES as u32;

/// Index of queued time without a name.
pub const QUEUED: u32 = MAX_PLACES as u32 + 1;

/// What names a request while it lives.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId {
    /// The process.
    pub tgid: u32,
    /// Index of the request type.
    pub request_type: u32,
    /// The key.
    pub key: u64,
}

/// Where the request of a key is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyEntry {
    /// A [`Where`], encoded.
    pub word: u64,
    /// Tells its request from others of the same key: [`KeyedState::stamp_ns`].
    pub stamp_ns: u64,
    /// 0: the request is not recorded, and lies in no table while it is parked.
    pub weight: u64,
}

/// Where the request of a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// No thread runs it.
    Away,
    /// This thread runs it. With a place, it is ready again already: it goes there when it is parked.
    Running(u32, Option<u32>),
    /// A program is moving it just now.
    Busy,
}

const STATE_SHIFT: u64 = 32;
const PENDING_SHIFT: u64 = 40;

impl Where {
    /// As one word.
    #[must_use]
    #[inline]
    pub const fn encode(self) -> u64 {
        match self {
            Self::Away => 0,
            Self::Running(tid, None) => 1 << STATE_SHIFT | tid as u64,
            Self::Running(tid, Some(place)) => {
                (place as u64 + 1) << PENDING_SHIFT | 1 << STATE_SHIFT | tid as u64
            }
            Self::Busy => 2 << STATE_SHIFT,
        }
    }

    /// The reverse of [`Where::encode`].
    #[must_use]
    #[inline]
    pub const fn decode(word: u64) -> Self {
        match (word >> STATE_SHIFT) & 3 {
            0 => Self::Away,
            1 => {
                let pending = (word >> PENDING_SHIFT) as u32;
                Self::Running(
                    word as u32,
                    if pending == 0 {
                        None
                    } else {
                        Some(pending - 1)
                    },
                )
            }
            _ => Self::Busy,
        }
    }
}

/// What a request of a type with a key has in addition.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedState {
    /// What names it.
    pub id: KeyId,
    /// Tells it from others of the same key: unique in its process.
    pub stamp_ns: u64,
    /// Since when no thread runs it, `CLOCK_MONOTONIC` nanoseconds; means nothing while one does.
    pub since_ns: u64,
    /// Where it is then: an index of [`ExtraRecord::away_ns`].
    pub place: u32,
    /// Whether it is queued there, and not parked.
    pub queued: u32,
    /// 1 for a request of a type with a key.
    pub is_keyed: u32,
    /// 1 once `extra` is in use.
    pub has_extra: u32,
    /// What is sent beside the record.
    pub extra: ExtraRecord,
}

impl KeyedState {
    /// A request without a key.
    pub const NONE: Self = Self {
        id: KeyId {
            tgid: 0,
            request_type: 0,
            key: 0,
        },
        stamp_ns: 0,
        since_ns: 0,
        place: 0,
        queued: 0,
        is_keyed: 0,
        has_extra: 0,
        extra: ExtraRecord::ZERO,
    };

    /// What is sent beside the record, empty at its first use.
    #[inline]
    pub fn extra(&mut self) -> &mut ExtraRecord {
        if self.has_extra == 0 {
            self.has_extra = 1;
            self.extra.begin_anew();
        }
        &mut self.extra
    }

    /// No thread runs the request from now on.
    #[inline]
    pub fn leave(&mut self, now: u64, place: u32, queued: bool) {
        self.since_ns = now;
        self.place = place;
        self.queued = queued as u32;
    }

    /// The time of the place where it is ends; a name that is given here is that of the place. Returns
    /// how long it was, and where.
    #[inline]
    pub fn count_away(&mut self, now: u64, named: u32) -> (u64, u32) {
        let place = if named == 0 { self.place } else { named - 1 };
        self.place = place;
        let ns = now.saturating_sub(self.since_ns);
        let queued_ns = if self.queued == 0 { 0 } else { ns };
        // Read back: see `thread::request`.
        // SAFETY: the reference is valid.
        let index = unsafe { core::ptr::read_volatile(&raw const self.place) } as usize;
        let extra = self.extra();
        if index < extra.away_ns.len() {
            extra.queued_ns += queued_ns;
            extra.away_ns[index] += ns;
            extra.aways[index] += 1;
        }
        (ns, place)
    }
}

impl ExtraRecord {
    /// Nothing.
    pub const ZERO: Self = Self {
        kind: 0,
        tgid: 0,
        tid: 0,
        moves: 0,
        begin_ns: 0,
        stamp_ns: 0,
        queued_ns: 0,
        away_ns: [0; MAX_PLACES + 2],
        aways: [0; MAX_PLACES + 2],
        numbers_set: 0,
        texts_set: 0,
        numbers: [0; crate::marker::MAX_ATTRIBUTES],
    };

    #[inline]
    fn begin_anew(&mut self) {
        *self = Self {
            kind: kind::EXTRA,
            ..Self::ZERO
        };
    }

    /// Nanoseconds parked or queued.
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.away_ns.iter().sum()
    }
}

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
    /// Reads attributes and, of a begin, the label of the request that the thread runs, or is about to begin.
    fn read(&mut self, thread: &mut Thread, is_begin: bool);
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

/// Takes one hit of a marker.
#[inline(always)]
pub fn hit<W: World>(world: &mut W, thread: &mut Thread, hit: &Hit) {
    let is_mine = runs(thread, hit);
    match hit.op {
        op::BEGIN => begin(world, thread, hit, is_mine),
        op::RESUME if is_mine || resume(world, thread, hit) => world.read(thread, false),
        op::RESUME => {}
        op::PARK | op::READY if is_mine => {
            world.read(thread, false);
            let queued = hit.op == op::READY;
            leave(world, thread, place_of(hit), queued);
        }
        op::PARK => park_another(world, hit),
        op::READY => ready(world, thread, hit),
        op::ADOPT => adopt(world, thread, hit, is_mine),
        op::END => end(world, thread, hit, is_mine),
        _ if is_mine => world.read(thread, false),
        _ => {}
    }
}

/// Whether the thread runs the request that is meant.
#[inline(always)]
fn runs(thread: &Thread, hit: &Hit) -> bool {
    let request = &thread.request;
    request.status == status::OPEN
        && request.keyed.is_keyed != 0
        && request.keyed.id.request_type == hit.id.request_type
        && (hit.flags & marker_flag::CURRENT != 0 || request.keyed.id.key == hit.id.key)
}

#[inline(always)]
fn place_of(hit: &Hit) -> u32 {
    if hit.place != 0 {
        hit.place - 1
    } else if hit.op == op::READY {
        QUEUED
    } else {
        PARKED
    }
}

#[inline(always)]
fn begin<W: World>(world: &mut W, thread: &mut Thread, hit: &Hit, is_mine: bool) {
    let known = world.entry(&hit.id);
    if hit.flags & marker_flag::OR_RESUME != 0
        && !is_mine
        && let Some(entry) = known
        && let Where::Away = Where::decode(world.look(entry).word)
    {
        if resume(world, thread, hit) {
            world.read(thread, false);
        }
        return;
    }
    world.begun(hit.id.request_type);
    if thread.request.status == status::OPEN && thread.request.keyed.is_keyed == 0 {
        world.misfit(hit.id.request_type, Misfit::OtherType);
        return;
    }
    let known = if is_mine {
        // The key is used again, so the end of the request before went unseen.
        close(world, thread, reason::NO_END);
        world.entry(&hit.id)
    } else {
        if thread.request.status == status::OPEN {
            leave(world, thread, PARKED, false);
        }
        known
    };
    if let Some(entry) = known {
        close_stored(world, thread, &hit.id, entry, reason::NO_END);
    }
    let stamp_ns = world.unique_now();
    let weight = world.weight();
    let entry = KeyEntry {
        word: Where::Running(hit.tid, None).encode(),
        stamp_ns,
        weight: weight as u64,
    };
    if !world.insert(&hit.id, &entry) {
        world.lose(Loss::KeyTableFull);
        return;
    }
    thread.request.keyed.has_extra = 0;
    thread.request.record.label_len = 0;
    if weight != 0 {
        world.read(thread, true);
    }
    let begin = Begin {
        now: world.unique_now(),
        request_type: hit.id.request_type,
        reentry: crate::cookie::Reentry::Restart,
        sp: 0,
        return_address: 0,
        weight,
    };
    run(world, thread, hit.id, stamp_ns, &begin);
}

/// The thread runs this request from here on.
#[inline(always)]
fn run<W: World>(world: &mut W, thread: &mut Thread, id: KeyId, stamp_ns: u64, begin: &Begin) {
    let label_len = thread.request.record.label_len;
    if begin.weight == 0 {
        thread.open_unsampled(begin);
    } else {
        thread.open(begin);
        thread.request.record.label_len = label_len;
    }
    thread.request.keyed.id = id;
    thread.request.keyed.stamp_ns = stamp_ns;
    thread.request.keyed.is_keyed = 1;
    world.enter(thread);
}

/// The thread goes on with a request that it does not run. Whether it does now.
#[inline(always)]
fn resume<W: World>(world: &mut W, thread: &mut Thread, hit: &Hit) -> bool {
    let Some(entry) = world.entry(&hit.id) else {
        if hit.flags & marker_flag::TOUCH == 0 {
            world.misfit(hit.id.request_type, Misfit::Unknown);
        }
        return false;
    };
    let is_busy = thread.request.status == status::OPEN;
    if is_busy && thread.request.keyed.is_keyed == 0 {
        world.misfit(hit.id.request_type, Misfit::OtherType);
        return false;
    }
    let found = world.look(entry);
    let away = Where::Away.encode();
    if found.word != away || !world.exchange(entry, away, Where::Busy.encode()) {
        world.misfit(hit.id.request_type, Misfit::Elsewhere);
        return false;
    }
    if is_busy {
        leave(world, thread, PARKED, false);
    }
    let running = Where::Running(hit.tid, None).encode();
    if found.weight == 0 {
        let begin = Begin {
            now: 0,
            request_type: hit.id.request_type,
            reentry: crate::cookie::Reentry::Restart,
            sp: 0,
            return_address: 0,
            weight: 0,
        };
        run(world, thread, hit.id, found.stamp_ns, &begin);
        world.exchange(entry, Where::Busy.encode(), running);
        return true;
    }
    if !world.fetch(&hit.id, &mut thread.request) {
        // It was closed where it lay, because there was no room for it.
        world.remove(&hit.id);
        thread.request.status = status::NONE;
        world.misfit(hit.id.request_type, Misfit::Unknown);
        return false;
    }
    let now = world.now();
    let named = if hit.op == op::RESUME || hit.op == op::BEGIN {
        hit.place
    } else {
        0
    };
    // What a request was queued for is told by who made it ready.
    let named = if thread.request.keyed.queued != 0 {
        0
    } else {
        named
    };
    let (_, place) = thread.request.keyed.count_away(now, named);
    world.was_away(&thread.request, place, now, thread);
    if thread.request.record.tid != hit.tid {
        thread.request.keyed.extra().moves += 1;
    }
    thread.name_record();
    world.name(thread);
    thread.request.status = status::OPEN;
    world.exchange(entry, Where::Busy.encode(), running);
    world.enter(thread);
    true
}

/// The thread runs its request no more: parked, or queued.
#[inline(always)]
fn leave<W: World>(world: &mut W, thread: &mut Thread, place: u32, queued: bool) {
    let now = world.leave(thread);
    let id = thread.request.keyed.id;
    let Some((entry, found)) = own_entry(world, thread) else {
        return close_left(world, thread, now, reason::NO_END);
    };
    let (place, queued) = match Where::decode(found.word) {
        Where::Running(_, Some(pending)) => (pending, true),
        _ => (place, queued),
    };
    if thread.request.record.weight != 0 {
        thread.request.keyed.leave(now, place, queued);
        if !world.store(&id, &thread.request) {
            world.lose(Loss::ParkedTableFull);
            world.remove(&id);
            return close_left(world, thread, now, reason::NO_END);
        }
    }
    thread.request.status = status::NONE;
    if !world.exchange(entry, found.word, Where::Away.encode()) {
        // Somebody has made it ready in between.
        let Where::Running(_, Some(pending)) = Where::decode(world.look(entry).word) else {
            return;
        };
        if thread.request.record.weight != 0 {
            world.with_stored(&id, |_, request| request.keyed.leave(now, pending, true));
        }
        let pending = Where::Running(thread.state.tid, Some(pending)).encode();
        world.exchange(entry, pending, Where::Away.encode());
    }
}

/// The entry of the request that the thread runs; `None` when its key is another request's by now.
#[inline(always)]
fn own_entry<W: World>(world: &mut W, thread: &Thread) -> Option<(W::Entry, KeyEntry)> {
    let keyed = &thread.request.keyed;
    let entry = world.entry(&keyed.id)?;
    let found = world.look(entry);
    (found.stamp_ns == keyed.stamp_ns).then_some((entry, found))
}

/// A park with the key of a request that the thread does not run.
#[inline(always)]
fn park_another<W: World>(world: &mut W, hit: &Hit) {
    if hit.flags & marker_flag::CURRENT != 0 {
        return;
    }
    match world.entry(&hit.id) {
        None => world.misfit(hit.id.request_type, Misfit::Unknown),
        Some(entry) => match Where::decode(world.look(entry).word) {
            Where::Away => {}
            _ => world.misfit(hit.id.request_type, Misfit::Elsewhere),
        },
    }
}

/// A request that the thread does not run is ready.
#[inline(always)]
fn ready<W: World>(world: &mut W, thread: &Thread, hit: &Hit) {
    if hit.flags & marker_flag::CURRENT != 0 {
        return;
    }
    let Some(entry) = world.entry(&hit.id) else {
        world.misfit(hit.id.request_type, Misfit::Unknown);
        return;
    };
    let found = world.look(entry);
    let place = place_of(hit);
    match Where::decode(found.word) {
        Where::Away if found.weight == 0 => {}
        Where::Away => {
            let (away, busy) = (Where::Away.encode(), Where::Busy.encode());
            if !world.exchange(entry, away, busy) {
                world.misfit(hit.id.request_type, Misfit::Elsewhere);
                return;
            }
            let now = world.now();
            world.with_stored(&hit.id, |world, request| {
                if request.keyed.queued == 0 {
                    let (_, was) = request.keyed.count_away(now, 0);
                    world.was_away(request, was, now, thread);
                    request.keyed.leave(now, place, true);
                }
            });
            world.exchange(entry, busy, away);
        }
        Where::Running(tid, None) => {
            // It is about to be parked.
            let pending = Where::Running(tid, Some(place)).encode();
            if !world.exchange(entry, found.word, pending) {
                world.misfit(hit.id.request_type, Misfit::Elsewhere);
            }
        }
        Where::Running(_, Some(_)) => {}
        Where::Busy => world.misfit(hit.id.request_type, Misfit::Elsewhere),
    }
}

#[inline(always)]
fn adopt<W: World>(world: &mut W, thread: &mut Thread, hit: &Hit, is_mine: bool) {
    let from = if is_mine {
        thread.request.keyed.id
    } else {
        hit.id
    };
    if from.key == hit.to.key {
        return;
    }
    let Some(entry) = world.entry(&from) else {
        world.misfit(hit.id.request_type, Misfit::Unknown);
        return;
    };
    let found = world.look(entry);
    let (away, busy) = (Where::Away.encode(), Where::Busy.encode());
    let is_away = found.word == away;
    let is_own = is_mine && found.stamp_ns == thread.request.keyed.stamp_ns;
    if !(is_own || is_away && world.exchange(entry, away, busy)) {
        world.misfit(hit.id.request_type, Misfit::Elsewhere);
        return;
    }
    if let Some(other) = world.entry(&hit.to) {
        close_stored(world, thread, &hit.to, other, reason::NO_END);
    }
    let new = KeyEntry {
        word: if is_own { found.word } else { busy },
        ..found
    };
    if !world.insert(&hit.to, &new) {
        world.lose(Loss::KeyTableFull);
        if !is_own {
            world.exchange(entry, busy, away);
        }
        return;
    }
    if is_own {
        thread.request.keyed.id = hit.to;
    } else {
        if found.weight != 0 {
            if !world.store_again(&from, &hit.to) {
                world.lose(Loss::ParkedTableFull);
                world.remove(&hit.to);
                world.exchange(entry, busy, away);
                return;
            }
            world.discard(&from);
        }
        if let Some(adopted) = world.entry(&hit.to) {
            world.exchange(adopted, busy, away);
        }
    }
    world.remove(&from);
}

#[inline(always)]
fn end<W: World>(world: &mut W, thread: &mut Thread, hit: &Hit, is_mine: bool) {
    world.ended(hit.id.request_type);
    if is_mine || hit.flags & marker_flag::CURRENT == 0 && ends_another(world, thread, hit) {
        world.read(thread, false);
        close(world, thread, reason::COMPLETE);
    } else if hit.flags & marker_flag::CURRENT != 0 {
        world.misfit(hit.id.request_type, Misfit::EndWithoutBegin);
    }
}

/// An end of a request that the thread does not run. It goes on with it for that: then it is true.
#[inline(always)]
fn ends_another<W: World>(world: &mut W, thread: &mut Thread, hit: &Hit) -> bool {
    let Some(entry) = world.entry(&hit.id) else {
        world.misfit(hit.id.request_type, Misfit::EndWithoutBegin);
        return false;
    };
    if Where::decode(world.look(entry).word) != Where::Away {
        // It is closed by the thread that runs it, at its next marker.
        world.misfit(hit.id.request_type, Misfit::Elsewhere);
        world.remove(&hit.id);
        return false;
    }
    let is_other_type = thread.request.status == status::OPEN && thread.request.keyed.is_keyed == 0;
    if is_other_type {
        close_stored(world, thread, &hit.id, entry, reason::COMPLETE);
        world.remove(&hit.id);
        return false;
    }
    resume(world, thread, hit)
}

/// The request that the thread runs ends.
#[inline(always)]
fn close<W: World>(world: &mut W, thread: &mut Thread, why: u32) {
    let id = thread.request.keyed.id;
    let now = world.leave(thread);
    let why = if own_entry(world, thread).is_some() {
        world.remove(&id);
        why
    } else {
        reason::NO_END
    };
    close_left(world, thread, now, why);
}

#[inline(always)]
fn close_left<W: World>(world: &mut W, thread: &mut Thread, now: u64, why: u32) {
    thread.close(now, why);
    thread.request.keyed.is_keyed = 0;
    world.send(&mut thread.request);
}

/// Closes a request that no thread runs. One that another thread runs is closed at that thread's next marker,
/// since its key is another request's by then.
#[inline(always)]
fn close_stored<W: World>(world: &mut W, thread: &Thread, id: &KeyId, entry: W::Entry, why: u32) {
    let found = world.look(entry);
    let (away, busy) = (Where::Away.encode(), Where::Busy.encode());
    if found.word != away || !world.exchange(entry, away, busy) {
        world.misfit(id.request_type, Misfit::Elsewhere);
        return;
    }
    if found.weight == 0 {
        return;
    }
    let now = world.now();
    world.with_stored(id, |world, request| {
        let (_, place) = request.keyed.count_away(now, 0);
        world.was_away(request, place, now, thread);
        request.close(now, why);
        world.send(request);
    });
    world.discard(id);
}

#[cfg(test)]
mod tests;
