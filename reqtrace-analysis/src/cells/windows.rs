//! Windows of time: cells by the ends of their requests in; windows that are over, and sums over windows, out.
//!
//! A window is *open* until the watermark has passed its end, *closed* as long as root causes may still come, then
//! *sealed*: nothing in it changes any more, but neighbours become one when there is no room.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::ops::Range;

use rustc_hash::FxHashMap;

use super::Merge;

/// What a key takes in a table beside the cell, which is a box: hash tables are half full.
const ENTRY: usize = 2 * size_of::<usize>();

/// A stretch of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window<K: Eq + Hash, V> {
    /// `CLOCK_MONOTONIC` ns. No two windows of a boot begin at the same time.
    pub begin_ns: u64,
    /// The first ns behind it.
    pub until_ns: u64,
    /// Its begin by the wall clock, ns since the Unix epoch.
    pub unix_ns: u64,
    /// The wall clock was set at its end, which came early by that.
    pub is_stepped: bool,
    /// Requests that ended before it, and came when their own window was closed.
    pub late: u64,
    is_sealed: bool,
    cells: FxHashMap<K, Box<V>>,
}

impl<K: Clone + Eq + Hash, V> Window<K, V> {
    /// One without requests.
    fn at(times_ns: Range<u64>) -> Self {
        Self {
            begin_ns: times_ns.start,
            until_ns: times_ns.end,
            unix_ns: times_ns.start,
            is_stepped: false,
            late: 0,
            is_sealed: false,
            cells: FxHashMap::default(),
        }
    }

    /// Its cells, in no order.
    pub fn cells(&self) -> impl Iterator<Item = (&K, &V)> {
        self.cells.iter().map(|(key, cell)| (key, &**cell))
    }
}

/// The windows of one table.
#[derive(Clone, Debug)]
pub struct Windows<K: Eq + Hash, V> {
    length_ns: u64,
    /// How long after its end a window is sealed.
    grace_ns: u64,
    /// Root causes of all requests come, or are late.
    has_causes: bool,
    /// By their begins.
    windows: BTreeMap<u64, Window<K, V>>,
    /// Where windows end early.
    cuts: BTreeMap<u64, Cut>,
    /// What is to be added to `CLOCK_MONOTONIC` for the wall clock, before the first cut.
    to_unix_ns: i64,
    /// Windows that end until then are closed.
    closed_ns: u64,
    /// The open window that was looked for last: most requests are of the same one as the request before.
    last: Range<u64>,
    bytes: usize,
    /// Copies of windows that were sealed, until they are taken; `None`: nobody wants them.
    sealed: Option<Vec<Window<K, V>>>,
}

/// Why a window ends early, and what the wall clock is from then on.
#[derive(Clone, Copy, Debug)]
struct Cut {
    to_unix_ns: i64,
    is_step: bool,
}

impl<K: Clone + Eq + Hash, V: Clone + Default + Merge> Windows<K, V> {
    /// Windows of this length, which are sealed so long after their ends. `to_unix_ns` is what `CLOCK_MONOTONIC` lacks to
    /// the wall clock.
    pub fn new(length_ns: u64, grace_ns: u64, to_unix_ns: i64, has_causes: bool) -> Self {
        Self {
            length_ns,
            grace_ns,
            has_causes,
            windows: BTreeMap::new(),
            cuts: BTreeMap::new(),
            to_unix_ns,
            closed_ns: 0,
            last: 0..0,
            bytes: 0,
            sealed: None,
        }
    }

    /// The wall clock differs from `CLOCK_MONOTONIC` by so much from `at_ns` on. When that has changed, by a step of the
    /// clock or while the machine was suspended, the window of this time ends.
    pub fn clock(&mut self, at_ns: u64, to_unix_ns: i64) {
        if self.to_unix_ns_at(at_ns) != to_unix_ns {
            let cut = Cut {
                to_unix_ns,
                is_step: true,
            };
            self.cut(at_ns, cut);
        }
    }

    /// Ends the window of this time early, and closes it. Returns the begins of the windows that closed by that.
    pub fn cut_off(&mut self, at_ns: u64) -> Vec<u64> {
        let at_ns = at_ns.max(self.closed_ns + 1);
        let cut = Cut {
            to_unix_ns: self.to_unix_ns_at(at_ns),
            is_step: false,
        };
        self.cut(at_ns, cut);
        self.close(at_ns)
    }

