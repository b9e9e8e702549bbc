//! Markers that need more than a cookie: conditions, keys and attributes. Plans made by user space in;
//! what the kernel programs do at a probe out.
//!
//! A probe's cookie names the first plan of a chain. The first plan whose conditions hold is carried out.

mod brief;

pub use brief::{BRIEF_READS, BriefCondition, BriefPlan, brief_kind};

use crate::keyed::MAX_KEY_PARTS;
use crate::label::Reading;

/// Conditions of one marker or attribute; all must hold.
pub const MAX_CONDITIONS: usize = 2;

/// Numbers that a condition may name.
pub const MAX_NUMBERS: usize = 4;

/// Longest text of a condition in bytes, without its NUL.
pub const MAX_CONDITION_TEXT: usize = 30;

/// Plans of one probe that are tried.
pub const MAX_MARKER_ALTERNATIVES: usize = 8;

/// Attributes that one probe may read.
pub const MAX_SITE_ATTRIBUTES: usize = 8;

/// Attributes of one request type.
pub const MAX_ATTRIBUTES: usize = 8;

/// Names for where a request is while no thread runs it, in one request type: parked or queued.
pub const MAX_PLACES: usize = 8;

/// More names for where a request is parked, which only a runtime gives: of these there is no queue.
pub const MORE_PLACES: usize = 8;

/// The number of a place by its index among the names of its request type: those of [`MORE_PLACES`] come behind parked and
/// queued time without a name, so that the numbers of the others stay what they have always been.
#[must_use]
pub const fn place_number(index: usize) -> u32 {
    if index < MAX_PLACES {
        index as u32
    } else {
        index as u32 + 2
    }
}

/// The reverse of [`place_number`]; `None`: a place without a name.
#[must_use]
pub const fn place_index(number: u32) -> Option<usize> {
    let number = number as usize;
    if number < MAX_PLACES {
        Some(number)
    } else if number < MAX_PLACES + 2 {
        None
    } else {
        Some(number - 2)
    }
}

/// Longest text of an attribute in bytes.
pub const MAX_TEXT: usize = 1024;

/// What a marker does.
pub mod op {
    /// Nothing but reading attributes.
    pub const NONE: u32 = 0;
    /// A request begins.
    pub const BEGIN: u32 = 1;
    /// A thread runs the request from here on.
    pub const RESUME: u32 = 2;
    /// No thread runs the request from here on: it waits for an event.
    pub const PARK: u32 = 3;
    /// The event has come: the request waits for a thread.
    pub const READY: u32 = 4;
    /// The request goes by another key from here on.
    pub const ADOPT: u32 = 5;
    /// The request ends.
    pub const END: u32 = 6;
    /// The request that the thread runs is about to wait: where, for the park to come.
    pub const NOTE: u32 = 7;
}

/// Bits of [`MarkerPlan::flags`].
pub mod marker_flag {
    /// The request is the one that the thread runs: no key is read.
    pub const CURRENT: u32 = 1;
    /// Of a begin: a request with this key that is parked or queued goes on.
    pub const OR_RESUME: u32 = 2;
    /// Keys that name no request are expected, and not counted.
    pub const TOUCH: u32 = 4;
    /// Of a begin: the request is queued from there on, and the thread goes on with what it runs.
    pub const QUEUED: u32 = 8;
    /// Of an end: the request has none, and is closed as incomplete.
    pub const DROPS: u32 = 16;
    /// The key is the unit that the thread runs: none is read.
    pub const UNIT: u32 = 32;
    /// The thread runs the unit with this key from here on, within what it runs.
    pub const ENTERS: u32 = 64;
    /// It runs it no more.
    pub const LEAVES: u32 = 128;
    /// With [`LEAVES`]: the unit is a job of a pool of threads, which has waited for one in [`super::MarkerPlan::place`].
    pub const JOB: u32 = 256;
    /// Of a plan in brief: it is a resume.
    pub const RESUMES: u32 = 512;
    /// With [`CURRENT`], of a note: the request has made a unit.
    pub const CHILD: u32 = 1024;
    /// Of a begin: only if the thread is in a request of the type before its own, or of its own, which both are recorded or not.
    pub const OF_REQUEST: u32 = 2048;
    /// Of a begin: the type behind its own is of units that its requests make.
    pub const HAS_CHILDREN: u32 = 4096;
}

