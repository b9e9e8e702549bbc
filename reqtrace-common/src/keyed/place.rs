//! What is at a key: begins, adoptions, and ends of what the thread does not run, in; the request of before closed, and
//! another one in its place, out.

use crate::cookie::Reentry;
use crate::loss::Loss;
use crate::marker::{marker_flag, op};
use crate::record::reason;
use crate::thread::{Begin, RequestState, Thread, phase};

use super::take::{self, Freed, Got};
use super::{Hit, Inserted, Job, KeyId, Misfit, Where, Word, World, place_of};

/// A request that gets another key: its entry, and the word that stood there.
struct Moved<E> {
    got: Got,
    entry: E,
    word: u64,
}

/// Closes the request of a key, and puts the one there that begins or is adopted, if one does.
#[inline(always)]
pub(super) fn replace<W: World>(world: &mut W, thread: &mut Thread, hit: &Hit, is_running: bool) {
    let moved = if hit.op == op::ADOPT {
        pick_up(world, thread, hit, is_running)
    } else {
        nothing_moved(world)
    };
    if hit.op == op::ADOPT && moved.got != Got::It {
        return;
    }
    let ends = hit.op == op::END;
    let id = if hit.op == op::ADOPT {
        &hit.to
    } else {
        &hit.id
    };
    let is_named = !ends || hit.flags & marker_flag::CURRENT == 0;
    let freed = if is_named {
        let as_what = thread.request.keyed.decide(ended(hit).into()) as u32;
        take::finish(world, thread, id, ends, as_what)
    } else {
        Freed {
            got: Got::Nothing,
            entry: world.nowhere(),
            ticket: 0,
        }
    };
    if ends {
        let may_be_none = hit.flags & marker_flag::TOUCH != 0;
        if freed.got == Got::Nothing && may_be_none {
            return;
        }
        if hit.flags & marker_flag::DROPS == 0 {
            world.ended(id.request_type);
        }
        match freed.got {
            Got::Nothing => world.misfit(id.request_type, Misfit::EndWithoutBegin),
            Got::It => world.remove(id),
            Got::Refused => {}
        }
        return;
    }
    let held = hold(world, id, freed);
    if hit.op == op::ADOPT {
        put_down(world, thread, hit, &moved, &held, is_running);
    } else if held.got == Got::It {
        begin(world, thread, hit, &held);
    }
}

/// A request begins.
#[inline(always)]
fn begin<W: World>(world: &mut W, thread: &mut Thread, hit: &Hit, held: &Freed<W::Entry>) {
    let is_queued = hit.flags & marker_flag::QUEUED != 0;
    let entry = held.entry;
    let ticket = world.ticket();
    let weight = world.weight(thread, hit);
    world.note_weight(entry, weight);
    let mut word = Word::running(hit.tid, ticket);
    if is_queued {
        if weight != 0 && !begin_stored(world, thread, hit, entry, ticket, weight) {
            world.lose(Loss::ParkedTableFull);
            world.remove(&hit.id);
            return;
        }
        word.at = Where::Away;
        word.ready = Some(place_of(hit));
    }
    world.exchange(&hit.id, Word::busy(held.ticket).encode(), word.encode());
    if is_queued {
        return;
    }
    if weight == 0 {
        run_unrecorded(world, thread, &hit.id, ticket);
        return;
    }
    thread.name_record();
    open(world, &mut thread.request, hit, ticket, weight);
    thread.state.phase = phase::ON_CPU;
    world.enter(thread);
}

/// A request begins that no thread runs. Whether there was room.
#[inline(always)]
fn begin_stored<W: World>(
    world: &mut W,
    thread: &Thread,
    hit: &Hit,
    entry: W::Entry,
    ticket: u64,
    weight: u32,
) -> bool {
    if !(world.store_new(ticket) || world.make_room(true) && world.store_new(ticket)) {
        return false;
    }
    world.read_stored(ticket);
    world.with_stored(ticket, |world, request| {
        request.name(&thread.state);
        world.name(request);
        open_read(world, request, hit, ticket, weight);
        request.keyed.leave(request.record.begin_ns, place_of(hit));
        world.note_left(entry, request);
        world.note_ready(entry, request.record.begin_ns, Job::NONE);
    })
}

/// Opens a request, with its attributes and label.
#[inline(always)]
fn open<W: World>(world: &mut W, request: &mut RequestState, hit: &Hit, ticket: u64, weight: u32) {
    request.keyed.has_extra = 0;
    request.record.label_len = 0;
    world.read(request, true);
    open_read(world, request, hit, ticket, weight);
}

