//! What a request with a key has in addition: times at which it left its thread and came back in; how long it
//! was where out.

use core::mem::offset_of;
use core::sync::atomic::{Ordering, compiler_fence};

use crate::clocks::Clocks;
use crate::marker::MAX_PLACES;
use crate::origin::{MAX_USED, Origin};
use crate::record::{
    ExtraRecord, MAX_PARKS, PLACES, ParkSlot, STACK_LOST, STACK_NONE, StackId, kind,
};

use super::{Job, KeyId, TICKETS};

/// Tickets that are given out within some minutes.
const NEAR: u64 = 1 << 20;

/// Index of parked time without a name in [`ExtraRecord::away_ns`].
pub const PARKED: u32 = MAX_PLACES as u32;

/// Index of queued time without a name.
pub const QUEUED: u32 = MAX_PLACES as u32 + 1;

/// Bits of [`KeyedState::noted_place`]: the last place and 1.
const NOTED_LAST: u32 = 0xff;
/// Above these, a bit for each place that was noted, [`PARKED`] among them.
const NOTED_PLACES: u32 = 8;

/// Places that have a stack each: a power of two. A runtime whose units look at several has fewer.
const NOTED_STACKS: usize = 16;

/// Whether there is more than one of these bits.
#[inline(always)]
pub(super) const fn is_several(places: u32) -> bool {
    places & places.wrapping_sub(1) != 0
}

/// What a request of a type with a key has in addition.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedState {
    /// What names it.
    pub id: KeyId,
    /// The ticket by which its thread has it: see [`super::Word`].
    pub ticket: u64,
    /// The ticket by which another thread has taken a request from this one, which goes on without it.
    pub taken: u64,
    /// What a hit has decided; means nothing between hits.
    pub decided: u64,
    /// Since when no thread runs it, `CLOCK_MONOTONIC` nanoseconds; means nothing while one does.
    pub since_ns: u64,
    /// Where it is then: an index of [`ExtraRecord::away_ns`].
    pub place: u32,
    /// Whether it is queued there, and not parked.
    pub queued: u32,
    /// Which entry of [`ExtraRecord::parks`] has the stack at which it is parked, and 1; 0: there is none.
    pub park: u32,
    /// Where it is about to wait: the last place that was noted and 1, and above it all of them since a thread runs it. While none
    /// does, all of them if they are several.
    pub noted_place: u32,
    /// The stack of each, by its place; means nothing for places that were not noted.
    pub noted_stacks: [StackId; NOTED_STACKS],
    /// Sockets that it has sent on or read from, by their cookies; with blame.
    pub used: [u64; MAX_USED],
    /// How many it has used: where the next one goes.
    pub used_count: u32,
    /// Which of `used` it holds: a bit for each.
    pub held: u32,
    /// What it went on with when it was last parked; with blame.
    pub origin: Origin,
    /// What is sent beside the record.
    pub extra: ExtraRecord,
    /// 1 for a request of a type with a key. This and the next lie in one line with what every begin and end touches.
    pub is_keyed: u32,
    /// 1 once `extra` is in use.
    pub has_extra: u32,
}

impl KeyedState {
    /// A request without a key.
    pub const NONE: Self = Self {
        id: KeyId {
            tgid: 0,
            request_type: 0,
            key: [0; super::MAX_KEY_PARTS],
        },
        ticket: 0,
        taken: 0,
        decided: 0,
        since_ns: 0,
        place: 0,
        queued: 0,
        park: 0,
        noted_place: 0,
        noted_stacks: [STACK_NONE; NOTED_STACKS],
        is_keyed: 0,
        has_extra: 0,
        used: [0; MAX_USED],
        used_count: 0,
        held: 0,
        origin: Origin::NONE,
        extra: ExtraRecord::ZERO,
    };

