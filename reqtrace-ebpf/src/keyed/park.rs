//! Why and where a unit of a runtime waits: the unit and what is known of its runtime in, the place and the stack of its
//! request out.
//!
//! Runs in the traced thread, and can be preempted at any instruction: what a stack is read into is held by a flag, and is
//! not the CPU's.

use core::ffi::c_void;

use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::helpers::generated::{bpf_get_smp_processor_id, bpf_loop};
use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;

use reqtrace_common::config::stacks_wanted;
use reqtrace_common::keyed::{BY_TASK, BY_WHOLE_STACK, PARKED};
use reqtrace_common::limits::MAX_FRAMES;
use reqtrace_common::loss::Loss;
use reqtrace_common::marker::{FOR_SERVERS, PASSES, ParkPlan, SERVES, op, park_kind};
use reqtrace_common::record::{STACK_LOST, STACK_NONE, StackId};
use reqtrace_common::sums::StoredStack;
use reqtrace_common::unwind::{Mappings, Stop};

use crate::assembly::{barrier, compare_exchange};
use crate::known::user::{self as known, Asked, AtMarker};
use crate::maps::{MAPPINGS, MARKER_PLANS, THREADS, epoch, lose};
use crate::task::{current_ids, user_context};
use crate::unwind::{self, Walker};
use crate::uprobes::Place;
use crate::{blame, stack, walks};

/// Stacks that are read at the same time: a power of two. Threads that are preempted while they read one, and CPUs that
/// share a remainder, find another one.
const ROOMS: u32 = 64;

/// How many are tried.
const TRIES: u32 = 4;

/// Where a stack is read into.
#[repr(C)]
struct Room {
    /// 1 while a program uses it.
    is_used: u64,
    stack: StoredStack,
    asked: Asked,
    walker: Walker,
}

#[map]
static PARK_ROOMS: Array<Room> = Array::with_max_entries(ROOMS, 0);

/// A walk by frame pointers.
#[repr(C)]
struct Walk {
    bp: u64,
    len: u32,
    stop: u32,
    stack: *mut StoredStack,
}

/// Notes for the request that the current thread runs where it is about to wait, and at which stack, in the way of the marker's plan.
/// Returns the place and 1; 0: it waits for nothing of its own there. Of a thread that makes a request ready, from which stack it
/// does: then it returns what that names, as [`reqtrace_common::keyed::waits_at`] takes it.
///
/// A function with an external name: the verifier goes over it once, and not once for each way that leads there.
#[inline(never)]
#[unsafe(no_mangle)]
pub(super) extern "C" fn park(unit: u64, index: u32) -> u32 {
    let (_, tid) = current_ids();
    let (Some(plan), Some(thread)) = (MARKER_PLANS.get_ptr(index), THREADS.get_ptr_mut(tid)) else {
        return 0;
    };
    // SAFETY: points into maps; the plan is not changed, and the thread is the current one.
    let (plan, keyed, state) =
        unsafe { (&*plan, &mut (*thread).request.keyed, &mut (*thread).state) };
    match plan.park.kind {
        park_kind::NONE => return 0,
        park_kind::NOTED => return keyed.parks_as_noted() + 1,
        _ => {}
    }
    let (stack, named) = if plan.park.kind == park_kind::GOROUTINE {
        let named = if plan.park.reason == 0 {
            plan.place
        } else {
            reason(unit, &plan.park)
        };
        (stack_of(unit, &plan.park), named)
    } else {
        let space = u64::from(state.tgid) << 32 | u64::from(state.exec_generation);
        let here = stack_here(&plan.park, index, space, state.inherited);
        if plan.park.kind == park_kind::WAKER {
            state.wakes_from = here.stack;
            return waker(here);
        }
        if here.named >= PASSES {
            return 0;
        }
        let named = if here.named == 0 {
            plan.place
        } else {
            here.named
        };
        (here.stack, named)
    };
    let place = if named == 0 { PARKED + 1 } else { named };
    if plan.op == op::NOTE {
        keyed.note(stack, place - 1);
    } else {
        keyed.parks_at(stack, place - 1);
    }
    place
}

/// Who makes a request ready at this stack, as [`reqtrace_common::keyed::waits_at`] takes it.
#[inline(always)]
fn waker(here: AtMarker) -> u32 {
    if here.is_whole != 0 {
        here.named | BY_WHOLE_STACK
    } else {
        here.named
    }
}

