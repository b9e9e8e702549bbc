//! The queue of a runtime: the time that a request was queued, and the thread that then went on with it, in; what that
//! thread ran meanwhile, and sums of that, out.
//!
//! Had the thread had nothing else to do, it would have gone on with the request at once. What other threads of the
//! runtime did is not asked: each of them had something to do as well, or was about to take the request when this one did.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use super::Parts;
use super::kept::Kept;
use super::of_thread::Known;
use super::recent;
use super::timeline::Timelines;
use crate::report::blame::{Busy, QueuedBehind};

/// Requests that are looked at in one queued time; the rest of it is not known.
const MAX_STEPS: usize = 1 << 10;

/// A part of a queued time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Behind {
    pub(crate) with: With,
    pub(crate) ns: u64,
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

/// What the thread that went on with a queued request did while that was queued.
pub(super) fn behind(timelines: &Timelines, kept: &Kept, into: &mut Vec<Behind>) {
    let (from_ns, until_ns) = (kept.out_ns, kept.in_ns);
    let mut push = |with: With, from_ns: u64, until_ns: u64| {
        let ns = until_ns.saturating_sub(from_ns);
        if ns > 0 {
            into.push(Behind { with, ns });
        }
    };
    let Some(timeline) = kept.resumed_by.and_then(|thread| timelines.get(thread)) else {
        return push(With::NotKnown, from_ns, until_ns);
    };
    let watched = match (timeline.helper_since, timeline.keyed_from) {
        (Some(one), Some(other)) => one.min(other),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => u64::MAX,
    };
    let known_ns = watched.max(timeline.forgotten_ns).clamp(from_ns, until_ns);
    push(With::NotKnown, from_ns, known_ns);
    let mut at_ns = known_ns;
    let mut outside = |from_ns: u64, until_ns: u64| {
        let mut at_ns = from_ns;
        let intervals = &timeline.intervals;
        let first = recent::partition_point(intervals, |kept| kept.in_ns <= from_ns);
        for slept in intervals.range(first..) {
            if slept.out_ns >= until_ns {
                break;
            }
            let before = match slept.after_gap || timelines.is_sampled {
                true => With::NotKnown,
                false => With::NoRequest,
            };
            push(before, at_ns, slept.out_ns);
            let woken_ns = slept.wake_ns.clamp(at_ns, until_ns);
            push(With::Asleep, slept.out_ns.max(at_ns), woken_ns);
            at_ns = slept.in_ns.clamp(woken_ns, until_ns);
            push(With::NoCpu, slept.out_ns.max(woken_ns), at_ns);
        }
        let rest = match timelines.is_sampled {
            true => With::NotKnown,
            false => With::NoRequest,
        };
        push(rest, at_ns, until_ns);
    };
    let mut requests = Vec::new();
    let spans = &timeline.spans;
    let first = recent::partition_point(spans, |span| span.until_ns <= at_ns);
    for (step, span) in spans.range(first..).enumerate() {
        if span.from_ns >= until_ns {
            break;
        }
        if step == MAX_STEPS {
            requests.push((With::NotKnown, at_ns, until_ns));
            at_ns = until_ns;
            break;
        }
        outside(at_ns, span.from_ns.max(at_ns));
        let with = match span.known {
            Known::RanAtStart => With::NotKnown,
            _ => With::Request(span.of.request_type),
        };
        let end_ns = span.until_ns.clamp(at_ns, until_ns);
        requests.push((with, span.from_ns.max(at_ns), end_ns));
        at_ns = end_ns;
    }
    outside(at_ns, until_ns);
    for (with, from_ns, until_ns) in requests {
        push(with, from_ns, until_ns);
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    ns: u64,
    requests: u64,
    longest_ns: u64,
}

/// Queued times of the requests of one type.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue(FxHashMap<With, Sum>);

impl Queue {
    /// Adds what one request, which stands for so many, was queued.
    pub(super) fn add(&mut self, parts: &Parts<'_>, weight: u64) {
        for (at, behind) in parts.behind.iter().enumerate() {
            let sum = self.0.entry(behind.with).or_default();
            sum.ns += behind.ns * weight;
            sum.longest_ns = sum.longest_ns.max(behind.ns);
            let before = &parts.behind[..at];
            if before.iter().all(|earlier| earlier.with != behind.with) {
                sum.requests += weight;
            }
        }
    }

    /// The most time first. `name`: of a request type.
    pub(super) fn report(&self, name: impl Fn(u32) -> String) -> Vec<QueuedBehind> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|(with, sum)| (Reverse(sum.ns), **with));
        let all = all.into_iter().map(|(with, sum)| QueuedBehind {
            with: match *with {
                With::Request(index) => Busy::Request(name(index)),
                With::NoRequest => Busy::NoRequest,
                With::Asleep => Busy::Asleep,
                With::NoCpu => Busy::NoCpu,
                With::NotKnown => Busy::NotKnown,
            },
            ns: sum.ns,
            requests: sum.requests,
            longest_ns: sum.longest_ns,
        });
        all.collect()
    }
}
