//! User stacks that are remembered, each with the walk that found it: of threads that are switched out, by CPU, and of requests that
//! are about to be parked, or made ready.

use core::ffi::c_void;
use core::mem::size_of;
use core::ptr;

use aya_ebpf::helpers::generated::{bpf_get_prandom_u32, bpf_loop, bpf_probe_read_kernel};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, PerCpuArray};
use reqtrace_common::limits;
use reqtrace_common::record::{STACK_LOST, StackId};

use super::{AT_ONCE, first_of_set, mix};
use crate::assembly::{barrier, compare_exchange};
use crate::unwind::{MAX_WORDS, Walker, Word, now_at};

/// Calls from several places may lead to one place with the same stack pointer: so many are remembered.
const SET: u32 = 4;

/// 2 KB each; sized by user space before loading.
#[map]
static KNOWN_USER: PerCpuArray<Known> = PerCpuArray::with_max_entries(1, 0);

/// By set, what tells its entries apart without a look at them: of these lines few are in the cache. Sized as the table is.
#[map]
static KNOWN_USER_TAGS: PerCpuArray<[u32; SET as usize]> = PerCpuArray::with_max_entries(1, 0);

/// A user stack and the walk that found it.
#[repr(C)]
struct Known {
    pc: u64,
    sp: u64,
    bp: u64,
    /// The window that the stack was stored in: see [`crate::maps::epoch`].
    epoch: u64,
    id: StackId,
    generation: u32,
    bp_matters: u32,
    word_count: u64,
    words: [Word; MAX_WORDS],
}

/// Where a walk begins, by which its stack is remembered.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Place {
    hash: u64,
    pc: u64,
    sp: u64,
    bp: u64,
    epoch: u64,
    generation: u32,
    /// Of a stack at a marker: its plan.
    plan: u32,
}

impl Place {
    /// See [`KNOWN_USER_TAGS`]; 0 is that of an entry without a stack.
    #[inline(always)]
    const fn tag(&self) -> u32 {
        (self.hash >> 40) as u32 | 1
    }
}

/// What the comparison of words needs.
#[repr(C)]
struct Words {
    walker: *mut Walker,
    entry: *const Known,
}

/// What the comparison of user stacks needs.
#[repr(C)]
struct Compare {
    words: Words,
    place: Place,
    id: StackId,
    first: u32,
    /// Entries that may be it, a bit each.
    candidates: u32,
}

/// The place of a walk that begins here. `generation` tells tables apart.
#[inline(always)]
pub(crate) fn place(walker: &Walker, generation: u32, epoch: u64) -> Place {
    let (pc, sp) = (walker.pc, walker.sp);
    Place {
        hash: mix(pc ^ sp.rotate_left(20)),
        pc,
        sp,
        bp: walker.bp,
        epoch,
        generation,
        plan: 0,
    }
}

/// The stack that a walk from here would find, when it is known.
#[inline(always)]
pub(crate) fn recall(walker: *mut Walker, place: &Place) -> Option<StackId> {
    let first = first_of_set(place.hash, SET);
    let tags = KNOWN_USER_TAGS.get(first / SET)?;
    let mut candidates = 0;
    let mut index = 0;
    while index < SET as usize {
        candidates |= u32::from(tags[index] == place.tag()) << index;
        index += 1;
    }
    if candidates == 0 {
        return None;
    }
    let mut compare = Compare {
        words: Words {
            walker,
            entry: ptr::null(),
        },
        place: *place,
        id: 0,
        first,
        candidates,
    };
    // SAFETY: the callback has the signature that the helper calls, and the context outlives it.
    unsafe {
        bpf_loop(
            SET,
            compare_entry as *mut c_void,
            (&raw mut compare).cast(),
            0,
        );
    }
    (compare.id != 0).then_some(compare.id)
}

