//! Requests that are known by a key, and not by their thread: markers of such types in; which thread runs
//! which request, and for how long none does, out.
//!
//! ```text
//!            begin                        end
//!   (none) ────────► running on a thread ─────► (closed)
//!      │              │   ▲        │  ▲
//!      │         park │   │ resume │  │ resume
//!      │              ▼   │  ready ▼  │
//!      │             parked ─────► queued
//!      │                    ready     ▲
//!      └──────────────────────────────┘
//!               begin, `queued`
//! ```
//!
//! A running request lies in its thread's state, so that the scheduler's programs treat it as any other. One
//! that no thread runs lies in a table of its own, by its ticket. A third table says of each key where its request
//! is, in one [`Word`] that is changed by compare-and-exchange.
//!
//! Two threads may hit markers of one key at the same time, and each may be preempted at any instruction:
//!
//! * Who makes a word its own has the request, and nobody else. No word comes again, since a request gets a new
//!   ticket with each owner, and a body is stored by its ticket: no two owners write to one place.
//! * The later resume wins. A thread takes what another one runs by a copy, made before it exchanges the word. The
//!   other one finds that out at its next marker, and forgets the request without a record.
//! * A word is exchanged by its key, not in an entry that was found before: the kernel gives an entry that was taken out to the
//!   next key at once, and what was looked at would be that one's.
//! * An entry is taken out, or becomes another request's, only while its word is busy. Who finds it busy leaves it
//!   alone, and is counted.
//!
//! A thread runs one request at most: if it turns to another one, it parks the one before.

mod key;
mod place;
mod state;
mod take;
mod waker;
mod world;

pub use key::{
    Job, KEY_COUNTERS, KeyEntry, KeyId, Look, MAX_KEY_PARTS, TICKETS, Where, Word, key_counter,
};
pub use state::{KeyedState, PARKED, QUEUED};
pub use take::{close_stored, close_taken};
pub use waker::{BY_TASK, BY_WHOLE_STACK, by_done, waits_at};
pub use world::{By, Hit, Inserted, Misfit, World};

use crate::loss::Loss;
use crate::marker::{marker_flag, op};
use crate::record::reason;
use crate::thread::{Thread, phase, status};

use self::take::{Got, Seized};

/// How often an exchange is tried again: a running request becomes ready once, and is left once.
const TRIES: usize = 3;

/// Takes one hit of a marker. Each step stands here once: what is inlined is verified by the kernel as often as
/// it stands anywhere.
#[inline(always)]
pub fn hit<W: World>(world: &mut W, thread: &mut Thread, hit: &Hit) {
    let state = state_of(thread, hit);
    let state = thread.request.keyed.decide(state);
    let is_running = state & IS_RUNNING != 0;
    if is_running && hit.op != op::BEGIN {
        world.read(&mut thread.request, false);
    }
    let takes_up = !is_running && (hit.op == op::RESUME || hit.flags & marker_flag::OR_RESUME != 0);
    let mut seized = if takes_up {
        take::up(world, hit, state & IS_PLAIN != 0)
    } else {
        take::nothing(Got::Nothing)
    };
    let is_plain_begin = state & IS_PLAIN != 0 && hit.flags & marker_flag::QUEUED == 0;
    let mut next = match seized.got {
        Got::It => GOES_ON,
        Got::Refused => DOES_NOTHING,
        // Only a begin goes on without a request.
        Got::Nothing if takes_up && hit.op != op::BEGIN => DOES_NOTHING,
        Got::Nothing if hit.op != op::BEGIN => ACTS,
        Got::Nothing => {
            world.begun(hit.id.request_type);
            if is_plain_begin {
                world.misfit(hit.id.request_type, Misfit::OtherType);
                DOES_NOTHING
            } else {
                BEGINS
            }
        }
    };
    if seized.was_running {
        next |= WAS_RUNNING;
    }
    let next = thread.request.keyed.decide(next);
    seized.was_running = next & WAS_RUNNING != 0;
    let next = next & !WAS_RUNNING;
    let parting = thread.request.keyed.decide(parting(hit, state, next));
    if parting & STAYS_HERE == 0 {
        if parting == reason::COMPLETE as u64 {
            world.ended(hit.id.request_type);
        }
        world.part(thread, parting);
    }
    if next == DOES_NOTHING {
        return;
    }
    if next == GOES_ON {
        go_on(world, thread, hit, &seized);
        return;
    }
    // What a thread says of a request that it runs no more.
    let is_done = state & (IS_RUNNING | IS_LATE) != 0;
    match hit.op {
        op::BEGIN | op::ADOPT => place::replace(world, thread, hit, is_running),
        op::END if !is_running => place::replace(world, thread, hit, false),
        op::PARK if !is_done => park_another(world, hit),
        op::READY if !is_done => ready(world, thread, hit),
        _ => {}
    }
}