    fn cut(&mut self, at_ns: u64, cut: Cut) {
        self.last = 0..0;
        let last_ns = self.cuts.last_key_value().map_or(0, |(at_ns, _)| *at_ns);
        let at_ns = at_ns.max(self.closed_ns).max(last_ns);
        self.cuts.insert(at_ns, cut);
        if let Some(window) = self.windows.get_mut(&at_ns) {
            window.unix_ns = at_ns.saturating_add_signed(cut.to_unix_ns);
        }
        if let Some((_, window)) = self.windows.range_mut(..at_ns).next_back()
            && window.until_ns > at_ns
        {
            window.until_ns = at_ns;
            window.is_stepped |= cut.is_step;
        }
    }

    fn to_unix_ns_at(&self, at_ns: u64) -> i64 {
        let cut = self.cuts.range(..=at_ns).next_back();
        cut.map_or(self.to_unix_ns, |(_, cut)| cut.to_unix_ns)
    }

    /// The begin of the window of this time.
    fn begin_of(&self, at_ns: u64) -> u64 {
        let cut = self.cuts.range(..=at_ns).next_back();
        let begin_ns = at_ns - at_ns % self.length_ns;
        cut.map_or(begin_ns, |(cut_ns, _)| begin_ns.max(*cut_ns))
    }

    /// The window in which a request is counted that ended then: that of its end or, when that is closed, the first
    /// that is open.
    fn open(&mut self, end_ns: u64) -> &mut Window<K, V> {
        if !self.last.contains(&end_ns) {
            self.last = self.begin(self.begin_of(end_ns.max(self.closed_ns)));
        }
        let begin_ns = self.last.start;
        let window = self.windows.entry(begin_ns);
        let window = window.or_insert_with(|| Window::at(begin_ns..begin_ns));
        window.late += u64::from(end_ns < begin_ns);
        window
    }

    /// Begins the window, if there is none yet. Returns its times.
    fn begin(&mut self, begin_ns: u64) -> Range<u64> {
        let boundary_ns = (begin_ns - begin_ns % self.length_ns).saturating_add(self.length_ns);
        let cut = self.cuts.range(begin_ns + 1..).next();
        let cut = cut.filter(|(at_ns, _)| **at_ns < boundary_ns);
        let to_unix_ns = self.to_unix_ns_at(begin_ns);
        let window = self.windows.entry(begin_ns).or_insert_with(|| {
            let until_ns = cut.map_or(boundary_ns, |(at_ns, _)| *at_ns);
            Window {
                unix_ns: begin_ns.saturating_add_signed(to_unix_ns),
                is_stepped: cut.is_some_and(|(_, cut)| cut.is_step),
                ..Window::at(begin_ns..until_ns)
            }
        });
        begin_ns..window.until_ns
    }

    /// Adds a request to the cell of this key. Returns the begin of its window.
    pub fn add(&mut self, end_ns: u64, key: K, add: impl FnOnce(&mut V)) -> u64 {
        let window = self.open(end_ns);
        let begin_ns = window.begin_ns;
        let mut bytes = 0;
        let cell = window.cells.entry(key).or_insert_with(|| {
            bytes = ENTRY + size_of::<K>();
            Box::default()
        });
        let before = match bytes {
            0 => cell.bytes(),
            _ => 0,
        };
        add(cell);
        self.bytes += bytes + cell.bytes() - before;
        begin_ns
    }

    /// A cell of a window, as long as it may change.
    pub fn cell_of(&mut self, begin_ns: u64, key: &K) -> Option<&mut V> {
        let window = self.windows.get_mut(&begin_ns);
        let cells = &mut window.filter(|window| !window.is_sealed)?.cells;
        cells.get_mut(key).map(|cell| &mut **cell)
    }

    /// Whether a window is over of which all requests have come, if those that ended before this have.
    pub fn is_due(&self, watermark_ns: u64) -> bool {
        watermark_ns > self.closed_ns && self.begin_of(watermark_ns) > self.closed_ns
    }

    /// All requests that ended before this have come. Returns the begins of the windows that closed by that.
    pub fn advance(&mut self, watermark_ns: u64) -> Vec<u64> {
        if !self.is_due(watermark_ns) {
            return Vec::new();
        }
        let until_ns = self.begin_of(watermark_ns);
        let closed = self.close(until_ns);
        self.seal(until_ns.saturating_sub(self.grace_ns));
        closed
    }

    fn close(&mut self, until_ns: u64) -> Vec<u64> {
        let closed = self.windows.range(self.closed_ns..until_ns);
        let closed = closed.map(|(begin_ns, _)| *begin_ns).collect();
        self.closed_ns = until_ns;
        self.last = 0..0;
        let coming = self.cuts.split_off(&until_ns);
        let past = std::mem::replace(&mut self.cuts, coming);
        if let Some((_, cut)) = past.last_key_value() {
            self.to_unix_ns = cut.to_unix_ns;
        }
        closed
    }

