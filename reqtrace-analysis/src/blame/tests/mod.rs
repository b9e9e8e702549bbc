//! The split, by its rules one by one, and against a slow oracle.

mod events;
mod keyed;
mod oracle;
mod reasons;
mod rules;
mod world;

use std::collections::BTreeMap;

use reqtrace_common::record::{STACK_NONE, StackId};
use reqtrace_recording::{
    AddressSpace, BlockSite, Holder, Incomplete, Request, RequestOf, WakerIs,
};

use super::{
    By, Cause, Culprit, Kept, MAX_DEPTH, MAX_PIECES, Outcome, Place, Ready, Reason, ThreadId,
    Timelines, Unseen, split,
};

/// The thread of this number, of process 1.
pub(super) const fn thread(tid: u32) -> ThreadId {
    ThreadId { tgid: 1, tid }
}

/// The request that began then, of type 0.
pub(super) const fn began(begin_ns: u64) -> RequestOf {
    RequestOf {
        begin_ns,
        request_type: 0,
    }
}

/// Events of threads, each recorded in one line.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) timelines: Timelines,
    /// The user stack of the intervals that come next.
    pub(super) stack: StackId,
    /// Their futex.
    pub(super) futex: u64,
    sequences: BTreeMap<u32, u32>,
}

impl Recorded {
    pub(super) fn new() -> Self {
        Self::of_at_most(64 << 20)
    }

    pub(super) fn of_at_most(most_bytes: usize) -> Self {
        Self::of(Timelines::new(
            most_bytes,
            vec![false, true],
            Unseen::default(),
        ))
    }

    /// Requests are drawn, but for those of threads that held others up.
    pub(super) fn with_holders() -> Self {
        Self::chosen(0)
    }

    /// The same, and records were chosen at the ends of requests: one in so many that were not slow.
    pub(super) fn chosen(one_in: u32) -> Self {
        let known = Unseen {
            is_known: true,
            one_in,
        };
        Self::of(Timelines::new(64 << 20, vec![false, true], known))
    }

    fn of(timelines: Timelines) -> Self {
        Self {
            timelines,
            stack: STACK_NONE,
            futex: 0,
            sequences: BTreeMap::new(),
        }
    }

    pub(super) fn lose(&mut self, tid: u32) {
        *self.sequences.entry(tid).or_default() += 1;
    }

    pub(super) fn interval(
        &mut self,
        tid: u32,
        request: Option<u64>,
        times: [u64; 3],
        by: Option<By>,
    ) -> &mut Self {
        self.interval_of(tid, request.map(began), times, by)
    }

    pub(super) fn interval_of(
        &mut self,
        tid: u32,
        request: Option<RequestOf>,
        times: [u64; 3],
        by: Option<By>,
    ) -> &mut Self {
        let sequence = self.sequences.entry(tid).or_default();
        self.timelines.interval(Kept {
            thread: thread(tid),
            sequence: *sequence,
            request,
            class: None,
            place: Place {
                space: AddressSpace::default(),
                site: BlockSite {
                    user_stack: self.stack,
                    ..BlockSite::PREEMPTED
                },
                period: 0,
            },
            futex: self.futex,
            holder: Holder::NoFutex,
            woken_from: None,
            away: None,
            went_on: None,
            out_ns: times[0],
            wake_ns: times[1],
            in_ns: times[2],
            by,
            after_gap: false,
        });
        *sequence += 1;
        self
    }

    pub(super) fn request(&mut self, tid: u32, begin_ns: u64, end_ns: u64) -> &mut Self {
        self.record(tid, begin_ns, end_ns, None, 1)
    }

    pub(super) fn record(
        &mut self,
        tid: u32,
        begin_ns: u64,
        end_ns: u64,
        incomplete: Option<Incomplete>,
        weight: u32,
    ) -> &mut Self {
        self.timelines.request(&Request {
            space: AddressSpace {
                tgid: 1,
                exec_generation: 0,
            },
            tid,
            begin_ns,
            end_ns,
            incomplete,
            weight,
            ..Request::default()
        });
        self
    }

    /// Nanoseconds of a request's blocked time by what they ended in.
    pub(super) fn blame(&self, tid: u32, begin_ns: u64, end_ns: u64) -> BTreeMap<Outcome, u64> {
        let mut sums = BTreeMap::new();
        let parts = split(&self.timelines, thread(tid), began(begin_ns), end_ns);
        for piece in parts.pieces {
            *sums.entry(piece.outcome).or_default() += piece.ns;
        }
        sums
    }
}

pub(super) fn by(tid: u32, is: WakerIs) -> Option<By> {
    Some(By::Thread(thread(tid), is))
}

pub(super) fn outcome(cause: Cause, culprit: Culprit, depth: u8) -> Outcome {
    Outcome {
        cause,
        reason: None,
        culprit,
        depth,
    }
}

pub(super) fn unknown(reason: Reason, depth: u8) -> Outcome {
    Outcome {
        cause: Cause::Unknown,
        reason: Some(reason),
        culprit: Culprit::Unknown,
        depth,
    }
}

pub(super) fn request_of(tid: u32, begin_ns: u64) -> Culprit {
    Culprit::Request(thread(tid), 0, begin_ns)
}
