//! What a split gives: pieces of a request's time, each with its root cause and its culprit, and the waits between.

use std::net::SocketAddr;

use reqtrace_recording::WakerIs;

use super::kept::{Kept, ThreadId};
use super::{Behind, Cause, Reason, Taken};
use crate::report::blame::CulpritKind;

/// A part of a request's blocked or parked time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Wait class of the request's block, or where it was parked, where it is known.
    pub(crate) class: Option<u16>,
    pub(crate) outcome: Outcome,
    pub(crate) ns: u64,
    /// When it began, `CLOCK_MONOTONIC` ns; 0 when no interval tells.
    pub(crate) from_ns: u64,
    /// The wait in which it lies: an index into [`Parts::waits`].
    pub(crate) wait: Option<u32>,
}

/// A block of the request, or a time in which it was parked, or a block of a thread that held it up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait<'a> {
    /// The wait whose end this one held up; `None` for one of the request itself.
    pub(crate) within: Option<u32>,
    /// Who waits.
    pub(crate) whose: Culprit,
    pub(crate) kept: &'a Kept,
    /// The part of it that held somebody up: its begin, `CLOCK_MONOTONIC` ns, and its length.
    pub(crate) from_ns: u64,
    pub(crate) ns: u64,
}

/// A request's blocked and parked time by what it ended in, and the chains of waits in between.
#[derive(Debug, Default)]
pub(crate) struct Parts<'a> {
    pub(crate) pieces: Vec<Piece>,
    /// Each behind the one that it lies in.
    pub(crate) waits: Vec<Wait<'a>>,
    /// Who had the CPU while the request itself, or whoever held it up, waited for one.
    pub(crate) taken: Vec<Taken<'a>>,
    /// What threads did while the request was queued that then went on with it.
    pub(crate) behind: Vec<Behind>,
}

/// What a part of blocked or parked time ended in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Outcome {
    pub(crate) cause: Cause,
    /// Why the cause is unknown, if it is.
    pub(crate) reason: Option<Reason>,
    pub(crate) culprit: Culprit,
    /// How many threads stand between: 0 for what ended the block itself.
    pub(crate) depth: u8,
}

/// Whose time it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Culprit {
    /// An interrupt ended the request's own block.
    OwnInterrupt,
    /// The request itself: who held it up had waited for it.
    Itself,
    /// Another request, of this thread.
    Request(ThreadId, u32, u64),
    /// A thread in no request.
    Thread(ThreadId),
    /// Another machine.
    Peer(SocketAddr),
    /// Not known.
    Unknown,
}

impl Culprit {
    /// A thread that did this.
    pub(super) fn of(thread: ThreadId, is: WakerIs) -> Self {
        match is {
            WakerIs::InRequest(of) => Self::Request(thread, of.request_type, of.begin_ns),
            WakerIs::BetweenRequests | WakerIs::Helper(_) => Self::Thread(thread),
            WakerIs::NotRecorded | WakerIs::Unknown => Self::Unknown,
        }
    }

    /// What it is, in words of files.
    pub(crate) fn kind(self) -> CulpritKind {
        match self {
            Self::OwnInterrupt => CulpritKind::Interrupt,
            Self::Itself => CulpritKind::Itself,
            Self::Request(..) => CulpritKind::Request,
            Self::Thread(_) => CulpritKind::Thread,
            Self::Peer(_) => CulpritKind::Peer,
            Self::Unknown => CulpritKind::Unknown,
        }
    }
}
