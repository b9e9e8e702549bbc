//! Cells: requests that have ended in, their sums by time, type and latency, and by time, type and group, out.
//!
//! Everything that a report, a screen or a page shows of *requests by latency* is a sum of cells. Adding a request and
//! merging cells are exact, and their order makes no difference; what keeps memory bounded is another step, taken when a
//! window of time is over, and conserves every sum to the nanosecond: neighbouring windows become one, neighbouring
//! buckets do, and of groups the smallest become one.

pub mod bucket;
mod cell;
mod groups;
mod histogram;
mod windows;

use std::collections::BTreeMap;

use reqtrace_recording::Incomplete;
use rustc_hash::FxHashMap;

use crate::blame::Causes;
use bucket::{bucket as bucket_of, lowest};

pub use cell::{Cell as CellOf, One, Sum};
#[cfg(test)]
pub(crate) use groups::MAX_GROUPS;
pub use groups::{Group, GroupKey, Groups, GroupsBySecond};
pub use histogram::Histogram;
pub use windows::{Window, Windows};

/// Length of a window.
pub const WINDOW_NS: u64 = 1_000_000_000;
/// Windows that are handed over together.
const EXPORT_PERIOD: u64 = 10;
/// Root causes may come so long after the end of a window: two export periods.
const GRACE_NS: u64 = 2 * EXPORT_PERIOD * WINDOW_NS;
/// Bytes of each of the two tables.
const MAX_BYTES: usize = 16 << 20;
/// Buckets of a power of two: a cell is 1.6 % wide.
const BUCKET_BITS: u32 = 6;
/// Within a cell latencies have three digits.
const LATENCY_BITS: u32 = 10;

/// What can be added up in any order and any grouping.
pub trait Merge {
    /// Adds what another one has.
    fn merge(&mut self, other: &Self);

    /// From here on root causes that are missing are not known, because they are late.
    fn seal(&mut self);

    /// Bytes of memory.
    fn bytes(&self) -> usize;
}

/// Requests of one type and latency.
pub type Cell = cell::Cell<LATENCY_BITS>;

/// Which requests of a window a cell is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Index of the request type.
    pub request: u32,
    /// Which of them.
    pub which: Which,
}

/// Which requests of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Which {
    /// Complete ones whose latency is in this bucket.
    Latency(u32),
    /// Those that are incomplete: their latency means nothing.
    Incomplete(Incomplete),
}

/// Requests by the second in which they ended, type and latency.
#[derive(Clone, Debug)]
pub struct Cells {
    windows: Windows<Key, Cell>,
    bits: u32,
    max_bytes: usize,
    /// Records of complete requests, and the weights of incomplete ones.
    requests: (u64, u64),
    /// Requests whose root causes came when their window was sealed.
    booked_late: u64,
}

impl Cells {
    /// No requests yet. `to_unix_ns` is what `CLOCK_MONOTONIC` lacks to the wall clock; `has_causes`: root causes of all
    /// requests will come.
    pub fn new(to_unix_ns: i64, has_causes: bool) -> Self {
        Self {
            windows: Windows::new(
                WINDOW_NS,
                if has_causes { GRACE_NS } else { 0 },
                to_unix_ns,
                has_causes,
            ),
            bits: BUCKET_BITS,
            max_bytes: MAX_BYTES,
            requests: (0, 0),
            booked_late: 0,
        }
    }

    fn key(&self, request: u32, latency_ns: u64, incomplete: Option<Incomplete>) -> Key {
        let which = match incomplete {
            None => Which::Latency(bucket_of(self.bits, latency_ns)),
            Some(reason) => Which::Incomplete(reason),
        };
        Key { request, which }
    }

    /// Adds a request of this type. Returns the begin of the window that it is counted in.
    pub fn add(
        &mut self,
        end_ns: u64,
        request: u32,
        incomplete: Option<Incomplete>,
        one: &One<'_>,
    ) -> u64 {
        match incomplete {
            None => self.requests.0 += 1,
            Some(_) => self.requests.1 += u64::from(one.weight),
        }
        let key = self.key(request, one.ledger.latency_ns, incomplete);
        let window = self.windows.add(end_ns, key, |cell| cell.add(one));
        if self.windows.bytes() > self.max_bytes {
            self.shrink();
        }
        window
    }

    /// What a complete request of this window and latency comes down to.
    pub fn book(
        &mut self,
        window: u64,
        request: u32,
        latency_ns: u64,
        causes: &Causes,
        weight: u32,
    ) {
        let key = self.key(request, latency_ns, None);
        match self.windows.cell_of(window, &key) {
            Some(cell) => cell.book(causes, u64::from(weight)),
            None => self.booked_late += 1,
        }
    }

    /// See [`Windows::clock`].
    pub fn clock(&mut self, at_ns: u64, to_unix_ns: i64) {
        self.windows.clock(at_ns, to_unix_ns);
    }