/// The stack of the current thread at a marker with this plan. What it names is the number of the place and 1, or 0: none. Of who makes
/// a request ready it is bits, as [`WaitCode::place`](reqtrace_common::marker::WaitCode::place) has them.
#[inline(always)]
fn stack_here(plan: &ParkPlan, index: u32, space: u64, inherited: u64) -> AtMarker {
    let mut here = AtMarker {
        stack: STACK_NONE,
        named: plan.wait(0).map_or(0, |wait| wait.place),
        is_whole: 0,
    };
    if stack::wanted(false) & stacks_wanted::USER == 0 {
        return here;
    }
    let mappings = MAPPINGS
        .get_ptr(space)
        .or_else(|| MAPPINGS.get_ptr(inherited));
    // They come a moment after the process.
    let Some(mappings) = mappings else {
        return here;
    };
    here.stack = STACK_LOST;
    let Some(room) = room() else {
        lose(Loss::UserStackUnreadable);
        return here;
    };
    let user = user_context();
    // The kernel has set these registers to the probed instruction itself.
    let place = Place {
        pc: user.pc,
        sp: user.sp,
    };
    // SAFETY: the room is this program's until its flag is cleared; mappings are not changed, but replaced.
    unsafe {
        let walker = &raw mut (*room).walker;
        unwind::start_at(&mut *walker, &user, &place);
        // Only goroutines have frame pointers that are kept.
        (*walker).may_change_stacks = u32::from(plan.bp != 0);
        let asked = &raw mut (*room).asked;
        let generation = (*mappings).generation;
        let is_known = known::recall_at_marker(walker, generation, epoch(), index, asked);
        if is_known && !walks::check() {
            here = (*asked).found;
        } else {
            let may_be_kept = walk(plan, room, mappings, user.pc, &mut here);
            if is_known {
                walks::checked_at_marker((*asked).found, here);
            } else if may_be_kept {
                known::keep_at_marker(&*walker, asked, here);
            }
        }
        barrier();
        (&raw mut (*room).is_used).write_volatile(0);
    }
    here
}

/// Walks the stack. Whether the same is found from here as long as nothing changes.
#[inline(always)]
unsafe fn walk(
    plan: &ParkPlan,
    room: *mut Room,
    mappings: *const Mappings,
    here: u64,
    found: &mut AtMarker,
) -> bool {
    // SAFETY: by the caller the room is this program's.
    unsafe {
        let stack = &raw mut (*room).stack;
        let (len, stop) = unwind::walk(&raw mut (*room).walker, mappings, stack);
        if len == 0 {
            lose(Loss::UserStackUnreadable);
            return false;
        }
        found.named = named(plan, stack, len as u32, here);
        found.is_whole = u32::from(matches!(stop, Stop::Complete | Stop::TooDeep));
        // Only blame shows who makes a request ready.
        found.stack = if plan.kind == park_kind::WAKER && !blame::wanted() {
            STACK_NONE
        } else {
            stack::store(stack, len, stop as u32)
        };
        // What could not be read may be readable the next time, and what is not mapped be known.
        found.stack != STACK_LOST && !matches!(stop, Stop::NoMapping | Stop::NotResident)
    }
}

/// A search for the code that names where a unit waits.
#[repr(C)]
struct Search {
    stack: *const StoredStack,
    plan: *const ParkPlan,
    /// The probed instruction.
    here: u64,
    place: u32,
    /// Of the code that has named it: [`reqtrace_common::marker::WaitCode::is_general`].
    general: u32,
}

/// The place that the innermost frames name, and 1; 0: none. Of who makes a request ready: what the innermost such
/// code wakes, and whether a frame farther out runs a task.
#[inline(always)]
unsafe fn named(plan: &ParkPlan, stack: *const StoredStack, len: u32, here: u64) -> u32 {
    if plan.waits_used == 0 {
        return 0;
    }
    let mut search = Search {
        stack,
        plan,
        here,
        place: 0,
        general: 0,
    };
    // SAFETY: by the caller; the callback has the signature that the helper calls, and the context outlives it.
    unsafe {
        bpf_loop(len, look as *mut c_void, (&raw mut search).cast(), 0);
    }
    search.place
}

/// One frame. Returns 1 to stop: behind the code of the runtime comes what waits. Who makes a request ready may be anywhere.
extern "C" fn look(round: u32, search: *mut Search) -> u64 {
    let round = round as usize;
    if round >= MAX_FRAMES {
        return 1;
    }
    // SAFETY: the context of `named`, and the index is below the array's length.
    let (search, frame) = unsafe {
        let search = &mut *search;
        let frames = (&raw const (*search.stack).frames).cast::<u64>();
        (&mut *search, frames.add(round).read())
    };
    // A return address is behind its call.
    let at = frame
        .wrapping_sub(search.here)
        .wrapping_sub(u64::from(round != 0));
    // SAFETY: points into the map.
    let plan = unsafe { &*search.plan };
    let of_waker = plan.kind == park_kind::WAKER;
    match plan.wait(at as i64) {
        Some(wait) if of_waker => {
            // What the innermost of such code wakes.
            search.place |= match search.place & !BY_TASK {
                0 => wait.place,
                _ => wait.place & BY_TASK,
            };
            0
        }
        Some(wait) if wait.place == PASSES => 0,
        // Farther out, and for all else, it is the request that waits.
        Some(wait) if wait.place == SERVES && search.general != FOR_SERVERS => {
            u64::from(search.place != 0)
        }
        Some(wait) => {
            search.place = wait.place;
            search.general = wait.is_general;
            u64::from(wait.is_general == 0)
        }
        None => u64::from(search.place != 0 && !of_waker),
    }
}

