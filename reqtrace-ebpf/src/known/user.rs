//! User stacks that are remembered, each with the walk that found it.

use core::ffi::c_void;
use core::mem::size_of;
use core::ptr;

use aya_ebpf::helpers::generated::{bpf_loop, bpf_probe_read_kernel};
use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;
use reqtrace_common::record::StackId;

use super::{AT_ONCE, first_of_set, mix};
use crate::unwind::{MAX_WORDS, Walker, Word, copied};

/// Calls from several places may lead to one place with the same stack pointer: so many are remembered.
const SET: u32 = 4;

/// 2 KB each; sized by user space before loading.
#[map]
static KNOWN_USER: PerCpuArray<Known> = PerCpuArray::with_max_entries(1, 0);

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

/// Where a user stack is remembered, or will be.
pub(crate) struct Place {
    /// First entry of the set.
    first: u32,
    generation: u32,
    pc: u64,
    sp: u64,
    bp: u64,
    epoch: u64,
}

/// What the comparison of user stacks needs.
#[repr(C)]
struct Compare {
    walker: *mut Walker,
    entry: *const Known,
    pc: u64,
    sp: u64,
    bp: u64,
    epoch: u64,
    id: StackId,
    first: u32,
    generation: u32,
}

/// Where the walk that begins here is remembered. `generation` tells tables apart.
#[inline(always)]
pub(crate) fn place(walker: &Walker, generation: u32, epoch: u64) -> Place {
    let (pc, sp) = (walker.pc, walker.sp);
    Place {
        first: first_of_set(mix(pc ^ sp.rotate_left(20)), SET),
        generation,
        pc,
        sp,
        bp: walker.bp,
        epoch,
    }
}

/// The stack that a walk from here would find, when it is known.
#[inline(always)]
pub(crate) fn recall(walker: *mut Walker, place: &Place) -> Option<StackId> {
    let mut compare = Compare {
        walker,
        entry: ptr::null(),
        pc: place.pc,
        sp: place.sp,
        bp: place.bp,
        epoch: place.epoch,
        id: 0,
        first: place.first,
        generation: place.generation,
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
        let Some(entry) = KNOWN_USER.get_ptr(this.first + index) else {
            return 1;
        };
        let (known, walker) = (&*entry, &mut *this.walker);
        if known.sp != this.sp
            || known.pc != this.pc
            || known.epoch != this.epoch
            || known.generation != this.generation
            || (known.bp_matters != 0 && known.bp != this.bp)
        {
            return 0;
        }
        walker.differs = 0;
        this.entry = entry;
        bpf_loop(
            (MAX_WORDS / AT_ONCE) as u32,
            compare_words as *mut c_void,
            compare.cast(),
            0,
        );
        if walker.differs != 0 {
            return 0;
        }
        this.id = known.id;
        1
    }
}

/// Looks whether words are what they were. Returns 1 to stop.
extern "C" fn compare_words(round: u32, compare: *mut Compare) -> u64 {
    // SAFETY: the context of `recall`; this CPU's own entries, and interrupts are off.
    unsafe {
        let compare = &mut *compare;
        let walker = &mut *compare.walker;
        let known = &*compare.entry;
        let first = round as usize * AT_ONCE;
        let mut next = 0;
        while next < AT_ONCE {
            let index = (first + next) & (MAX_WORDS - 1);
            if index as u64 >= known.word_count {
                return 1;
            }
            let word = &*(&raw const known.words).cast::<Word>().add(index);
            if copied(walker, word.address) != Some(word.value) {
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
    let count = u64::from(walker.word_count);
    if count > MAX_WORDS as u64 {
        return;
    }
    // One of the set gives way; which does not matter, if it is not always the same.
    let turn = (id >> 8) as u32 & (SET - 1);
    let Some(entry) = KNOWN_USER.get_ptr_mut(place.first + turn) else {
        return;
    };
    // SAFETY: this CPU's own entry, and interrupts are off; the helper writes at most the size it is
    // given.
    unsafe {
        let known = &mut *entry;
        known.pc = place.pc;
        known.sp = place.sp;
        known.bp = place.bp;
        known.epoch = place.epoch;
        known.id = id;
        known.generation = place.generation;
        known.bp_matters = walker.bp_matters;
        known.word_count = count;
        // Read back: kernel 6.1 forgets the bounds of a number that was kept on the stack.
        let count = u64::from((&raw const walker.word_count).read_volatile());
        if count > MAX_WORDS as u64 {
            return;
        }
        bpf_probe_read_kernel(
            (&raw mut known.words).cast(),
            (count * size_of::<Word>() as u64) as u32,
            (&raw const walker.words).cast(),
        );
    }
}