    /// Whether that closes a window.
    pub fn is_due(&self, watermark_ns: u64) -> bool {
        self.windows.is_due(watermark_ns)
    }

    /// All requests that ended before this have come.
    pub fn advance(&mut self, watermark_ns: u64) {
        self.windows.advance(watermark_ns);
    }

    /// See [`Windows::keep_sealed`].
    pub fn keep_sealed(&mut self) {
        self.windows.keep_sealed();
    }

    /// See [`Windows::take_sealed`].
    pub fn take_sealed(&mut self) -> Vec<Window<Key, Cell>> {
        self.windows.take_sealed()
    }

    /// See [`Windows::forget_sealed`].
    pub fn forget_sealed(&mut self) {
        self.windows.forget_sealed();
    }

    /// Makes room: old windows pair up, then all that are closed; then neighbouring buckets become one.
    fn shrink(&mut self) {
        for keep_ns in [GRACE_NS, GRACE_NS / 2, 0] {
            while self.is_large() && self.windows.pair_up(keep_ns) {}
        }
        while self.is_large() && self.bits > 0 {
            let bits = self.bits;
            self.windows.change(None, 0, |cells| {
                for (key, cell) in std::mem::take(cells) {
                    let which = match key.which {
                        Which::Latency(bucket) => {
                            Which::Latency(bucket_of(bits - 1, lowest(bits, bucket)))
                        }
                        incomplete => incomplete,
                    };
                    cells.entry(Key { which, ..key }).or_default().merge(&cell);
                }
            });
            self.bits -= 1;
        }
    }

    fn is_large(&self) -> bool {
        self.windows.bytes() > self.max_bytes / 4 * 3
    }

    /// Bytes of memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.windows.bytes()
    }

    /// The windows, in the order of time.
    pub fn windows(&self) -> impl Iterator<Item = &Window<Key, Cell>> {
        self.windows.all()
    }

    /// All cells of one type, added up over all windows.
    pub fn of_type(&self, request: u32) -> BTreeMap<Which, Cell> {
        sum(self.windows.all(), request)
    }

    /// Until when windows are closed, `CLOCK_MONOTONIC` ns.
    #[must_use]
    pub fn closed_ns(&self) -> u64 {
        self.windows.closed_ns()
    }

    /// Until when windows are sealed, `CLOCK_MONOTONIC` ns.
    #[must_use]
    pub fn sealed_ns(&self) -> u64 {
        self.windows.sealed_ns()
    }

    /// Σ of the weights of the complete requests of one type.
    #[must_use]
    pub fn count(&self, request: u32) -> u64 {
        self.complete(request).map(|cell| cell.sum.weight).sum()
    }

    /// Records of the complete requests of one type, whatever each stands for.
    #[must_use]
    pub fn records(&self, request: u32) -> u64 {
        self.complete(request).map(|cell| cell.count).sum()
    }

    /// Latencies of the complete requests of one type.
    pub fn latencies(&self, request: u32) -> Histogram<LATENCY_BITS> {
        Histogram::sum(self.complete(request).map(|cell| &cell.latencies))
    }

    fn complete(&self, request: u32) -> impl Iterator<Item = &Cell> {
        let cells = self.windows.all().flat_map(Window::cells);
        let complete = cells.filter(move |(key, _)| {
            key.request == request && matches!(key.which, Which::Latency(_))
        });
        complete.map(|(_, cell)| cell)
    }

    /// Those of the last windows that are closed, and of how much time, ns: see [`Windows::last`].
    pub fn of_type_last(&self, request: u32, ns: u64) -> (u64, BTreeMap<Which, Cell>) {
        let (last_ns, windows) = self.windows.last(ns);
        (last_ns, sum(windows, request))
    }

    /// Requests whose root causes came when their window was sealed: they are `not known: late`.
    pub fn booked_late(&self) -> u64 {
        self.booked_late
    }

    /// Records of complete requests, and how many are incomplete.
    pub fn requests(&self) -> (u64, u64) {
        self.requests
    }
}

impl Window<Key, Cell> {
    /// All complete requests of one type, and how many are incomplete.
    pub fn of_type(&self, request: u32) -> (Cell, u64) {
        let mut all = (Cell::default(), 0);
        let cells = self.cells().filter(|(key, _)| key.request == request);
        for (key, cell) in cells {
            match key.which {
                Which::Latency(_) => all.0.merge(cell),
                Which::Incomplete(_) => all.1 += cell.sum.weight,
            }
        }
        all
    }
}

fn sum<'a>(
    windows: impl Iterator<Item = &'a Window<Key, Cell>>,
    request: u32,
) -> BTreeMap<Which, Cell> {
    let mut all: FxHashMap<Which, Cell> = FxHashMap::default();
    let cells = windows.flat_map(Window::cells);
    for (key, cell) in cells.filter(|(key, _)| key.request == request) {
        all.entry(key.which).or_default().merge(cell);
    }
    all.into_iter().collect()
}

#[cfg(test)]
mod tests;