    fn seal(&mut self, until_ns: u64) {
        let mut sealed = Vec::new();
        for window in self.windows.values_mut().rev() {
            if window.is_sealed {
                break;
            }
            if window.until_ns <= until_ns {
                window.is_sealed = true;
                if self.has_causes {
                    window.cells.values_mut().for_each(|cell| cell.seal());
                }
                if self.sealed.is_some() {
                    sealed.push(window.clone());
                }
            }
        }
        if let Some(all) = &mut self.sealed {
            all.extend(sealed.into_iter().rev());
        }
    }

    /// Windows are wanted from here on when they are sealed.
    pub fn keep_sealed(&mut self) {
        self.sealed.get_or_insert_default();
    }

    /// Those that were sealed since the last time, in the order of time.
    pub fn take_sealed(&mut self) -> Vec<Window<K, V>> {
        self.sealed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Forgets what is sealed.
    pub fn forget_sealed(&mut self) {
        self.windows.retain(|_, window| !window.is_sealed);
        self.count_bytes();
    }

    /// Makes one of two neighbours, but for the last `keep_ns` of what is closed. False when there are no two.
    pub fn pair_up(&mut self, keep_ns: u64) -> bool {
        let until_ns = self.closed_ns.saturating_sub(keep_ns);
        self.seal(until_ns);
        let old = self.windows.values();
        let old = old.filter(|window| window.is_sealed && window.until_ns <= until_ns);
        let begins: Vec<u64> = old.map(|window| window.begin_ns).collect();
        let (pairs, _) = begins.as_chunks::<2>();
        for [first, second] in pairs {
            let second = self.windows.remove(second);
            if let (Some(first), Some(second)) = (self.windows.get_mut(first), second) {
                first.merge(&second);
            }
        }
        self.count_bytes();
        !pairs.is_empty()
    }

    /// Changes the cells of one window, or of all; those with no more than `least` cells stay as they are.
    pub fn change(
        &mut self,
        of: Option<u64>,
        least: usize,
        mut change: impl FnMut(&mut FxHashMap<K, Box<V>>),
    ) {
        let all = self.windows.values_mut();
        let of = all.filter(|window| of.is_none_or(|of| window.begin_ns == of));
        for window in of.filter(|window| window.cells.len() > least) {
            let before = window.bytes();
            change(&mut window.cells);
            self.bytes = self.bytes + window.bytes() - before;
        }
    }

    fn count_bytes(&mut self) {
        self.bytes = self.windows.values().map(Window::bytes).sum();
    }

    /// Adds the windows of another table with the same clock.
    pub fn merge(&mut self, other: &Self) {
        for (begin_ns, window) in &other.windows {
            match self.windows.get_mut(begin_ns) {
                Some(own) => own.merge(window),
                None => {
                    self.windows.insert(*begin_ns, window.clone());
                }
            }
        }
        self.count_bytes();
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// All windows, in the order of time.
    pub fn all(&self) -> impl Iterator<Item = &Window<K, V>> {
        self.windows.values()
    }

    /// Windows that end until then are closed.
    pub fn closed_ns(&self) -> u64 {
        self.closed_ns
    }

    /// Windows that end until then are sealed.
    pub fn sealed_ns(&self) -> u64 {
        self.closed_ns.saturating_sub(self.grace_ns)
    }

    /// The last windows that are closed, of so much time at most, and how much that is, ns. One that has paired up with
    /// older ones is none of them, unless there is no other.
    pub fn last(&self, ns: u64) -> (u64, impl Iterator<Item = &Window<K, V>>) {
        let last_ns = self.closed_ns.saturating_sub(ns);
        let older = self.windows.range(..last_ns).next_back();
        let from_ns = match older {
            Some((_, older)) if older.until_ns >= self.closed_ns => older.begin_ns,
            Some((_, older)) => older.until_ns.max(last_ns),
            None => last_ns,
        };
        let windows = self.windows.range(from_ns..self.closed_ns);
        let windows = windows.map(|(_, window)| window);
        (self.closed_ns - from_ns, windows)
    }
}

impl<K: Clone + Eq + Hash, V: Clone + Default + Merge> Window<K, V> {
    fn bytes(&self) -> usize {
        let cells = self.cells.values();
        cells
            .map(|cell| ENTRY + size_of::<K>() + cell.bytes())
            .sum()
    }

    fn merge(&mut self, other: &Self) {
        self.until_ns = self.until_ns.max(other.until_ns);
        self.is_stepped |= other.is_stepped;
        self.late += other.late;
        self.is_sealed &= other.is_sealed;
        for (key, cell) in &other.cells {
            self.cells.entry(key.clone()).or_default().merge(cell);
        }
    }
}
