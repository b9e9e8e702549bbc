//! What is kept of each interval.

use std::net::SocketAddr;

use reqtrace_common::record::{STACK_LOST, STACK_NONE, StackId};
use reqtrace_recording::{AddressSpace, BlockSite, Holder, RequestOf, WakerIs, WokenFrom};

use super::{Cause, Reason};

/// A thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ThreadId {
    /// Its process.
    pub(crate) tgid: u32,
    /// The thread.
    pub(crate) tid: u32,
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// It is not known.
    Nobody(Reason),
    /// An interrupt, of this kind.
    Interrupt(Cause),
    /// A thread, which was doing this.
    Thread(ThreadId, WakerIs),
}

/// An interval. Hundreds of thousands are kept, so what only parked and queued requests have is apart.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) thread: ThreadId,
    pub(crate) sequence: u32,
    pub(crate) request: Option<RequestOf>,
    /// The wait class of a block, where it is known.
    pub(crate) class: Option<u16>,
    pub(crate) place: Place,
    /// The futex that it waited on; 0 for other waits.
    pub(crate) futex: u64,
    pub(crate) holder: Holder,
    pub(crate) out_ns: u64,
    /// When it was woken; of a preemption `out_ns`.
    pub(crate) wake_ns: u64,
    pub(crate) in_ns: u64,
    /// `None` for a preemption.
    pub(crate) by: Option<By>,
    /// Where the thread was that ended it.
    pub(crate) woken_from: Option<WokenFrom>,
    /// No thread ran the request: `thread` is the one that had, and there is no place.
    pub(crate) away: Option<Away>,
    /// How that came to an end; of intervals of a thread nothing.
    pub(crate) went_on: Option<Box<WentOn>>,
    /// Whether intervals between the one before and this were lost.
    pub(super) after_gap: bool,
}

/// What a request waited for while no thread ran it. Its class stands behind those of the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Away {
    /// An event.
    Parked,
    /// A thread; as of a preemption there is nobody who ended it.
    Queued,
}

/// How a request went on that no thread ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WentOn {
    /// Whether a parked request was made ready, and where.
    pub(crate) ready: Ready,
    /// What a parked request went on with.
    pub(crate) source: Source,
    /// The thread that went on with a queued request.
    pub(crate) resumed_by: Option<ThreadId>,
}

impl WentOn {
    /// Nothing is known.
    pub(crate) const NOT_KNOWN: Self = Self {
        ready: Ready::No,
        source: Source::NotKnown(Reason::SourceNotKnown),
        resumed_by: None,
    };
}

/// How a parked request came to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// A thread went on with it.
    No,
    /// A thread made it ready.
    Yes,
    /// The same, in the code of a task, and not in the runtime's own.
    ByTask,
    /// A runtime made it ready, for a socket or another file.
    ByDriver,
}

/// What a request went on with that was parked, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// It is not known.
    NotKnown(Reason),
    /// Data that came to a socket.
    Data {
        /// When it was sent, `CLOCK_MONOTONIC` ns: not after it came.
        sent_ns: u64,
        /// When it came.
        arrived_ns: u64,
        /// Who sent it.
        sender: Sender,
    },
}

/// Who sent data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// A thread, which was doing this.
    Thread(ThreadId, WakerIs),
    /// Another machine.
    Peer(SocketAddr),
}

impl Kept {
    /// How a request went on that no thread ran.
    pub(crate) fn went_on(&self) -> WentOn {
        self.went_on
            .as_deref()
            .copied()
            .unwrap_or(WentOn::NOT_KNOWN)
    }

    /// Nanoseconds blocked, preempted or parked.
    pub(crate) fn off_ns(&self) -> u64 {
        match self.by {
            Some(_) => self.wake_ns - self.out_ns,
            None if self.away.is_some() => 0,
            None => self.in_ns - self.out_ns,
        }
    }

    /// A stack of this interval; a lost one when its names were of another period.
    pub(crate) fn stack(&self, id: StackId, period: u32) -> StackId {
        match id {
            STACK_NONE => STACK_NONE,
            _ if self.place.period != period => STACK_LOST,
            id => id,
        }
    }

    /// Nanoseconds on the run queue, or queued.
    pub(crate) fn run_queue_ns(&self) -> u64 {
        match self.by {
            Some(_) => self.in_ns - self.wake_ns,
            None if self.away.is_some() => self.in_ns - self.out_ns,
            None => 0,
        }
    }
}

/// Where a thread left its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) space: AddressSpace,
    pub(crate) site: BlockSite,
    /// Ids of stacks mean something until they are sent again: how often they had been.
    pub(crate) period: u32,
}
