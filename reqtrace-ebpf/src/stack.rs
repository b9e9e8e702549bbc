//! Stacks: read, hashed, stored once.

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::BPF_F_USER_STACK;
use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::helpers::generated::{bpf_get_stack, bpf_loop};
use core::ffi::c_void;

use reqtrace_common::config::stacks_wanted;
use reqtrace_common::limits::MAX_FRAMES;
use reqtrace_common::loss::Loss;
use reqtrace_common::record::{STACK_LOST, STACK_NONE, StackId};
use reqtrace_common::sums::StoredStack;
use reqtrace_common::unwind::Stop;

use crate::delivery::{self, segment};
use crate::globals::{
    INTERRUPTS_FROM, INTERRUPTS_UNTIL, SEGMENTS_FROM, SEGMENTS_UNTIL, STACKS_WANTED,
};
use crate::known::{self, kernel::Recalled};
use crate::maps::{
    MAPPINGS, STACK_SCRATCH, STACKS, WALKER, epoch, lose, stack_made, stacks_shed, walk_of, window,
};
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

/// Stores the kernel stack of the current thread. `near` is a number that other stacks do not have,
/// mostly.
#[inline(always)]
pub(crate) fn kernel<C: EbpfContext>(ctx: &C, wanted: u32, near: u64) -> StackId {
    if wanted & stacks_wanted::KERNEL == 0 {
        return STACK_NONE;
    }
    let Some(walker) = WALKER.get_ptr_mut(walk_of::SCHEDULER) else {
        return STACK_LOST;
    };
    let place = known::kernel::place(ctx, walker, near, epoch());
    let known = match &place {
        Some(place) => known::kernel::recall(walker, place).id(),
        None => None,
    };
    if let Some(id) = known
        && !walks::check()
    {
        return id;
    }
    let Some((scratch, len)) = read(ctx, 0, walk_of::SCHEDULER) else {
        lose(Loss::KernelStackUnreadable);
        return STACK_LOST;
    };
    let id = store(scratch, len, Stop::FramePointers as u32);
    walks::checked(known, id, true);
    if let Some(place) = &place {
        keep(walker, place, scratch, len, id, false);
    }
    id
}

#[inline(always)]
fn keep(
    walker: *mut unwind::Walker,
    place: &known::kernel::Place,
    stack: *const StoredStack,
    len: usize,
    id: StackId,
    is_of_segment: bool,
) {
    if id != STACK_LOST {
        let recalled = Recalled { id, is_of_segment };
        known::kernel::keep(walker, place, stack, len, &recalled);
    }
}

/// Stores the kernel stack that wakes a thread, also when other stacks are left out: without it nobody knows
/// which interrupt that was. It ends where the interrupt came in: what was interrupted is another place each time.
///
/// Where a thread runs a softirq by itself, the frames that have sent something tell whether that wakes. If it takes a segment for a
/// connection, its system call does: then the stack ends where the softirq begins. Whose segment that is, one of [`segment`], comes
/// first.
#[inline(always)]
pub(crate) fn waker<C: EbpfContext>(ctx: &C) -> (u64, StackId) {
    if STACKS_WANTED.load() & stacks_wanted::KERNEL == 0 {
        return (segment::NONE, STACK_NONE);
    }
    let Some(walker) = WALKER.get_ptr_mut(walk_of::SCHEDULER) else {
        return (segment::NONE, STACK_LOST);
    };
    let (place, is_elsewhere) = known::kernel::place_of_waker(ctx, walker, epoch());
    let known = match place.is_there() {
        true => known::kernel::recall(walker, &place),
        false => Recalled::NONE,
    };
    let mut whose = segment::NONE;
    if known.id != 0 {
        if known.is_of_segment {
            whose = delivery::of_current();
        }
        if whose != segment::NOT_KNOWN && !walks::check() {
            return (whose, known.id);
        }
    }
    let Some((scratch, len)) = read(ctx, 0, walk_of::SCHEDULER) else {
        lose(Loss::KernelStackUnreadable);
        return (segment::NONE, STACK_LOST);
    };
    let entry = first_within(
        scratch,
        len,
        INTERRUPTS_FROM.load(),
        INTERRUPTS_UNTIL.load(),
    );
    let is_enough = whose != segment::NOT_KNOWN;
    let is_remembered_cut = is_enough && whose != segment::NONE;
    // A thread that is killed may have come into the kernel by an interrupt, outside of what was remembered.
    let is_interrupt = !is_remembered_cut && entry < len;
    let mut own = if is_remembered_cut {
        // What is on this stack besides may hide where these frames are.
        len_of(known.id).min(len)
    } else if is_interrupt {
        entry + 1
    } else {
        len
    };
    if whose == segment::NONE
        && !is_interrupt
        && SEGMENTS_UNTIL.load() != 0
        && is_elsewhere
        && place.is_there()
        && let Some(here) = known::kernel::on_this_stack(walker, &place, scratch, len)
        && first_within(scratch, here, SEGMENTS_FROM.load(), SEGMENTS_UNTIL.load()) < here
    {
        whose = delivery::of_current();
        if whose != segment::NOT_KNOWN {
            own = here;
        }
    }
    let is_cut = own < len && !is_interrupt;
    let id = store(scratch, own, Stop::FramePointers as u32);
    // Where nobody knows whose segment it is, what was remembered is not used.
    if is_enough {
        walks::checked(known.id(), id, true);
    }
    if place.is_there() && (!is_elsewhere || is_interrupt || is_cut) {
        // Only the return to its entry is still on the thread's stack. It is the entry's one way on: `common_interrupt` is called by
        // `asm_common_interrupt` only.
        let here = own - usize::from(is_elsewhere && is_interrupt);
        keep(walker, &place, scratch, here, id, is_cut);
    }
    (whose, id)
}