/// Looks whether the stack is that of an entry. Returns 1 to stop.
extern "C" fn compare_entry(index: u32, compare: *mut Compare) -> u64 {
    // SAFETY: the context of `recall`; this CPU's own entries, and interrupts are off.
    unsafe {
        let this = &mut *compare;
        if this.candidates & (1 << index) == 0 {
            return 0;
        }
        let Some(entry) = KNOWN_USER.get_ptr(this.first + index) else {
            return 1;
        };
        if !begins_alike(&this.place, &*entry) || !has_same_words(&raw mut this.words, entry) {
            return 0;
        }
        this.id = (*entry).id;
        1
    }
}

/// Whether a walk begins as the one of an entry did.
#[inline(always)]
fn begins_alike(place: &Place, known: &Known) -> bool {
    known.sp == place.sp
        && known.pc == place.pc
        && known.epoch == place.epoch
        && known.generation == place.generation
        && (known.bp_matters == 0 || known.bp == place.bp)
}

/// Whether all words by which the walk of an entry went are what they were.
#[inline(always)]
unsafe fn has_same_words(words: *mut Words, entry: *const Known) -> bool {
    // SAFETY: by the caller; the callback has the signature that the helper calls, and the context outlives it.
    unsafe {
        let walker = (*words).walker;
        (*walker).differs = 0;
        (*words).entry = entry;
        bpf_loop(
            (MAX_WORDS / AT_ONCE) as u32,
            compare_words as *mut c_void,
            words.cast(),
            0,
        );
        (*walker).differs == 0
    }
}

/// Looks whether words are what they were. Returns 1 to stop.
extern "C" fn compare_words(round: u32, words: *mut Words) -> u64 {
    // SAFETY: the context of `has_same_words`, with an entry that nobody else changes.
    unsafe {
        let walker = &mut *(*words).walker;
        let known = &*(*words).entry;
        let first = round as usize * AT_ONCE;
        let mut next = 0;
        while next < AT_ONCE {
            let index = (first + next) & (MAX_WORDS - 1);
            if index as u64 >= known.word_count {
                return 1;
            }
            let word = &*(&raw const known.words).cast::<Word>().add(index);
            if now_at(walker, word) != Some(word.value) {
                walker.differs = 1;
                return 1;
            }
            next += 1;
        }
    }
    0
}

/// Remembers a stack that was walked, if it can be.
#[inline(always)]
pub(crate) fn keep(walker: &Walker, place: &Place, id: StackId) {
    // One of the set gives way; which does not matter, if it is not always the same.
    let turn = (id >> 8) as u32 & (SET - 1);
    let first = first_of_set(place.hash, SET);
    if let (Some(entry), Some(tags)) = (
        KNOWN_USER.get_ptr_mut(first + turn),
        KNOWN_USER_TAGS.get_ptr_mut(first / SET),
    ) {
        // SAFETY: this CPU's own entries, and interrupts are off.
        unsafe {
            if write(&mut *entry, walker, place, id) {
                (*tags)[turn as usize] = place.tag();
            }
        }
    }
}

/// Writes an entry that nobody else looks at, if it can be remembered. Whether it can.
#[inline(always)]
fn write(known: &mut Known, walker: &Walker, place: &Place, id: StackId) -> bool {
    if walker.word_count > MAX_WORDS as u32 {
        return false;
    }
    known.pc = place.pc;
    known.sp = place.sp;
    known.bp = place.bp;
    known.epoch = place.epoch;
    known.id = id;
    known.generation = place.generation;
    known.bp_matters = walker.bp_matters;
    // SAFETY: the helper writes at most the size it is given.
    unsafe {
        // Read back: kernel 6.1 forgets the bounds of a number that was kept on the stack.
        let count = u64::from((&raw const walker.word_count).read_volatile());
        known.word_count = count;
        if count > MAX_WORDS as u64 {
            return false;
        }
        bpf_probe_read_kernel(
            (&raw mut known.words).cast(),
            (count * size_of::<Word>() as u64) as u32,
            (&raw const walker.words).cast(),
        );
    }
    true
}

/// 2 KB each; sized by user space before loading: [`KNOWN_AT_MARKERS`](reqtrace_common::limits::KNOWN_AT_MARKERS).
#[map]
static KNOWN_AT_MARKERS: Array<Kept> = Array::with_max_entries(1, 0);

