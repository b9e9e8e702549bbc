//! A memory of stacks: a thread that blocks does so where it, or another, has blocked before.
//!
//! In: the state that a walk depends on. Out: the id of the stack that a walk from there would find.
//! Nothing is taken for equal that could differ: a user stack is known when the same registers stand
//! before the same tables, and all words by which the walk went then are what they were; a kernel stack,
//! when it is as deep and all its return addresses stand where they stood.

pub(crate) mod kernel;
pub(crate) mod user;

use crate::globals::KNOWN_STACKS;

/// Words that one round of a loop looks at: to call back for each would cost more than to look at it.
const AT_ONCE: usize = 8;

/// Mixes the bits of a number, the upper ones best.
#[inline(always)]
const fn mix(value: u64) -> u64 {
    value.wrapping_mul(0xff51_afd7_ed55_8ccd)
}

/// The first entry of the set in which a stack is remembered. Sets are powers of two, and so are tables.
#[inline(always)]
fn first_of_set(key: u64, set: u32) -> u32 {
    (key >> 32) as u32 & KNOWN_STACKS.load().wrapping_sub(1) & !(set - 1)
}
