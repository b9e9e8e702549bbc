//! Requests that are not recorded, as far as is needed to recognise their ends: begins and ends in, counts out. No table
//! with hashed keys is looked up, no clock is read, and of the thread's state nothing is touched.
//!
//! A thread's byte says that its request is here ([`tid_flag::PASSED`]). Whatever is more than one begin and its end (a begin inside,
//! a marker with a key, the thread's exit) moves the request into the thread's state first: see [`unpack`].
//!
//! [`tid_flag::PASSED`]: reqtrace_common::config::tid_flag::PASSED

use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use reqtrace_common::config::tid_flag as flag;
use reqtrace_common::cookie::{Frame, Reentry};
use reqtrace_common::loss::Loss;
use reqtrace_common::passed::{PLACES, Passed, place};
use reqtrace_common::thread::{Begin, EndAction, Thread};

use crate::assembly::compare_exchange;
use crate::maps::{THREADS, lose, random_by_kernel, set_tid_flag};

/// One place for each thread that fits; see [`place`].
#[map]
static PASSED: Array<Passed> = Array::with_max_entries(PLACES, 0);

/// Opens a request that is not recorded, of the current thread, which is in none. `false` if another thread has its place: then
/// it is opened in the thread's state.
#[inline(always)]
pub(crate) fn open(tid: u32, request_type: u32, sp: u64) -> bool {
    let Some(passed) = PASSED.get_ptr_mut(place(tid)) else {
        return false;
    };
    let word = Passed::word(tid, request_type);
    // SAFETY: points into the map. Only the thread that has the place writes to it, and another one only if it is free.
    unsafe {
        let owner = &raw mut (*passed).owner;
        let found = owner.read_volatile();
        if found != word {
            if Passed::is_of(found, tid) {
                owner.write_volatile(word);
            } else if found != 0 || compare_exchange(owner, 0, word) != 0 {
                return false;
            } else {
                let seed = u64::from(random_by_kernel()) << 32 | u64::from(random_by_kernel());
                (&raw mut (*passed).random).write_volatile(seed);
            }
        }
        (&raw mut (*passed).begin_sp).write_volatile(sp);
    }
    true
}

/// A random number for the current thread.
#[inline(always)]
pub(crate) fn random(tid: u32) -> u32 {
    if let Some(passed) = PASSED.get_ptr_mut(place(tid)) {
        // SAFETY: as in `open`.
        unsafe {
            if Passed::is_of((&raw const (*passed).owner).read_volatile(), tid) {
                let state = &raw mut (*passed).random;
                let (next, number) = Passed::draw(state.read_volatile());
                state.write_volatile(next);
                return number;
            }
        }
    }
    random_by_kernel()
}

/// What an end of the current thread's request means.
#[inline(always)]
pub(crate) fn on_end(tid: u32, request_type: u32, frame: Frame, sp: u64) -> EndAction {
    let Some(passed) = of(tid) else {
        return EndAction::NoRequest;
    };
    passed.on_end(request_type, frame, sp)
}

/// The place of a thread whose byte says that its request is there.
#[inline(always)]
fn of(tid: u32) -> Option<Passed> {
    // Copied at once; only this thread writes to its place.
    let passed = PASSED.get(place(tid)).copied();
    let passed = passed.filter(|passed| Passed::is_of(passed.owner, tid));
    if passed.is_none() {
        lose(Loss::ThreadMissing);
    }
    passed
}

/// Moves the current thread's request into its state.
#[inline(always)]
pub(crate) fn unpack(tid: u32) {
    if let (Some(passed), Some(thread)) = (of(tid), THREADS.get_ptr_mut(tid)) {
        // SAFETY: the current thread's own entry.
        let thread: &mut Thread = unsafe { &mut *thread };
        thread.open_unsampled(&Begin {
            now: 0,
            request_type: passed.request_type(),
            reentry: Reentry::Nest,
            sp: passed.begin_sp,
            return_address: 0,
            weight: 0,
        });
        set_tid_flag(tid, flag::UNSAMPLED);
    } else {
        set_tid_flag(tid, flag::KNOWN);
    }
}

/// A thread leaves, or one with its number had left unseen: its place is free.
#[inline(always)]
pub(crate) fn free(tid: u32) {
    if let Some(passed) = PASSED.get_ptr_mut(place(tid)) {
        // SAFETY: points into the map; the place of a thread that does not run.
        unsafe {
            let owner = &raw mut (*passed).owner;
            if Passed::is_of(owner.read_volatile(), tid) {
                owner.write_volatile(0);
            }
        }
    }
}