/// A stack at a marker, and what it names by the marker's plan. Programs at markers can be preempted by each other: an entry is
/// held while it is looked at.
#[repr(C)]
struct Kept {
    /// 1 while a program uses it.
    is_used: u64,
    plan: u64,
    found: AtMarker,
    known: Known,
}

/// What is known of the stack at a marker.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct AtMarker {
    pub(crate) stack: StackId,
    /// What its frames name by the marker's plan.
    pub(crate) named: u32,
    /// Not 0: it was walked to its end.
    pub(crate) is_whole: u32,
}

/// A question for the stack at a marker, and the answer. It lies in a map: Linux 6.1 has no room on the stack, and forgets less of
/// what a loop has changed there.
#[repr(C)]
pub(crate) struct Asked {
    place: Place,
    /// [`STACK_LOST`]: it is not known.
    pub(crate) found: AtMarker,
}

/// What the comparison of stacks at markers needs.
#[repr(C)]
struct CompareKept {
    words: Words,
    asked: *mut Asked,
}

/// Asks for the stack that a walk from a marker with this plan would find. Whether it is known.
#[inline(always)]
pub(crate) unsafe fn recall_at_marker(
    walker: *mut Walker,
    generation: u32,
    epoch: u64,
    plan: u32,
    asked: *mut Asked,
) -> bool {
    // SAFETY: by the caller both are the program's own; the callback has the signature that the helper calls, and the context outlives
    // it.
    unsafe {
        (*asked).place = place(&*walker, generation, epoch);
        (*asked).place.plan = plan;
        (&raw mut (*asked).found.stack).write_volatile(STACK_LOST);
        let mut compare = CompareKept {
            words: Words {
                walker,
                entry: ptr::null(),
            },
            asked,
        };
        bpf_loop(
            SET,
            compare_kept as *mut c_void,
            (&raw mut compare).cast(),
            0,
        );
        (&raw const (*asked).found.stack).read_volatile() != STACK_LOST
    }
}

/// An entry of a place's set.
#[inline(always)]
fn kept(place: &Place, index: u32) -> Option<*mut Kept> {
    let first = (place.hash >> 32) as u32 & (limits::KNOWN_AT_MARKERS - 1) & !(SET - 1);
    KNOWN_AT_MARKERS.get_ptr_mut(first + index)
}

/// Looks whether the stack is that of an entry. Returns 1 to stop.
extern "C" fn compare_kept(index: u32, compare: *mut CompareKept) -> u64 {
    // SAFETY: the context of `recall_at_marker`; the entry is held while it is looked at.
    unsafe {
        let asked = &mut *(*compare).asked;
        let Some(kept) = kept(&asked.place, index) else {
            return 1;
        };
        let known = &raw const (*kept).known;
        let takes = || compare_exchange(&raw mut (*kept).is_used, 0, 1) == 0;
        if !begins_alike(&asked.place, &*known) || !takes() {
            return 0;
        }
        // It may have been written since.
        let is_it = begins_alike(&asked.place, &*known)
            && (*kept).plan == u64::from(asked.place.plan)
            && has_same_words(&raw mut (*compare).words, known);
        if is_it {
            asked.found = (*kept).found;
        }
        barrier();
        (&raw mut (*kept).is_used).write_volatile(0);
        u64::from(is_it)
    }
}

/// Remembers what a walk has found that was asked for, if it can be.
#[inline(always)]
pub(crate) unsafe fn keep_at_marker(walker: &Walker, asked: *const Asked, found: AtMarker) {
    // SAFETY: by the caller it is the program's own; the entry is held while it is written.
    unsafe {
        let place = &(*asked).place;
        let Some(kept) = kept(place, bpf_get_prandom_u32() & (SET - 1)) else {
            return;
        };
        if compare_exchange(&raw mut (*kept).is_used, 0, 1) != 0 {
            return;
        }
        if write(&mut (*kept).known, walker, place, found.stack) {
            (*kept).found = found;
            (*kept).plan = place.plan.into();
        }
        barrier();
        (&raw mut (*kept).is_used).write_volatile(0);
    }
}
