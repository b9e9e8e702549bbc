//! Time before a request begins: data that comes to sockets, and reads of it, in; since when the data had been
//! there that a thread read last, out.
//!
//! Only the time of what has been unread for longest is kept for a socket, and that of what came last. If a
//! read takes a part of it, it is not known when the rest came, unless all of it came at once.

/// A time that is not known.
pub const NOT_KNOWN: u64 = u64::MAX;

/// Data of a socket that nobody has read.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    /// When the first of it came, `CLOCK_MONOTONIC` nanoseconds; 0: there is none; [`NOT_KNOWN`].
    pub first_ns: u64,
    /// When the last of it came; 0: none has come yet, and `first_ns` is when the connection was made.
    pub last_ns: u64,
}

impl Unread {
    /// A connection was made, and waits to be accepted.
    #[must_use]
    #[inline]
    pub const fn connected(now: u64) -> Self {
        Self {
            first_ns: now,
            last_ns: 0,
        }
    }

    /// Data has come, of a socket whose lock is held. `has_more` says whether there was unread data before,
    /// `accepted` whether the connection has been accepted.
    #[must_use]
    #[inline]
    pub const fn with(known: Self, now: u64, has_more: bool, accepted: bool) -> Self {
        let waits_to_be_accepted = known.first_ns != 0 && known.last_ns == 0;
        if waits_to_be_accepted && (!accepted || has_more) {
            return Self {
                first_ns: known.first_ns,
                last_ns: now,
            };
        }
        if has_more {
            return Self::behind(known, now);
        }
        // Nothing else is unread, whatever reads were seen.
        Self {
            first_ns: now,
            last_ns: now,
        }
    }

    /// The same of a socket without such a lock: there are so many messages now, this one with them.
    #[must_use]
    #[inline]
    pub const fn with_queued(known: Self, now: u64, queued: u32) -> Self {
        match queued {
            // Somebody has read it already.
            0 => known,
            // The only one is this, unless what was there before is being read just now.
            1 if known.first_ns == 0 || known.first_ns == NOT_KNOWN => Self {
                first_ns: now,
                last_ns: now,
            },
            1 => Self {
                first_ns: NOT_KNOWN,
                last_ns: now,
            },
            _ => Self::behind(known, now),
        }
    }

    /// Data has come behind other data.
    const fn behind(known: Self, now: u64) -> Self {
        Self {
            first_ns: if known.first_ns == 0 {
                NOT_KNOWN
            } else {
                known.first_ns
            },
            last_ns: now,
        }
    }

    /// Somebody has read; `is_rest` says whether there is more. Returns since when it had been there.
    #[inline]
    pub const fn read(&mut self, is_rest: bool) -> u64 {
        let first_ns = match self.first_ns {
            0 => NOT_KNOWN,
            first_ns => first_ns,
        };
        if !is_rest {
            self.first_ns = 0;
            self.last_ns = 0;
        } else if self.first_ns != self.last_ns {
            self.first_ns = NOT_KNOWN;
        }
        first_ns
    }
}

/// What a thread read last, outside of requests.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastRead {
    /// The socket: its cookie.
    pub socket: u64,
    /// Since when the data had been there; 0: none was read since a request began; [`NOT_KNOWN`].
    pub since_ns: u64,
    /// Not 0: there was more when it had read.
    pub is_rest: u64,
}

impl LastRead {
    /// The thread has read. Reads of one socket go on until nothing is left: a header, then the rest.
    #[inline]
    pub const fn read(&mut self, socket: u64, since_ns: u64, is_rest: bool) {
        let goes_on = self.since_ns != 0 && self.is_rest != 0 && self.socket == socket;
        if !goes_on {
            self.socket = socket;
            self.since_ns = since_ns;
        }
        self.is_rest = is_rest as u64;
    }