    /// What is sent beside the record, empty at its first use. Empty before that is to be seen: another thread may copy it at any
    /// moment.
    #[inline]
    pub fn extra(&mut self) -> &mut ExtraRecord {
        if self.has_extra == 0 {
            self.extra.clear();
            compiler_fence(Ordering::SeqCst);
            // SAFETY: the reference is valid.
            unsafe { (&raw mut self.has_extra).write_volatile(1) }
        }
        &mut self.extra
    }

    /// The same value. The verifier forgets what it knows of it, and so goes once over what comes next, and not once for
    /// each way that led here.
    #[inline]
    pub fn decide(&mut self, value: u64) -> u64 {
        // SAFETY: the references are valid.
        unsafe {
            (&raw mut self.decided).write_volatile(value);
            (&raw const self.decided).read_volatile()
        }
    }

    /// Another thread has taken what was held by this ticket. It may say so late: a later ticket stays. Or before the
    /// thread has written down that it holds it.
    #[inline]
    pub fn tell_taken(&mut self, ticket: u64) {
        let ahead = |one: u64, of: u64| one.wrapping_sub(of) & (TICKETS - 1);
        // SAFETY: the reference is valid.
        let held = unsafe { (&raw const self.ticket).read_volatile() };
        let is_late = held != 0 && ahead(ticket, held) >= TICKETS / 2;
        // What was taken last may have been taken long ago: it is compared with only if it was not.
        let is_passed = self.taken != 0 && (1..NEAR).contains(&ahead(self.taken, ticket));
        if !is_late && !is_passed {
            // SAFETY: the reference is valid.
            unsafe { (&raw mut self.taken).write_volatile(ticket) }
        }
    }

    /// Whether another thread has taken it.
    #[must_use]
    #[inline]
    pub const fn is_taken(&self) -> bool {
        self.is_keyed != 0 && self.taken == self.ticket
    }

    /// A thread holds it by this ticket. Written last: whoever reads it finds the request whole.
    #[inline]
    pub fn holds(&mut self, ticket: u64) {
        // SAFETY: the references are valid.
        unsafe {
            (&raw mut self.ticket).write_volatile(ticket);
            (&raw mut self.is_keyed).write_volatile(1);
        }
    }

    /// A request begins: nothing is known of its sockets.
    #[inline]
    pub fn forget_sockets(&mut self) {
        self.used = [0; MAX_USED];
        self.used_count = 0;
        self.held = 0;
        self.origin.until_ns = 0;
        self.park = 0;
        self.noted_place = 0;
    }

    /// Whether the request uses a socket already.
    #[must_use]
    #[inline]
    pub const fn has_used(&self, socket: u64) -> bool {
        let [one, two, three, four] = self.used;
        one == socket || two == socket || three == socket || four == socket
    }

    /// The request uses a socket, and holds it where that is wanted. Returns which one it holds no more, or 0, and whether it holds
    /// this one from now on.
    #[inline]
    pub fn uses(&mut self, socket: u64, holds: bool) -> (u64, bool) {
        let [one, two, three, four] = self.used;
        let mut released = 0;
        let at = if one == socket {
            0
        } else if two == socket {
            1
        } else if three == socket {
            2
        } else if four == socket {
            3
        } else {
            let at = self.used_count & (MAX_USED as u32 - 1);
            if self.held >> at & 1 != 0 {
                released = self.used[at as usize & (MAX_USED - 1)];
            }
            self.used[at as usize & (MAX_USED - 1)] = socket;
            self.used_count += 1;
            self.held &= !(1 << at);
            at
        };
        let is_new = holds && self.held >> at & 1 == 0;
        self.held |= u32::from(is_new) << at;
        (released, is_new)
    }

    /// The request looks at this place, and at this stack, whether it can go on. Of several places none is known to be the one
    /// where it waits.
    #[inline]
    pub fn note(&mut self, stack: StackId, place: u32) {
        self.noted_stacks[place as usize & (NOTED_STACKS - 1)] = stack;
        let places = self.noted_place & !NOTED_LAST;
        self.noted_place = places | 1_u32.wrapping_shl(NOTED_PLACES + place) | (place + 1);
    }

