//! First arguments of watched functions: a call in; in maps, where its argument was before, out.
//!
//! Runs in the watched thread, and can be preempted at any instruction. Two threads that have one
//! argument at the same moment may both come from the one before: what is counted then is still that the
//! argument was with both.

use core::ffi::c_void;

use aya_ebpf::bindings::{BPF_ANY, BPF_NOEXIST, pt_regs};
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::bpf_probe_read_user;
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap};
use reqtrace_common::argument::{
    ArgumentId, ArgumentState, Caller, FunctionCalls, Steps, is_pointer, pair,
};
use reqtrace_common::limits::MAX_WATCHED;

use crate::assembly::{add, set_bits};

/// By argument. Room for one unless arguments are watched: then the loader asks for
/// [`reqtrace_common::limits::MAX_ARGUMENTS`], and for more of the others too.
#[map]
static ARGUMENTS: HashMap<ArgumentId, ArgumentState> = HashMap::with_max_entries(1, 0);

/// The argument that a function had last on a thread.
#[map]
static LAST_ARGUMENTS: HashMap<Caller, u64> = HashMap::with_max_entries(1, 0);

/// By function.
#[map]
static FUNCTION_CALLS: Array<FunctionCalls> = Array::with_max_entries(1, 0);

/// By [`pair`].
#[map]
static STEPS: Array<Steps> = Array::with_max_entries(1, 0);

/// Calls that found no room in one of the maps above.
#[map]
static UNNOTED: Array<u64> = Array::with_max_entries(1, 0);

/// Notes the first argument of a call of this function. The probe is at its first instruction.
#[inline(always)]
pub(crate) fn note(regs: *mut pt_regs, function: u32) {
    let function = function & (MAX_WATCHED - 1);
    // SAFETY: the context of a uprobe is the thread's registers.
    let (value, frame) = unsafe { ((*regs).rdi, (*regs).rsp) };
    if !is_pointer(value) {
        return;
    }
    let Some(calls) = FUNCTION_CALLS.get_ptr_mut(function) else {
        return;
    };
    // SAFETY: points into the map.
    unsafe { add(&raw mut (*calls).pointers, 1) };
    let ids = bpf_get_current_pid_tgid();
    let caller = Caller {
        tid: ids as u32,
        function,
    };
    let id = ArgumentId {
        tgid: (ids >> 32) as u32,
        pad: 0,
        value,
    };
    match ARGUMENTS.get_ptr_mut(id) {
        Some(state) => come_back(state, value, caller, frame),
        None => come_first(&id, caller, frame, calls),
    }
    if let Some(last) = LAST_ARGUMENTS.get_ptr_mut(caller) {
        // SAFETY: points into the map; only this thread writes there.
        unsafe { last.write_volatile(value) }
    } else if LAST_ARGUMENTS
        .insert(caller, value, u64::from(BPF_ANY))
        .is_err()
    {
        lose();
    }
}

/// No watched function had this argument before.
#[inline(always)]
fn come_first(id: &ArgumentId, caller: Caller, frame: u64, calls: *mut FunctionCalls) {
    let state = ArgumentState {
        last: caller.encode(),
        functions: 1 << caller.function,
        calls: 1,
        frame,
        return_address: return_address(frame),
    };
    if ARGUMENTS.insert(id, state, u64::from(BPF_NOEXIST)).is_ok() {
        // SAFETY: points into the map.
        unsafe { add(&raw mut (*calls).first, 1) };
        return;
    }
    // Another thread may have been faster.
    match ARGUMENTS.get_ptr_mut(id) {
        Some(state) => come_back(state, id.value, caller, frame),
        None => lose(),
    }
}

/// It was at a function before: how did it get here?
#[inline(always)]
fn come_back(state: *mut ArgumentState, value: u64, caller: Caller, frame: u64) {
    // SAFETY: points into the map.
    let before = Caller::decode(unsafe { (&raw const (*state).last).read_volatile() });
    // SAFETY: as above.
    unsafe {
        set_bits(&raw mut (*state).functions, 1 << caller.function);
        add(&raw mut (*state).calls, 1);
    }
    let Some(steps) = STEPS.get_ptr_mut(pair(before.function, caller.function)) else {
        return;
    };
    // SAFETY: points into the map.
    let counter = unsafe {
        if before.tid != caller.tid {
            &raw mut (*steps).moves
        } else if has_turned(before, value) {
            &raw mut (*steps).turns
        } else if runs_inside(state, frame) {
            // The outer function is still the one that has it.
            add(&raw mut (*steps).inside, 1);
            return;
        } else {
            &raw mut (*steps).direct
        }
    };
    // SAFETY: points into the map.
    unsafe {
        add(counter, 1);
        (&raw mut (*state).last).write_volatile(caller.encode());
        (&raw mut (*state).frame).write_volatile(frame);
        (&raw mut (*state).return_address).write_volatile(return_address(frame));
    }
}

/// Whether the function before has had another argument on this thread since.
#[inline(always)]
fn has_turned(before: Caller, value: u64) -> bool {
    match LAST_ARGUMENTS.get_ptr(before) {
        // SAFETY: points into the map.
        Some(last) => unsafe { *last != value },
        None => false,
    }
}

/// Whether the outermost call with the argument still runs: it lies above on the stack, and its return address
/// is still there.
#[inline(always)]
fn runs_inside(state: *mut ArgumentState, frame: u64) -> bool {
    // SAFETY: points into the map.
    let (outer, expected) = unsafe {
        (
            (&raw const (*state).frame).read_volatile(),
            (&raw const (*state).return_address).read_volatile(),
        )
    };
    frame < outer && expected != 0 && return_address(outer) == expected
}

/// What stands at this place of the stack; 0 when it cannot be read.
#[inline(always)]
fn return_address(frame: u64) -> u64 {
    let mut address = 0_u64;
    // SAFETY: the helper checks where it reads, and writes eight bytes.
    unsafe {
        bpf_probe_read_user((&raw mut address).cast(), 8, frame as *const c_void);
    }
    address
}

#[inline(always)]
fn lose() {
    if let Some(unnoted) = UNNOTED.get_ptr_mut(0) {
        // SAFETY: points into the map.
        unsafe { add(unnoted, 1) }
    }
}
