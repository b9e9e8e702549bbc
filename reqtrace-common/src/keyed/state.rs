//! What a request with a key has in addition: times at which it left its thread and came back in; how long it
//! was where out.

use crate::marker::MAX_PLACES;
use crate::record::{ExtraRecord, kind};

use super::KeyId;

/// Index of parked time without a name in [`ExtraRecord::away_ns`].
pub const PARKED: u32 = MAX_PLACES as u32;

/// Index of queued time without a name.
pub const QUEUED: u32 = MAX_PLACES as u32 + 1;

/// What a request of a type with a key has in addition.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedState {
    /// What names it.
    pub id: KeyId,
    /// Tells it from others of the same key: unique in its process.
    pub stamp_ns: u64,
    /// Since when no thread runs it, `CLOCK_MONOTONIC` nanoseconds; means nothing while one does.
    pub since_ns: u64,
    /// Where it is then: an index of [`ExtraRecord::away_ns`].
    pub place: u32,
    /// Whether it is queued there, and not parked.
    pub queued: u32,
    /// 1 for a request of a type with a key.
    pub is_keyed: u32,
    /// 1 once `extra` is in use.
    pub has_extra: u32,
    /// What is sent beside the record.
    pub extra: ExtraRecord,
}

impl KeyedState {
    /// A request without a key.
    pub const NONE: Self = Self {
        id: KeyId {
            tgid: 0,
            request_type: 0,
            key: 0,
        },
        stamp_ns: 0,
        since_ns: 0,
        place: 0,
        queued: 0,
        is_keyed: 0,
        has_extra: 0,
        extra: ExtraRecord::ZERO,
    };

    /// What is sent beside the record, empty at its first use.
    #[inline]
    pub fn extra(&mut self) -> &mut ExtraRecord {
        if self.has_extra == 0 {
            self.has_extra = 1;
            self.extra.begin_anew();
        }
        &mut self.extra
    }

    /// No thread runs the request from now on.
    #[inline]
    pub fn leave(&mut self, now: u64, place: u32, queued: bool) {
        self.since_ns = now;
        self.place = place;
        self.queued = queued as u32;
    }

    /// The time of the place where it is ends; a name that is given here is that of the place. Returns
    /// how long it was, and where.
    #[inline]
    pub fn count_away(&mut self, now: u64, named: u32) -> (u64, u32) {
        let place = if named == 0 { self.place } else { named - 1 };
        self.place = place;
        let ns = now.saturating_sub(self.since_ns);
        let queued_ns = if self.queued == 0 { 0 } else { ns };
        // Read back: see `thread::request`.
        // SAFETY: the reference is valid.
        let index = unsafe { core::ptr::read_volatile(&raw const self.place) } as usize;
        let extra = self.extra();
        if index < extra.away_ns.len() {
            extra.queued_ns += queued_ns;
            extra.away_ns[index] += ns;
            extra.aways[index] += 1;
        }
        (ns, place)
    }
}

impl ExtraRecord {
    /// Nothing.
    pub const ZERO: Self = Self {
        kind: 0,
        tgid: 0,
        tid: 0,
        moves: 0,
        begin_ns: 0,
        stamp_ns: 0,
        queued_ns: 0,
        away_ns: [0; MAX_PLACES + 2],
        aways: [0; MAX_PLACES + 2],
        numbers_set: 0,
        texts_set: 0,
        numbers: [0; crate::marker::MAX_ATTRIBUTES],
        arrived_ns: 0,
    };

    #[inline]
    fn begin_anew(&mut self) {
        *self = Self {
            kind: kind::EXTRA,
            ..Self::ZERO
        };
    }

    /// Nanoseconds parked or queued.
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.away_ns.iter().sum()
    }
}
