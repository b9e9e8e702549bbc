//! The split: a request in; pieces of its blocked time out, each with its root cause and its culprit.

mod parked;

use reqtrace_common::syscall::waits_for_many;
use reqtrace_recording::{RequestOf, WakerIs};

use super::kept::{Away, By, Kept, ThreadId};
use super::of_thread::{Known, Timeline};
use super::pieces::{Culprit, Outcome, Parts, Piece, Wait};
use super::queue;
use super::timeline::Timelines;
use super::{Cause, MAX_DEPTH, MAX_PIECES, Reason, Taken};

/// Splits the blocked and parked time that is known of a request by its intervals.
pub(crate) fn split(
    timelines: &Timelines,
    thread: ThreadId,
    of: RequestOf,
    end_ns: u64,
) -> Parts<'_> {
    let mut split = Split {
        timelines,
        victim: (thread, of),
        class: None,
        parts: Parts::default(),
        wait: None,
        steps: 0,
    };
    for kept in timelines.of_request(thread, of, end_ns) {
        if kept.away == Some(Away::Queued) {
            queue::behind(timelines, kept, &mut split.parts.behind);
        }
        let on_queue = if kept.by.is_some() {
            split.class = kept.class;
            let window = Window(kept.out_ns, kept.wake_ns);
            split.waits(kept, window, Culprit::OwnInterrupt, 0);
            (Cause::RunQueue, kept.wake_ns)
        } else {
            (Cause::Preempted, kept.out_ns)
        };
        let (cause, since_ns) = on_queue;
        split.taken(kept, cause, Window(since_ns, kept.in_ns), 0);
    }
    split.parts
}

/// So many waits after a sleep are looked at.
const MAX_LATER: usize = 8;

/// From a time until before another.
#[derive(Clone, Copy, Debug)]
struct Window(u64, u64);

impl Window {
    /// What is in both.
    fn and(self, other: Self) -> Self {
        Self(self.0.max(other.0), self.1.min(other.1))
    }

    fn before(self, at: u64) -> Self {
        self.and(Self(0, at))
    }

    fn since(self, at: u64) -> Self {
        self.and(Self(at, u64::MAX))
    }

    fn ns(self) -> u64 {
        self.1.saturating_sub(self.0)
    }
}

/// A thread and what is known of it.
#[derive(Clone, Copy)]
struct Waker<'a> {
    thread: ThreadId,
    timeline: &'a Timeline,
    /// Since when it is a helper, if it was one when it woke.
    helper_since: Option<u64>,
    depth: u8,
}

struct Split<'a> {
    timelines: &'a Timelines,
    victim: (ThreadId, RequestOf),
    class: Option<u16>,
    parts: Parts<'a>,
    /// The wait that is split.
    wait: Option<u32>,
    steps: usize,
}

impl<'a> Split<'a> {
    /// A block of the request, or of a thread that held it up, as far as it lies in this window.
    fn waits(&mut self, kept: &'a Kept, window: Window, whose: Culprit, depth: u8) {
        if window.ns() == 0 {
            return;
        }
        // Of threads that make each other wait by time limits each would be behind itself.
        let ended_by = match self.is_within(kept) {
            true => kept.by,
            false => self.timelines.ended_by(kept),
        };
        let Some(by) = ended_by else {
            return;
        };
        let within = self.wait;
        self.wait = Some(self.parts.waits.len() as u32);
        self.parts.waits.push(Wait {
            within,
            whose,
            kept,
            from_ns: window.0,
            ns: window.ns(),
        });
        if kept.away.is_some() {
            self.parked(kept, by, window, whose, depth);
        } else {
            self.blocked(by, window, whose, depth);
        }
        self.wait = within;
    }

    /// Whether this wait is one of those that are being split.
    fn is_within(&self, kept: &Kept) -> bool {
        let wait = |number: u32| self.parts.waits.get(number as usize);
        let outer =
            std::iter::successors(self.wait.and_then(wait), |one| one.within.and_then(wait));
        outer.into_iter().any(|one| std::ptr::eq(one.kept, kept))
    }

