//! The state machine of one traced thread.
//!
//! In: begin and end markers, switch-out, waking and switch-in of one thread. Out: a finished
//! [`RequestRecord`], and for each closed block what to add to the sums per stack pair.
//!
//! Who calls: `begin`/`end` from the thread itself; `switch_out` on its CPU; `switch_in` on the
//! CPU that takes it; `waking` on any CPU, at any moment. Only `wake_ns` and the waker are written
//! by `waking`, and only read by `switch_in`, which the scheduler orders after the wakeup.

mod intervals;

use crate::cookie::{Frame, Reentry};
use crate::limits::SAME_STACK_WINDOW;
use crate::record::{BlockSite, FILE_NONE, RequestRecord, kind, reason};

pub use intervals::{Closed, Interval, is_preemption};

/// Where the thread is, as far as its request is concerned.
pub mod phase {
    /// In no request.
    pub const IDLE: u32 = 0;
    /// In a request, on a CPU.
    pub const ON_CPU: u32 = 1;
    /// In a request, switched out because it waits.
    pub const BLOCKED: u32 = 2;
    /// In a request, switched out while runnable.
    pub const PREEMPTED: u32 = 3;
    /// The request's function was left without its end being seen; not closed yet.
    pub const ABANDONED: u32 = 4;
}

/// State of one thread: what is needed to go on, and its request as far as it has come. The fields
/// that every event touches stand together.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThreadState {
    /// Where the open block is; meaningful in [`phase::BLOCKED`] and [`phase::PREEMPTED`].
    pub open_site: BlockSite,
    /// When it was switched out.
    pub out_ns: u64,
    /// When it was last woken, 0 if never.
    pub wake_ns: u64,
    /// Who woke it then; 0 when not known.
    pub waker_tid: u32,
    /// Process of the waker; 0 when not known.
    pub waker_tgid: u32,
    /// Stack pointer at begin (the address of the return address), 0 when begin and end share no
    /// frame.
    pub begin_sp: u64,
    /// The return address that stood there, 0 when not known (a uretprobe replaces it).
    pub begin_return: u64,
    /// One of [`phase`].
    pub phase: u32,
    /// Begins minus ends in the open request.
    pub depth: u32,
    /// Number of switch-outs seen in requests: end reads it around its clock.
    pub switches: u32,
    /// The task's state at the last switch-out, flags included; 0 when it was preempted.
    pub out_state: u32,
    /// [`crate::config::Process::inherited`] of the process, as it was at begin.
    pub inherited: u64,
    /// Where a search among the slots or the longest blocks ended; means nothing between events.
    pub found: u32,
    /// The slot with the least time, of the same search.
    pub least: u32,
    /// The request so far. Sums are up to date whenever the thread is on a CPU.
    pub record: RequestRecord,
}

/// A begin marker that was hit.
#[derive(Clone, Copy, Debug)]
pub struct Begin {
    /// Clock, `CLOCK_MONOTONIC` ns.
    pub now: u64,
    /// Index of the request type.
    pub request_type: u32,
    /// How to take it inside a request.
    pub reentry: Reentry,
    /// Stack pointer if the end shares the frame, otherwise 0.
    pub sp: u64,
    /// The return address at that stack pointer, 0 when it is not known.
    pub return_address: u64,
    /// How many requests the one that opens stands for; 0: it is not recorded.
    pub weight: u32,
}

/// What a begin asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeginAction {
    /// Open a request.
    Open,
    /// Close the open one as incomplete (`no end`), emit it, then open.
    CloseThenOpen,
    /// It was counted as nested; nothing else to do.
    Nested,
    /// It is ignored inside its own request.
    Ignored,
    /// Another type's request is open: leave out and count.
    OtherType,
}

/// What an end asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndAction {
    /// Close and emit the request.
    Close,
    /// An inner one ended.
    Inner,
    /// No request of this type is open.
    NoRequest,
}

impl ThreadState {
    /// A thread in no request; the template for a new entry.
    pub const ZERO: Self = Self {
        open_site: BlockSite {
            kernel_stack: 0,
            user_stack: 0,
            syscall: 0,
            file: FILE_NONE,
        },
        out_ns: 0,
        wake_ns: 0,
        waker_tid: 0,
        waker_tgid: 0,
        begin_sp: 0,
        begin_return: 0,
        phase: phase::IDLE,
        depth: 0,
        switches: 0,
        out_state: 0,
        inherited: 0,
        found: 0,
        least: 0,
        record: RequestRecord::ZERO,
    };

    /// Whether a request is open, abandoned ones not counted.
    #[must_use]
    #[inline]
    pub const fn in_request(&self) -> bool {
        matches!(
            self.phase,
            phase::ON_CPU | phase::BLOCKED | phase::PREEMPTED
        )
    }

    /// Whether the thread is off its CPU as far as is known. Where it does something itself (it
    /// leaves a CPU, it ends a request), its switch-in went unseen: Linux 6.18 with patches that
    /// keep some processes' switches from tracepoints was seen to do that to whoever came next.
    #[must_use]
    #[inline]
    pub const fn is_off_cpu(&self) -> bool {
        matches!(self.phase, phase::BLOCKED | phase::PREEMPTED)
    }

