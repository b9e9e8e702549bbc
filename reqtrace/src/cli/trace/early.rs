//! A signal before the probes are in: nothing was traced, and that is said.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether signals end a trace with a report by now.
static TRACING: AtomicBool = AtomicBool::new(false);

const MESSAGE: &[u8] = b"reqtrace: interrupted before anything was traced\n";

/// From now on SIGINT and SIGTERM say that nothing was traced, and end the program with exit code 1.
/// The kernel takes out what was attached by then.
pub(super) fn watch() {
    let handler: extern "C" fn(libc::c_int) = say_and_end;
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler only calls functions that are safe in a signal handler.
        unsafe {
            libc::signal(signal, handler as libc::sighandler_t);
        }
    }
}

/// Signals have handlers that end the trace with a report; those call this module's too.
pub(super) fn is_over() {
    TRACING.store(true, Ordering::Release);
}

extern "C" fn say_and_end(_signal: libc::c_int) {
    if TRACING.load(Ordering::Acquire) {
        return;
    }
    // SAFETY: both are safe in a signal handler; the message is as long as its length says.
    unsafe {
        libc::write(libc::STDERR_FILENO, MESSAGE.as_ptr().cast(), MESSAGE.len());
        libc::_exit(1);
    }
}
