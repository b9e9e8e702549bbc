//! The split: a request in; pieces of its blocked time out, each with its root cause and its culprit.

use reqtrace_recording::{RequestOf, WakerIs};

use super::kept::{Away, By, Kept, ThreadId};
use super::timeline::{Known, Timeline, Timelines};
use super::{Cause, MAX_DEPTH, MAX_PIECES, Reason};
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
    pub(super) fn kind(self) -> CulpritKind {
        match self {
            Self::OwnInterrupt => CulpritKind::Interrupt,
            Self::Itself => CulpritKind::Itself,
            Self::Request(..) => CulpritKind::Request,
            Self::Thread(_) => CulpritKind::Thread,
            Self::Unknown => CulpritKind::Unknown,
        }
    }
}

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
        let Some(by) = kept.by else { continue };
        split.class = kept.class;
        let window = Window(kept.out_ns, kept.wake_ns);
        let by = match by {
            By::Thread(thread, WakerIs::BetweenRequests)
                if kept.away == Some(Away::Parked) && split.is_stranger(thread) =>
            {
                By::Thread(thread, WakerIs::Unknown)
            }
            by => by,
        };
        split.waits(kept, by, window, Culprit::OwnInterrupt, 0);
    }
    split.parts
}

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
    fn waits(&mut self, kept: &'a Kept, by: By, window: Window, whose: Culprit, depth: u8) {
        if window.ns() == 0 {
            return;
        }
        let within = self.wait;
        self.wait = Some(self.parts.waits.len() as u32);
        self.parts.waits.push(Wait {
            within,
            whose,
            kept,
            from_ns: window.0,
            ns: window.ns(),
        });
        self.blocked(by, window, whose, depth);
        self.wait = within;
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

    /// Whether nothing at all is known of a thread that ended a parked time, and was in no request then.
    fn is_stranger(&self, thread: ThreadId) -> bool {
        let timeline = self.timelines.of(thread);
        timeline.served_from.is_none()
            && timeline.helper_since.is_none()
            && timeline.keyed_from.is_none()
    }

    /// What a thread did in this window, at whose end it woke somebody.
    fn held_by(&mut self, thread: ThreadId, is: WakerIs, window: Window, depth: u8) {
        let helper_since = match is {
            WakerIs::Unknown => return self.unknown(window, Reason::WakerNotKnown, depth),
            WakerIs::NotRecorded => return self.unknown(window, Reason::NotRecorded, depth),
            WakerIs::Helper(since_ns) => Some(since_ns),
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

    fn thread(&mut self, waker: Waker<'a>, mut window: Window) {
        let intervals = &waker.timeline.intervals;
        let mut next = intervals.partition_point(|kept| kept.in_ns <= window.0);
        while window.ns() > 0 {
            self.steps += 1;
            if self.steps > MAX_PIECES {
                return self.unknown(window, Reason::TooMany, waker.depth);
            }
            let Some(kept) = intervals.get(next) else {
                return self.running(waker, window, false);
            };
            self.running(waker, window.before(kept.out_ns), kept.after_gap);
            self.interval(waker, kept, window);
            window = window.since(kept.in_ns);
            next += 1;
        }
    }

    /// The part of an interval in this window.
    fn interval(&mut self, waker: Waker<'a>, kept: &'a Kept, window: Window) {
        let whose = match kept.request {
            Some(of) => self.request(waker.thread, of),
            None => Culprit::Thread(waker.thread),
        };
        let off = window.and(Window(kept.out_ns, kept.in_ns));
        match kept.by {
            None => self.piece(off, Cause::Preempted, whose, waker.depth),
            Some(by) => {
                let blocked = off.before(kept.wake_ns);
                self.waits(kept, by, blocked, whose, waker.depth);
                self.piece(off.since(kept.wake_ns), Cause::RunQueue, whose, waker.depth);
            }
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
        let mut next = spans.partition_point(|span| span.until_ns <= window.0);
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
