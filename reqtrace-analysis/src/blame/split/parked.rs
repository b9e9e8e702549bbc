//! Parked time of a request with a key: how it ended, in; pieces by who made it ready, or by who sent what it went on with,
//! out.

use reqtrace_common::syscall::waits_for_many;
use reqtrace_recording::WakerIs;

use super::{Split, Window};
use crate::blame::kept::{By, Kept, Ready, Sender, Source, ThreadId, WentOn};
use crate::blame::pieces::{Culprit, Outcome};
use crate::blame::{Cause, Reason};

/// Who sleeps until data comes is woken within this time.
const SLEPT_ON_NS: u64 = 200_000;

impl<'a> Split<'a> {
    /// A request is parked until it goes on with something: the time until that came is the sender's, and from
    /// then on the thread's that went on with it. Whoever ended the sleeps of that thread before may be anybody.
    pub(super) fn parked(
        &mut self,
        kept: &Kept,
        by: By,
        window: Window,
        waits: Culprit,
        depth: u8,
    ) {
        let by_loop = match by {
            By::Thread(thread, WakerIs::BetweenRequests | WakerIs::Helper(_)) => {
                Some(thread).filter(|thread| self.is_loop(*thread))
            }
            _ => None,
        };
        let WentOn { ready, source, .. } = kept.went_on();
        match (ready, by_loop) {
            (Ready::ByTask, Some(thread)) => return self.no_request(thread, window, depth),
            (Ready::Yes | Ready::ByTask, None) => {
                let by = self.unless_stranger(by);
                return self.blocked(by, window, waits, depth);
            }
            (Ready::Yes, Some(_)) => return self.for_an_event(window, waits, depth),
            (Ready::ByDriver | Ready::No, _) => {}
        }
        match source {
            Source::NotKnown(Reason::SourceNotKnown) if ready == Ready::ByDriver => {
                self.for_an_event(window, waits, depth);
            }
            Source::Data { arrived_ns, .. }
                if ready == Ready::ByDriver && self.slept_on(by, arrived_ns) =>
            {
                self.for_an_event(window, waits, depth);
            }
            Source::NotKnown(reason) => self.unknown(window, reason, depth),
            Source::Data {
                sent_ns,
                arrived_ns,
                sender,
            } => {
                let before = window.before(arrived_ns);
                match sender {
                    Sender::Thread(thread, is) => {
                        let sending = before.before(sent_ns);
                        match is {
                            WakerIs::BetweenRequests | WakerIs::Helper(_)
                                if self.timelines.of(thread).runs_units =>
                            {
                                self.no_request(thread, sending, depth);
                            }
                            is => self.blocked(By::Thread(thread, is), sending, waits, depth),
                        }
                        self.piece(before.since(sent_ns), Cause::Network, waits, depth);
                    }
                    Sender::Peer(peer) => {
                        self.piece(before, Cause::Network, Culprit::Peer(peer), depth + 1);
                    }
                }
                let by = self.unless_stranger(by);
                self.blocked(by, window.since(arrived_ns), waits, depth);
            }
        }
    }

    /// What a thread did for a unit that is no request, so that the thread's own story is not that unit's.
    fn no_request(&mut self, thread: ThreadId, window: Window, depth: u8) {
        self.push(
            window,
            Outcome {
                cause: Cause::Unknown,
                reason: Some(Reason::NoRequest),
                culprit: Culprit::Thread(thread),
                depth: depth + 1,
            },
        );
    }

    /// Whether the thread that looks for events for its runtime slept on when this came: then it did not wait for it.
    fn slept_on(&self, by: By, arrived_ns: u64) -> bool {
        let By::Thread(thread, _) = by else {
            return false;
        };
        let blocked = self.timelines.of(thread).blocked_at(arrived_ns);
        blocked.is_some_and(|kept| {
            waits_for_many(kept.place.site.syscall) && kept.wake_ns > arrived_ns + SLEPT_ON_NS
        })
    }

    /// A request was parked until a thread that runs such requests, and none just then, made it ready: for a timer
    /// or for a socket that it has not read from, and nobody knows which. A request that waits for this one has at least
    /// this one as culprit.
    fn for_an_event(&mut self, window: Window, waits: Culprit, depth: u8) {
        let culprit = match waits {
            Culprit::Request(..) => waits,
            _ => Culprit::Unknown,
        };
        self.push(
            window,
            Outcome {
                cause: Cause::Unknown,
                reason: Some(Reason::SourceNotKnown),
                culprit,
                depth,
            },
        );
    }

    /// A thread that ended a parked time in no request, if anything is known of it. One that has served none is no
    /// thread between requests.
    fn unless_stranger(&self, by: By) -> By {
        let By::Thread(thread, WakerIs::BetweenRequests) = by else {
            return by;
        };
        let timeline = self.timelines.of(thread);
        if timeline.served_from.is_some() || timeline.keyed_from.is_some() {
            return by;
        }
        let helper = timeline.helper_since.map(WakerIs::Helper);
        By::Thread(thread, helper.unwrap_or(WakerIs::Unknown))
    }

    /// Whether a thread runs requests with a key.
    fn is_loop(&self, thread: ThreadId) -> bool {
        self.timelines.of(thread).keyed_from.is_some()
    }
}
