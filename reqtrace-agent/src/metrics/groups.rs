//! Groups of one request type: closed windows by group in; a bounded number of sums that never decrease, and add up to those
//! of the type, out.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use reqtrace_analysis::cells::{Cell, Merge as _};
use sha2::{Digest as _, Sha256};

use super::OTHER;
use super::latencies::durations;

/// Requests without a text that they could be grouped by.
const NONE: &str = "~none";
/// Characters of a label.
const MOST_CHARS: usize = 120;
/// Digits by which labels that are too long stay apart.
const DIGITS: usize = 8;

/// Requests of one type in a window by their group.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClosedGroups {
    by_name: BTreeMap<String, Cell>,
    /// Those that the analysis could not tell apart.
    others: Cell,
}

/// Sums of complete requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) count: u64,
    pub(super) duration_ns: u128,
    /// Those that took longer than the SLO that was in force.
    pub(super) slow: u64,
}

/// The groups of one type since the agent's start.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    by_label: BTreeMap<String, Sums>,
    others: Sums,
}

impl ClosedGroups {
    pub(super) fn add(&mut self, group: Option<&str>, cell: &Cell) {
        match group {
            None => self.others.merge(cell),
            Some(name) => match self.by_name.get_mut(name) {
                Some(own) => own.merge(cell),
                None => {
                    self.by_name.insert(name.to_owned(), cell.clone());
                }
            },
        }
    }

    /// All groups by name, and those that are none.
    pub(crate) fn all(&self) -> (&BTreeMap<String, Cell>, &Cell) {
        (&self.by_name, &self.others)
    }

    /// The longest duration of their type, of which `max_ns` is known.
    pub(crate) fn max_ns(&self, max_ns: u64) -> u64 {
        let all = self.by_name.values().chain([&self.others]);
        all.map(|cell| cell.max_ns).fold(max_ns, u64::max)
    }
}

impl Sums {
    /// Those of a cell of requests whose type has taken `max_ns` at most: where the type's sums take a bucket for slow, those of
    /// its groups do.
    pub(super) fn of(cell: &Cell, max_ns: u64, slo_ns: Option<u64>) -> Self {
        let is_slow = |ns: u64| slo_ns.is_some_and(|slo_ns| ns > slo_ns);
        let slow = durations(cell, max_ns).filter(|(ns, _)| is_slow(*ns));
        Self {
            count: cell.sum.weight,
            duration_ns: u128::from(cell.sum.ledger.latency_ns),
            slow: slow.map(|(_, count)| count).sum(),
        }
    }

    pub(super) fn add(&mut self, more: Self) {
        self.count += more.count;
        self.duration_ns += more.duration_ns;
        self.slow += more.slow;
    }
}

impl Groups {
    /// None yet, of a type that had these requests before.
    pub(super) fn behind(before: Sums) -> Self {
        Self {
            by_label: BTreeMap::new(),
            others: before,
        }
    }

    /// How many are distinguished.
    pub(super) fn len(&self) -> usize {
        self.by_label.len()
    }

    /// Adds requests whose groups are not known.
    pub(super) fn add_others(&mut self, sums: Sums) {
        self.others.add(sums);
    }

    /// Adds a window of requests that took `max_ns` at most. So many groups may be added, those with the most time first; the
    /// others are one.
    pub(super) fn add(
        &mut self,
        closed: &ClosedGroups,
        max_ns: u64,
        slo_ns: Option<u64>,
        mut room: usize,
    ) {
        let ClosedGroups { by_name, others } = closed;
        let max_ns = closed.max_ns(max_ns);
        let sums = |cell| Sums::of(cell, max_ns, slo_ns);
        self.others.add(sums(others));
        let mut groups: Vec<(String, Sums)> = by_name
            .iter()
            .map(|(name, cell)| (label(name), sums(cell)))
            .collect();
        groups.sort_by_key(|(_, sums)| Reverse(sums.duration_ns));
        for (label, sums) in groups {
            match self.by_label.get_mut(&label) {
                Some(own) => own.add(sums),
                None if room > 0 && label != OTHER => {
                    room -= 1;
                    self.by_label.insert(label, sums);
                }
                None => self.others.add(sums),
            }
        }
    }

    /// All by their label; the last are the others.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, Sums)> {
        let by_label = self.by_label.iter();
        let by_label = by_label.map(|(label, sums)| (label.as_str(), *sums));
        by_label.chain([(OTHER, self.others)])
    }
}

/// What a group is called: its text, or the beginning of it and what tells it from others that begin alike.
pub(crate) fn label(name: &str) -> String {
    let mut ends = name.char_indices().map(|(at, _)| at);
    if name.is_empty() {
        return NONE.to_owned();
    }
    let cut = ends.by_ref().nth(MOST_CHARS - DIGITS - 1);
    let is_longer = ends.nth(DIGITS).is_some();
    let Some(cut) = cut.filter(|_| is_longer) else {
        return name.to_owned();
    };
    let mut label = name.get(..cut).unwrap_or_default().to_owned();
    label.push('…');
    for byte in Sha256::digest(name).iter().take(DIGITS / 2) {
        let _ = write!(label, "{byte:02x}");
    }
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_bounded_and_different_texts_stay_apart() {
        let long = |last: &str| format!("SELECT {}{last}", "größe, ".repeat(20));
        let (one, two) = (label(&long("a")), label(&long("b")));
        assert_ne!(one, two);
        for label in [&one, &two] {
            assert_eq!(label.chars().count(), MOST_CHARS, "{label}");
            assert!(label.starts_with("SELECT größe, größe, "), "{label}");
        }
        assert_eq!(one, label(&long("a")), "it is always the same");
        let fits = "ä".repeat(MOST_CHARS);
        assert_eq!(label(&fits), fits);
        assert_eq!(label(&format!("{fits}x")).chars().count(), MOST_CHARS);
        assert_eq!(label("COMMIT"), "COMMIT");
        assert_eq!(label(""), NONE);
    }
}