/// The thread is in a request of a type without a key.
const IS_PLAIN: u64 = 1;
/// Another thread has taken what it ran.
const WAS_TAKEN: u64 = 2;
/// It runs the request that is meant.
const IS_RUNNING: u64 = 4;
/// The request that was taken is meant.
const IS_LATE: u64 = 8;
/// It runs a request with a key.
const IS_KEYED: u64 = 16;

/// What the thread does at a hit.
#[inline(always)]
fn state_of(thread: &Thread, hit: &Hit) -> u64 {
    let keyed = &thread.request.keyed;
    if thread.request.status != status::OPEN {
        return 0;
    }
    if keyed.is_keyed == 0 {
        return IS_PLAIN;
    }
    let was_taken = keyed.is_taken();
    let is_meant = means(thread, hit);
    let mut state = IS_KEYED;
    if was_taken {
        state |= WAS_TAKEN;
    }
    if is_meant {
        state |= if was_taken { IS_LATE } else { IS_RUNNING };
    }
    state
}

/// What comes of a hit: it is left out.
const DOES_NOTHING: u64 = 0;
/// The thread goes on with what was seized.
const GOES_ON: u64 = 1;
/// A request begins.
const BEGINS: u64 = 2;
/// Anything else.
const ACTS: u64 = 3;
/// Flag beside these: what was seized was running.
const WAS_RUNNING: u64 = 8;

/// Whether the request of the thread is meant, as far as it knows.
#[inline(always)]
fn means(thread: &Thread, hit: &Hit) -> bool {
    let keyed = &thread.request.keyed;
    keyed.is_keyed != 0
        && keyed.id.request_type == hit.id.request_type
        && (hit.flags & marker_flag::CURRENT != 0 || keyed.id.key == hit.id.key)
}

/// How a thread parts with what it runs: the reason in the lowest bits if it is closed, or the place where it is from
/// then on in those above, and these flags.
const REASON: u64 = 0xff;
const PLACE_SHIFT: u32 = 8;
const PLACE: u64 = 0xff;
/// It is not closed.
const LIVES: u64 = 1 << 16;
/// It is queued, and not parked.
const IS_QUEUED: u64 = 1 << 17;
/// The thread goes on with it.
const STAYS_HERE: u64 = 1 << 18;
/// There was no room before, and what there is by now is all.
const AGAIN: u64 = 1 << 19;

/// What becomes of the request that the thread runs.
#[inline(always)]
fn parting(hit: &Hit, state: u64, next: u64) -> u64 {
    let turns = LIVES | (PARKED as u64) << PLACE_SHIFT;
    if state & WAS_TAKEN != 0 {
        return reason::NO_END as u64;
    }
    if state & IS_KEYED == 0 || next == DOES_NOTHING {
        return STAYS_HERE;
    }
    let is_running = state & IS_RUNNING != 0;
    let place = (place_of(hit) as u64) << PLACE_SHIFT;
    match (hit.op, next) {
        // The key is used again, so the end of the request before went unseen.
        (op::BEGIN, BEGINS) if is_running => reason::NO_END as u64,
        (op::BEGIN, BEGINS) if hit.flags & marker_flag::QUEUED == 0 => turns,
        (_, GOES_ON) => turns,
        (op::PARK, _) if is_running => LIVES | place,
        (op::READY, _) if is_running => LIVES | IS_QUEUED | place,
        (op::END, _) if is_running => place::ended(hit) as u64,
        _ => STAYS_HERE,
    }
}

#[inline(always)]
fn place_of(hit: &Hit) -> u32 {
    if hit.place != 0 {
        hit.place - 1
    } else if hit.op == op::PARK {
        PARKED
    } else {
        QUEUED
    }
}

/// Whether a parting is the request's end.
#[inline(always)]
#[must_use]
pub const fn is_end(parting: u64) -> bool {
    parting & LIVES == 0
}

/// The thread runs its request no more, in a way that the state machine has decided. If another one has taken it, that
/// one has it. Returns how to call this again when room has been made for it; 0: it is done.
#[inline(always)]
#[must_use]
pub fn part<W: World>(world: &mut W, thread: &mut Thread, parting: u64) -> u64 {
    let is_first = parting & AGAIN == 0;
    if is_first {
        let now = world.leave(thread);
        let place = (parting >> PLACE_SHIFT & PLACE) as u32;
        thread.request.keyed.leave(now, place);
        // It runs, whatever was seen of it: an interval that stays open would be the next request's, which began later.
        thread.state.phase = phase::ON_CPU;
    }
    let now = thread.request.keyed.since_ns;
    let ticket = thread.request.keyed.ticket;
    let is_stored = parting & LIVES != 0 && thread.request.record.weight != 0;
    let mut how = parting & !AGAIN;
    if is_stored && !world.store(ticket, &thread.request) {
        if is_first {
            return parting | AGAIN;
        }
        world.lose(Loss::ParkedTableFull);
        how = reason::NO_END as u64;
    }
    let how = thread.request.keyed.decide(how);
    if !hand_over(world, thread, how, now) {
        if is_stored && how & LIVES != 0 {
            world.discard(ticket);
        }
        thread.forget();
    } else if how & LIVES != 0 {
        thread.request.status = status::NONE;
    } else {
        thread.close(now, (how & REASON) as u32);
        thread.request.keyed.is_keyed = 0;
        world.send(&mut thread.request);
        world.remove(&thread.request.keyed.id);
    }
    0
}

