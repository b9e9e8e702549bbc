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

use core::mem::offset_of;

pub use request::{Begin, BeginAction, EndAction, RequestState, status};
pub use state::{Closed, Fault, Interval, ThreadState, is_preemption, phase};
pub use units::Units;

/// Bytes of a cache line.
const LINE: usize = 64;
/// Where a value begins in an entry of the kernel's hash tables, behind its links, its hash and the key (`struct htab_elem`, the
/// same from 5.18 to 6.18). Entries lie one behind the other, the first at the begin of a line.
const VALUE: usize = 56;
/// Where the fields of a request begin that every begin and end touches.
const HOT: usize = offset_of!(RequestState, begin_sp) - 2 * size_of::<u32>();

/// Words up to the next line from an offset in an entry on.
const fn words_left(offset: usize) -> usize {
    (LINE - offset % LINE) % LINE / 8
}

const BEFORE: usize = words_left(VALUE + size_of::<ThreadState>() + HOT);
const BEHIND: usize =
    words_left(VALUE + size_of::<ThreadState>() + 8 * BEFORE + size_of::<RequestState>());

/// A thread and the request that it serves: an entry of the kernel's table of threads. What every event touches lies in few
/// cache lines: see `docs/internals.md`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// The thread.
    pub state: ThreadState,
    before: [u64; BEFORE],
    /// Its request.
    pub request: RequestState,
    behind: [u64; BEHIND],
}

const _: () = {
    let hot = VALUE + offset_of!(Thread, request) + HOT;
    assert!(hot.is_multiple_of(LINE) && (VALUE + size_of::<Thread>()).is_multiple_of(LINE));
    assert!(offset_of!(RequestState, keyed.is_keyed) == HOT);
};

impl Thread {
    /// A thread in no request; the template for a new entry.
    pub const ZERO: Self = Self {
        state: ThreadState::ZERO,
        before: [0; BEFORE],
        request: RequestState::ZERO,
        behind: [0; BEHIND],
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