/// The place of the reason, and 1; 0: it has no name.
#[inline(always)]
fn reason(goroutine: u64, plan: &ParkPlan) -> u32 {
    let at = goroutine.wrapping_add(u64::from(plan.reason));
    // SAFETY: the helper checks the address.
    match unsafe { bpf_probe_read_user(at as *const u8) } {
        Ok(reason) => plan.place(reason),
        Err(_) => 0,
    }
}

/// The stack of a goroutine that does not run: from the code that has switched away from it on.
#[inline(always)]
fn stack_of(goroutine: u64, plan: &ParkPlan) -> StackId {
    if plan.pc == 0 || stack::wanted(false) & stacks_wanted::USER == 0 {
        return STACK_NONE;
    }
    let Some(room) = room() else {
        lose(Loss::UserStackUnreadable);
        return STACK_LOST;
    };
    // SAFETY: the room is this program's until its flag is cleared.
    unsafe {
        let stack = &raw mut (*room).stack;
        let id = match read(goroutine, plan, stack) {
            Some(walk) => stack::store(stack, walk.len as usize, walk.stop),
            None => {
                lose(Loss::UserStackUnreadable);
                STACK_LOST
            }
        };
        (&raw mut (*room).is_used).write_volatile(0);
        id
    }
}

/// A room that nobody uses, which is this program's from now on.
#[inline(always)]
fn room() -> Option<*mut Room> {
    // SAFETY: no precondition.
    let first = unsafe { bpf_get_smp_processor_id() };
    let mut tries = 0;
    while tries < TRIES {
        let room = PARK_ROOMS.get_ptr_mut(first.wrapping_add(tries * 17) & (ROOMS - 1))?;
        // SAFETY: points into the map.
        if unsafe { compare_exchange(&raw mut (*room).is_used, 0, 1) } == 0 {
            return Some(room);
        }
        tries += 1;
    }
    None
}

/// Reads it. Go keeps frame pointers, and what has switched away has stored the last one.
#[inline(always)]
unsafe fn read(goroutine: u64, plan: &ParkPlan, stack: *mut StoredStack) -> Option<Walk> {
    let word = |offset: u32| {
        let at = goroutine.wrapping_add(u64::from(offset));
        // SAFETY: the helper checks the address.
        unsafe { bpf_probe_read_user(at as *const u64) }.ok()
    };
    let pc = word(plan.pc)?;
    let mut walk = Walk {
        bp: word(plan.bp)?,
        len: 1,
        stop: Stop::TooDeep as u32,
        stack,
    };
    // SAFETY: by the caller; the callback has the signature that the helper calls, and the context outlives it.
    unsafe {
        (&raw mut (*stack).frames).cast::<u64>().write(pc);
        bpf_loop(
            MAX_FRAMES as u32,
            step as *mut c_void,
            (&raw mut walk).cast(),
            0,
        );
    }
    Some(walk)
}

/// One frame. Returns 1 to stop.
extern "C" fn step(_round: u32, walk: *mut Walk) -> u64 {
    // SAFETY: the context of `read`.
    let walk = unsafe { &mut *walk };
    let len = walk.len as usize;
    if len >= MAX_FRAMES {
        return 1;
    }
    // SAFETY: the helper checks the address.
    let Ok([bp, pc]) = (unsafe { bpf_probe_read_user(walk.bp as *const [u64; 2]) }) else {
        walk.stop = Stop::NotResident as u32;
        return 1;
    };
    if pc == 0 {
        walk.stop = Stop::Complete as u32;
        return 1;
    }
    // SAFETY: the index is below the array's length.
    unsafe {
        (&raw mut (*walk.stack).frames)
            .cast::<u64>()
            .add(len)
            .write(pc);
    }
    walk.len = len as u32 + 1;
    // A goroutine is made without a frame before its first function's.
    if bp == 0 {
        walk.stop = Stop::Complete as u32;
        return 1;
    }
    if bp <= walk.bp {
        walk.stop = Stop::NotAscending as u32;
        return 1;
    }
    walk.bp = bp;
    0
}
