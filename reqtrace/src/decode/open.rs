//! Requests that were open when tracing stopped: the state of a thread in, a request closed at the
//! stop time out.

use reqtrace_common::record::reason;
use reqtrace_common::thread::{ThreadState, phase};

use super::RawRequest;

impl RawRequest {
    /// The open request of a thread, closed as incomplete; `None` when it is in none.
    ///
    /// A block that is still open is counted up to the stop time: as blocked until the wakeup, if
    /// there was one, and as run queue time from there.
    #[must_use]
    pub fn open_at_stop(state: &ThreadState, stop_ns: u64) -> Option<Self> {
        let mut state = *state;
        let (why, blocked_in) = match state.phase {
            phase::ON_CPU | phase::PREEMPTED => (reason::RUNNING_AT_STOP, None),
            phase::BLOCKED if state.wake_ns > state.out_ns => (reason::RUNNING_AT_STOP, None),
            phase::BLOCKED => {
                state.wake_ns = stop_ns;
                (
                    reason::BLOCKED_AT_STOP,
                    Some((state.open_site, state.out_ns)),
                )
            }
            phase::ABANDONED => (reason::NO_END, None),
            _ => return None,
        };
        // An abandoned request has closed its last block.
        let _ = state.switch_in(stop_ns);
        state.close(stop_ns, why);
        let mut request = Self::from_record(&state.record);
        request.blocked_in = blocked_in;
        Some(request)
    }
}
