//! Requests by group: complete requests with what they are grouped by in, the cells of groups out.
//!
//! Which groups are kept when there are too many follows Misra and Gries: a group has a rank, the time of its requests;
//! when groups are folded, the rank of the largest that goes is taken from those that stay. So, however often windows
//! are merged and folded, a group with more than `1 / (most + 1)` of the time keeps its cell.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{GRACE_NS, LATENCY_BITS, MAX_BYTES, Merge, One, Sum, WINDOW_NS, Window, Windows, cell};
use crate::blame::Causes;
use crate::bounded::take_smallest;

/// Length of a window.
const LENGTH_NS: u64 = 10 * WINDOW_NS;
/// Windows that live as long as there is room: those that a screen shows.
const KEEP_NS: u64 = 6 * LENGTH_NS;
/// Groups of each type that a window keeps.
pub(crate) const MAX_GROUPS: usize = 10_000;

/// Type, and what its requests are grouped by; `None` are all others.
pub type GroupKey = (u32, Option<Arc<str>>);

/// Requests of one type and group. With 4 bits latencies are known to 6 %.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group<const BITS: u32 = 4> {
    /// Their sums.
    pub cell: cell::Cell<BITS>,
    /// Its time, less what was taken from it when others were folded.
    rank_ns: u64,
}

impl<const BITS: u32> Merge for Group<BITS> {
    fn merge(&mut self, other: &Self) {
        self.cell.merge(&other.cell);
        self.rank_ns += other.rank_ns;
    }

    fn seal(&mut self) {
        self.cell.seal();
    }

    fn bytes(&self) -> usize {
        self.cell.bytes() + size_of_val(&self.rank_ns)
    }
}

/// Requests by the time in which they ended, type and group.
#[derive(Clone, Debug)]
pub struct Groups<const BITS: u32 = 4> {
    pub(super) windows: Windows<GroupKey, Group<BITS>>,
    pub(super) names: FxHashSet<Arc<str>>,
    pub(super) name_bytes: usize,
    pub(super) max_groups: usize,
    pub(super) max_bytes: usize,
    /// Until when requests were seen.
    pub(super) seen_ns: u64,
}

/// Groups by the windows of [`super::Cells`], to be taken when they are sealed; their latencies are as exact as there.
pub type GroupsBySecond = Groups<LATENCY_BITS>;

impl GroupsBySecond {
    /// No requests yet. See [`super::Cells::new`].
    pub fn by_second(to_unix_ns: i64, has_causes: bool) -> Self {
        let grace_ns = if has_causes { GRACE_NS } else { 0 };
        let mut windows = Windows::new(WINDOW_NS, grace_ns, to_unix_ns, has_causes);
        windows.keep_sealed();
        Self::of(windows)
    }

    /// Windows that were sealed since the last time, in the order of time; here they are forgotten.
    pub fn take_sealed(&mut self) -> Vec<Window<GroupKey, Group<LATENCY_BITS>>> {
        let sealed = self.windows.take_sealed();
        if !sealed.is_empty() {
            self.windows.forget_sealed();
            self.forget_names();
        }
        sealed
    }
}

impl Groups {
    /// No requests yet. See [`super::Cells::new`].
    pub fn new(to_unix_ns: i64, has_causes: bool) -> Self {
        Self::of(Windows::new(LENGTH_NS, GRACE_NS, to_unix_ns, has_causes))
    }
}

impl<const BITS: u32> Groups<BITS> {
    fn of(windows: Windows<GroupKey, Group<BITS>>) -> Self {
        Self {
            windows,
            names: FxHashSet::default(),
            name_bytes: 0,
            max_groups: MAX_GROUPS,
            max_bytes: MAX_BYTES,
            seen_ns: 0,
        }
    }

    /// Adds a complete request of this type and group. Returns the begin of the window that it is counted in, and its
    /// key there.
    pub fn add(
        &mut self,
        end_ns: u64,
        request: u32,
        group: &str,
        one: &One<'_>,
    ) -> (u64, GroupKey) {
        self.seen_ns = self.seen_ns.max(end_ns);
        let name = match self.names.get(group) {
            Some(name) => Arc::clone(name),
            None => {
                let name: Arc<str> = group.into();
                self.names.insert(Arc::clone(&name));
                self.name_bytes += name_bytes(&name);
                name
            }
        };
        let key = (request, Some(name));
        let window = self.windows.add(end_ns, key.clone(), |group| {
            group.cell.add(one);
            group.rank_ns += one.ledger.latency_ns * u64::from(one.weight);
        });
        if self.bytes() > self.max_bytes {
            self.shrink();
        }
        (window, key)
    }

