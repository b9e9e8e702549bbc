//! Units that requests make, and that are followed as requests of the type behind theirs: a marker and what its thread runs in;
//! whether such a unit begins, ends, and is recorded, out.
//!
//! Functions with external names: the verifier goes over each once, and not once for each way that leads there.

use reqtrace_common::marker::marker_flag;
use reqtrace_common::record::reason;
use reqtrace_common::thread::{Thread, status};

use super::external::{RUNNING, keyed_over, keyed_part};
use crate::maps::{THREADS, draw_weight, random_by_kernel};

/// Whether a marker of this type is not about children, or the thread runs a request that makes one, or a child of one. 0: neither.
#[inline(never)]
#[unsafe(no_mangle)]
pub(super) extern "C" fn may_begin(flags: u32, tid: u32, request_type: u32) -> u32 {
    if flags & marker_flag::OF_REQUEST == 0 {
        return 1;
    }
    let Some(thread) = THREADS.get_ptr(tid) else {
        return 0;
    };
    // SAFETY: the current thread's own entry.
    let thread = unsafe { &*thread };
    let parent = thread.request.keyed.id.request_type;
    u32::from(is_in_request(thread) && (parent == request_type || parent + 1 == request_type))
}

/// A request of this type begins in a unit: the unit is no other request's child from here on.
#[inline(never)]
#[unsafe(no_mangle)]
pub(super) extern "C" fn end(flags: u32, tid: u32, request_type: u32, key: u64) -> u32 {
    if flags & marker_flag::HAS_CHILDREN == 0 {
        return 0;
    }
    let Some(thread) = THREADS.get_ptr(tid) else {
        return 0;
    };
    // SAFETY: the current thread's own entry.
    let thread = unsafe { &*thread };
    let id = &thread.request.keyed.id;
    if is_in_request(thread) && id.request_type == request_type + 1 && id.key[0] == key {
        keyed_over(RUNNING);
        keyed_part(u64::from(reason::NO_END));
    }
    0
}

/// How many requests one stands for that begins at a marker with these flags: a child as many as who makes it.
#[inline(never)]
#[unsafe(no_mangle)]
pub(super) extern "C" fn weight(flags: u32, tid: u32) -> u32 {
    if flags & marker_flag::OF_REQUEST == 0 {
        return draw_weight(random_by_kernel);
    }
    // SAFETY: the current thread's own entry.
    THREADS
        .get_ptr(tid)
        .map_or(0, |thread| unsafe { (*thread).request.record.weight })
}

#[inline(always)]
fn is_in_request(thread: &Thread) -> bool {
    let request = &thread.request;
    request.status == status::OPEN && request.keyed.is_keyed != 0 && !request.keyed.is_taken()
}