/// How many frames a stack has that was stored.
#[inline(always)]
fn len_of(id: StackId) -> usize {
    match STACKS.get_ptr(id | window()) {
        // SAFETY: entries are never changed, and those of this window are not removed.
        Some(stack) => unsafe { (*stack).len as usize },
        None => MAX_FRAMES,
    }
}

/// A stack, and which of its frames is the first that is in some code: at first none.
#[repr(C)]
struct Search {
    stack: *const StoredStack,
    from: u64,
    until: u64,
    found: u32,
}

/// Which of the first frames is in this code; `len`: none.
#[inline(always)]
fn first_within(stack: *const StoredStack, len: usize, from: u64, until: u64) -> usize {
    let mut search = Search {
        stack,
        from,
        until,
        found: len as u32,
    };
    // SAFETY: the callback has the signature that the helper calls, and the context outlives it.
    unsafe {
        bpf_loop(
            len as u32,
            is_within as *mut c_void,
            (&raw mut search).cast(),
            0,
        );
    }
    search.found as usize
}

/// Looks whether this frame is in the code. Returns 1 to stop.
extern "C" fn is_within(index: u32, search: *mut Search) -> u64 {
    if index as usize >= MAX_FRAMES {
        return 1;
    }
    // SAFETY: the context of `first_within`, and the index is below the array's length.
    unsafe {
        let search = &mut *search;
        let frames = (&raw const (*search.stack).frames).cast::<u64>();
        // It returns to behind its call, which may be the first address behind that code.
        let call = frames.add(index as usize).read().wrapping_sub(1);
        if call >= search.from && call < search.until {
            search.found = index;
            return 1;
        }
    }
    0
}

/// Stores the stack of the kernel that a sample has come upon.
#[inline(always)]
pub(crate) fn sampled_kernel<C: EbpfContext>(ctx: &C, wanted: u32) -> StackId {
    if wanted & stacks_wanted::KERNEL == 0 {
        return STACK_NONE;
    }
    just_read(ctx, walk_of::SAMPLER)
}

