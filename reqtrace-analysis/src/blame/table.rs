//! The table: pieces of requests in; nanoseconds by victim, culprit and root cause out.
//!
//! It has a bounded number of rows: the smallest are merged, so that sums hold.

use std::net::SocketAddr;

use rustc_hash::FxHashMap;

use super::at_disks::AtDisks;
use super::queue::Queue;
use super::taken::Takers;
use super::texts::{NONE, Number, OTHERS};
use super::{Cause, Causes, Reason, ThreadId};
use crate::bounded::take_smallest;

/// Rows that are kept by themselves, at least; some 5 MB with as many again.
const MAX_ROWS: usize = 1 << 15;

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Index of the victims' type.
    pub(super) victim: u32,
    pub(super) label: Number,
    pub(super) class: Option<u16>,
    pub(super) whose: Whose,
    pub(super) cause: Cause,
    pub(super) depth: u8,
    /// Which thread it was, of a culprit that is one.
    pub(super) thread: Option<ThreadId>,
}

impl Key {
    /// The same, whatever stood between, and whichever of the threads of that name it was.
    pub(crate) fn at_any_depth(self) -> Self {
        Self {
            depth: 0,
            thread: None,
            ..self
        }
    }

    /// The same for a row: threads that run requests, of which there may be many, are one.
    fn of_row(self) -> Self {
        let is_one_of_many =
            !matches!(self.whose, Whose::Thread(..)) || self.cause == Cause::BetweenRequests;
        Self {
            thread: self.thread.filter(|_| !is_one_of_many),
            ..self
        }
    }

    /// The same without who it was.
    pub(crate) fn without_names(self) -> Self {
        Self {
            label: OTHERS,
            class: None,
            whose: Whose::Others,
            depth: 0,
            thread: None,
            ..self
        }
    }
}

#[cfg(test)]
impl Key {
    /// A thread of this name, which computed.
    pub(crate) fn of_thread(comm: u32) -> Self {
        Self {
            victim: 0,
            label: NONE,
            class: None,
            whose: Whose::Thread(comm, NONE),
            cause: Cause::OnCpu,
            depth: 0,
            thread: None,
        }
    }
}

/// Whose time it was, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Whose {
    OwnInterrupt,
    Itself,
    /// Index of the type, label.
    Request(u32, Number),
    /// Name of the thread; label of the request that it had served before, if it is between two.
    Thread(Number, Number),
    Peer(SocketAddr),
    Unknown,
    Others,
}

impl Whose {
    /// The same without a label.
    pub(super) fn without_label(self) -> Self {
        match self {
            Self::Request(of_type, _) => Self::Request(of_type, NONE),
            Self::Thread(comm, _) => Self::Thread(comm, NONE),
            whose => whose,
        }
    }
}

/// What is added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) ns: u64,
    pub(super) requests: u64,
    pub(super) thread: Only,
    /// The number of the last request that was added.
    last: u64,
}

/// Which thread a sum is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Only {
    /// There is no sum yet.
    #[default]
    Empty,
    One(Option<ThreadId>),
    Several,
}

impl Only {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Empty, one) | (one, Self::Empty) => one,
            (one, two) if one == two => one,
            _ => Self::Several,
        }
    }

    /// The thread, if it is the only one.
    pub(super) fn thread(self) -> Option<ThreadId> {
        match self {
            Self::One(thread) => thread,
            Self::Empty | Self::Several => None,
        }
    }
}

impl Sum {
    fn merge(&mut self, other: Self) {
        self.ns += other.ns;
        self.requests += other.requests;
        self.thread = self.thread.and(other.thread);
    }

    /// Adds a part of a request; all of its parts come one behind the other.
    fn add(&mut self, ns: u64, one: Adding) {
        self.ns += ns * one.weight;
        if self.last != one.number {
            self.last = one.number;
            self.requests += one.weight;
        }
    }
}

/// A request that is added.
#[derive(Clone, Copy, Debug)]
struct Adding {
    /// Its place in the order of all, from 1.
    number: u64,
    weight: u64,
}

/// Who held requests up, whatever their labels are.
#[derive(Clone, Debug, Default)]
pub(super) struct Holding {
    pub(super) sum: Sum,
    /// Nanoseconds by wait class.
    pub(super) classes: FxHashMap<Option<u16>, u64>,
}

/// One request type.
#[derive(Clone, Debug, Default)]
pub(super) struct OfType {
    pub(super) requests: u64,
    pub(super) causes: Causes,
    pub(super) unknown: [u64; Reason::COUNT],
    /// Waited for a CPU themselves, ns.
    pub(super) cpu_ns: u64,
    pub(super) takers: Takers,
    /// Queued for a runtime, ns.
    pub(super) queued_ns: u64,
    pub(super) queue: Queue,
    pub(super) at_disks: AtDisks,
    pub(super) holdings: FxHashMap<(Cause, Whose), Holding>,
}

