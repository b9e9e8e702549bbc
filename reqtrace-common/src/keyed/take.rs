//! Requests that change hands: a key in; the request of it, taken from where it lay or from the thread that ran
//! it, out.

use crate::marker::{marker_flag, op};
use crate::record::reason;
use crate::thread::{RequestState, Thread, status};

use super::{By, Hit, Job, KeyId, Look, Misfit, TRIES, Where, Word, World};

/// Whether something was got. What is decided here are structs whose fields all have values, and no enums: a payload
/// that is not there would be a register that the verifier does not let be stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Got {
    /// Nothing is there.
    Nothing,
    /// Somebody else has it, or it cannot be had here.
    Refused,
    /// It is this thread's now.
    It,
}

/// A request that a thread takes.
pub(super) struct Seized {
    pub(super) got: Got,
    /// What stood there.
    pub(super) found: Look,
    /// Its ticket from now on.
    pub(super) ticket: u64,
    /// The ticket by which it is stored.
    pub(super) stored: u64,
    /// Another thread ran it until now.
    pub(super) was_running: bool,
}

/// Nothing that is seized.
#[inline(always)]
pub(super) fn nothing(got: Got) -> Seized {
    Seized {
        got,
        found: Look {
            word: 0,
            ready_ns: 0,
            job: Job::NONE,
            weight: 0,
        },
        ticket: 0,
        stored: 0,
        was_running: false,
    }
}

/// Takes the request of a key, whoever has it. The word becomes `to`, with the ticket that is new. It is refused when
/// somebody takes it out.
#[inline(always)]
fn seize<W: World>(world: &mut W, id: &KeyId, entry: W::Entry, to: Word) -> Seized {
    let ticket = to.ticket;
    let mut tries = 0;
    while tries < TRIES {
        tries += 1;
        let found = world.look(entry);
        let word = Word::decode(found.word);
        let (was_running, tid) = match word.at {
            Where::Busy => break,
            Where::Away => (false, 0),
            Where::Running(tid) => (true, tid),
        };
        let is_copied = was_running && found.weight != 0;
        if is_copied && !world.store_running(tid, word.ticket, ticket) {
            continue;
        }
        if world.exchange(id, found.word, to.encode()) {
            if was_running {
                world.tell_taken(tid, word.ticket);
            }
            return Seized {
                got: Got::It,
                found,
                ticket,
                stored: if was_running { ticket } else { word.ticket },
                was_running,
            };
        }
        if is_copied {
            world.discard(ticket);
        }
    }
    nothing(Got::Refused)
}

/// Takes the request that a marker goes on with.
#[inline(always)]
pub(super) fn up<W: World>(world: &mut W, hit: &Hit, is_plain: bool) -> Seized {
    let Some(entry) = world.entry(&hit.id) else {
        if hit.op != op::BEGIN && hit.flags & marker_flag::TOUCH == 0 {
            world.misfit(hit.id.request_type, Misfit::Unknown);
        }
        return nothing(Got::Nothing);
    };
    if is_plain {
        world.misfit(hit.id.request_type, Misfit::OtherType);
        return nothing(Got::Refused);
    }
    let ticket = world.ticket();
    let seized = seize(world, &hit.id, entry, Word::running(hit.tid, ticket));
    if seized.got == Got::Refused {
        world.misfit(hit.id.request_type, Misfit::Elsewhere);
    }
    seized
}

/// A request is no more where it was while no thread ran it. `named` is the index of the place and 1, if it is known
/// better now where that was.
#[inline(always)]
pub(super) fn back<W: World>(
    world: &mut W,
    request: &mut RequestState,
    found: &Look,
    named: u32,
    now: u64,
    by: &By,
) {
    let keyed = &mut request.keyed;
    let left_ns = keyed.since_ns;
    keyed.settle(Word::decode(found.word).ready, found.ready_ns, found.job);
    // What a request was queued for is known from who made it ready.
    keyed.count_away(now, if keyed.queued != 0 { 0 } else { named });
    world.was_away(request, left_ns, now, by);
}

/// What a thread runs that ends the waiting of another request.
#[inline(always)]
pub(super) fn by(thread: &Thread) -> By {
    let is_in_request = thread.request.status == status::OPEN;
    By {
        tid: thread.state.tid,
        is_own: false,
        is_in_request,
        request_type: thread.request.record.request_type,
        begin_ns: if is_in_request {
            thread.request.record.begin_ns
        } else {
            thread.state.helper_ns
        },
    }
}

/// A key that is to be free: [`Got::It`] is an entry that is busy, and this thread's, with its ticket.
pub(super) struct Freed<E> {
    pub(super) got: Got,
    pub(super) entry: E,
    pub(super) ticket: u64,
}

/// Closes the request of a key: `as_what` says if it `ends` here, and no thread runs it.
#[inline(always)]
pub(super) fn finish<W: World>(
    world: &mut W,
    thread: &Thread,
    id: &KeyId,
    ends: bool,
    as_what: u32,
) -> Freed<W::Entry> {
    let Some(entry) = world.entry(id) else {
        return Freed {
            got: Got::Nothing,
            entry: world.nowhere(),
            ticket: 0,
        };
    };
    let ticket = world.ticket();
    let seized = seize(world, id, entry, Word::busy(ticket));
    let freed = Freed {
        got: seized.got,
        entry,
        ticket,
    };
    if seized.got != Got::It {
        world.misfit(id.request_type, Misfit::Elsewhere);
        return freed;
    }
    if seized.was_running {
        world.misfit(id.request_type, Misfit::Elsewhere);
    }
    let is_complete = ends && !seized.was_running;
    let why = if is_complete { as_what } else { reason::NO_END };
    if seized.found.weight == 0 {
        world.count_unrecorded(id.request_type, why);
        return freed;
    }
    if is_complete {
        world.with_stored(seized.stored, |world, request| world.read(request, false));
    }
    let mut how = why as u64;
    if seized.was_running {
        how |= WAS_RUNNING;
    }
    world.close_taken(thread, seized.stored, how, &seized.found);
    freed
}

/// Flag beside a reason: a thread ran it until now.
const WAS_RUNNING: u64 = 1 << 32;

/// Closes a request that a thread has taken, for a reason that the state machine has decided.
#[inline(always)]
pub fn close_taken<W: World>(world: &mut W, thread: &Thread, stored: u64, how: u64, found: &Look) {
    let now = world.now();
    world.with_stored(stored, |world, request| {
        if how & WAS_RUNNING == 0 {
            back(world, request, found, 0, now, &by(thread));
        }
        request.close(now, how as u32);
        world.send(request);
    });
    world.discard(stored);
}

/// Closes a request that no thread runs, and that is the caller's, for another reason.
#[inline(always)]
pub fn close_stored(request: &mut RequestState, found: &Look, now: u64, why: u32) {
    let keyed = &mut request.keyed;
    keyed.settle(Word::decode(found.word).ready, found.ready_ns, found.job);
    keyed.count_away(now, 0);
    request.close(now, why);
}