/// Kinds of conditions.
pub mod condition_kind {
    /// It always holds.
    pub const NONE: u32 = 0;
    /// The value is one of `numbers`.
    pub const ONE_OF: u32 = 1;
    /// `numbers[0] <= value <= numbers[1]`.
    pub const RANGE: u32 = 2;
    /// The value points to this text, which a NUL ends.
    pub const TEXT: u32 = 3;
    /// Of the value the bits `numbers[0]` are `numbers[1]`.
    pub const BITS: u32 = 4;
    /// The value is an address of code: this many bytes from the probed instruction, as one of `numbers` says.
    pub const CODE: u32 = 5;
}

/// A condition on a number or a text.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Condition {
    /// The number, or the address of the text.
    pub value: Reading,
    /// What it is compared with.
    pub numbers: [i64; MAX_NUMBERS],
    /// One of [`condition_kind`].
    pub kind: u32,
    /// Not 0: it holds where it would not.
    pub negate: u32,
    /// Used entries of `numbers`, or bytes of `text`.
    pub used: u32,
    /// Always 0.
    pub pad: u32,
    /// A text, NUL behind it.
    pub text: [u8; MAX_CONDITION_TEXT + 2],
}

/// Reasons of a runtime that are distinguished.
pub const MAX_REASONS: usize = 64;

/// What is read of a unit that is parked: offsets in it, and names of reasons.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ParkPlan {
    /// One of [`park_kind`].
    pub kind: u32,
    /// Where the byte is that says why; 0: there is none, and the place is that of the marker.
    pub reason: u32,
    /// Where its program counter is.
    pub pc: u32,
    /// Where its frame pointer is.
    pub bp: u32,
    /// By the reason, a byte each: the number of the place and 1; 0: one without a name.
    pub places: [u64; MAX_REASONS / 8],
    /// Of [`park_kind::HERE`] and [`park_kind::WAKER`]: code that names the place, the used ones first, by their addresses. Of
    /// [`park_kind::RECOVERED`]: code that a walk looks for, as [`crate::recovered::code`] says.
    pub waits: [WaitCode; MAX_WAITS],
    /// Used entries of `waits`.
    pub waits_used: u32,
    /// Of [`park_kind::WAKER`]: the places whose requests only code makes ready that `waits` has, a bit for each number.
    pub drivers: u32,
    /// Likewise the places whose requests wait until a unit is done.
    pub joins: u32,
    /// And those whose requests may go on when what a unit leaves behind is dropped.
    pub dropped: u32,
    /// What schedules the jobs of a pool, which include those that run units: so many bytes from the probed instruction; 0: none.
    pub jobs: [i64; 2],
}

/// Where a unit of tokio has the address of its table of functions.
pub const UNIT_TABLE: i32 = 16;

/// Where that has the one that schedules the unit.
pub const TABLE_SCHEDULE: i32 = 8;

/// Pieces of code by which a stack names the place where a request waits.
pub const MAX_WAITS: usize = 256;

/// Of [`WaitCode::place`]: it serves a request, and what it waits for itself, by code of the runtime that it has called, is none of
/// that: it is not noted.
pub const SERVES: u32 = u32::MAX;

/// Of [`WaitCode::is_general`]: by this, servers look whether they are to stop.
pub const FOR_SERVERS: u32 = 2;

/// Of [`WaitCode::place`], likewise: what waits within it is none of the request's.
pub const BESIDE: u32 = u32::MAX - 1;

/// Likewise: it says nothing, and what calls it may.
pub const PASSES: u32 = u32::MAX - 2;

/// Code of a runtime in which a unit waits.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitCode {
    /// Its first byte: so many from the probed instruction.
    pub from: i32,
    /// Bytes.
    pub size: u32,
    /// The number of the place and 1, [`SERVES`], [`BESIDE`] or [`PASSES`]. Of [`park_kind::WAKER`]: the places whose requests it makes
    /// ready, a bit for each number, or [`crate::keyed::BY_TASK`].
    pub place: u32,
    /// Not 0: what calls it may know the place better. [`FOR_SERVERS`]: that may be code that [`SERVES`].
    pub is_general: u32,
}

/// Values of [`ParkPlan::kind`].
pub mod park_kind {
    /// Nothing is read.
    pub const NONE: u32 = 0;
    /// The key is the address of a goroutine that waits.
    pub const GOROUTINE: u32 = 1;
    /// The stack of the marker is that at which the request waits.
    pub const HERE: u32 = 2;
    /// Of a marker that makes requests ready: the stack of the marker is that from which it does.
    pub const WAKER: u32 = 4;
    /// The stack and the place are those of the last [`op::NOTE`](super::op::NOTE) since the request was resumed.
    pub const NOTED: u32 = 3;
    /// Of an end: the key is the address of a goroutine that goes on behind a panic. Without a frame of its function left
    /// there the request ends, and otherwise nothing is done.
    pub const RECOVERED: u32 = 5;
}

