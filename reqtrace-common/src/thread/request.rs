//! A request: markers that were hit and closed off-CPU intervals of its thread in; what the markers mean, and
//! the request's ledger, slots and longest blocks, out.

use super::state::{Closed, Interval, ThreadState};
use crate::cookie::{Frame, Reentry};
use crate::keyed::KeyedState;
use crate::limits::{MAX_LONGEST, MAX_SLOTS, SAME_STACK_WINDOW};
use crate::record::{BlockSite, LongBlock, RequestRecord, STACK_LOST, Slot, kind, reason};

/// How far a request has come.
pub mod status {
    /// There is none.
    pub const NONE: u32 = 0;
    /// It has begun.
    pub const OPEN: u32 = 1;
    /// Its function was left without its end being seen; not closed yet.
    pub const ABANDONED: u32 = 2;
}

/// A request: what is needed to recognise its end, and its record as far as it has come.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RequestState {
    /// What it has in addition if its type has a key or attributes.
    pub keyed: KeyedState,
    /// Stack pointer at begin (the address of the return address), 0 when begin and end share no
    /// frame.
    pub begin_sp: u64,
    /// The return address that stood there, 0 when not known (a uretprobe replaces it).
    pub begin_return: u64,
    /// One of [`status`].
    pub status: u32,
    /// Begins minus ends in the open request.
    pub depth: u32,
    /// The request so far. Sums are up to date whenever its thread is on a CPU.
    pub record: RequestRecord,
    /// Where a search among the slots or the longest blocks ended; means nothing between events.
    pub found: u32,
    /// The slot with the least time, of the same search.
    pub least: u32,
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

impl RequestState {
    /// No request.
    pub const ZERO: Self = Self {
        begin_sp: 0,
        begin_return: 0,
        status: status::NONE,
        depth: 0,
        found: 0,
        least: 0,
        record: RequestRecord::ZERO,
        keyed: KeyedState::NONE,
    };

    /// Whether a request is open, abandoned ones not counted.
    #[must_use]
    #[inline]
    pub const fn is_open(&self) -> bool {
        self.status == status::OPEN
    }