    /// The request is about to be parked where it was noted to wait: the place.
    #[inline]
    pub fn parks_as_noted(&mut self) -> u32 {
        let last = (self.noted_place & NOTED_LAST).wrapping_sub(1);
        if last == u32::MAX {
            self.park = 0;
            return PARKED;
        }
        // What has no name and comes first may be a part of what comes next.
        let place = if is_several(self.may_be_at() & !(1 << PARKED)) {
            PARKED
        } else {
            last
        };
        self.parks_at(self.stack_noted(last), place);
        place
    }

    #[inline(always)]
    fn stack_noted(&self, place: u32) -> StackId {
        self.noted_stacks[place as usize & (NOTED_STACKS - 1)]
    }

    /// Whether it may be parked at this place, which is one of several.
    #[inline(always)]
    fn may_wait_at(&self, place: u32) -> bool {
        // No comparison: behind one the compiler leaves out the mask of what is read next, and the verifier has not seen it.
        const WITH_STACK: u32 = u32::MAX >> (32 - NOTED_STACKS);
        (self.may_be_at() & WITH_STACK).wrapping_shr(place) & 1 != 0
    }

    /// The stack at which it is parked.
    #[inline(always)]
    fn parked_stack(&self) -> StackId {
        match self.park {
            0 => STACK_NONE,
            park => self.extra.parks[park.wrapping_sub(1) as usize & (MAX_PARKS - 1)].stack,
        }
    }

    /// It has waited at this place: of several that were noted it was parked at the stack of that one, and not of the last.
    #[inline(always)]
    fn waited_at(&mut self, place: u32) {
        let stack = if self.may_wait_at(place) {
            self.stack_noted(place)
        } else {
            self.parked_stack()
        };
        self.was_parked_elsewhere();
        self.parks_at(stack, place);
    }

    /// It was not parked where it was taken to be: if it never was, that is left out.
    #[inline(always)]
    fn was_parked_elsewhere(&mut self) {
        let extra = self.extra();
        let used = extra.parks_used;
        let last = used.wrapping_sub(1) as usize & (MAX_PARKS - 1);
        let is_unused = used != 0 && extra.parks[last].count == 0;
        if is_unused && self.park == used {
            self.extra.parks_used = used - 1;
        }
    }

    /// Where the request may be parked, if it is at one of several places: a bit for each.
    #[must_use]
    #[inline]
    pub const fn may_be_at(&self) -> u32 {
        self.noted_place >> NOTED_PLACES
    }

    /// The request is about to be parked at this place, and was at this stack when it decided to. Stacks that find no room
    /// are left out: their time is the place's all the same.
    #[inline]
    pub fn parks_at(&mut self, stack: StackId, place: u32) {
        self.park = 0;
        if stack == STACK_LOST || stack == STACK_NONE {
            return;
        }
        let extra = self.extra();
        let mut at = 0;
        while at < MAX_PARKS && at < extra.parks_used as usize {
            let slot = &extra.parks[at];
            if slot.stack == stack && slot.place == place {
                break;
            }
            at += 1;
        }
        if at >= MAX_PARKS {
            return;
        }
        if at >= extra.parks_used as usize {
            extra.parks[at] = ParkSlot {
                stack,
                ns: 0,
                place,
                count: 0,
            };
            extra.parks_used = at as u32 + 1;
        }
        self.park = at as u32 + 1;
    }

    /// Adds parked time to its stack.
    #[inline]
    fn count_park(&mut self, ns: u64, place: u32) {
        // SAFETY: the reference is valid. Read back: see `thread::request`.
        let park = unsafe { core::ptr::read_volatile(&raw const self.park) };
        self.park = 0;
        if park == 0 {
            return;
        }
        let index = park.wrapping_sub(1) as usize & (MAX_PARKS - 1);
        let slot = &mut self.extra.parks[index];
        if slot.place == place {
            slot.ns += ns;
            slot.count += 1;
        }
    }

