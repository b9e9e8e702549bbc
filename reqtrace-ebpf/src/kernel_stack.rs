//! Kernel stacks: the current thread in, the id of its stack out.
//!
//! The kernel's own unwinder takes microseconds, so what it found is remembered by a fingerprint of
//! the stack: the place and value of every word on it that can be an address in kernel code. Return
//! addresses are such words, and so are the program counters of interrupted code. Between them
//! the unwinder goes by tables that are constant for an address, so equal fingerprints have equal
//! stacks, up to a collision of 64 bits. What an earlier call left behind on the stack makes two
//! fingerprints of one stack, which costs time and nothing else.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::bpf_probe_read_kernel;

use reqtrace_common::config::stacks_wanted;
use reqtrace_common::loss::Loss;
use reqtrace_common::record::{STACK_LOST, STACK_NONE, StackId};
use reqtrace_common::unwind::Stop;

use crate::assembly::negated;
use crate::copy::COPY_WORDS;
use crate::maps::{KNOWN_STACKS as KNOWN, STACK_COPY, lose};
use crate::stack::{read, store};
use crate::task;

/// Stacks remembered by each CPU: as many as an entry of a per-CPU map has room for.
pub(crate) const KNOWN_STACKS: usize = 1 << KNOWN_BITS;
const KNOWN_BITS: u32 = 11;

/// From here on x86-64 has kernel code, modules and compiled kernel programs.
const CODE_START: u64 = 0xffff_ffff_8000_0000;
/// Words that are looked at between two looks at the end.
const CHUNK_WORDS: u64 = 8;
const CHUNK_BYTES: u64 = 8 * CHUNK_WORDS;

/// A stack by its fingerprint.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct KnownStack {
    fingerprint: u64,
    id: StackId,
}

/// Stores the kernel stack of the current thread.
#[inline(always)]
pub(crate) fn id<C: EbpfContext>(ctx: &C, wanted: u32) -> StackId {
    if wanted & stacks_wanted::KERNEL == 0 {
        return STACK_NONE;
    }
    let fingerprint = fingerprint().unwrap_or(0);
    let Some(known) = KNOWN.get_ptr_mut(0) else {
        return STACK_LOST;
    };
    let index = (fingerprint >> (64 - KNOWN_BITS)) as usize & (KNOWN_STACKS - 1);
    // SAFETY: the mask keeps the index inside; the entry is this CPU's own, and interrupts are off.
    let known = unsafe { &mut *known.cast::<KnownStack>().add(index) };
    if fingerprint != 0 && known.fingerprint == fingerprint {
        return known.id;
    }
    let Some((scratch, len)) = read(ctx, 0) else {
        lose(Loss::KernelStackUnreadable);
        return STACK_LOST;
    };
    let id = store(scratch, len, Stop::FramePointers as u32);
    if id != STACK_LOST {
        known.fingerprint = fingerprint;
        known.id = id;
    }
    id
}

/// The fingerprint of the current thread's kernel stack; `None` when it is deeper than a copy.
#[inline(always)]
fn fingerprint() -> Option<u64> {
    let (from, len) = task::own_stack()?;
    // Whole chunks: the last one may go into the user registers that lie at the end of the stack.
    let len = (len + CHUNK_BYTES - 1) & !(CHUNK_BYTES - 1);
    if len > 8 * COPY_WORDS as u64 {
        return None;
    }
    let words = STACK_COPY.get_ptr_mut(0)?;
    // SAFETY: the helper checks the address, and writes at most the copy.
    if unsafe { bpf_probe_read_kernel(words.cast(), len as u32, from as *const _) } != 0 {
        return None;
    }
    let words: *const u64 = words.cast();
    let count = len / CHUNK_BYTES;
    let mut hash = len;
    let mut chunk = 0;
    while chunk < COPY_WORDS as u64 / CHUNK_WORDS {
        if chunk >= count {
            break;
        }
        let mut index = 0;
        while index < CHUNK_WORDS {
            // SAFETY: the index is below the copy's length.
            let word = unsafe { words.add((chunk * CHUNK_WORDS + index) as usize).read() };
            hash = (hash ^ only_if_code(word)).wrapping_mul(0xff51_afd7_ed55_8ccd);
            index += 1;
        }
        hash ^= hash >> 32;
        chunk += 1;
    }
    Some(hash)
}

/// The word, or 0 when it cannot be the address of kernel code: it is not in the highest two GiB.
/// Without a branch, which the verifier would have to follow for every word.
#[inline(always)]
fn only_if_code(word: u64) -> u64 {
    let differs = (word >> 31) ^ (CODE_START >> 31);
    let any = differs | negated(differs);
    // All ones when they differ.
    let mask = (any as i64 >> 63) as u64;
    word & !mask
}
