//! Which units of a runtime each thread runs: a thread in; its [`Units`], out. Most hits of a runtime's markers are of units
//! that are no request, and look at these only: they lie in one cache line, and in no table with hashed keys.
//!
//! Only the thread itself writes to its place, until it leaves; then it is free, and another one may take it.

use aya_ebpf::bindings::BPF_F_MMAPABLE;
use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use reqtrace_common::marker::marker_flag;
use reqtrace_common::passed::place;
use reqtrace_common::thread::Units;

use crate::assembly::compare_exchange;
use crate::maps::THREADS;
use crate::request;

/// One place for each thread that fits; sized by user space before loading, when there are keys. Nobody maps it: but an array
/// that can be mapped begins with a page, and so each place with a cache line.
#[map]
static UNITS: Array<Units> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// Those of the current thread: in its place, or in its state if another thread has that.
#[inline(always)]
pub(crate) fn of(tid: u32) -> Option<*mut Units> {
    let place = UNITS.get_ptr_mut(place(tid));
    if let Some(units) = place
        // SAFETY: points into the map.
        && unsafe { (*units).owner() } == tid
    {
        return Some(units);
    }
    let thread = THREADS.get_ptr_mut(tid)?;
    // SAFETY: the current thread's own entry.
    let state = unsafe { &raw mut (*thread).state.units };
    // It does not move while it runs any.
    if let Some(units) = place
        // SAFETY: as above.
        && unsafe { (*state).is_none() }
        && take(units, tid)
    {
        // SAFETY: as above; the place is the current thread's now.
        unsafe { (*units).set_job((*state).job()) }
        return Some(units);
    }
    Some(state)
}

/// The current thread comes to a marker with these bits of [`marker_flag`] and this place, with the key of a unit that is no
/// request.
#[inline(always)]
pub(crate) fn meets_other(flags: u32, tid: u32, key: u64, place: u32) {
    let Some(units) = of(tid) else { return };
    // SAFETY: the current thread's own.
    let units = unsafe { &mut *units };
    if flags & marker_flag::ENTERS != 0 {
        units.enter_other(key, request::bpf_now);
    } else if flags & marker_flag::JOB != 0 {
        units.leave_job(key, place.wrapping_sub(1));
    } else {
        units.leave_other(key);
    }
}

/// The same with any key. Returns it, or the unit that the thread runs if the marker is of that; 0: none. A function with an
/// external name: the verifier goes over it once, and once over what its caller does next.
#[inline(never)]
#[unsafe(no_mangle)]
pub(crate) extern "C" fn unit_at_marker(flags: u32, tid: u32, key: u64, place: u32) -> u64 {
    let Some(units) = of(tid) else { return key };
    // SAFETY: the current thread's own.
    let units = unsafe { &mut *units };
    if flags & marker_flag::UNIT != 0 {
        units.begins(request::bpf_now);
        return units.current();
    }
    if flags & marker_flag::ENTERS != 0 {
        units.enter(key, request::bpf_now());
    } else if flags & marker_flag::JOB != 0 {
        units.leave_job(key, place.wrapping_sub(1));
    } else if flags & marker_flag::LEAVES != 0 {
        units.leave(key);
    }
    key
}

/// Makes a place the current thread's if it is free.
#[inline(always)]
fn take(units: *mut Units, tid: u32) -> bool {
    // SAFETY: points into the map. Depth and owner are eight bytes that are aligned to eight.
    unsafe {
        let word = units.cast::<u64>().add(Units::WORD);
        compare_exchange(word, 0, u64::from(tid) << 32) == 0
    }
}

/// A thread leaves, or one with its number had left unseen: its place is free.
#[inline(always)]
pub(crate) fn free(tid: u32) {
    let Some(units) = UNITS.get_ptr_mut(place(tid)) else {
        return;
    };
    // SAFETY: points into the map; nobody else writes to the place before it is free, and then this does no more. What else
    // is in it means nothing where there are no units.
    unsafe {
        if (*units).owner() == tid {
            (*units).forget();
            units.cast::<u64>().add(Units::WORD).write_volatile(0);
        }
    }
}