    /// No thread runs the request from now on.
    #[inline]
    pub fn leave(&mut self, now: u64, place: u32) {
        self.since_ns = now;
        self.place = place;
        self.queued = 0;
        let places = self.noted_place & !NOTED_LAST;
        self.noted_place = if place == PARKED && is_several(places) {
            places
        } else {
            0
        };
    }

    /// What its entry says of a request that no thread runs: that it was made ready, when, and what that tells of where it was.
    #[inline(always)]
    pub fn settle(&mut self, ready: Option<u32>, ready_ns: u64, job: Job) {
        let Some(place) = ready else {
            return;
        };
        if ready_ns > self.since_ns {
            self.waits_for_job(job, ready_ns);
            let named = if self.place == PARKED { job.named() } else { 0 };
            self.count_away(ready_ns, named);
            self.since_ns = ready_ns;
        }
        self.park = 0;
        self.place = place;
        self.queued = 1;
    }

    /// It has waited for a job: until a thread took that in one place, and then in another.
    #[inline]
    fn waits_for_job(&mut self, job: Job, until_ns: u64) {
        let had_ns = job.since_ns();
        if had_ns == 0 || had_ns >= until_ns {
            return;
        }
        let stack = if self.may_wait_at(job.place()) {
            self.stack_noted(job.place())
        } else if self.may_wait_at(job.joins()) {
            self.stack_noted(job.joins())
        } else {
            self.parked_stack()
        };
        self.was_parked_elsewhere();
        if had_ns > self.since_ns {
            self.parks_at(stack, job.queue());
            self.count_away(had_ns, job.queue() + 1);
            self.since_ns = had_ns;
        }
        self.parks_at(stack, job.place());
        self.place = job.place();
    }

    /// The time of the place where it is ends; a name that is given here is that of the place. Returns
    /// how long it was, and where.
    #[inline]
    pub fn count_away(&mut self, now: u64, named: u32) -> (u64, u32) {
        if named != 0 {
            if self.queued == 0 {
                self.waited_at(named - 1);
            }
            self.place = named - 1;
        }
        self.noted_place = 0;
        // Read back, twice: see `thread::request`.
        // SAFETY: the reference is valid.
        let place = unsafe { core::ptr::read_volatile(&raw const self.place) };
        let ns = now.saturating_sub(self.since_ns);
        let queued_ns = if self.queued == 0 { 0 } else { ns };
        // SAFETY: as above.
        let index = unsafe { core::ptr::read_volatile(&raw const self.place) } as usize;
        let extra = self.extra();
        if index < extra.away_ns.len() {
            extra.queued_ns += queued_ns;
            extra.away_ns[index] += ns;
            extra.aways[index] += 1;
        }
        if self.queued == 0 {
            self.count_park(ns, place);
        }
        (ns, place)
    }
}

/// Words of a record that are not its parks.
const BEFORE_PARKS: usize = offset_of!(ExtraRecord, parks) / 8;
const _: () = assert!(offset_of!(ExtraRecord, parks).is_multiple_of(8));

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
        away_ns: [0; PLACES],
        aways: [0; PLACES],
        numbers_set: 0,
        texts_set: 0,
        numbers: [0; crate::marker::MAX_ATTRIBUTES],
        arrived_ns: 0,
        lost: Clocks::ZERO,
        parks_used: 0,
        is_withheld: 0,
        parks: [ParkSlot {
            stack: 0,
            ns: 0,
            place: 0,
            count: 0,
        }; MAX_PARKS],
    };

    /// Nothing but what is in `parks`: none of that is used.
    #[inline]
    fn clear(&mut self) {
        let words = (&raw mut *self).cast::<u64>();
        let mut word = 0;
        while word < BEFORE_PARKS {
            // SAFETY: so many words are there, and any bytes are a record. Volatile: the compiler would call a function that clears byte
            // by byte, and the verifier goes over each of its rounds.
            unsafe { words.add(word).write_volatile(0) }
            word += 1;
        }
        self.kind = kind::EXTRA;
    }

    /// Nanoseconds parked or queued.
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.away_ns.iter().sum()
    }
}

#[cfg(test)]
mod tests;
