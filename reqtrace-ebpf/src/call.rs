//! Calls of watched functions: an entry or a return in, a record of it out, which tells which other calls
//! it is inside of.
//!
//! Runs in the watched thread, which alone writes its own entry of the map.

use core::ffi::c_void;

use aya_ebpf::bindings::{BPF_ANY, BPF_RB_NO_WAKEUP, pt_regs};
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::bpf_probe_read_user;
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, LruHashMap, RingBuf};
use reqtrace_common::call::{CallRecord, MAX_DEPTH, RETURNS, RunningCall, RunningCalls};

use crate::assembly::add;

/// By thread. Room for one unless calls are noted: then the loader asks for
/// [`reqtrace_common::limits::MAX_CALLERS`], and for more of the ring too.
#[map]
static RUNNING_CALLS: LruHashMap<u32, RunningCalls> = LruHashMap::with_max_entries(1, 0);

/// [`CallRecord`]s, in the order of the calls.
#[map]
static CALLS: RingBuf = RingBuf::with_byte_size(4096, 0);

/// Calls that found no room in one of the maps above.
#[map]
static UNNOTED: Array<u64> = Array::with_max_entries(1, 0);

/// Notes an entry of this function, where the probe is at its first instruction, or its return, where
/// it is at a `ret`.
#[inline(always)]
pub(crate) fn note(regs: *mut pt_regs, function: u32) {
    let ids = bpf_get_current_pid_tgid();
    let tid = ids as u32;
    let Some(running) = of_thread(tid) else {
        return lose();
    };
    // SAFETY: the context of a uprobe is the thread's registers. They are read one by one: the verifier knows
    // no pointer that is computed from the context.
    let (frame, result, arguments) = unsafe {
        (
            (&raw const (*regs).rsp).read_volatile(),
            (&raw const (*regs).rax).read_volatile(),
            [
                (&raw const (*regs).rdi).read_volatile(),
                (&raw const (*regs).rsi).read_volatile(),
                (&raw const (*regs).rdx).read_volatile(),
                (&raw const (*regs).rcx).read_volatile(),
            ],
        )
    };
    let is_return = function & RETURNS != 0;
    let (depth, is_known) = outside(running, frame);
    // SAFETY: `running` points into the map, and the index is below its length.
    let values = unsafe {
        if is_return {
            if !is_known {
                // Its entry was not seen, or it was called in place of a function's return.
                return;
            }
            (*running).used = depth as u64;
            [result, 0, 0, 0]
        } else {
            if depth < MAX_DEPTH {
                (*running).calls[depth & (MAX_DEPTH - 1)] = RunningCall {
                    frame,
                    return_address: return_address(frame),
                };
                (*running).used = depth as u64 + 1;
            }
            arguments
        }
    };
    let Some(mut entry) = CALLS.reserve::<CallRecord>(0) else {
        return lose();
    };
    entry.write(CallRecord {
        tgid: (ids >> 32) as u32,
        tid,
        function,
        depth: depth as u32,
        values,
    });
    entry.submit(u64::from(BPF_RB_NO_WAKEUP));
}

#[inline(always)]
fn of_thread(tid: u32) -> Option<*mut RunningCalls> {
    if let Some(running) = RUNNING_CALLS.get_ptr_mut(tid) {
        return Some(running);
    }
    let none = RunningCalls {
        used: 0,
        calls: [RunningCall {
            frame: 0,
            return_address: 0,
        }; MAX_DEPTH],
    };
    RUNNING_CALLS.insert(tid, none, u64::from(BPF_ANY)).ok()?;
    RUNNING_CALLS.get_ptr_mut(tid)
}

/// How many of the calls are outside of one with this frame: they lie above on the stack, and their return
/// addresses still stand there. And whether the next one is the call with this frame.
#[inline(always)]
fn outside(running: *const RunningCalls, frame: u64) -> (usize, bool) {
    // SAFETY: points into the map.
    let used = unsafe { (*running).used } as usize;
    let mut depth = 0;
    while depth < MAX_DEPTH && depth < used {
        // SAFETY: as above; the index is below the length.
        let outer = unsafe { (*running).calls[depth & (MAX_DEPTH - 1)] };
        if outer.frame <= frame {
            return (depth, outer.frame == frame);
        }
        if outer.return_address == 0 || return_address(outer.frame) != outer.return_address {
            return (depth, false);
        }
        depth += 1;
    }
    (depth, false)
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