    /// Decides about a begin. Counts the nesting depth; changes nothing else.
    #[inline]
    pub fn on_begin(&mut self, begin: &Begin) -> BeginAction {
        match self.status {
            status::NONE => return BeginAction::Open,
            status::ABANDONED => return BeginAction::CloseThenOpen,
            _ if self.keyed.is_taken() => return BeginAction::Open,
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

    /// As [`super::Thread::open`], once the record has its thread.
    #[inline]
    pub fn open(&mut self, begin: &Begin) {
        let record = &mut self.record;
        record.request_type = begin.request_type;
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
        self.keyed.is_keyed = 0;
        self.begin_sp = begin.sp;
        self.begin_return = begin.return_address;
        self.depth = 1;
        self.status = status::OPEN;
    }

    /// As [`super::Thread::open_unsampled`].
    #[inline]
    pub(super) fn open_unsampled(&mut self, begin: &Begin) {
        self.record.request_type = begin.request_type;
        self.record.begin_ns = begin.now;
        self.record.max_depth = 1;
        self.record.weight = 0;
        self.keyed.is_keyed = 0;
        self.keyed.has_extra = 0;
        self.begin_sp = begin.sp;
        self.begin_return = 0;
        self.depth = 1;
        self.status = status::OPEN;
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
        if !self.is_open() || self.record.request_type != request_type {
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

    /// As [`super::Thread::close`].
    #[inline]
    pub fn close(&mut self, now: u64, why: u32) {
        if self.status != status::ABANDONED {
            self.record.end_ns = now;
        }
        self.record.reason = why;
        self.status = status::NONE;
        self.depth = 0;
        self.begin_sp = 0;
    }

    /// Makes the record one of this thread.
    #[inline]
    pub fn name(&mut self, thread: &ThreadState) {
        let record = &mut self.record;
        record.kind = kind::REQUEST;
        record.tgid = thread.tgid;
        record.tid = thread.tid;
        record.exec_generation = thread.exec_generation;
    }

    /// As [`super::Thread::forget`].
    #[inline]
    pub fn forget(&mut self) {
        self.status = status::NONE;
        self.keyed.is_keyed = 0;
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
        self.status = status::ABANDONED;
    }

    /// Adds an interval that its thread is off the CPU and that has no end yet, without its place.
    #[inline]
    pub fn add_unfinished(&mut self, interval: Interval) {
        let record = &mut self.record;
        match interval {
            Interval::Preempted { preempted_ns } => {
                record.preempted_ns += preempted_ns;
                record.preemptions = record.preemptions.wrapping_add(1);
            }
            Interval::Block {
                blocked_ns,
                run_queue_ns,
            } => {
                record.blocks = record.blocks.wrapping_add(1);
                record.run_queue_ns += run_queue_ns;
                record.unattributed_ns += blocked_ns;
            }
        }
    }

    /// Adds an interval that its thread was off the CPU, and who woke it, if somebody did. Returns the nanoseconds that found no slot.
    #[inline]
    pub(super) fn add(&mut self, closed: &Closed, (waker_tid, waker_tgid): (u32, u32)) -> u64 {
        match closed.interval {
            Interval::Preempted { preempted_ns } => {
                self.record.preempted_ns += preempted_ns;
                self.record.preemptions = self.record.preemptions.wrapping_add(1);
                0
            }
            Interval::Block {
                blocked_ns,
                run_queue_ns,
            } => {
                self.record.blocks = self.record.blocks.wrapping_add(1);
                self.record.run_queue_ns += run_queue_ns;
                self.keep_longest(&LongBlock {
                    site: closed.site,
                    start_ns: closed.start_ns,
                    blocked_ns,
                    run_queue_ns,
                    waker_tid: if closed.woken { waker_tid } else { 0 },
                    waker_tgid: if closed.woken { waker_tgid } else { 0 },
                });
                self.attribute(closed.site, blocked_ns)
            }
        }
    }

    /// Adds blocked time to its slot. When all are taken the least gives way to a greater: a
    /// request that blocks shortly in many places and then long in one keeps the one that matters.
    /// Returns what has no slot.
    #[inline]
    fn attribute(&mut self, site: BlockSite, blocked_ns: u64) -> u64 {
        if blocked_ns == 0 {
            return 0;
        }
        if site.kernel_stack == STACK_LOST {
            self.record.unattributed_ns += blocked_ns;
            return 0;
        }
        let (index, least) = self.find_slot(&site);
        let record = &mut self.record;
        if index < MAX_SLOTS {
            let slot = &mut record.slots[index];
            if index >= record.slots_used as usize {
                *slot = Slot { site, blocked_ns };
                record.slots_used = index as u32 + 1;
            } else {
                slot.blocked_ns += blocked_ns;
            }
            record.blocked_ns += blocked_ns;
            return 0;
        }
        if least < MAX_SLOTS && blocked_ns > record.slots[least].blocked_ns {
            let least_ns = record.slots[least].blocked_ns;
            record.slots[least] = Slot { site, blocked_ns };
            record.blocked_ns = record.blocked_ns - least_ns + blocked_ns;
            record.unattributed_ns += least_ns;
            return least_ns;
        }
        record.unattributed_ns += blocked_ns;
        blocked_ns
    }

    /// The slot of a site, or the first free one, or [`MAX_SLOTS`]; and the slot with the least time.
    #[inline]
    fn find_slot(&mut self, site: &BlockSite) -> (usize, usize) {
        let record = &self.record;
        let mut least_ns = u64::MAX;
        let mut index = 0;
        self.found = MAX_SLOTS as u32;
        self.least = 0;
        while index < MAX_SLOTS {
            let slot = &record.slots[index];
            if index >= record.slots_used as usize || same_site(&slot.site, site) {
                self.found = index as u32;
                break;
            }
            if slot.blocked_ns < least_ns {
                least_ns = slot.blocked_ns;
                self.least = index as u32;
            }
            index += 1;
        }
        (reread(&self.found), reread(&self.least))
    }

    /// Keeps the block if it is one of the longest so far.
    #[inline]
    fn keep_longest(&mut self, block: &LongBlock) {
        let record = &mut self.record;
        let length = block.blocked_ns + block.run_queue_ns;
        let mut shortest_ns = u64::MAX;
        let mut index = 0;
        self.found = 0;
        while index < MAX_LONGEST {
            if index >= record.longest_used as usize {
                self.found = index as u32;
                record.longest_used = index as u32 + 1;
                shortest_ns = 0;
                break;
            }
            let kept = &record.longest[index];
            let kept_ns = kept.blocked_ns + kept.run_queue_ns;
            if kept_ns < shortest_ns {
                shortest_ns = kept_ns;
                self.found = index as u32;
            }
            index += 1;
        }
        let shortest = reread(&self.found);
        if length >= shortest_ns && shortest < MAX_LONGEST {
            record.longest[shortest] = *block;
        }
    }
}

/// Reads an index back from memory. The kernel's verifier follows every value that a register can
/// have, so each way out of a search would be verified to the end of the program; a value read from
/// a map is one unknown number to it.
#[inline]
fn reread(index: &u32) -> usize {
    // SAFETY: the reference is valid.
    unsafe { core::ptr::read_volatile(index) as usize }
}

#[inline]
const fn same_site(a: &BlockSite, b: &BlockSite) -> bool {
    a.kernel_stack == b.kernel_stack
        && a.user_stack == b.user_stack
        && a.syscall == b.syscall
        && a.file == b.file
}
