//! Stacks: read, hashed, stored once.

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::BPF_F_USER_STACK;
use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::helpers::generated::bpf_get_stack;

use reqtrace_common::config::stacks_wanted;
use reqtrace_common::limits::MAX_FRAMES;
use reqtrace_common::loss::Loss;
use reqtrace_common::record::{STACK_LOST, STACK_NONE, StackId};
use reqtrace_common::sums::StoredStack;
use reqtrace_common::unwind::Stop;

use crate::globals::STACKS_WANTED;
use crate::maps::{MAPPINGS, STACK_SCRATCH, STACKS, lose, stack_made, stacks_shed, window};
use crate::process;
use crate::task::UserContext;
use crate::unwind;
use crate::walks;

/// `EEXIST`: another CPU stored the same stack first.
const EEXIST: i32 = -17;

/// Which stacks a thread that leaves its CPU is to have: bits of [`stacks_wanted`].
#[inline(always)]
pub(crate) fn wanted(preempted: bool) -> u32 {
    let wanted = STACKS_WANTED.load();
    if (preempted && wanted & stacks_wanted::PREEMPTED == 0) || stacks_shed() {
        return 0;
    }
    wanted
}

/// Stores the kernel stack of the current thread.
#[inline(always)]
pub(crate) fn kernel<C: EbpfContext>(ctx: &C, wanted: u32) -> StackId {
    if wanted & stacks_wanted::KERNEL == 0 {
        return STACK_NONE;
    }
    let Some((scratch, len)) = read(ctx, 0) else {
        lose(Loss::KernelStackUnreadable);
        return STACK_LOST;
    };
    store(scratch, len, Stop::FramePointers as u32)
}

/// Stores the user stack of the current thread: by tables where its process has them, otherwise by
/// frame pointers.
#[inline(always)]
pub(crate) fn user<C: EbpfContext>(
    ctx: &C,
    user: &UserContext,
    space: u64,
    inherited: u64,
    wanted: u32,
) -> StackId {
    if wanted & stacks_wanted::USER == 0 {
        return STACK_NONE;
    }
    let mappings = MAPPINGS
        .get_ptr(space)
        .or_else(|| MAPPINGS.get_ptr(inherited));
    let Some(mappings) = mappings else {
        let begun = walks::begin();
        let Some((scratch, len)) = read(ctx, u64::from(BPF_F_USER_STACK)) else {
            lose(Loss::UserStackUnreadable);
            return STACK_LOST;
        };
        walks::end(begun, len);
        return store(scratch, len, Stop::FramePointers as u32);
    };
    let Some(scratch) = STACK_SCRATCH.get_ptr_mut(0) else {
        return STACK_LOST;
    };
    let begun = walks::begin();
    let (len, stop) = unwind::walk(user, mappings, scratch);
    walks::end(begun, len);
    if len == 0 {
        lose(Loss::UserStackUnreadable);
        return STACK_LOST;
    }
    if matches!(stop, Stop::NoMapping) {
        process::mapped(space);
    }
    store(scratch, len, stop as u32)
}

/// Reads a stack by the kernel's own means: into what, and how many frames.
#[inline(always)]
fn read<C: EbpfContext>(ctx: &C, flags: u64) -> Option<(*mut StoredStack, usize)> {
    let scratch = STACK_SCRATCH.get_ptr_mut(0)?;
    // SAFETY: the scratch entry is ours while interrupts are off; the helper writes at most the
    // size it is given.
    let bytes = unsafe {
        bpf_get_stack(
            ctx.as_ptr(),
            (&raw mut (*scratch).frames).cast(),
            (MAX_FRAMES * 8) as u32,
            flags,
        )
    };
    (bytes > 0).then_some((scratch, (bytes as usize) / 8))
}

/// Two independent multiplicative hashes over the frames, in one pass.
#[inline(always)]
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "by value it would be copied to the stack, which has 512 bytes"
)]
fn store(stack: *mut StoredStack, len: usize, stop: u32) -> StackId {
    let mut id: u64 = 0x9e37_79b9_7f4a_7c15 ^ len as u64 ^ u64::from(stop) << 32;
    let mut check: u64 = 0xc2b2_ae3d_27d4_eb4f;
    let mut index = 0;
    while index < MAX_FRAMES {
        if index >= len {
            break;
        }
        // SAFETY: index is below the array's length.
        let frame = unsafe { (&raw const (*stack).frames).cast::<u64>().add(index).read() };
        id = (id ^ frame).wrapping_mul(0xff51_afd7_ed55_8ccd);
        id ^= id >> 32;
        check = (check.rotate_left(5) ^ frame).wrapping_mul(0x9fb2_1c65_1e98_df25);
        index += 1;
    }
    id &= !1;
    if id == STACK_LOST {
        id = 2;
    }
    let key = id | window();
    if let Some(known) = STACKS.get_ptr(key) {
        // SAFETY: entries are never changed, and those of this window are not removed: see `window`.
        let same = unsafe {
            (*known).check == check && (*known).len == len as u32 && (*known).stop == stop
        };
        if !same {
            lose(Loss::StackCollision);
            return STACK_LOST;
        }
        return id;
    }
    // SAFETY: the scratch entry is ours.
    let inserted = unsafe {
        (*stack).check = check;
        (*stack).len = len as u32;
        (*stack).stop = stop;
        STACKS.insert(key, &*stack, u64::from(BPF_NOEXIST))
    };
    match inserted {
        Ok(()) => {
            stack_made();
            id
        }
        Err(EEXIST) => id,
        Err(_) => {
            lose(Loss::StackTableFull);
            STACK_LOST
        }
    }
}
