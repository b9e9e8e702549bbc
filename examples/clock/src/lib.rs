//! The clock that the kernel programs of reqtrace use too, and the number of a thread: what the
//! example services log, so that a trace can be held against it.

use std::sync::atomic::{Ordering, compiler_fence};

/// `CLOCK_MONOTONIC` in nanoseconds.
///
/// Never inlined and fenced on both sides, so that no work moves across a reading: the tests
/// compare reqtrace's latencies with these readings to the nanosecond.
#[must_use]
#[inline(never)]
pub fn now_ns() -> u64 {
    compiler_fence(Ordering::SeqCst);
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a timespec that the call may write; CLOCK_MONOTONIC always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    compiler_fence(Ordering::SeqCst);
    // Neither part of CLOCK_MONOTONIC is ever negative.
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// The kernel's number of the calling thread.
#[must_use]
pub fn thread_id() -> i32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::gettid() }
}
