//! Rows that wait for blame: all rows of a session in, in the order in which their requests ended; in the same order, and
//! for ten seconds, those that are kept out.
//!
//! Who held up a slow request ended before it, mostly, and was not slow itself. So a row waits, and is kept when a slow or
//! incomplete one names it meanwhile. Rows that are drawn wait as long as those that are not, and leave as early when there
//! is no room: whether one is named in time must not depend on its draw, or the sums would be biased.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use reqtrace_analysis::report::{KeptFor, RequestKey};
use rustc_hash::{FxHashMap, FxHashSet};

use super::row::Row;
use crate::choice::Kept;

/// How long a row waits.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of rows of a session that wait.
const MOST_BYTES: usize = 16 << 20;
/// Requests that were named before their row came, or that are remembered when it has left.
const MOST_KEYS: usize = 1 << 16;

/// What becomes of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// It is kept.
    Kept(Kept),
    /// It is kept like this when a slow or incomplete request blames it, else like that, or not at all.
    Open { blamed: Kept, drawn: Option<Kept> },
}

#[derive(Debug)]
struct One {
    key: RequestKey,
    row: Row,
    fate: Fate,
    bytes: usize,
    since: Instant,
}

/// The newest of many keys.
#[derive(Debug, Default)]
struct Newest {
    set: FxHashSet<RequestKey>,
    order: VecDeque<RequestKey>,
}

/// The rows of a session.
#[derive(Debug)]
pub(super) struct Waiting {
    rows: VecDeque<One>,
    /// The number of the first.
    first: u64,
    /// Numbers of those whose fate is open.
    open: FxHashMap<RequestKey, u64>,
    bytes: usize,
    most_bytes: usize,
    /// Requests that were named and have no row yet.
    named: Newest,
    /// Requests whose row was left out.
    gone: Newest,
    /// Rows that left early since the last time.
    early: u64,
    /// Requests that were named when their row was left out already.
    late: u64,
}

impl Newest {
    fn insert(&mut self, key: RequestKey) {
        if self.set.insert(key) {
            self.order.push_back(key);
        }
        if self.order.len() > MOST_KEYS
            && let Some(oldest) = self.order.pop_front()
        {
            self.set.remove(&oldest);
        }
    }

    /// It is one of them, and will not be asked for again.
    fn remove(&mut self, key: &RequestKey) -> bool {
        self.set.remove(key)
    }
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            rows: VecDeque::new(),
            first: 0,
            open: FxHashMap::default(),
            bytes: 0,
            most_bytes: MOST_BYTES,
            named: Newest::default(),
            gone: Newest::default(),
            early: 0,
            late: 0,
        }
    }
}

impl Waiting {
    /// A row comes.
    pub(super) fn push(&mut self, key: RequestKey, row: Row, fate: Fate, now: Instant) {
        let fate = match fate {
            Fate::Open { blamed, .. } if self.named.remove(&key) => Fate::Kept(blamed),
            fate => fate,
        };
        if matches!(fate, Fate::Open { .. }) {
            let number = self.first + self.rows.len() as u64;
            self.open.insert(key, number);
        }
        let bytes = row.bytes() + 2 * size_of::<(RequestKey, u64)>() + size_of::<Fate>();
        self.bytes += bytes;
        self.rows.push_back(One {
            key,
            row,
            fate,
            bytes,
            since: now,
        });
    }

    /// A slow or incomplete request was held up by this one.
    pub(super) fn blame(&mut self, key: &RequestKey) {
        let Some(number) = self.open.remove(key) else {
            if self.gone.remove(key) {
                self.late += 1;
            } else {
                self.named.insert(*key);
            }
            return;
        };
        let at = number.checked_sub(self.first);
        let one = at.and_then(|at| self.rows.get_mut(at as usize));
        if let Some(one) = one
            && let Fate::Open { blamed, .. } = one.fate
        {
            one.fate = Fate::Kept(blamed);
        }
    }

    /// The next row that is kept of those that have waited, or that have no room.
    pub(super) fn next(&mut self, now: Instant) -> Option<Row> {
        loop {
            let first = self.rows.front()?;
            let has_waited = now.saturating_duration_since(first.since) >= PATIENCE;
            if !has_waited && self.bytes <= self.most_bytes {
                return None;
            }
            let is_open = matches!(first.fate, Fate::Open { .. });
            self.early += u64::from(is_open && !has_waited);
            if let Some(row) = self.leave() {
                return Some(row);
            }
        }
    }

    /// The next row that is kept of all. `is_early`: more come, and they could have waited for these.
    pub(super) fn next_of_all(&mut self, is_early: bool) -> Option<Row> {
        while let Some(first) = self.rows.front() {
            let is_open = matches!(first.fate, Fate::Open { .. });
            self.early += u64::from(is_open && is_early);
            if let Some(row) = self.leave() {
                return Some(row);
            }
        }
        None
    }

    /// The first row leaves; `Some`: it is kept.
    fn leave(&mut self) -> Option<Row> {
        let One {
            key,
            row,
            fate,
            bytes,
            since: _,
        } = self.rows.pop_front()?;
        self.bytes -= bytes;
        let number = self.first;
        self.first += 1;
        if self.open.get(&key) == Some(&number) {
            self.open.remove(&key);
        }
        match fate {
            Fate::Kept(kept)
            | Fate::Open {
                drawn: Some(kept), ..
            } => Some(row.kept_for(kept)),
            Fate::Open { drawn: None, .. } => {
                self.gone.insert(key);
                None
            }
        }
    }

    /// Rows that could not wait, and rows that were left out before they were named, since the last time.
    pub(super) fn take_missed(&mut self) -> [u64; 2] {
        [&mut self.early, &mut self.late].map(std::mem::take)
    }
}

impl Fate {
    /// Of a request that stands for `weight`, and was chosen like this. `waits`: others may name it.
    pub(super) fn of(
        chosen: Option<Kept>,
        weight: u32,
        is_slow: Option<bool>,
        waits: bool,
    ) -> Option<Self> {
        let for_itself = |kept: &Kept| kept.why != KeptFor::Drawn;
        match chosen {
            Some(kept) if for_itself(&kept) || !waits => Some(Self::Kept(kept)),
            None if !waits => None,
            drawn => {
                let blamed = Kept {
                    weight,
                    is_slow,
                    why: KeptFor::Blamed,
                };
                Some(Self::Open { blamed, drawn })
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