/// Makes the word of a request say that its thread has left it, or takes it out. Whether it was the thread's.
#[inline(always)]
fn hand_over<W: World>(world: &mut W, thread: &Thread, how: u64, now: u64) -> bool {
    let request = &thread.request;
    let ticket = request.keyed.ticket;
    let Some(entry) = world.entry(&request.keyed.id) else {
        return false;
    };
    let mut tries = 0;
    while tries < TRIES {
        tries += 1;
        let found = world.look(entry);
        let word = Word::decode(found.word);
        if word.ticket != ticket || !matches!(word.at, Where::Running(_)) {
            return false;
        }
        let mut to = Word::busy(ticket);
        if how & LIVES != 0 {
            to.at = Where::Away;
            to.ready = word.ready;
            if to.ready.is_none() && how & IS_QUEUED != 0 {
                to.ready = Some((how >> PLACE_SHIFT & PLACE) as u32);
                world.note_ready(entry, now, Job::NONE);
            }
            world.note_left(entry, request);
        }
        if world.exchange(&request.keyed.id, found.word, to.encode()) {
            return true;
        }
    }
    false
}

/// Whether no thread ran a request, by its word, and whether it had been made ready then. If not, it is not known since when it was
/// queued: all of its time away is that of where it was parked.
#[must_use]
#[inline(always)]
pub fn was_away(word: u64) -> (bool, bool) {
    let word = Word::decode(word);
    (word.at == Where::Away, word.ready.is_some())
}

/// The thread goes on with what it has seized.
#[inline(always)]
fn go_on<W: World>(world: &mut W, thread: &mut Thread, hit: &Hit, seized: &Seized) {
    world.count_resume(seized.found.word);
    if seized.found.weight == 0 {
        place::run_unrecorded(world, thread, &hit.id, seized.ticket);
        return;
    }
    if !world.fetch(seized.stored, &mut thread.request) {
        // Never expected: who has the word has the request.
        let running = Word::running(hit.tid, seized.ticket);
        let busy = Word::busy(seized.ticket);
        if world.exchange(&hit.id, running.encode(), busy.encode()) {
            world.remove(&hit.id);
        }
        thread.forget();
        world.misfit(hit.id.request_type, Misfit::Unknown);
        return;
    }
    if !seized.was_running {
        let by = By {
            tid: hit.tid,
            is_own: true,
            is_in_request: false,
            request_type: 0,
            begin_ns: 0,
        };
        let now = world.now();
        let request = &mut thread.request;
        take::back(world, request, &seized.found, hit.place, now, &by);
    }
    if thread.request.record.tid != hit.tid {
        thread.request.keyed.extra().moves += 1;
    }
    thread.name_record();
    world.name(&mut thread.request);
    thread.request.status = status::OPEN;
    thread.request.keyed.id = hit.id;
    thread.request.keyed.holds(seized.ticket);
    world.enter(thread);
    world.read(&mut thread.request, false);
}

/// A park with the key of a request that the thread does not run.
#[inline(always)]
fn park_another<W: World>(world: &mut W, hit: &Hit) {
    if hit.flags & marker_flag::CURRENT != 0 {
        return;
    }
    let what = match world.entry(&hit.id) {
        None if hit.flags & marker_flag::TOUCH != 0 => return,
        None => Misfit::Unknown,
        Some(entry) if Word::decode(world.look(entry).word).at == Where::Away => {
            Misfit::ParkedAlready
        }
        Some(_) => Misfit::Elsewhere,
    };
    world.misfit(hit.id.request_type, what);
}

/// A request that the thread does not run is ready. Several threads may find that at the same time: the first does it.
#[inline(always)]
fn ready<W: World>(world: &mut W, thread: &Thread, hit: &Hit) {
    if hit.flags & marker_flag::CURRENT != 0 {
        return;
    }
    let Some(entry) = world.entry(&hit.id) else {
        if hit.flags & marker_flag::TOUCH == 0 {
            world.misfit(hit.id.request_type, Misfit::Unknown);
        }
        return;
    };
    let mut tries = 0;
    while tries < TRIES {
        tries += 1;
        let found = world.look(entry);
        let word = Word::decode(found.word);
        if word.at == Where::Busy {
            world.misfit(hit.id.request_type, Misfit::Elsewhere);
            return;
        }
        if word.ready.is_some() {
            return;
        }
        let now = world.now();
        let job = world.waited_for(thread, &hit.id, entry);
        world.note_ready(entry, now, job);
        let to = Word {
            ready: Some(place_of(hit)),
            ..word
        };
        if !world.exchange(&hit.id, found.word, to.encode()) {
            continue;
        }
        if word.at == Where::Away && found.weight != 0 {
            world.was_parked(&hit.id, entry, now, &take::by(thread));
        }
        return;
    }
}

#[cfg(test)]
mod tests;
