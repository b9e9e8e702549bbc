//! A window that is closed, of one request type, in; its figures as the metrics count them, by level, out.

use std::cmp::Reverse;

use reqtrace_analysis::cells::{Cell, Merge as _};
use reqtrace_output::rollups::{Level, OfRequests};

use crate::metrics::{Closed, OTHER, durations, grid, label};

/// A window of a request type.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfWindow<'a> {
    pub(super) request: &'a str,
    pub(super) closed: &'a Closed,
    /// The latency above which requests are slow.
    pub(super) slow_ns: Option<u64>,
    /// How many groups are distinguished; `None`: none are.
    pub(super) most_groups: Option<usize>,
}

impl OfWindow<'_> {
    /// The type, and its groups; those with the least time are one.
    pub(super) fn levels(self) -> impl Iterator<Item = (Level, OfRequests)> {
        let (cell, incomplete) = self.closed.requests();
        let request = self.request.to_owned();
        let of_type = self.of(cell, cell.max_ns, Some(incomplete));
        let of_type = (Level::Type(request.clone()), of_type);
        let groups = self.groups().into_iter();
        let groups = groups.map(move |(group, of)| (Level::Group(request.clone(), group), of));
        std::iter::once(of_type).chain(groups)
    }

    fn groups(self) -> Vec<(String, OfRequests)> {
        let Some((groups, most)) = self.closed.groups().zip(self.most_groups) else {
            return Vec::new();
        };
        let max_ns = groups.max_ns(self.closed.requests().0.max_ns);
        let (by_name, others) = groups.all();
        let mut others = others.clone();
        let mut by_name: Vec<(&String, &Cell)> = by_name.iter().collect();
        by_name.sort_by_key(|(name, cell)| (Reverse(cell.sum.ledger.latency_ns), *name));
        let beyond = by_name.split_off(by_name.len().min(most));
        beyond.iter().for_each(|(_, cell)| others.merge(cell));
        let named = by_name.into_iter().map(|(name, cell)| (label(name), cell));
        let others = (others.count > 0).then(|| (OTHER.to_owned(), &others));
        named
            .chain(others)
            .map(|(name, cell)| (name, self.of(cell, max_ns, None)))
            .collect()
    }

    /// Figures of a cell of requests whose type has taken `max_ns` at most.
    fn of(self, cell: &Cell, max_ns: u64, incomplete: Option<u64>) -> OfRequests {
        let edges: Vec<u64> = grid().collect();
        let mut histogram = vec![0; edges.len() + 1];
        let mut slow = 0;
        for (ns, count) in durations(cell, max_ns) {
            let at = edges.partition_point(|edge_ns| *edge_ns < ns);
            if let Some(sum) = histogram.get_mut(at) {
                *sum += count;
            }
            if self.slow_ns.is_some_and(|slow_ns| ns > slow_ns) {
                slow += count;
            }
        }
        OfRequests {
            recorded: cell.count,
            requests: cell.sum.weight,
            incomplete,
            slow: self.slow_ns.map(|_| slow),
            ledger: cell.sum.ledger.clone(),
            causes: self.closed.has_causes().then_some(cell.sum.causes),
            histogram,
        }
    }
}
