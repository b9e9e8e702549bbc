//! What a split takes and gives: a request in; pieces of its time, each with its root cause and its culprit, and the waits between,
//! out.

use std::net::SocketAddr;

use reqtrace_recording::{RequestOf, WakerIs};

use super::kept::{Kept, ThreadId};
use super::waited::Taker;
use super::{Cause, Reason};
use crate::report::Ledger;
use crate::report::blame::{CulpritKind, TakerKind};

/// A request whose blocked and parked time is to be split.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Victim<'a> {
    pub(crate) id: u64,
    pub(crate) thread: ThreadId,
    pub(crate) of: RequestOf,
    pub(crate) start_unix_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) label: &'a [u8],
    pub(crate) ledger: &'a Ledger,
    pub(crate) weight: u32,
    /// Only complete requests are added up, as in the rest of the report.
    pub(crate) is_complete: bool,
}

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

/// A part of a wait for a CPU, of the request itself or of somebody whom it waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken<'a> {
    /// [`Cause::RunQueue`] or [`Cause::Preempted`].
    pub(crate) cause: Cause,
    pub(crate) taker: Taker<'a>,
    pub(crate) kind: TakerKind,
    pub(crate) cpu: u32,
    pub(crate) from_ns: u64,
    pub(crate) ns: u64,
    /// 0: the request itself waited; then it is no part of its pieces.
    pub(crate) depth: u8,
}

/// A part of a queued time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Behind {
    pub(crate) with: With,
    pub(crate) ns: u64,
}

impl Behind {
    pub(super) const fn of(with: With, from_ns: u64, until_ns: u64) -> Self {
        Self {
            with,
            ns: until_ns.saturating_sub(from_ns),
        }
    }
}

/// What the thread ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum With {
    /// A request of the type of this index.
    Request(u32),
    /// No request.
    NoRequest,
    /// It slept in no request, until it was woken.
    Asleep,
    /// It waited for a CPU, in no request.
    NoCpu,
    NotKnown,
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
