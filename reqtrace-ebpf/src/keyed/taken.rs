//! Requests that another thread takes: the state of the thread that runs one in; a copy of it as it is at this moment
//! out.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_loop;
use reqtrace_common::thread::{Interval, phase, status};

use crate::assembly::barrier;
use crate::maps::{PARKED, THREADS, count_parked, parks};
use crate::request::bpf_now;

/// How often a copy is tried while the scheduler's programs change the thread. Each of their changes takes less than a
/// microsecond, but a thread that yields all the time has one in each, and an interrupt may fall into one.
const TRIES: u32 = 512;

/// What is to be copied, and by which ticket it is stored.
struct Copy {
    tid: u32,
    is_done: u32,
    /// The ticket by which the thread has it.
    of: u64,
    ticket: u64,
}

/// Stores what a thread runs by a ticket, as it is now; not if it is another request's by now.
///
/// A function with an external name: the verifier goes over it once, and not once for each way that leads there.
#[inline(never)]
#[unsafe(no_mangle)]
pub(super) extern "C" fn store_running(tid: u32, of: u64, ticket: u64) -> u32 {
    let mut copy = Copy {
        tid,
        is_done: 0,
        of,
        ticket,
    };
    count_parked(1);
    // SAFETY: the callback's context is the copy, which outlives the loop.
    unsafe {
        bpf_loop(
            TRIES,
            once as *mut c_void,
            (&raw mut copy).cast::<c_void>(),
            0,
        );
    }
    if copy.is_done == 0 {
        let _ = PARKED.remove(ticket);
        count_parked(u32::MAX);
    }
    copy.is_done
}

/// Tries it once; 1 ends the loop.
extern "C" fn once(_: u64, copy: *mut Copy) -> i64 {
    // SAFETY: what the kernel calls it with is the context of the loop.
    let copy = unsafe { &mut *copy };
    let Some(thread) = THREADS.get_ptr(copy.tid) else {
        return 1;
    };
    // SAFETY: points into the map. Other CPUs may change it, or give it to another thread: then its version or its
    // ticket is another one, or the word that is exchanged afterwards.
    unsafe {
        let version = &raw const (*thread).state.version;
        let before = version.read_volatile();
        barrier();
        let held = (&raw const (*thread).request.keyed.ticket).read_volatile();
        let is_open = (&raw const (*thread).request.status).read_volatile() == status::OPEN;
        if held != copy.of || !is_open {
            return 1;
        }
        // A clock that is read is a pause.
        let now = bpf_now();
        if before & 1 != 0 {
            return 0;
        }
        let was = (&raw const (*thread).state.phase).read_volatile();
        let out_ns = (&raw const (*thread).state.out_ns).read_volatile();
        let wake_ns = (&raw const (*thread).state.wake_ns).read_volatile();
        let has_extra = (&raw const (*thread).request.keyed.has_extra).read_volatile();
        barrier();
        let request = &(*thread).request;
        if PARKED.insert(copy.ticket, request, 0).is_err() {
            return 1;
        }
        barrier();
        if version.read_volatile() != before {
            return 0;
        }
        if let Some(stored) = PARKED.get_ptr_mut(copy.ticket) {
            if was != phase::ON_CPU {
                (*stored).add_unfinished(Interval::of(was, out_ns, wake_ns, now));
            }
            // What the thread has cleared while it was copied is that of the request before.
            (*stored).keyed.has_extra = has_extra;
            parks(&*stored);
        }
        copy.is_done = 1;
        1
    }
}
