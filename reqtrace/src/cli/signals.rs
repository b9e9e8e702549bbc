//! Signals: before the probes are in, that nothing was traced is said; later they end the trace with a
//! report, and who has sent one is known.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::tracer::Stopper;

/// What signals stop, as soon as there is something.
static STOPPER: OnceLock<Stopper> = OnceLock::new();
/// The last signal that a process has sent, not a terminal; 0: none.
static SENT: AtomicI32 = AtomicI32::new(0);

const MESSAGE: &[u8] = b"reqtrace: interrupted before anything was traced\n";
const SIGNALS: [libc::c_int; 2] = [libc::SIGINT, libc::SIGTERM];

/// From now on SIGINT and SIGTERM say that nothing was traced, and end the program with exit code 1.
/// The kernel takes out what was attached by then.
pub(super) fn watch() {
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = note;
    for signal in SIGNALS {
        // SAFETY: all zeros is a valid sigaction; the handler has the signature that SA_SIGINFO asks
        // for, and only calls functions that are safe in a signal handler.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// From now on they stop this.
pub(super) fn stop(stopper: Stopper) {
    // There is one trace in a run of this program.
    let _ = STOPPER.set(stopper);
}

/// A second Ctrl-C ends the program at once from now on.
pub(super) fn interrupt_at_once() {
    default_action(libc::SIGINT);
}

/// From now on SIGINT and SIGTERM end the program at once.
pub(super) fn default_actions() {
    SIGNALS.into_iter().for_each(default_action);
}

fn default_action(signal: libc::c_int) {
    // SAFETY: the default action is a valid disposition, and no handler of ours is lost that is still
    // wanted.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
    }
}

/// The signal that ended the trace, if a process has sent it to this one; `None` when it came from
/// the terminal, which sends it to all programs of the command line.
pub(super) fn sent_by_a_process() -> Option<libc::c_int> {
    Some(SENT.load(Ordering::Acquire)).filter(|signal| *signal != 0)
}

extern "C" fn note(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid one, or none.
    let by_a_process = unsafe { info.as_ref() }.is_some_and(|info| info.si_code <= 0);
    if by_a_process {
        SENT.store(signal, Ordering::Release);
    }
    if let Some(stopper) = STOPPER.get() {
        stopper.stop();
        return;
    }
    // SAFETY: both are safe in a signal handler; the message is as long as its length says.
    unsafe {
        libc::write(libc::STDERR_FILENO, MESSAGE.as_ptr().cast(), MESSAGE.len());
        libc::_exit(1);
    }
}