/// The sign of a number in all bits. In assembly, as the compiler makes a branch of the same in Rust: the verifier goes over what
/// comes behind one once for each way, and a search has as many ways as results.
#[inline(always)]
fn sign(number: i64) -> i64 {
    #[cfg(target_arch = "bpf")]
    {
        let mut sign = number;
        // SAFETY: a register only.
        unsafe {
            core::arch::asm!("{sign} s>>= 63", sign = inout(reg) sign, options(pure, nomem));
        }
        sign
    }
    #[cfg(not(target_arch = "bpf"))]
    {
        number >> 63
    }
}

/// An index of [`ParkPlan::waits`]. In assembly, as the compiler leaves out a mask that it knows to do nothing, and Linux 6.1 does not
/// know that.
#[inline(always)]
fn masked(index: usize) -> usize {
    #[cfg(target_arch = "bpf")]
    {
        let mut masked = index;
        // SAFETY: a register only.
        unsafe {
            core::arch::asm!(
                "{masked} &= {most}",
                masked = inout(reg) masked,
                most = const MAX_WAITS - 1,
                options(pure, nomem),
            );
        }
        masked
    }
    #[cfg(not(target_arch = "bpf"))]
    {
        index & (MAX_WAITS - 1)
    }
}

impl Default for ParkPlan {
    fn default() -> Self {
        Self {
            kind: park_kind::NONE,
            reason: 0,
            pc: 0,
            bp: 0,
            places: [0; MAX_REASONS / 8],
            waits: [WaitCode::default(); MAX_WAITS],
            waits_used: 0,
            drivers: 0,
            joins: 0,
            dropped: 0,
            jobs: [0; 2],
        }
    }
}

impl ParkPlan {
    /// The place of a reason, and 1; 0: one without a name.
    #[must_use]
    #[inline]
    pub fn place(&self, reason: u8) -> u32 {
        let word = self.places[(reason as usize & (MAX_REASONS - 1)) / 8];
        if reason as usize >= MAX_REASONS {
            return 0;
        }
        (word >> (reason % 8 * 8)) as u32 & 0xff
    }

    /// The code that is so far from the probed instruction.
    #[must_use]
    #[inline]
    pub fn wait(&self, at: i64) -> Option<&WaitCode> {
        // The last one that begins there or before.
        let mut low = 0;
        let mut step = MAX_WAITS / 2;
        while step > 0 {
            let next = masked(low + step);
            let is_used = sign((next as i64).wrapping_sub(i64::from(self.waits_used)));
            let begins_after = sign(at.wrapping_sub(i64::from(self.wait_at(next).from)));
            low += step & (is_used & !begins_after) as usize;
            step /= 2;
        }
        let found = self.wait_at(masked(low));
        let inside = at.wrapping_sub(i64::from(found.from)) as u64;
        (inside < u64::from(found.size)).then_some(found)
    }

    /// One of `waits`, by an index that is masked.
    #[inline(always)]
    fn wait_at(&self, index: usize) -> &WaitCode {
        debug_assert!(index < MAX_WAITS);
        // SAFETY: it is masked. A check of bounds would end in a function that does not return, which the verifier does not take.
        unsafe { self.waits.get_unchecked(index) }
    }

    /// Gives a reason its place, by its number.
    pub fn name(&mut self, reason: u8, place: u32) {
        if let Some(word) = self.places.get_mut(usize::from(reason) / 8) {
            *word |= u64::from(place + 1) << (reason % 8 * 8);
        }
    }
}

/// What is done at a probe if conditions hold.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MarkerPlan {
    /// All must hold.
    pub when: [Condition; MAX_CONDITIONS],
    /// The parts of the key, without [`marker_flag::CURRENT`].
    pub key: [Reading; MAX_KEY_PARTS],
    /// Of [`op::ADOPT`]: those of the key from here on.
    pub to: [Reading; MAX_KEY_PARTS],
    /// One of [`op`].
    pub op: u32,
    /// Bits of [`marker_flag`].
    pub flags: u32,
    /// Index of the place's name and 1: where a request is parked or queued, or of a resume, what it had
    /// waited for; 0: no name is given here.
    pub place: u32,
    /// Index of the first [`AttributePlan`] of this plan, 0 for none.
    pub attributes: u32,
    /// Index of a [`crate::label::LabelPlan`], of a begin; 0 for none.
    pub label: u32,
    /// Index of the plan to try when a condition does not hold, 0 for none.
    pub next: u32,
    /// Parts of the key.
    pub key_parts: u32,
    /// Parts of the key from here on.
    pub to_parts: u32,
    /// Of a park: what is read of the unit.
    pub park: ParkPlan,
}

