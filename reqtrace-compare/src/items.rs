//! Items: stacks, files, locks and culprits, by name. Sums until now in, sums of each stretch of time out.
//!
//! A report knows of them only what they come to until the moment of asking, so it is asked several times.

use rustc_hash::FxHashMap;
use serde::Serialize;

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemKind {
    /// Because of whom requests waited, and the root cause.
    Culprit,
    /// A lock.
    Lock,
    /// A file.
    File,
    /// An off-CPU stack; frames with `;` between, the outermost first.
    Stack,
}

impl ItemKind {
    /// All, in the order of tables.
    pub const ALL: [Self; 4] = [Self::Culprit, Self::Lock, Self::File, Self::Stack];

    /// In words, of many.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Culprit => "culprits",
            Self::Lock => "locks",
            Self::File => "files",
            Self::Stack => "stacks",
        }
    }
}

/// An item of a request type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) kind: ItemKind,
    pub(crate) request: String,
    pub(crate) name: String,
}

/// Sums of an item.
#[derive(Clone, Debug, Default)]
pub(crate) struct Item {
    /// Until now, ns.
    until: u64,
    /// Stretch and ns in it; only those that are not 0.
    pub(crate) each: Vec<(u32, u64)>,
}

/// All items of a side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Items {
    pub(crate) all: FxHashMap<Key, Item>,
    /// Requests of each type that ended in a stretch.
    pub(crate) requests: Vec<FxHashMap<String, u64>>,
    until: FxHashMap<String, u64>,
}

impl Items {
    /// A recording begins: all sums are 0.
    pub(crate) fn begin(&mut self) {
        self.until.clear();
        self.all.values_mut().for_each(|item| item.until = 0);
    }

    /// A stretch of time is over; `false`: it had no request, and is none. Requests by type and sums by item are those since
    /// the begin.
    pub(crate) fn cut(
        &mut self,
        requests: impl IntoIterator<Item = (String, u64)>,
        sums: impl IntoIterator<Item = (ItemKind, String, String, u64)>,
    ) -> bool {
        let requests: Vec<(String, u64)> = requests.into_iter().collect();
        let more = |(request, count): &(String, u64)| {
            let until = self.until.get(request).copied().unwrap_or(0);
            (request.clone(), count.saturating_sub(until))
        };
        let counts: FxHashMap<String, u64> = requests.iter().map(more).collect();
        // Without a request, as between two ranges of time, it belongs to the next one.
        if counts.values().all(|count| *count == 0) {
            return false;
        }
        let stretch = self.requests.len() as u32;
        self.requests.push(counts);
        self.until.extend(requests);
        // Several lines of a report may read alike.
        let mut now: FxHashMap<Key, u64> = FxHashMap::default();
        for (kind, request, name, ns) in sums {
            *now.entry(Key {
                kind,
                request,
                name,
            })
            .or_default() += ns;
        }
        for (key, ns) in now {
            let item = self.all.entry(key).or_default();
            let more = ns.saturating_sub(item.until);
            if more > 0 {
                item.each.push((stretch, more));
            }
            item.until = ns;
        }
        true
    }

    /// Makes one of each two of the last stretches, so many.
    pub(crate) fn join(&mut self, last: usize) {
        let first = self.requests.len().saturating_sub(last);
        let joined = self.requests.split_off(first);
        for pair in joined.chunks(2) {
            let mut counts = pair[0].clone();
            for (request, count) in pair.iter().skip(1).flatten() {
                *counts.entry(request.clone()).or_default() += count;
            }
            self.requests.push(counts);
        }
        let first = first as u32;
        for item in self.all.values_mut() {
            for (stretch, _) in item
                .each
                .iter_mut()
                .filter(|(stretch, _)| *stretch >= first)
            {
                *stretch = first + (*stretch - first) / 2;
            }
            item.each.dedup_by(|next, sum| {
                let is_same = next.0 == sum.0;
                if is_same {
                    sum.1 += next.1;
                }
                is_same
            });
        }
    }

    /// Requests of each type.
    pub(crate) fn counts(&self) -> FxHashMap<&str, u64> {
        let mut counts = FxHashMap::default();
        for (request, count) in self.requests.iter().flatten() {
            *counts.entry(request.as_str()).or_default() += count;
        }
        counts
    }

    /// All time of an item, ns.
    pub(crate) fn total(&self, key: &Key) -> u64 {
        self.all
            .get(key)
            .map_or(0, |item| item.each.iter().map(|(_, ns)| ns).sum())
    }
}