/// Everything, added up.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) rows: FxHashMap<Key, Sum>,
    pub(super) types: Vec<OfType>,
    pub(super) merged: u64,
    requests: u64,
}

impl Table {
    pub(super) fn new(types: usize) -> Self {
        Self {
            types: vec![OfType::default(); types],
            ..Self::default()
        }
    }

    /// Adds what one request has of these, each once. Who held it up is kept with labels when `by_label`.
    pub(super) fn add(&mut self, parts: &FxHashMap<Key, u64>, weight: u64, by_label: bool) {
        self.requests += 1;
        let one = Adding {
            number: self.requests,
            weight,
        };
        for (key, ns) in parts {
            let row = self.rows.entry(key.of_row()).or_default();
            row.add(*ns, one);
            row.thread = row.thread.and(Only::One(key.thread));
            let whose = if by_label {
                key.whose
            } else {
                key.whose.without_label()
            };
            if key.cause != Cause::Unknown || whose != Whose::Unknown {
                let holding = self.types[key.victim as usize].holding(key.cause, whose);
                holding.sum.add(*ns, one);
                *holding.classes.entry(key.class).or_default() += ns * weight;
            }
        }
        if self.rows.len() >= 2 * MAX_ROWS {
            self.merge();
        }
    }

    /// Adds the smaller half up.
    fn merge(&mut self) {
        for (key, sum) in take_smallest(&mut self.rows, MAX_ROWS, |sum| sum.ns) {
            self.merged += u64::from(key.whose != Whose::Others);
            self.rows.entry(key.without_names()).or_default().merge(sum);
        }
    }
}

impl OfType {
    fn holding(&mut self, cause: Cause, whose: Whose) -> &mut Holding {
        let has_room = self.holdings.len() < MAX_ROWS;
        let whose = if has_room || self.holdings.contains_key(&(cause, whose)) {
            whose
        } else {
            Whose::Others
        };
        self.holdings.entry((cause, whose)).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(label: Number, cause: Cause, ns: u64) -> (Key, u64) {
        let key = Key {
            victim: 0,
            label,
            class: Some(1),
            whose: Whose::Request(0, label),
            cause,
            depth: 1,
            thread: None,
        };
        (key, ns)
    }

    #[test]
    fn a_request_counts_once_for_who_held_it_up() {
        let mut table = Table::new(1);
        let parts = [part(7, Cause::Disk, 10), part(8, Cause::Disk, 5)];
        table.add(&parts.into_iter().collect(), 3, false);
        assert_eq!(table.rows.len(), 2);
        let holding = &table.types[0].holdings[&(Cause::Disk, Whose::Request(0, NONE))];
        let wanted = Sum {
            ns: 45,
            requests: 3,
            thread: Only::Empty,
            last: 1,
        };
        assert_eq!(holding.sum, wanted);
        let mut table = Table::new(1);
        table.add(&parts.into_iter().collect(), 1, true);
        assert_eq!(table.types[0].holdings.len(), 2);
    }

    #[test]
    fn rows_without_end_are_merged_and_their_sum_holds() {
        let mut table = Table::new(1);
        let all = 3 * MAX_ROWS as u64;
        for number in 0..all {
            let cause = Cause::ALL[number as usize % Cause::COUNT];
            let parts = [part(number as Number, cause, number + 1)];
            table.add(&parts.into_iter().collect(), 1, true);
        }
        assert!(table.rows.len() < 2 * MAX_ROWS);
        let sum: u64 = table.rows.values().map(|sum| sum.ns).sum();
        assert_eq!(sum, all * (all + 1) / 2);
        let requests: u64 = table.rows.values().map(|sum| sum.requests).sum();
        assert_eq!(requests, all);
        let others = table.rows.keys().filter(|key| key.whose == Whose::Others);
        assert_eq!(others.count(), Cause::COUNT);
        assert_eq!(table.merged, all - (table.rows.len() - Cause::COUNT) as u64);
        let held: u64 = table.types[0]
            .holdings
            .values()
            .map(|held| held.sum.ns)
            .sum();
        assert_eq!(held, sum);
    }

    #[test]
    fn who_is_known_holds_up_for_an_unknown_cause_and_nobody_does_not() {
        let mut table = Table::new(1);
        let known = part(7, Cause::Unknown, 10);
        let mut unknown = part(8, Cause::Unknown, 5);
        unknown.0.whose = Whose::Unknown;
        table.add(&[known, unknown].into_iter().collect(), 1, false);
        let holdings = &table.types[0].holdings;
        let held: u64 = holdings.values().map(|held| held.sum.ns).sum();
        assert_eq!((held, holdings.len()), (10, 1));
    }
}