    /// A wait that `waits` spent in this window: what ended it.
    fn blocked(&mut self, by: By, window: Window, waits: Culprit, depth: u8) {
        match by {
            By::Nobody(reason) => self.unknown(window, reason, depth),
            By::Interrupt(cause) => self.piece(window, cause, waits, depth),
            By::Thread(..) if depth >= MAX_DEPTH => self.unknown(window, Reason::TooDeep, depth),
            By::Thread(thread, is) => self.held_by(thread, is, window, depth + 1),
        }
    }

    /// What a thread did in this window, at whose end it woke somebody.
    fn held_by(&mut self, thread: ThreadId, is: WakerIs, window: Window, depth: u8) {
        let helper_since = match is {
            WakerIs::Unknown => return self.unknown(window, Reason::WakerNotKnown, depth),
            WakerIs::NotRecorded => return self.unknown(window, Reason::NotRecorded, depth),
            WakerIs::Helper(since_ns) => Some(since_ns),
            WakerIs::InRequest(of) if self.timelines.is_keyed(of) => {
                return self.story(thread, of, window, depth);
            }
            WakerIs::InRequest(_) | WakerIs::BetweenRequests => None,
        };
        let timeline = self.timelines.of(thread);
        self.thread(
            Waker {
                thread,
                timeline,
                helper_since,
                depth,
            },
            window,
        );
    }

    /// What a request with a key did in this window, whatever threads ran it. Before it began, what the thread
    /// did that ran it at the end.
    fn story(&mut self, thread: ThreadId, of: RequestOf, window: Window, depth: u8) {
        let before = window.before(of.begin_ns);
        self.held_by(thread, WakerIs::BetweenRequests, before, depth);
        let mut window = window.since(of.begin_ns);
        let Some(known_ns) = self.timelines.known_since(thread, of) else {
            return self.unknown(window, Reason::Forgotten, depth);
        };
        self.unknown(window.before(known_ns), Reason::Forgotten, depth);
        window = window.since(known_ns);
        let whose = self.request(thread, of);
        let Window(from_ns, until_ns) = window;
        for kept in self.timelines.between(thread, of, from_ns, until_ns) {
            self.steps += 1;
            if self.steps > MAX_PIECES {
                return self.unknown(window, Reason::TooMany, depth);
            }
            let ran = window.before(kept.out_ns);
            if kept.after_gap {
                self.unknown(ran, Reason::Lost, depth);
            } else {
                self.piece(ran, Cause::OnCpu, whose, depth);
            }
            self.off(kept, window, whose, depth);
            window = window.since(kept.in_ns);
        }
        self.piece(window, Cause::OnCpu, whose, depth);
    }

    fn thread(&mut self, waker: Waker<'a>, mut window: Window) {
        let intervals = &waker.timeline.intervals;
        let mut next = intervals.find(|kept| kept.in_ns <= window.0);
        while window.ns() > 0 {
            self.steps += 1;
            if self.steps > MAX_PIECES {
                return self.unknown(window, Reason::TooMany, waker.depth);
            }
            let Some(kept) = intervals.get(next) else {
                return self.running(waker, window, false);
            };
            self.running(waker, window.before(kept.out_ns), kept.after_gap);
            self.interval(waker, next, window);
            window = window.since(kept.in_ns);
            next += 1;
        }
    }

    /// The part of an interval in this window.
    fn interval(&mut self, waker: Waker<'a>, at: usize, window: Window) {
        let kept = &waker.timeline.intervals[at];
        let whose = match kept.request {
            Some(of) => self.request(waker.thread, of),
            None => Culprit::Thread(waker.thread),
        };
        let slept = window.and(Window(kept.out_ns, kept.wake_ns));
        let mut window = window;
        if let Some((wait, since_ns)) = self.slept_before(waker, at, window) {
            self.interval_of(waker, kept, whose, slept.before(since_ns));
            self.waits(wait, slept.since(since_ns), whose, waker.depth);
            window = window.since(kept.wake_ns);
        }
        self.interval_of(waker, kept, whose, window);
    }

