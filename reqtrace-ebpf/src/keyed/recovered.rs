//! Panics that are recovered: a goroutine that goes on behind one in; whether its request has ended by that, out.
//!
//! Runs in the traced thread on the runtime's own stack: nobody changes that of the goroutine meanwhile.

use core::ffi::c_void;

use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::helpers::generated::bpf_loop;

use reqtrace_common::marker::{ParkPlan, op};
use reqtrace_common::recovered::Walk;

use crate::maps::MARKER_PLANS;

/// Frames that are looked at. A panic in so many takes longer by itself: the runtime goes over them, too.
const MAX_STACK: u32 = 4096;

/// Bytes from a goroutine's stack pointer to its program counter, in all versions.
const SP_TO_PC: u32 = 8;

/// What the callback has.
#[repr(C)]
struct Stack {
    walk: Walk,
    plan: *const ParkPlan,
}

/// What the marker with this plan does, hit at an instruction with a goroutine's address as key: the end of its request, or
/// nothing.
///
/// A function with an external name: the verifier goes over it once, and not once for each way that leads there.
#[inline(never)]
#[unsafe(no_mangle)]
pub(super) extern "C" fn op_behind_panic(goroutine: u64, here: u64, index: u32) -> u32 {
    let Some(plan) = MARKER_PLANS.get_ptr(index) else {
        return op::NOTE;
    };
    // SAFETY: points into the map; an entry in use is not changed.
    let plan = unsafe { &(*plan).park };
    let word = |offset: u32| {
        let at = goroutine.wrapping_add(u64::from(offset));
        // SAFETY: the helper checks the address.
        unsafe { bpf_probe_read_user(at as *const u64) }
    };
    let (Ok(sp), Ok(pc), Ok(bp)) = (
        word(plan.pc.wrapping_sub(SP_TO_PC)),
        word(plan.pc),
        word(plan.bp),
    ) else {
        return op::NOTE;
    };
    let mut stack = Stack {
        walk: Walk::new(plan, here, [sp, pc, bp]),
        plan,
    };
    if stack.walk.goes_on() {
        // SAFETY: the callback has the signature that the helper calls, and the context outlives it.
        unsafe {
            bpf_loop(MAX_STACK, step as *mut c_void, (&raw mut stack).cast(), 0);
        }
    }
    if stack.walk.has_left() {
        op::END
    } else {
        op::NOTE
    }
}

/// One frame. Returns 1 to stop.
extern "C" fn step(_round: u32, stack: *mut Stack) -> u64 {
    // SAFETY: the context of `op_behind_panic`; the plan points into the map.
    let (walk, plan) = unsafe { (&mut (*stack).walk, &*(*stack).plan) };
    // SAFETY: the helper checks the address.
    match unsafe { bpf_probe_read_user(walk.bp as *const [u64; 2]) } {
        Ok(frame) => u64::from(!walk.step(plan, frame)),
        Err(_) => 1,
    }
}
