//! Requests that another thread takes: the state of the thread that runs one in; a copy of it as it is at this moment
//! out.

use reqtrace_common::thread::{Interval, Thread, phase, status};

use crate::assembly::barrier;
use crate::maps::{PARKED, THREADS};
use crate::request::bpf_now;

/// Stores what a thread runs by a ticket, as it is now; not if it changes meanwhile.
#[inline(always)]
pub(super) fn store_running(tid: u32, of: u64, ticket: u64) -> bool {
    let Some(thread) = THREADS.get_ptr(tid) else {
        return false;
    };
    copy(thread, of, ticket)
}

#[inline(always)]
fn copy(thread: *const Thread, of: u64, ticket: u64) -> bool {
    // SAFETY: points into the map. Other CPUs may change it, or give it to another thread: then its version or its
    // ticket is another one, or the word that is exchanged afterwards.
    unsafe {
        let version = &raw const (*thread).state.version;
        let before = version.read_volatile();
        barrier();
        let held = (&raw const (*thread).request.keyed.ticket).read_volatile();
        let is_open = (&raw const (*thread).request.status).read_volatile() == status::OPEN;
        if before & 1 != 0 || held != of || !is_open {
            return false;
        }
        let now = bpf_now();
        let was = (&raw const (*thread).state.phase).read_volatile();
        let out_ns = (&raw const (*thread).state.out_ns).read_volatile();
        let wake_ns = (&raw const (*thread).state.wake_ns).read_volatile();
        let request = &(*thread).request;
        if PARKED.insert(ticket, request, 0).is_err() {
            return false;
        }
        barrier();
        if version.read_volatile() != before {
            let _ = PARKED.remove(ticket);
            return false;
        }
        if was == phase::ON_CPU {
            return true;
        }
        if let Some(stored) = PARKED.get_ptr_mut(ticket) {
            (*stored).add_unfinished(Interval::of(was, out_ns, wake_ns, now));
        }
        true
    }
}
