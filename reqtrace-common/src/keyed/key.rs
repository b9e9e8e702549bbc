//! The table of keys: what names a request in, where it is out, in one word that two threads can exchange
//! without a lock.

/// Values that a key may be made of.
pub const MAX_KEY_PARTS: usize = 2;

/// What names a request while it lives.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId {
    /// The process.
    pub tgid: u32,
    /// Index of the request type.
    pub request_type: u32,
    /// The key; parts that it does not have are 0.
    pub key: [u64; MAX_KEY_PARTS],
}

/// Counters of keys: one for all keys of a [`key_counter`]. Most tasks of a runtime are no request, and a counter that is 0 says
/// so without a look at the table of keys, where each key has a place of its own.
pub const KEY_COUNTERS: usize = 1 << KEY_COUNTER_BITS;
const KEY_COUNTER_BITS: u32 = 10;

/// Which of the [`KEY_COUNTERS`] counts the keys with this first part.
#[must_use]
#[inline]
pub const fn key_counter(key: u64) -> usize {
    // Addresses differ in their middle bits, which are multiplied up (Knuth, TAOCP 3, 6.4).
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - KEY_COUNTER_BITS)) as usize
}

/// Where the request of a key is. But for the word, all is written by who has the request, before the word tells
/// others of it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyEntry {
    /// A [`Word`], encoded.
    pub word: u64,
    /// Since when no thread runs it, `CLOCK_MONOTONIC` nanoseconds; means nothing while one does.
    pub since_ns: u64,
    /// When it was made ready, if the word says that it was.
    pub ready_ns: u64,
    /// What made it ready, if the word says that it was.
    pub job: Job,
    /// When it began; written when it is left.
    pub begin_ns: u64,
    /// 0: the request is not recorded, and lies in no table while it is parked.
    pub weight: u32,
    /// Where it is parked: an index of [`crate::record::ExtraRecord::away_ns`].
    pub place: u32,
    /// The thread that has left it.
    pub tid: u32,
    /// How often its process had called exec since tracing began.
    pub exec_generation: u32,
    /// Where it may be parked, if it is at one of several places: see [`super::KeyedState::may_be_at`].
    pub may_be_at: u32,
    /// Always 0.
    pub pad: u32,
}

/// What is looked at before a word is exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// [`KeyEntry::word`].
    pub word: u64,
    /// [`KeyEntry::ready_ns`].
    pub ready_ns: u64,
    /// [`KeyEntry::job`].
    pub job: Job,
    /// [`KeyEntry::weight`].
    pub weight: u32,
}

/// What a parked request has waited for, as far as who made it ready tells: a job of a runtime's pool of threads, such as one of
/// `spawn_blocking`, with since when a thread has run it and where the request was until then; or the place where it was.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Job(u64);

impl Job {
    /// Nothing is known.
    pub const NONE: Self = Self(0);

    const PLACE_BITS: u32 = 5;

    /// Run since then, `CLOCK_MONOTONIC` nanoseconds. Who waits for it is in this place until then, an index of
    /// [`crate::record::ExtraRecord::away_ns`], and from then on in the one before.
    #[must_use]
    #[inline(always)]
    pub const fn new(since_ns: u64, place: u32) -> Self {
        Self(since_ns << Self::PLACE_BITS | place as u64 & ((1 << Self::PLACE_BITS) - 1))
    }

    /// No job: the request was in this place, an index of [`crate::record::ExtraRecord::away_ns`].
    #[must_use]
    #[inline(always)]
    pub const fn waits_at(place: u32) -> Self {
        Self((place as u64 + 1) & ((1 << Self::PLACE_BITS) - 1))
    }

    /// The place of [`Job::waits_at`], and 1; 0: there is none.
    #[must_use]
    #[inline(always)]
    pub const fn named(self) -> u32 {
        if self.since_ns() == 0 {
            self.queue()
        } else {
            0
        }
    }

    /// Since when a thread has run it; 0: there is none.
    #[must_use]
    #[inline(always)]
    pub const fn since_ns(self) -> u64 {
        self.0 >> Self::PLACE_BITS
    }

    /// Where who waits for it is until then.
    #[must_use]
    #[inline(always)]
    pub const fn queue(self) -> u32 {
        self.0 as u32 & ((1 << Self::PLACE_BITS) - 1)
    }

