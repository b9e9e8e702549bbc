//! Roll-ups of windows in; those of minutes, added up and bounded, out.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{Figures, Level, OTHER, OfRequests, OfService, Rollup};

/// What a row is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) minute_unix_ns: u64,
    pub(crate) level: Level,
    /// Empty: not known.
    pub(crate) build_id: String,
}

/// Figures by minute, what they are of, and build.
#[derive(Debug, Default)]
pub(crate) struct Minutes {
    rows: BTreeMap<Key, Figures>,
    /// Of each request type the build that was known last.
    builds: BTreeMap<String, String>,
    text_bytes: usize,
}

impl Minutes {
    /// Adds figures to those of the same minute, level and build.
    pub(crate) fn add(&mut self, rollup: &Rollup) {
        let level = rollup.level.clone();
        let build_id = level.request().map(|request| {
            let known = rollup.build_id.as_deref();
            self.build_of(request, known)
        });
        let key = Key {
            minute_unix_ns: rollup.minute_unix_ns,
            level,
            build_id: build_id.unwrap_or_default(),
        };
        match self.rows.get_mut(&key) {
            Some(figures) => figures.add(&rollup.figures),
            None => {
                self.text_bytes += key.level.text_bytes() + key.build_id.len();
                self.rows.insert(key, rollup.figures.clone());
            }
        }
    }

    /// The build of these requests. What came before any was known is of the first one, as in files of rows.
    fn build_of(&mut self, request: &str, known: Option<&str>) -> String {
        let last = self.builds.get(request);
        let Some(known) = known else {
            return last.cloned().unwrap_or_default();
        };
        if last.is_none() {
            let is_of_none = |key: &&Key| key.level.request() == Some(request);
            let of_none: Vec<Key> = self.rows.keys().filter(is_of_none).cloned().collect();
            for key in of_none {
                if let Some(figures) = self.rows.remove(&key) {
                    self.text_bytes += known.len();
                    let build_id = known.to_owned();
                    self.rows.insert(Key { build_id, ..key }, figures);
                }
            }
        }
        self.builds.insert(request.to_owned(), known.to_owned());
        known.to_owned()
    }

    /// All of them, in order.
    pub(crate) fn rows(&self) -> &BTreeMap<Key, Figures> {
        &self.rows
    }

    /// Bytes of their texts.
    pub(crate) fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// How many there are when so many groups are distinguished.
    pub(crate) fn len(&self, most_groups: usize) -> usize {
        let beyond = self.beyond(most_groups);
        let news = beyond.iter().filter(|keys| {
            let first = keys.first().and_then(other_of);
            first.is_some_and(|other| !self.rows.contains_key(&other))
        });
        self.rows.len() + news.count() - beyond.iter().map(Vec::len).sum::<usize>()
    }

    /// Tells so many groups of a type and minute apart, those with the most time; the others are [`OTHER`]. Sums stay what they are.
    pub(crate) fn fold(&mut self, most_groups: usize) {
        for key in self.beyond(most_groups).into_iter().flatten() {
            let Some((other, figures)) = other_of(&key).zip(self.rows.remove(&key)) else {
                continue;
            };
            match self.rows.get_mut(&other) {
                Some(sums) => sums.add(&figures),
                None => {
                    self.rows.insert(other, figures);
                }
            }
        }
    }

    /// Groups that are not distinguished then, those of a type, minute and build together.
    fn beyond(&self, most_groups: usize) -> Vec<Vec<Key>> {
        let mut all: BTreeMap<Key, Vec<(Reverse<u64>, &Key)>> = BTreeMap::new();
        for (key, figures) in &self.rows {
            if let (Level::Group(_, group), Figures::Requests(of)) = (&key.level, figures)
                && group != OTHER
                && let Some(other) = other_of(key)
            {
                let groups = all.entry(other).or_default();
                groups.push((Reverse(of.ledger.latency_ns), key));
            }
        }
        let beyond = all.into_values().map(|mut groups| {
            groups.sort_unstable();
            let beyond = groups.into_iter().skip(most_groups);
            beyond.map(|(_, key)| key.clone()).collect::<Vec<_>>()
        });
        beyond.filter(|keys| !keys.is_empty()).collect()
    }
}

/// The row of the groups that are not distinguished from this one.
fn other_of(key: &Key) -> Option<Key> {
    let Level::Group(request, _) = &key.level else {
        return None;
    };
    Some(Key {
        level: Level::Group(request.clone(), OTHER.to_owned()),
        ..key.clone()
    })
}

impl Level {
    /// The request type that it is of.
    fn request(&self) -> Option<&str> {
        match self {
            Self::Service => None,
            Self::Type(request) | Self::Group(request, _) => Some(request),
        }
    }
}

impl OfService {
    fn add(&mut self, other: &Self) {
        self.covered_ns += other.covered_ns;
        self.traced_ns += other.traced_ns;
        self.lost += other.lost;
    }
}

impl OfRequests {
    fn add(&mut self, other: &Self) {
        self.recorded += other.recorded;
        self.requests += other.requests;
        add_known(&mut self.incomplete, other.incomplete);
        add_known(&mut self.slow, other.slow);
        self.ledger.add(&other.ledger);
        if let Some(causes) = &other.causes {
            self.causes.get_or_insert_default().add_times(causes, 1);
        }
        if self.histogram.len() < other.histogram.len() {
            self.histogram.resize(other.histogram.len(), 0);
        }
        let sums = self.histogram.iter_mut().zip(&other.histogram);
        sums.for_each(|(sum, count)| *sum += count);
    }
}

fn add_known(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *sum.get_or_insert_default() += more;
    }
}

impl Figures {
    /// Adds others of the same level.
    pub(crate) fn add(&mut self, other: &Self) {
        match (self, other) {
            (Self::Service(own), Self::Service(other)) => own.add(other),
            (Self::Requests(own), Self::Requests(other)) => own.add(other),
            // A level has one kind of figures.
            (Self::Service(_) | Self::Requests(_), _) => {}
        }
    }
}