/// Opens a request that has its attributes and label.
#[inline(always)]
fn open_read<W: World>(
    world: &mut W,
    request: &mut RequestState,
    hit: &Hit,
    ticket: u64,
    weight: u32,
) {
    let label_len = request.record.label_len;
    let begin = beginning(hit.id.request_type, world.unique_now(), weight);
    request.open(&begin);
    request.record.label_len = label_len;
    request.keyed.id = hit.id;
    request.keyed.holds(ticket);
}

#[inline(always)]
fn beginning(request_type: u32, now: u64, weight: u32) -> Begin {
    Begin {
        now,
        request_type,
        reentry: Reentry::Restart,
        sp: 0,
        return_address: 0,
        weight,
    }
}

/// The thread runs a request that is not recorded from here on.
#[inline(always)]
pub(super) fn run_unrecorded<W: World>(
    world: &mut W,
    thread: &mut Thread,
    id: &KeyId,
    ticket: u64,
) {
    thread.open_unsampled(&beginning(id.request_type, 0, 0));
    thread.request.keyed.id = *id;
    thread.request.keyed.holds(ticket);
    world.enter(thread);
}

/// Why an end closes a request.
#[inline(always)]
pub(super) const fn ended(hit: &Hit) -> u32 {
    if hit.flags & marker_flag::DROPS != 0 {
        reason::NO_END
    } else {
        reason::COMPLETE
    }
}

/// The entry of a key that is free, busy and this thread's.
#[inline(always)]
fn hold<W: World>(world: &mut W, id: &KeyId, mut freed: Freed<W::Entry>) -> Freed<W::Entry> {
    if freed.got != Got::Nothing {
        return freed;
    }
    freed.got = Got::Refused;
    let mut inserted = world.insert(id);
    if inserted == Inserted::Full && world.make_room(false) {
        inserted = world.insert(id);
    }
    match inserted {
        Inserted::Exists => world.misfit(id.request_type, Misfit::Elsewhere),
        Inserted::Full => world.lose(Loss::KeyTableFull),
        Inserted::Done => {
            if let Some(entry) = world.entry(id) {
                freed.got = Got::It;
                freed.entry = entry;
            }
        }
    }
    freed
}

/// No request that gets another key.
#[inline(always)]
fn nothing_moved<W: World>(world: &W) -> Moved<W::Entry> {
    Moved {
        got: Got::Nothing,
        entry: world.nowhere(),
        word: 0,
    }
}

/// Takes a request from its key: one that the thread runs, or that no thread runs.
#[inline(always)]
fn pick_up<W: World>(
    world: &mut W,
    thread: &Thread,
    hit: &Hit,
    is_running: bool,
) -> Moved<W::Entry> {
    let from = from(thread, hit, is_running);
    if from.key == hit.to.key {
        return nothing_moved(world);
    }
    let Some(entry) = world.entry(from) else {
        world.misfit(hit.id.request_type, Misfit::Unknown);
        return nothing_moved(world);
    };
    let found = world.look(entry).word;
    let word = Word::decode(found);
    let is_free = match word.at {
        Where::Away => true,
        Where::Running(_) => is_running && word.ticket == thread.request.keyed.ticket,
        Where::Busy => false,
    };
    let busy = Word::busy(word.ticket).encode();
    if !is_free || !world.exchange(from, found, busy) {
        world.misfit(hit.id.request_type, Misfit::Elsewhere);
        return nothing_moved(world);
    }
    Moved {
        got: Got::It,
        entry,
        word: found,
    }
}

/// The key that it has had.
#[inline(always)]
fn from<'a>(thread: &'a Thread, hit: &'a Hit, is_running: bool) -> &'a KeyId {
    if is_running {
        &thread.request.keyed.id
    } else {
        &hit.id
    }
}

/// Puts it at its new key, or back to where it was.
#[inline(always)]
fn put_down<W: World>(
    world: &mut W,
    thread: &mut Thread,
    hit: &Hit,
    moved: &Moved<W::Entry>,
    held: &Freed<W::Entry>,
    is_running: bool,
) {
    let from = *from(thread, hit, is_running);
    if held.got == Got::It {
        world.note_all_of(held.entry, moved.entry);
        world.remove(&from);
        if is_running {
            thread.request.keyed.id = hit.to;
        }
        world.exchange(&hit.to, Word::busy(held.ticket).encode(), moved.word);
    } else {
        let ticket = Word::decode(moved.word).ticket;
        world.exchange(&from, Word::busy(ticket).encode(), moved.word);
    }
}
