//! The queue of a runtime: the time that a request was queued, and the thread that then went on with it, in; what that
//! thread ran meanwhile, and sums of that, out.
//!
//! Had the thread had nothing else to do, it might have gone on with the request at once. What other threads of the runtime
//! did is not looked at: which of them could have taken the request, only the runtime knows.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::kept::Kept;
use super::of_thread::{Known, Timeline};
use super::pieces::{Behind, Parts, With};
use super::timeline::Timelines;
use crate::report::blame::{Busy, QueuedBehind};

/// Steps over what one queued time was behind; the rest of it is not known.
const MAX_STEPS: usize = 1 << 10;

/// What the thread that went on with a queued request did while that was queued.
pub(super) fn behind(timelines: &Timelines, kept: &Kept, into: &mut Vec<Behind>) {
    let (from_ns, until_ns) = (kept.out_ns, kept.in_ns);
    let known = kept
        .went_on()
        .resumed_by
        .and_then(|thread| Some((thread, timelines.get(thread)?)));
    let Some((thread, timeline)) = known else {
        into.push(Behind::of(With::NotKnown, from_ns, until_ns));
        return;
    };
    let watched = [timeline.helper_since, timeline.keyed_from];
    let watched = watched.into_iter().flatten().min().unwrap_or(u64::MAX);
    let known_ns = watched.max(timeline.forgotten_ns).clamp(from_ns, until_ns);
    let mut walk = Walk {
        timeline,
        at_ns: known_ns,
        steps: 0,
        into,
    };
    walk.push(With::NotKnown, from_ns, known_ns);
    let spans = &timeline.spans;
    let first = spans.find(|span| span.until_ns <= known_ns);
    for span in spans.range(first..) {
        if span.from_ns >= until_ns || walk.is_too_long() {
            break;
        }
        // Of a request that it left before one that was not queued there may be no record yet.
        let is_proven = timelines.was_queued(thread, span.of, span.from_ns);
        walk.outside(span.from_ns, is_proven && !timelines.is_drawn);
        let with = match span.known {
            Known::RanAtStart => With::NotKnown,
            Known::Ran | Known::Ended | Known::Part => With::Request(span.of.request_type),
        };
        walk.to(with, span.until_ns.min(until_ns));
    }
    walk.outside(until_ns, !timelines.is_drawn);
    walk.to(With::NotKnown, until_ns);
}

/// Over what a thread did.
struct Walk<'a> {
    timeline: &'a Timeline,
    /// It has come to here.
    at_ns: u64,
    steps: usize,
    into: &'a mut Vec<Behind>,
}

impl Walk<'_> {
    fn is_too_long(&self) -> bool {
        self.steps >= MAX_STEPS
    }

    fn push(&mut self, with: With, from_ns: u64, until_ns: u64) {
        self.steps += 1;
        if until_ns > from_ns {
            self.into.push(Behind::of(with, from_ns, until_ns));
        }
    }

    fn to(&mut self, with: With, until_ns: u64) {
        self.push(with, self.at_ns, until_ns);
        self.at_ns = until_ns.max(self.at_ns);
    }

    /// A time in no request that is known of; `is_proven`: in none at all.
    fn outside(&mut self, until_ns: u64, is_proven: bool) {
        let ran = if is_proven {
            With::NoRequest
        } else {
            With::NotKnown
        };
        let intervals = &self.timeline.intervals;
        let first = intervals.find(|kept| kept.in_ns <= self.at_ns);
        for slept in intervals.range(first..) {
            if slept.out_ns >= until_ns || self.is_too_long() {
                break;
            }
            let before = if slept.after_gap { With::NotKnown } else { ran };
            self.to(before, slept.out_ns);
            self.to(With::Asleep, slept.wake_ns.min(until_ns));
            self.to(With::NoCpu, slept.in_ns.min(until_ns));
        }
        if !self.is_too_long() {
            self.to(ran, until_ns);
        }
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
    ///
    /// Of what it was queued in all, the rest is not known.
    pub(super) fn add(&mut self, parts: &Parts<'_>, queued_ns: u64, weight: u64) {
        let known_ns = parts.behind.iter().map(|behind| behind.ns).sum();
        let rest = Behind::of(With::NotKnown, known_ns, queued_ns);
        let mut known: SmallVec<[With; 8]> = SmallVec::new();
        let all = parts.behind.iter().chain([&rest]);
        for behind in all.filter(|behind| behind.ns > 0) {
            let sum = self.0.entry(behind.with).or_default();
            sum.ns += behind.ns * weight;
            sum.longest_ns = sum.longest_ns.max(behind.ns);
            if !known.contains(&behind.with) {
                sum.requests += weight;
                known.push(behind.with);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_what_was_queued_and_count_a_request_once() {
        let part = |with, ns| Behind { with, ns };
        let parts = Parts {
            behind: vec![
                part(With::Request(0), 30),
                part(With::NoRequest, 5),
                part(With::Request(0), 40),
            ],
            ..Parts::default()
        };
        let mut queue = Queue::default();
        queue.add(&parts, 80, 2);
        queue.add(&Parts::default(), 7, 1);
        queue.add(&Parts::default(), 0, 1);
        let row = |with, ns, requests, longest_ns| QueuedBehind {
            with,
            ns,
            requests,
            longest_ns,
        };
        let wanted = [
            row(Busy::Request("job".to_owned()), 140, 2, 40),
            row(Busy::NotKnown, 17, 3, 7),
            row(Busy::NoRequest, 10, 2, 5),
        ];
        assert_eq!(queue.report(|_| "job".to_owned()), wanted);
    }

    #[test]
    fn a_thread_that_ran_too_much_meanwhile_is_not_known_behind_that() {
        let timeline = Timeline {
            keyed_from: Some(0),
            ..Timeline::default()
        };
        let mut into = Vec::new();
        let mut walk = Walk {
            timeline: &timeline,
            at_ns: 10,
            steps: MAX_STEPS,
            into: &mut into,
        };
        walk.outside(50, true);
        walk.to(With::NotKnown, 50);
        assert_eq!(into, [Behind::of(With::NotKnown, 10, 50)]);
    }
}