    /// Where who waits for it is while a thread runs it.
    #[must_use]
    #[inline(always)]
    pub const fn place(self) -> u32 {
        self.queue().wrapping_sub(1)
    }

    /// Where who waits for it has looked whether it is done, if not in that place.
    #[must_use]
    #[inline(always)]
    pub const fn joins(self) -> u32 {
        self.queue() + 1
    }

    /// As one word.
    #[must_use]
    #[inline(always)]
    pub const fn encode(self) -> u64 {
        self.0
    }

    /// The reverse of [`Job::encode`].
    #[must_use]
    #[inline(always)]
    pub const fn decode(word: u64) -> Self {
        Self(word)
    }
}

impl KeyEntry {
    /// An entry that is not filled yet, and its maker's.
    pub const NEW: Self = Self {
        word: Word::busy(0).encode(),
        since_ns: 0,
        ready_ns: 0,
        job: Job::NONE,
        begin_ns: 0,
        weight: 0,
        place: 0,
        tid: 0,
        exec_generation: 0,
        may_be_at: 0,
        pad: 0,
    };
}

/// Who has a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// No thread runs it.
    Away,
    /// This thread runs it.
    Running(u32),
    /// A program takes it out just now.
    Busy,
}

/// Who has a request, whether it is ready, and its ticket: a number that is drawn each time another thread gets it. So
/// a word never comes again, and whoever exchanges one has got what it has looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// Who has it.
    pub at: Where,
    /// It is ready, and goes here when it is left, or is here already.
    pub ready: Option<u32>,
    /// Below [`TICKETS`].
    pub ticket: u64,
}

/// Tickets are used again after so many.
pub const TICKETS: u64 = 1 << TICKET_BITS;

const TICKET_BITS: u32 = 36;
/// Threads have numbers below this power of two: `PID_MAX_LIMIT` of the kernel.
const TID_BITS: u32 = 22;
const READY_SHIFT: u32 = TICKET_BITS + TID_BITS;
const READY_MASK: u64 = 15;
const AT_SHIFT: u32 = READY_SHIFT + 4;

impl Word {
    /// As one word.
    #[must_use]
    #[inline]
    pub const fn encode(self) -> u64 {
        let (at, tid) = match self.at {
            Where::Away => (0, 0),
            Where::Running(tid) => (1, tid as u64),
            Where::Busy => (2, 0),
        };
        let ready = match self.ready {
            Some(place) => (place as u64 + 1) & READY_MASK,
            None => 0,
        };
        at << AT_SHIFT | ready << READY_SHIFT | tid << TICKET_BITS | self.ticket & (TICKETS - 1)
    }

    /// The reverse of [`Word::encode`].
    #[must_use]
    #[inline]
    pub const fn decode(word: u64) -> Self {
        let ready = (word >> READY_SHIFT) & READY_MASK;
        Self {
            at: match word >> AT_SHIFT {
                0 => Where::Away,
                1 => Where::Running((word >> TICKET_BITS) as u32 & ((1 << TID_BITS) - 1)),
                _ => Where::Busy,
            },
            ready: if ready == 0 {
                None
            } else {
                Some(ready as u32 - 1)
            },
            ticket: word & (TICKETS - 1),
        }
    }

    /// A thread runs it.
    #[must_use]
    #[inline]
    pub const fn running(tid: u32, ticket: u64) -> Self {
        Self {
            at: Where::Running(tid),
            ready: None,
            ticket,
        }
    }

    /// It is taken out by who has this ticket.
    #[must_use]
    #[inline]
    pub const fn busy(ticket: u64) -> Self {
        Self {
            at: Where::Busy,
            ready: None,
            ticket,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_tasks_are_spread_over_the_counters() {
        for distance in [64, 128, 256, 4096] {
            let mut counts = [0_u32; KEY_COUNTERS];
            for task in 0..10 * KEY_COUNTERS as u64 {
                counts[key_counter(0x7f3a_5c00_0000 + distance * task)] += 1;
            }
            let most = counts.iter().max();
            assert!(most.is_some_and(|most| *most <= 20), "{distance}: {most:?}");
        }
    }
}
