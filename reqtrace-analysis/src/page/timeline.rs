//! What happened in a request: its intervals and the split of its blocked time in, lanes of threads out.

use reqtrace_recording::RequestOf;
use rustc_hash::FxHashMap;

use crate::blame::{
    Away, By, Cause, Culprit, Kept, Naming, Parts, Piece, ThreadId, Timelines, Victim,
};
use crate::label::label_text;
use crate::report::page::{Did, EndedBy, Lane, Other, Segment, Timeline};

/// Threads, with that of the request.
const MAX_LANES: usize = 12;
/// Segments of the request, and as many of all others.
const MAX_SEGMENTS: usize = 200;

/// A timeline whose threads have no names yet.
pub(super) struct Unnamed {
    timeline: Timeline,
    lanes: Vec<ThreadId>,
    others: Vec<OtherKey>,
}

/// A request of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum OtherKey {
    In(ThreadId, RequestOf),
    /// The thread was in none at that time.
    Before(ThreadId, RequestOf),
}

/// What a thread other than the request's did.
struct Foreign<'a> {
    thread: ThreadId,
    from_ns: u64,
    ns: u64,
    did: Did,
    kept: Option<&'a Kept>,
    other: Option<OtherKey>,
}

/// A stack of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// Where the thread was blocked.
    Block,
    /// From where another thread ended that.
    Waker,
}

/// The timeline of a request. `stack` gives the number of a stack of a block, if it has a name.
pub(super) fn of(
    victim: &Victim<'_>,
    parts: &Parts<'_>,
    timelines: &Timelines,
    mut stack: impl FnMut(&Kept, Of) -> Option<u32>,
) -> Unnamed {
    let begin_ns = victim.of.begin_ns;
    let foreign = foreign(parts, timelines);
    let mut by_thread: FxHashMap<ThreadId, u64> = FxHashMap::default();
    for part in &foreign {
        *by_thread.entry(part.thread).or_default() += part.ns;
    }
    by_thread.remove(&victim.thread);
    let mut threads: Vec<(ThreadId, u64)> = by_thread.into_iter().collect();
    threads.sort_unstable_by_key(|(thread, ns)| (std::cmp::Reverse(*ns), *thread));
    let lanes_left_out = threads.len().saturating_sub(MAX_LANES - 1) as u64;
    threads.truncate(MAX_LANES - 1);
    let lanes: Vec<ThreadId> = std::iter::once(victim.thread)
        .chain(threads.iter().map(|(thread, _)| *thread))
        .collect();
    let lane = |thread: ThreadId| lanes.iter().position(|other| *other == thread);
    let ended_by = |by: By| match by {
        By::Nobody(reason) => EndedBy::Unknown(reason),
        By::Interrupt(cause) => EndedBy::Interrupt(cause),
        By::Thread(thread, _) => match lane(thread) {
            Some(lane) => EndedBy::Lane(lane as u32),
            None => EndedBy::Thread,
        },
    };

    let mut own = Vec::new();
    for kept in timelines.of_request(victim.thread, victim.of, victim.end_ns) {
        let mut push = |from_ns: u64, until_ns: u64, did: Did| {
            let (from_ns, until_ns) = (from_ns.max(begin_ns), until_ns.min(victim.end_ns));
            let is_block = matches!(did, Did::Blocked | Did::Parked);
            let has_class = is_block || did == Did::Queued;
            if until_ns > from_ns {
                own.push(Segment {
                    lane: 0,
                    from_ns: from_ns - begin_ns,
                    ns: until_ns - from_ns,
                    did,
                    stack: if is_block {
                        stack(kept, Of::Block)
                    } else {
                        None
                    },
                    woken_from: match kept.by {
                        Some(By::Thread(..)) if is_block => stack(kept, Of::Waker),
                        _ => None,
                    },
                    class: kept.class.map(u32::from).filter(|_| has_class),
                    ended_by: kept.by.filter(|_| is_block).map(ended_by),
                    other: None,
                });
            }
        };
        match (kept.away, kept.by) {
            (Some(Away::Parked), _) => push(kept.out_ns, kept.in_ns, Did::Parked),
            (Some(Away::Queued), _) => push(kept.out_ns, kept.in_ns, Did::Queued),
            (None, Some(_)) => {
                push(kept.out_ns, kept.wake_ns, Did::Blocked);
                push(kept.wake_ns, kept.in_ns, Did::RunQueue);
            }
            (None, None) => push(kept.out_ns, kept.in_ns, Did::Preempted),
        }
    }
    let off_ns: u64 = own.iter().map(|segment| segment.ns).sum();
    let ledger = victim.ledger;

    let mut others: Vec<OtherKey> = Vec::new();
    let mut of_others = Vec::new();
    for part in foreign {
        let Some(lane) = lane(part.thread).filter(|lane| *lane > 0) else {
            continue;
        };
        let other = part.other.map(|other| {
            let known = others.iter().position(|known| *known == other);
            known.unwrap_or_else(|| {
                others.push(other);
                others.len() - 1
            }) as u32
        });
        // A thread that ended the wait behind this window did not do so in it.
        let until_ns = part.from_ns + part.ns;
        let by = part.kept.and_then(|kept| match kept.by {
            Some(By::Thread(..)) if kept.wake_ns > until_ns => None,
            by => by,
        });
        of_others.push(Segment {
            lane: lane as u32,
            from_ns: part.from_ns.saturating_sub(begin_ns),
            ns: part.ns,
            did: part.did,
            stack: part.kept.and_then(|kept| stack(kept, Of::Block)),
            woken_from: match (part.kept, by) {
                (Some(kept), Some(By::Thread(..))) => stack(kept, Of::Waker),
                _ => None,
            },
            class: part.kept.and_then(|kept| kept.class).map(u32::from),
            ended_by: by.map(ended_by),
            other,
        });
    }
    let left_out = [longest(&mut own), longest(&mut of_others)];
    own.append(&mut of_others);
    own.sort_by_key(|segment| (segment.lane, segment.from_ns));
    Unnamed {
        timeline: Timeline {
            segments: own,
            left_out,
            lanes_left_out,
            missing_ns: (ledger.latency_ns - ledger.on_cpu_ns).saturating_sub(off_ns),
            ..Timeline::default()
        },
        lanes,
        others,
    }
}