    /// What a request of this window and group comes down to.
    pub fn book(&mut self, (window, key): &(u64, GroupKey), causes: &Causes, weight: u32) {
        let others = (key.0, None);
        let key = match self.windows.cell_of(*window, key) {
            Some(_) => key,
            None => &others,
        };
        if let Some(group) = self.windows.cell_of(*window, key) {
            group.cell.book(causes, u64::from(weight));
        }
    }

    /// See [`Windows::clock`].
    pub fn clock(&mut self, at_ns: u64, to_unix_ns: i64) {
        self.windows.clock(at_ns, to_unix_ns);
    }

    /// All requests that ended before this have come.
    pub fn advance(&mut self, watermark_ns: u64) {
        self.seen_ns = self.seen_ns.max(watermark_ns);
        let closed = self.windows.advance(watermark_ns);
        for window in closed {
            self.fold(Some(window), self.max_groups);
        }
    }

    /// Makes room: old windows pair up, then all that are closed, then the one that is open is closed. What is too much
    /// still is folded.
    fn shrink(&mut self) {
        let mut most = self.max_groups;
        for keep_ns in [KEEP_NS, KEEP_NS / 2, 0] {
            while self.is_large() && self.windows.pair_up(keep_ns) {
                self.fold(None, most);
            }
        }
        if self.is_large() {
            self.windows.cut_off(self.seen_ns + 1);
            while self.windows.pair_up(0) {}
        }
        while self.is_large() && most > 1 {
            self.fold(None, most);
            most /= 2;
        }
    }

    fn is_large(&self) -> bool {
        self.bytes() > self.max_bytes / 4 * 3
    }

    /// Leaves so many groups of each type in a window, or in each.
    pub(super) fn fold(&mut self, of: Option<u64>, most: usize) {
        let mut folded = false;
        self.windows.change(of, most, |cells| {
            fold(cells, most);
            folded = true;
        });
        if folded {
            self.forget_names();
        }
    }

    /// Forgets the names that no cell has.
    fn forget_names(&mut self) {
        self.names.retain(|name| Arc::strong_count(name) > 1);
        self.name_bytes = self.names.iter().map(|name| name_bytes(name)).sum();
    }

    /// Bytes of memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.windows.bytes() + self.name_bytes
    }

    /// All groups, added up over all windows.
    pub fn all(&self) -> BTreeMap<GroupKey, Group<BITS>> {
        sum(self.windows.all())
    }

    /// Weights, times and the longest latency of those of the last windows, of so much time and the one that is open.
    /// Windows that have paired up with older ones are left out.
    #[must_use]
    pub fn last(&self, ns: u64) -> FxHashMap<&GroupKey, (Sum, u64)> {
        let from_ns = self.seen_ns.saturating_sub(ns);
        let is_last = |window: &&Window<GroupKey, Group<BITS>>| {
            window.until_ns > from_ns && window.begin_ns + LENGTH_NS > from_ns
        };
        let windows = self.windows.all().filter(is_last);
        let mut all: FxHashMap<&GroupKey, (Sum, u64)> = FxHashMap::default();
        for (key, group) in windows.flat_map(Window::cells) {
            let (sum, max_ns) = all.entry(key).or_default();
            sum.merge(&group.cell.sum);
            *max_ns = group.cell.max_ns.max(*max_ns);
        }
        all
    }
}

fn name_bytes(name: &str) -> usize {
    // Two counts before the text, a hash table that is half full.
    name.len() + 2 * size_of::<usize>() + 2 * size_of::<Arc<str>>()
}

fn fold<const BITS: u32>(cells: &mut FxHashMap<GroupKey, Box<Group<BITS>>>, most: usize) {
    let mut types: BTreeMap<u32, FxHashMap<GroupKey, Box<Group<BITS>>>> = BTreeMap::new();
    for (key, group) in cells.extract_if(|key, _| key.1.is_some()) {
        types.entry(key.0).or_default().insert(key, group);
    }
    for (request, mut groups) in types {
        let small = take_smallest(&mut groups, most, |group| group.rank_ns);
        let taken_ns = small.first().map_or(0, |(_, group)| group.rank_ns);
        for group in groups.values_mut() {
            group.rank_ns -= taken_ns;
        }
        if !small.is_empty() {
            let others = cells.entry((request, None)).or_default();
            for (_, group) in small {
                others.cell.merge(&group.cell);
            }
        }
        cells.extend(groups);
    }
}

fn sum<'a, const BITS: u32>(
    windows: impl Iterator<Item = &'a Window<GroupKey, Group<BITS>>>,
) -> BTreeMap<GroupKey, Group<BITS>> {
    let mut all: FxHashMap<GroupKey, Group<BITS>> = FxHashMap::default();
    for (key, group) in windows.flat_map(Window::cells) {
        all.entry(key.clone()).or_default().merge(group);
    }
    all.into_iter().collect()
}
