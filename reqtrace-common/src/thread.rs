//! The state machines of one traced thread and of the request that it serves.
//!
//! In: begin and end markers, switch-out, waking and switch-in of one thread. Out: a finished
//! [`RequestRecord`], and for each closed block what to add to the sums per stack pair.
//!
//! The two are types of their own: [`ThreadState`] knows when its thread was off the CPU and who woke it,
//! and nothing of requests; [`RequestState`] knows its markers, its frame and its ledger, and nothing of
//! scheduling. [`Thread`] is the pair as it lies in the kernel's table.
//!
//! Who calls: `begin`/`end` from the thread itself; `switch_out` on its CPU; `switch_in` on the
//! CPU that takes it; `waking` on any CPU, at any moment. Only `wake_ns` and the waker are written
//! by `waking`, and only read by `switch_in`, which the scheduler orders after the wakeup.

mod request;
mod state;
mod units;

pub use request::{Begin, BeginAction, EndAction, RequestState, status};
pub use state::{Closed, Fault, Interval, ThreadState, is_preemption, phase};
pub use units::Units;

/// A thread and the request that it serves: an entry of the kernel's table of threads. The fields that
/// every event touches stand together.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// The thread.
    pub state: ThreadState,
    /// Its request.
    pub request: RequestState,
}

impl Thread {
    /// A thread in no request; the template for a new entry.
    pub const ZERO: Self = Self {
        state: ThreadState::ZERO,
        request: RequestState::ZERO,
    };

    /// Opens a request. The caller has closed any other, and publishes "in request" afterwards.
    #[inline]
    pub fn open(&mut self, begin: &Begin) {
        self.name_record();
        self.request.open(begin);
        self.state.phase = phase::ON_CPU;
    }

    /// Opens a request that is not recorded. Its end and what begins inside it are recognised as
    /// always; nothing is timed.
    #[inline]
    pub fn open_unsampled(&mut self, begin: &Begin) {
        self.request.open_unsampled(begin);
        self.state.phase = phase::ON_CPU;
    }

    /// Makes the record one of this thread.
    #[inline]
    pub fn name_record(&mut self) {
        self.request.name(&self.state);
    }

    /// The thread gets a CPU: closes the open interval, if there is one, and adds it to the request.
    /// Returns it with the nanoseconds that found no slot in the request because all were taken.
    #[inline]
    pub fn switch_in(&mut self, now: u64) -> Option<(Closed, u64)> {
        let closed = self.state.switch_in(now)?;
        let no_slot_ns = self.request.add(&closed, self.state.waking_thread());
        Some((closed, no_slot_ns))
    }

    /// Another thread has the request now.
    #[inline]
    pub fn forget(&mut self) {
        self.request.forget();
        self.state.phase = phase::ON_CPU;
    }

    /// Closes the request. The caller emits the record.
    #[inline]
    pub fn close(&mut self, now: u64, why: u32) {
        self.request.close(now, why);
        self.state.phase = phase::ON_CPU;
    }
}

#[cfg(test)]
mod tests;