/// What threads did that held a request up, each in the time in which it did.
fn foreign<'a>(parts: &Parts<'a>, timelines: &Timelines) -> Vec<Foreign<'a>> {
    let mut foreign = Vec::new();
    for wait in parts.waits.iter().filter(|wait| wait.within.is_some()) {
        if let Some((thread, other)) = doer(wait.whose, wait.from_ns, timelines) {
            foreign.push(Foreign {
                thread,
                from_ns: wait.from_ns,
                ns: wait.ns,
                did: Did::Blocked,
                kept: Some(wait.kept),
                other,
            });
        }
    }
    for piece in &parts.pieces {
        let Piece {
            outcome,
            ns,
            from_ns,
            ..
        } = *piece;
        let did = match outcome.cause {
            Cause::OnCpu => Did::OnCpu,
            Cause::RunQueue => Did::RunQueue,
            Cause::Preempted => Did::Preempted,
            Cause::BetweenRequests => Did::BetweenRequests,
            // They are how a wait ended.
            Cause::Disk
            | Cause::Timer
            | Cause::Network
            | Cause::OtherInterrupt
            | Cause::Unknown => continue,
        };
        if let Some((thread, other)) = doer(outcome.culprit, from_ns, timelines) {
            foreign.push(Foreign {
                thread,
                from_ns,
                ns,
                did,
                kept: None,
                other,
            });
        }
    }
    foreign
}

/// Who did something at that time, and in which request.
fn doer(
    culprit: Culprit,
    at_ns: u64,
    timelines: &Timelines,
) -> Option<(ThreadId, Option<OtherKey>)> {
    match culprit {
        Culprit::Request(thread, request, begin_ns) => {
            let of = RequestOf {
                begin_ns,
                request_type: request,
            };
            Some((thread, Some(OtherKey::In(thread, of))))
        }
        Culprit::Thread(thread) => {
            let before = timelines.request_before(thread, at_ns);
            let key = before.map(|of| OtherKey::Before(thread, of));
            Some((thread, key))
        }
        // What the request did itself while it waited is in its own lane.
        Culprit::OwnInterrupt | Culprit::Itself | Culprit::Peer(_) | Culprit::Unknown => None,
    }
}

/// Keeps the longest; how many were left out, and their nanoseconds.
fn longest(segments: &mut Vec<Segment>) -> (u64, u64) {
    if segments.len() <= MAX_SEGMENTS {
        return (0, 0);
    }
    segments.sort_by_key(|segment| (std::cmp::Reverse(segment.ns), segment.from_ns));
    let rest = segments.split_off(MAX_SEGMENTS);
    (
        rest.len() as u64,
        rest.iter().map(|segment| segment.ns).sum(),
    )
}

impl Unnamed {
    /// The same with names.
    pub(super) fn named(self, naming: &impl Naming, timelines: &Timelines) -> Timeline {
        let lanes = self.lanes.iter().map(|thread| Lane {
            pid: thread.tgid,
            tid: thread.tid,
            comm: naming.comm(*thread),
        });
        let others = self.others.iter().map(|other| match *other {
            OtherKey::In(thread, of) | OtherKey::Before(thread, of) => Other {
                id: timelines.request_id(thread, of),
                request: of.request_type,
                label: label_text(timelines.label(thread, of)),
                has_ended: matches!(other, OtherKey::Before(..)),
            },
        });
        Timeline {
            lanes: lanes.collect(),
            others: others.collect(),
            ..self.timeline
        }
    }
}