    /// A thread in no request slept, and then waited for what another thread had had since before it woke: had it
    /// slept less, it would have waited longer. So from then on the sleep counts as that later wait.
    fn slept_before(&self, waker: Waker<'a>, at: usize, window: Window) -> Option<(&'a Kept, u64)> {
        let intervals = &waker.timeline.intervals;
        let slept = &intervals[at];
        if slept.request.is_some() || slept.by.is_none() || slept.away.is_some() {
            return None;
        }
        let later = intervals.range(at + 1..);
        let later = later.take_while(|later| later.out_ns < window.1 && !later.after_gap);
        let mut waits = later.filter(|later| later.by.is_some()).take(MAX_LATER);
        waits.find_map(|wait| {
            let had = self.had_meanwhile(wait)?;
            let since_before = had.out_ns <= slept.wake_ns;
            since_before.then_some((wait, had.out_ns))
        })
    }

    /// A thread waits, in no request, until another one wakes it in one: the block that the other one was in when that
    /// wait began, until a device or a timer let it go on. So it was not for this thread that it was blocked.
    fn had_meanwhile(&self, wait: &Kept) -> Option<&'a Kept> {
        let By::Thread(thread, WakerIs::InRequest(of)) = wait.by? else {
            return None;
        };
        if wait.request.is_some() || self.timelines.is_keyed(of) {
            return None;
        }
        let had = self.timelines.of(thread).blocked_at(wait.out_ns)?;
        let by_itself = matches!(had.by, Some(By::Interrupt(Cause::Disk | Cause::Timer)));
        (by_itself && had.request.is_some() && had.wake_ns <= wait.wake_ns).then_some(had)
    }

    /// The same, whatever came after it.
    fn interval_of(&mut self, waker: Waker<'a>, kept: &'a Kept, whose: Culprit, window: Window) {
        let is_idle = kept.request.is_none() && waits_for_many(kept.place.site.syscall);
        let by_anybody = matches!(
            kept.by,
            Some(By::Thread(..) | By::Interrupt(Cause::Network))
        );
        if is_idle && by_anybody {
            let slept = window.and(Window(kept.out_ns, kept.wake_ns));
            self.unknown(slept, Reason::WaitsForMany, waker.depth);
            self.off(kept, window.since(kept.wake_ns), whose, waker.depth);
        } else {
            self.off(kept, window, whose, waker.depth);
        }
    }

    /// Somebody is off the CPU, or a request is parked or queued, as far as that lies in this window.
    fn off(&mut self, kept: &'a Kept, window: Window, whose: Culprit, depth: u8) {
        let off = window.and(Window(kept.out_ns, kept.in_ns));
        if kept.by.is_none() && kept.away.is_none() {
            self.taken(kept, Cause::Preempted, off, depth);
            return self.piece(off, Cause::Preempted, whose, depth);
        }
        self.waits(kept, off.before(kept.wake_ns), whose, depth);
        let on_queue = off.since(kept.wake_ns);
        self.taken(kept, Cause::RunQueue, on_queue, depth);
        self.piece(on_queue, Cause::RunQueue, whose, depth);
    }

    /// Who had the CPU that a thread waited for in this window, as far as that is known.
    fn taken(&mut self, kept: &Kept, cause: Cause, window: Window, depth: u8) {
        if kept.away.is_some() || window.ns() == 0 {
            return;
        }
        for waited in self.timelines.cpu_waits(kept.thread, window.0, window.1) {
            let by = waited.between(window.0, window.1);
            self.parts.taken.extend(by.map(|by| Taken {
                cause,
                taker: by.taker,
                kind: self.timelines.kind_of(by.taker, by.from_ns),
                cpu: by.cpu,
                from_ns: by.from_ns,
                ns: by.ns,
                depth,
            }));
        }
    }

    /// A window without any interval; in one after a gap there may have been some.
    fn running(&mut self, waker: Waker<'_>, window: Window, after_gap: bool) {
        let Waker {
            thread,
            timeline,
            depth,
            ..
        } = waker;
        self.unknown(
            window.before(timeline.forgotten_ns),
            Reason::Forgotten,
            depth,
        );
        let mut window = window.since(timeline.forgotten_ns);
        let spans = &timeline.spans;
        let mut next = spans.find(|span| span.until_ns <= window.0);
        while window.ns() > 0 {
            self.steps += 1;
            if self.steps > MAX_PIECES {
                return self.unknown(window, Reason::TooMany, depth);
            }
            let before = next.checked_sub(1).map(|before| spans[before].known);
            let Some(span) = spans.get(next) else {
                return self.outside(waker, window, before, after_gap);
            };
            self.outside(waker, window.before(span.from_ns), before, after_gap);
            let inside = window.and(Window(span.from_ns, span.until_ns));
            if span.known == Known::RanAtStart {
                self.unknown(inside, Reason::NotRecorded, depth);
            } else if after_gap {
                self.unknown(inside, Reason::Lost, depth);
            } else {
                let whose = self.request(thread, span.of);
                self.piece(inside, Cause::OnCpu, whose, depth);
            }
            window = window.since(span.until_ns);
            next += 1;
        }
    }

    /// A window without intervals, outside any request that is known. `before` is what is known of the
    /// request before it.
    fn outside(
        &mut self,
        waker: Waker<'_>,
        window: Window,
        before: Option<Known>,
        after_gap: bool,
    ) {
        let Waker {
            thread,
            timeline,
            depth,
            ..
        } = waker;
        let whose = Culprit::Thread(thread);
        let first_ns = timeline.served_from;
        let keyed_from = timeline.keyed_from;
        let keyed_from = keyed_from.map(|from| timeline.helper_since.unwrap_or(from).min(from));
        let since_ns = match (waker.helper_since.or(keyed_from), timeline.helper_since) {
            (Some(since_ns), _) => Some(since_ns),
            // It was a helper, and then served its first request.
            (None, Some(since_ns)) if first_ns.is_some_and(|first| window.1 <= first) => {
                Some(since_ns)
            }
            _ => None,
        };
        if let Some(since_ns) = since_ns {
            self.unknown(window.before(since_ns), Reason::NotYetWatched, depth);
            let watched = window.since(since_ns);
            if after_gap {
                self.unknown(watched, Reason::Lost, depth);
            } else {
                self.piece(watched, Cause::OnCpu, whose, depth);
            }
        } else if before == Some(Known::Ran) {
            // Nobody knows when that request ended: its record was lost.
            self.unknown(window, Reason::Lost, depth);
        } else if self.timelines.is_sampled {
            self.unknown(window, Reason::NotRecorded, depth);
        } else {
            self.piece(window, Cause::BetweenRequests, whose, depth);
        }
    }

    fn request(&self, thread: ThreadId, of: RequestOf) -> Culprit {
        let (its_thread, its) = self.victim;
        let is_its = of == its && thread.tgid == its_thread.tgid && self.timelines.is_keyed(of);
        if is_its || (thread, of) == self.victim {
            Culprit::Itself
        } else {
            Culprit::Request(thread, of.request_type, of.begin_ns)
        }
    }

    fn unknown(&mut self, window: Window, reason: Reason, depth: u8) {
        self.push(
            window,
            Outcome {
                cause: Cause::Unknown,
                reason: Some(reason),
                culprit: Culprit::Unknown,
                depth,
            },
        );
    }

    fn piece(&mut self, window: Window, cause: Cause, culprit: Culprit, depth: u8) {
        self.push(
            window,
            Outcome {
                cause,
                reason: None,
                culprit,
                depth,
            },
        );
    }

    fn push(&mut self, window: Window, outcome: Outcome) {
        let ns = window.ns();
        if ns > 0 {
            self.parts.pieces.push(Piece {
                class: self.class,
                outcome,
                ns,
                from_ns: window.0,
                wait: self.wait,
            });
        }
    }
}