/// Stores the kernel stack, without a look at those that are remembered.
#[inline(always)]
fn just_read<C: EbpfContext>(ctx: &C, whose: u32) -> StackId {
    match read(ctx, 0, whose) {
        Some((scratch, len)) => store(scratch, len, Stop::FramePointers as u32),
        None => {
            lose(Loss::KernelStackUnreadable);
            STACK_LOST
        }
    }
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
        let Some((scratch, len)) = read(ctx, u64::from(BPF_F_USER_STACK), walk_of::SCHEDULER)
        else {
            lose(Loss::UserStackUnreadable);
            return STACK_LOST;
        };
        walks::end(begun, len);
        return store(scratch, len, Stop::FramePointers as u32);
    };
    let (Some(scratch), Some(walker)) = (
        STACK_SCRATCH.get_ptr_mut(walk_of::SCHEDULER),
        WALKER.get_ptr_mut(walk_of::SCHEDULER),
    ) else {
        return STACK_LOST;
    };
    // SAFETY: this CPU's own entry, and interrupts are off; mappings are not changed, but replaced.
    let (walk, generation) = unsafe { (&mut *walker, (*mappings).generation) };
    unwind::start(walk, user);
    let place = known::user::place(walk, generation, epoch());
    // A walk without tables reads little more than is compared, and no other memory.
    let is_short = unwind::goes_by_frame_pointers(walk, mappings);
    let known = if is_short {
        None
    } else {
        known::user::recall(walker, &place)
    };
    if let Some(id) = known
        && !walks::check()
    {
        return id;
    }
    let begun = walks::begin();
    let (len, stop) = unwind::walk(walker, mappings, scratch);
    walks::end(begun, len);
    if len == 0 {
        lose(Loss::UserStackUnreadable);
        return STACK_LOST;
    }
    if matches!(stop, Stop::NoMapping) {
        process::mapped(space);
    }
    let id = store(scratch, len, stop as u32);
    walks::checked(known, id, false);
    // What could not be read may be readable the next time, and what is not mapped be known.
    let is_whole = !matches!(stop, Stop::NoMapping | Stop::NotResident);
    if id != STACK_LOST && is_whole && !is_short {
        known::user::keep(walk, &place, id);
    }
    id
}

/// Stores the user stack of a thread that a sample has come upon, as [`user`] does. The memory of known
/// stacks is the scheduler's, and is left alone.
#[inline(always)]
pub(crate) fn sampled_user<C: EbpfContext>(
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
        let Some((scratch, len)) = read(ctx, u64::from(BPF_F_USER_STACK), walk_of::SAMPLER) else {
            lose(Loss::UserStackUnreadable);
            return STACK_LOST;
        };
        return store(scratch, len, Stop::FramePointers as u32);
    };
    let (Some(scratch), Some(walker)) = (
        STACK_SCRATCH.get_ptr_mut(walk_of::SAMPLER),
        WALKER.get_ptr_mut(walk_of::SAMPLER),
    ) else {
        return STACK_LOST;
    };
    // SAFETY: this CPU's own entry, and samples do not nest.
    unwind::start(unsafe { &mut *walker }, user);
    let (len, stop) = unwind::walk(walker, mappings, scratch);
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
fn read<C: EbpfContext>(ctx: &C, flags: u64, whose: u32) -> Option<(*mut StoredStack, usize)> {
    let scratch = STACK_SCRATCH.get_ptr_mut(whose)?;
    // SAFETY: the scratch entry is ours: see `walk_of`; the helper writes at most the size it is given.
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

/// A stack that is being hashed: two independent multiplicative hashes in one pass.
#[repr(C)]
struct Hash {
    stack: *const StoredStack,
    id: u64,
    check: u64,
}

/// Adds one frame. A callback, so that the verifier looks at it once and not once a frame.
extern "C" fn add_frame(index: u32, hash: *mut Hash) -> u64 {
    let index = index as usize;
    if index >= MAX_FRAMES {
        return 1;
    }
    // SAFETY: the context of `store`, and the index is below the array's length.
    unsafe {
        let hash = &mut *hash;
        let frames = (&raw const (*hash.stack).frames).cast::<u64>();
        let frame = frames.add(index).read();
        hash.id = (hash.id ^ frame).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash.id ^= hash.id >> 32;
        hash.check = (hash.check.rotate_left(5) ^ frame).wrapping_mul(0x9fb2_1c65_1e98_df25);
    }
    0
}

/// Stores the stack that was read, unless it is known.
#[inline(always)]
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "by value it would be copied to the stack, which has 512 bytes"
)]
pub(crate) fn store(stack: *mut StoredStack, len: usize, stop: u32) -> StackId {
    let mut hash = Hash {
        stack,
        id: 0x9e37_79b9_7f4a_7c15 ^ len as u64 ^ u64::from(stop) << 32,
        check: 0xc2b2_ae3d_27d4_eb4f,
    };
    // SAFETY: the callback has the signature that the helper calls, and the context outlives it.
    unsafe {
        bpf_loop(
            len as u32,
            add_frame as *mut c_void,
            (&raw mut hash).cast(),
            0,
        );
    }
    let Hash { mut id, check, .. } = hash;
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