impl MarkerPlan {
    /// Whether nothing comes of it where the thread runs no request.
    #[must_use]
    #[inline(always)]
    pub fn is_of_request(&self) -> bool {
        self.op == op::NOTE && self.flags & marker_flag::JOB == 0
    }
}

/// How an attribute is read.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttributePlan {
    /// All must hold.
    pub when: [Condition; MAX_CONDITIONS],
    /// The value, or the address of the text.
    pub value: Reading,
    /// Length of the text in bytes, of [`crate::label::label_kind::BYTES`].
    pub length: Reading,
    /// One of [`crate::label::label_kind`].
    pub kind: u32,
    /// Which attribute of its request type it is.
    pub index: u32,
    /// Bytes of the text at most, 1 to [`MAX_TEXT`].
    pub most: u32,
    /// Not 0: a later value takes the place of an earlier one.
    pub keep_last: u32,
    /// Index of the next one to read here, 0 for none.
    pub next: u32,
    /// Always 0.
    pub pad: u32,
}

/// What is counted of a plan: one counter for each of [`count`]. In the kernel's table the first is 0: see [`MarkerHits`].
pub type MarkerCounts = [u64; count::COUNTERS];

/// [`count::HITS`] of [`PLANS_IN_LINE`] plans that follow each other: all other words of a line of a CPU's cache are behind the first
/// one, which is 0 (see [`crate::layout`]). The few markers of a runtime, which take most hits, share one.
pub type MarkerHits = [u64; 1 + PLANS_IN_LINE as usize];

/// Plans whose hits are counted in one [`MarkerHits`].
pub const PLANS_IN_LINE: u32 = 7;

/// Where the hits of a plan are counted: which [`MarkerHits`], and which word of it.
#[must_use]
#[inline(always)]
pub const fn hits_at(plan: u32) -> (u32, usize) {
    // A division by 7, of all there may be: a multiplication takes less time.
    let line = (plan * 9363) >> 16;
    (line, (plan - PLANS_IN_LINE * line + 1) as usize)
}

/// What happens at a marker, as indices of [`MarkerCounts`].
pub mod count {
    /// It was hit in a traced process, and its conditions held.
    pub const HITS: usize = 0;
    /// Of the first plan of a chain: none of the chain's plans held.
    pub const NONE_HELD: usize = 1;
    /// No request has the key.
    pub const UNKNOWN_KEYS: usize = 2;
    /// The same, of an end.
    pub const ENDS_WITHOUT_BEGIN: usize = 3;
    /// Another thread has the request.
    pub const ELSEWHERE: usize = 4;
    /// A request that no thread ran went on, and nothing had made it ready.
    pub const NOT_READY: usize = 5;
    /// A park of a request that no thread runs.
    pub const PARKED_ALREADY: usize = 6;
    /// The thread runs no unit.
    pub const NO_UNIT: usize = 7;
    /// A request that no thread ran went on.
    pub const RESUMED: usize = 8;
    /// The thread is in a request of a type without a key.
    pub const OTHER_TYPE: usize = 9;
    /// How many there are: the first, then a line of a CPU's cache, then those that hardly happen, and nothing.
    pub const COUNTERS: usize = 16;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAX_MARKER_PLANS;

    #[test]
    fn each_plan_has_a_word_for_its_hits() {
        for plan in 0..=MAX_MARKER_PLANS as u32 {
            let (line, word) = hits_at(plan);
            assert_eq!(line, plan / PLANS_IN_LINE);
            assert_eq!(word, 1 + (plan % PLANS_IN_LINE) as usize);
        }
    }

    #[test]
    fn code_is_found_from_its_first_byte_to_its_last() {
        for used in 0..=MAX_WAITS {
            let mut plan = ParkPlan {
                waits_used: used as u32,
                ..ParkPlan::default()
            };
            for (index, wait) in plan.waits.iter_mut().enumerate().take(used) {
                *wait = WaitCode {
                    from: index as i32 * 10 - 100,
                    size: 8,
                    place: index as u32 + 1,
                    is_general: 0,
                };
            }
            for at in -120..2_570_i64 {
                let index = (at + 100).div_euclid(10);
                let is_inside = (at + 100).rem_euclid(10) < 8 && (0..used as i64).contains(&index);
                let found = plan.wait(at).map(|wait| i64::from(wait.place) - 1);
                assert_eq!(found, is_inside.then_some(index), "{at} of {used}");
            }
        }
    }
}
