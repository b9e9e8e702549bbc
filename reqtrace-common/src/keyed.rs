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

mod key;
mod state;
mod world;

pub use key::{KeyEntry, KeyId, Where};
pub use state::{KeyedState, PARKED, QUEUED};
pub use world::{Hit, Misfit, World};

use crate::loss::Loss;
use crate::marker::{marker_flag, op};
use crate::record::reason;
use crate::thread::{Begin, Thread, status};

/// Takes one hit of a marker. Attributes are read at one place for most markers: what is inlined here is verified
/// by the kernel as often as it stands here.
#[inline(always)]
pub fn hit<W: World>(world: &mut W, thread: &mut Thread, hit: &Hit) {
    let is_running = runs(thread, hit);
    let is_taken_up = !is_running && takes_up(world, hit);
    if is_taken_up && !resume(world, thread, hit) {
        return;
    }
    if is_taken_up || is_running && hit.op != op::BEGIN {
        world.read(&mut thread.request, false);
    }
    match hit.op {
        _ if is_taken_up => {}
        op::BEGIN => begin(world, thread, hit, is_running),
        op::PARK | op::READY if is_running => {
            let queued = hit.op == op::READY;
            leave(world, thread, place_of(hit), queued);
        }
        op::PARK => park_another(world, hit),
        op::READY => ready(world, thread, hit),
        op::ADOPT => adopt(world, thread, hit, is_running),
        op::END if is_running => {
            world.ended(hit.id.request_type);
            close(world, thread, reason::COMPLETE);
        }
        op::END => end_another(world, thread, hit),
        _ => {}
    }
}

/// Whether the thread is to go on with a request that it does not run.
#[inline(always)]
fn takes_up<W: World>(world: &mut W, hit: &Hit) -> bool {
    if hit.op != op::BEGIN {
        return hit.op == op::RESUME;
    }
    if hit.flags & marker_flag::OR_RESUME == 0 {
        return false;
    }
    let Some(entry) = world.entry(&hit.id) else {
        return false;
    };
    matches!(Where::decode(world.look(entry).word), Where::Away)
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
    world.begun(hit.id.request_type);
    if thread.request.status == status::OPEN && thread.request.keyed.is_keyed == 0 {
        world.misfit(hit.id.request_type, Misfit::OtherType);
        return;
    }
    if is_mine {
        // The key is used again, so the end of the request before went unseen.
        close(world, thread, reason::NO_END);
    } else if thread.request.status == status::OPEN {
        leave(world, thread, PARKED, false);
    }
    if let Some(entry) = world.entry(&hit.id) {
        close_stored(world, thread, &hit.id, entry);
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
        world.read(&mut thread.request, true);
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
        close_stored(world, thread, &hit.to, other);
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

/// An end of a request that the thread does not run.
#[inline(always)]
fn end_another<W: World>(world: &mut W, thread: &mut Thread, hit: &Hit) {
    world.ended(hit.id.request_type);
    let is_named = hit.flags & marker_flag::CURRENT == 0;
    let Some(entry) = is_named.then(|| world.entry(&hit.id)).flatten() else {
        return world.misfit(hit.id.request_type, Misfit::EndWithoutBegin);
    };
    if let Some(found) = claim(world, &hit.id, entry) {
        world.with_stored(&hit.id, |world, request| world.read(request, false));
        close_claimed(world, thread, &hit.id, &found, reason::COMPLETE);
    }
    world.remove(&hit.id);
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

/// Closes a request that no thread runs, as incomplete.
#[inline(always)]
fn close_stored<W: World>(world: &mut W, thread: &Thread, id: &KeyId, entry: W::Entry) {
    if let Some(found) = claim(world, id, entry) {
        close_claimed(world, thread, id, &found, reason::NO_END);
    }
}

/// Takes a request that no thread runs, so that nobody else does. One that another thread runs is closed at that
/// thread's next marker, since its key is another request's by then.
#[inline(always)]
fn claim<W: World>(world: &mut W, id: &KeyId, entry: W::Entry) -> Option<KeyEntry> {
    let found = world.look(entry);
    let (away, busy) = (Where::Away.encode(), Where::Busy.encode());
    if found.word != away || !world.exchange(entry, away, busy) {
        world.misfit(id.request_type, Misfit::Elsewhere);
        return None;
    }
    Some(found)
}

#[inline(always)]
fn close_claimed<W: World>(world: &mut W, thread: &Thread, id: &KeyId, found: &KeyEntry, why: u32) {
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