    /// Decides about a begin. Counts the nesting depth; changes nothing else.
    #[inline]
    pub fn on_begin(&mut self, begin: &Begin) -> BeginAction {
        match self.phase {
            phase::IDLE => return BeginAction::Open,
            phase::ABANDONED => return BeginAction::CloseThenOpen,
            _ => {}
        }
        let same_type = self.record.request_type == begin.request_type;
        // The stack grows down: a begin at or above the open request's frame means that the
        // frame is gone, however it was left.
        let frame_gone = self.is_at_or_above_frame(begin.sp);
        match begin.reentry {
            _ if !same_type => {
                // Another function's entry below the same caller has the same stack pointer.
                if frame_gone {
                    BeginAction::CloseThenOpen
                } else {
                    BeginAction::OtherType
                }
            }
            Reentry::Restart => BeginAction::CloseThenOpen,
            Reentry::Ignore => BeginAction::Ignored,
            Reentry::Nest if frame_gone => BeginAction::CloseThenOpen,
            Reentry::Nest => {
                self.depth = self.depth.wrapping_add(1);
                if self.depth > self.record.max_depth {
                    self.record.max_depth = self.depth;
                }
                BeginAction::Nested
            }
        }
    }

    /// Opens a request. The caller has closed any other, and publishes "in request" afterwards.
    #[inline]
    pub fn open(&mut self, begin: &Begin, tgid: u32, tid: u32, exec_generation: u32) {
        let record = &mut self.record;
        record.kind = kind::REQUEST;
        record.request_type = begin.request_type;
        record.tgid = tgid;
        record.tid = tid;
        record.exec_generation = exec_generation;
        record.reason = reason::COMPLETE;
        record.begin_ns = begin.now;
        record.end_ns = 0;
        record.run_queue_ns = 0;
        record.preempted_ns = 0;
        record.blocked_ns = 0;
        record.unattributed_ns = 0;
        record.blocks = 0;
        record.preemptions = 0;
        record.slots_used = 0;
        record.longest_used = 0;
        record.label_len = 0;
        record.max_depth = 1;
        record.weight = begin.weight;
        self.begin_sp = begin.sp;
        self.begin_return = begin.return_address;
        self.depth = 1;
        self.phase = phase::ON_CPU;
    }

    /// Opens a request that is not recorded. Its end and what begins inside it are recognised as
    /// always; nothing is timed.
    #[inline]
    pub fn open_unsampled(&mut self, begin: &Begin) {
        self.record.request_type = begin.request_type;
        self.record.max_depth = 1;
        self.record.weight = 0;
        self.begin_sp = begin.sp;
        self.begin_return = 0;
        self.depth = 1;
        self.phase = phase::ON_CPU;
    }

    /// Whether the open or last request is recorded.
    #[must_use]
    #[inline]
    pub const fn is_sampled(&self) -> bool {
        self.record.weight != 0
    }

    /// Decides about an end. `sp` is the stack pointer at the probe, already brought to where the
    /// return address stands or stood; it is compared when `frame` says so.
    #[inline]
    pub fn on_end(&mut self, request_type: u32, frame: Frame, sp: u64) -> EndAction {
        if !self.in_request() || self.record.request_type != request_type {
            return EndAction::NoRequest;
        }
        let tied = !matches!(frame, Frame::Unrelated) && self.begin_sp != 0;
        if tied {
            if sp == self.begin_sp {
                return EndAction::Close;
            }
            self.depth = if self.depth > 1 { self.depth - 1 } else { 1 };
            return EndAction::Inner;
        }
        if self.depth > 1 {
            self.depth -= 1;
            return EndAction::Inner;
        }
        EndAction::Close
    }

    /// Closes the request. The caller emits the record.
    #[inline]
    pub fn close(&mut self, now: u64, why: u32) {
        if self.phase != phase::ABANDONED {
            self.record.end_ns = now;
        }
        self.record.reason = why;
        self.phase = phase::IDLE;
        self.depth = 0;
        self.begin_sp = 0;
    }

    /// Whether the request's function has been left without its end being seen, judged at a
    /// switch-out: the stack pointer is above its frame, or the place of its return address holds
    /// something else (the caller has called another function since). `slot` is what stands there
    /// now, `None` when it could not be read.
    ///
    /// An end probe runs with the stack pointer at the frame, behind a uretprobe 8 bytes above
    /// it: neither is gone.
    #[must_use]
    #[inline]
    pub const fn frame_is_gone(&self, user_sp: u64, slot: Option<u64>) -> bool {
        if self.begin_sp == 0 {
            return false;
        }
        if let Some(value) = slot
            && self.begin_return != 0
            && value != self.begin_return
        {
            return true;
        }
        user_sp > self.begin_sp + 8 && self.is_at_or_above_frame(user_sp)
    }

    /// Whether a stack pointer is at or above the request's frame on the same stack. Anything
    /// outside [`SAME_STACK_WINDOW`] is another stack and proves nothing.
    #[inline]
    const fn is_at_or_above_frame(&self, sp: u64) -> bool {
        self.begin_sp != 0 && sp >= self.begin_sp && sp - self.begin_sp < SAME_STACK_WINDOW
    }

    /// The request's frame is gone and its end was not seen: it ends here as far as is known.
    #[inline]
    pub fn abandon(&mut self, now: u64) {
        self.record.end_ns = now;
        self.phase = phase::ABANDONED;
    }
}

#[cfg(test)]
mod tests;
