//! Signals: before the probes are in, nothing was traced, and that is printed; later they end the trace with a
//! report, and who has sent one is known.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use crate::live;
use reqtrace_capture::tracer::Stopper;

/// What signals stop, as soon as there is something.
static STOPPER: OnceLock<Stopper> = OnceLock::new();
/// The last signal that a process has sent, not a terminal; 0: none.
static SENT: AtomicI32 = AtomicI32::new(0);
/// How many signals have come that end a trace.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// When the first one came, ns of `CLOCK_MONOTONIC`.
static FIRST_NS: AtomicU64 = AtomicU64::new(0);
/// Another one so soon is the same: `timeout` sends its signal to the program and to its group, each with one of its own.
const SAME_NS: u64 = 300_000_000;

const MESSAGE: &[u8] = b"reqtrace: interrupted before anything was traced\n";
const AGAIN: &[u8] = b"reqtrace: ended by a second signal; there is no report\n";
const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// From now on SIGINT, SIGTERM and SIGHUP say that nothing was traced, and end the program with exit code
/// 1. The kernel takes out what was attached by then. SIGHUP stays ignored where it was, as by nohup.
///
/// A terminal that is another job's stops nobody: a stopped tracer would leave its probes in place.
pub(super) fn watch() {
    for signal in [libc::SIGTTIN, libc::SIGTTOU] {
        // SAFETY: to ignore a signal is a valid disposition.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = note;
    for signal in SIGNALS {
        if signal == libc::SIGHUP && is_ignored(signal) {
            continue;
        }
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

/// Whether a signal has come that ends the trace, although it may not be acted upon yet.
pub(super) fn has_come() -> bool {
    COUNT.load(Ordering::Acquire) > 0
}

/// Whether a signal is ignored.
fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: all zeros is a valid sigaction, and a valid place for the present one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// From now on these signals end the program at once.
pub(super) fn default_actions() {
    for signal in SIGNALS {
        // SAFETY: the default action is a valid disposition, and no handler of ours is lost that is
        // still wanted.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
}

/// The signal that ended the trace, if a process has sent it to this one; `None` when it came from
/// the terminal, which sends it to all programs of the command line.
pub(super) fn sent_by_a_process() -> Option<libc::c_int> {
    Some(SENT.load(Ordering::Acquire)).filter(|signal| *signal != 0)
}

/// Safe in a signal handler.
fn now_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid clock, and a valid place for its time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

extern "C" fn note(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid one, or none.
    let by_a_process = unsafe { info.as_ref() }.is_some_and(|info| info.si_code <= 0);
    if by_a_process {
        SENT.store(signal, Ordering::Release);
    }
    let now_ns = now_ns();
    let before = FIRST_NS.compare_exchange(0, now_ns, Ordering::AcqRel, Ordering::Acquire);
    let first_ns = before.err().unwrap_or(now_ns);
    let message = match (COUNT.fetch_add(1, Ordering::AcqRel), STOPPER.get()) {
        (0, Some(stopper)) => return stopper.stop(),
        (_, Some(_)) if now_ns.saturating_sub(first_ns) < SAME_NS => return,
        // Whatever the program is doing: reading what a process has written, writing to a pipe that
        // nobody reads. The kernel takes the probes out by itself.
        (_, Some(_)) => AGAIN,
        (_, None) => MESSAGE,
    };
    live::terminal::restore();
    // SAFETY: both are safe in a signal handler; the message is as long as its length says. A terminal
    // that is stopped may keep the message waiting, and the program with it: nothing is printed then.
    unsafe {
        let mut terminal = libc::pollfd {
            fd: libc::STDERR_FILENO,
            events: libc::POLLOUT,
            revents: 0,
        };
        if libc::poll(&raw mut terminal, 1, 0) == 1 {
            libc::write(libc::STDERR_FILENO, message.as_ptr().cast(), message.len());
        }
        libc::_exit(if signal == libc::SIGHUP { 129 } else { 1 });
    }
}