    /// A request begins. Returns since when its data had been there; 0: not known.
    #[inline]
    pub const fn take(&mut self) -> u64 {
        let since_ns = self.since_ns;
        self.since_ns = 0;
        if since_ns == NOT_KNOWN { 0 } else { since_ns }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    const NONE: Unread = Unread {
        first_ns: 0,
        last_ns: 0,
    };

    #[test]
    fn a_connection_waits_from_when_it_was_made() {
        let made = Unread::connected(10);
        let mut waits = Unread::with(made, 20, false, false);
        assert_eq!(waits.read(false), 10);
        assert_eq!(waits, NONE);
        // Its first data may come with it, and is then not seen for itself.
        let mut made = made;
        assert_eq!(made.read(false), 10);
    }

    #[test]
    fn an_accepted_connection_without_data_does_not_wait() {
        let mut accepted = Unread::with(Unread::connected(10), 20, false, true);
        assert_eq!(accepted.read(false), 20);
    }

    #[test]
    fn a_rest_is_known_if_all_of_it_came_at_once() {
        let mut once = Unread::with(NONE, 10, false, true);
        assert_eq!(once.read(true), 10);
        assert_eq!(once.read(false), 10);
        let mut twice = Unread::with(Unread::with(NONE, 10, false, true), 20, true, true);
        assert_eq!(twice.read(true), 10);
        assert_eq!(twice.read(true), NOT_KNOWN);
        assert_eq!(twice.read(false), NOT_KNOWN);
        assert_eq!(Unread::with(twice, 30, false, true).read(false), 30);
    }

    #[test]
    fn a_header_and_its_rest_are_one_message() {
        let mut thread = LastRead::default();
        thread.read(1, 10, true);
        thread.read(1, NOT_KNOWN, false);
        assert_eq!(thread.take(), 10);
        assert_eq!(thread.take(), 0, "taken once");
        // All was read, so what comes then is another message: the first was no request.
        thread.read(1, 20, false);
        thread.read(1, 30, false);
        assert_eq!(thread.take(), 30);
        thread.read(1, 40, true);
        thread.read(2, 50, false);
        assert_eq!(thread.take(), 50, "another socket");
        thread.read(2, NOT_KNOWN, false);
        assert_eq!(thread.take(), 0);
        thread.read(2, 60, true);
        assert_eq!(thread.take(), 60);
        thread.read(2, 70, false);
        assert_eq!(thread.take(), 70, "the rest is of the next request");
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Comes,
        /// So many messages at most are read.
        Read(usize),
        /// Everything is read, and nobody sees it.
        ReadUnseen,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => Just(Step::Comes),
            3 => (1..4_usize).prop_map(Step::Read),
            1 => Just(Step::ReadUnseen),
        ];
        prop::collection::vec(step, 0..40)
    }

    proptest! {
        /// What is known is when the oldest message came that was there.
        #[test]
        fn nothing_is_guessed(steps in steps(), has_lock: bool) {
            let mut queue = VecDeque::new();
            let mut unread = NONE;
            for (step, now) in steps.into_iter().zip(1..) {
                match step {
                    Step::Comes => {
                        let has_more = !queue.is_empty();
                        queue.push_back(now);
                        unread = if has_lock {
                            Unread::with(unread, now, has_more, true)
                        } else {
                            Unread::with_queued(unread, now, queue.len() as u32)
                        };
                    }
                    Step::Read(_) if queue.is_empty() => {}
                    Step::Read(most) => {
                        let oldest = queue[0];
                        queue.drain(..most.min(queue.len()));
                        let since = unread.read(!queue.is_empty());
                        prop_assert!(since == oldest || since == NOT_KNOWN, "{since} {oldest}");
                    }
                    // A part that was read unseen would make the time of the rest too early: but all readers of
                    // a traced process are seen.
                    Step::ReadUnseen => queue.clear(),
                }
            }
        }

        /// Messages that are read one by one, each before the next one comes, are all known.
        #[test]
        fn what_is_read_at_once_is_known(gaps in prop::collection::vec(1..9_u64, 1..9), has_lock: bool) {
            let (mut unread, mut now) = (NONE, 1);
            for gap in gaps {
                unread = if has_lock {
                    Unread::with(unread, now, false, true)
                } else {
                    Unread::with_queued(unread, now, 1)
                };
                prop_assert_eq!(unread.read(false), now);
                now += gap;
            }
        }
    }
}
