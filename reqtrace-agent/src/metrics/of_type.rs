//! One request type: closed windows in, sums that never decrease out. All parts of its time add up to its durations.

use std::collections::BTreeMap;

use reqtrace_analysis::cells::{Cell, Merge as _};
use reqtrace_analysis::report::blame::Cause;
use reqtrace_analysis::report::{Ledger, Places};

use super::groups::{ClosedGroups, Groups, Sums};
use super::latencies::{durations, grid};
use super::native::Native;

/// Requests of one type in a window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Closed {
    cell: Cell,
    incomplete: u64,
    has_causes: bool,
    /// Time by part; all of them.
    parts: BTreeMap<String, u64>,
    /// `None`: they are not distinguished.
    groups: Option<ClosedGroups>,
    /// Of the program; `None`: not known yet.
    build_id: Option<String>,
}

/// What a session shows of each of its request types.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown<'a> {
    /// The parts of its time.
    pub(crate) parts: &'a [String],
    /// Root causes are found.
    pub(crate) has_causes: bool,
    /// Requests are counted by group.
    pub(crate) has_groups: bool,
}

/// A request that has a row, so that a reader of the histogram finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exemplar {
    pub(crate) id: u64,
    pub(crate) start_unix_ns: u64,
    pub(crate) latency_ns: u64,
    /// The id of its trace, if it has a span.
    pub(crate) trace: Option<[u8; 16]>,
}

impl Exemplar {
    pub(super) fn end_unix_ns(&self) -> u64 {
        self.start_unix_ns.saturating_add(self.latency_ns)
    }
}

/// Requests whose durations are up to an edge, and above that of the bucket before.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    /// [`u64::MAX`]: it has none.
    pub(super) edge_ns: u64,
    pub(super) count: u64,
    /// The one that ended last.
    exemplar: Option<Exemplar>,
}

impl Bucket {
    fn up_to(edge_ns: u64) -> Self {
        Self {
            edge_ns,
            count: 0,
            exemplar: None,
        }
    }

    /// Rows come before their window is closed: there is none of a bucket that is empty.
    pub(super) fn exemplar(&self) -> Option<&Exemplar> {
        self.exemplar.as_ref().filter(|_| self.count > 0)
    }
}

/// Requests of one type since the agent's start.
#[derive(Clone, Debug)]
pub(crate) struct OfType {
    /// In order; the last one has no edge.
    buckets: Vec<Bucket>,
    /// The same requests in finer buckets.
    pub(super) native: Native,
    /// Σ of the durations; 64 bits of ns last for 7 months of 1,000 requests at a time.
    pub(super) duration_ns: u128,
    pub(super) parts: BTreeMap<String, u128>,
    pub(super) causes: Option<[u128; Cause::ALL.len()]>,
    pub(super) incomplete: u64,
    /// Complete ones that were recorded; each stands for as many as were left out beside it.
    pub(super) recorded: u64,
    /// Those that took longer than the SLO that was in force.
    pub(super) slow: u64,
    /// `None`: they were never distinguished.
    pub(super) groups: Option<Groups>,
}

impl Closed {
    /// No requests yet; `has_groups`: they are distinguished by group.
    pub(crate) fn new(has_groups: bool) -> Self {
        Self {
            groups: has_groups.then(ClosedGroups::default),
            ..Self::default()
        }
    }

    /// Adds a cell of a second and a group, whose requests come by [`Self::add`], too; `None`: of those that were not told
    /// apart.
    pub(crate) fn add_group(&mut self, group: Option<&str>, cell: &Cell) {
        self.groups.get_or_insert_default().add(group, cell);
    }

    /// Adds a cell of a second.
    pub(crate) fn add(&mut self, cell: &Cell, incomplete: u64, has_causes: bool) {
        self.cell.merge(cell);
        self.incomplete += incomplete;
        self.has_causes |= has_causes;
    }

    /// They begin in a file of this build.
    pub(crate) fn of_build(&mut self, build_id: Option<&str>) {
        if self.build_id.as_deref() != build_id && build_id.is_some() {
            self.build_id = build_id.map(str::to_owned);
        }
    }

    /// Build id of the file in which they begin; `None`: not known yet.
    pub(crate) fn build_id(&self) -> Option<&str> {
        self.build_id.as_deref()
    }

    /// The complete requests, and how many are incomplete.
    pub(crate) fn requests(&self) -> (&Cell, u64) {
        (&self.cell, self.incomplete)
    }

    /// Their root causes are known.
    pub(crate) fn has_causes(&self) -> bool {
        self.has_causes
    }

    /// The same by group; `None`: groups are not distinguished.
    pub(crate) fn groups(&self) -> Option<&ClosedGroups> {
        self.groups.as_ref()
    }

    /// All has come: gives the parts of its time their names.
    pub(crate) fn name_parts(&mut self, classes: &[String], places: &Places) {
        self.parts = parts(&self.cell.sum.ledger, classes, places).collect();
    }
}

/// The parts of a ledger by the value of the label `part`.
pub(crate) fn parts<'a>(
    ledger: &'a Ledger,
    classes: &'a [String],
    places: &'a Places,
) -> impl Iterator<Item = (String, u64)> + 'a {
    let fixed = [
        ("on_cpu", ledger.on_cpu_ns),
        ("run_queue", ledger.run_queue_ns),
        ("preempted", ledger.preempted_ns),
        ("unattributed", ledger.unattributed_ns),
    ];
    let fixed = fixed.into_iter().map(|(name, ns)| (name.to_owned(), ns));
    let zeros = ledger.classes.iter().copied().chain(std::iter::repeat(0));
    let classes = classes.iter().zip(zeros);
    let classes = classes.map(|(name, ns)| (name.replace(' ', "_"), ns));
    let places = places.times(ledger);
    let places = places.map(|(name, ns)| (name.replace(": ", ":").replace(' ', "_"), ns));
    fixed.chain(classes).chain(places)
}

impl OfType {
    pub(super) fn new(slo_ns: Option<u64>) -> Self {
        let mut of_type = Self {
            buckets: grid().chain([u64::MAX]).map(Bucket::up_to).collect(),
            native: Native::default(),
            duration_ns: 0,
            parts: BTreeMap::new(),
            causes: None,
            incomplete: 0,
            recorded: 0,
            slow: 0,
            groups: None,
        };
        if let Some(slo_ns) = slo_ns {
            of_type.add_edge(slo_ns);
        }
        of_type
    }

    /// Its histogram has this edge from now on. Requests of before count as beyond it, as nothing says which were not.
    pub(super) fn add_edge(&mut self, edge_ns: u64) {
        let at = self.place_of(edge_ns);
        if let Some(above) = self.buckets.get_mut(at)
            && above.edge_ns != edge_ns
        {
            let is_below = |exemplar: &mut Exemplar| exemplar.latency_ns <= edge_ns;
            let below = Bucket {
                exemplar: above.exemplar.take_if(is_below),
                ..Bucket::up_to(edge_ns)
            };
            self.buckets.insert(at, below);
        }
    }

    fn place_of(&self, ns: u64) -> usize {
        self.buckets.partition_point(|bucket| bucket.edge_ns < ns)
    }

    /// Its buckets show this request, unless they have a later one.
    pub(super) fn show(&mut self, exemplar: Exemplar) {
        let at = self.place_of(exemplar.latency_ns);
        let Some(bucket) = self.buckets.get_mut(at) else {
            return;
        };
        let last_ns = bucket.exemplar.as_ref().map_or(0, Exemplar::end_unix_ns);
        if exemplar.end_unix_ns() >= last_ns {
            bucket.exemplar = Some(exemplar);
        }
    }

    /// All of this is there from its first scrape on.
    pub(super) fn begin(&mut self, shown: &Shown<'_>) {
        for part in shown.parts {
            self.parts.entry(part.clone()).or_default();
        }
        if shown.has_causes {
            self.causes.get_or_insert_default();
        }
        if shown.has_groups {
            self.groups_from_now();
        }
    }

    /// Requests are distinguished by group from now on: those of before are none of these.
    fn groups_from_now(&mut self) -> &mut Groups {
        let before = Sums {
            count: self.count(),
            duration_ns: self.duration_ns,
            slow: self.slow,
        };
        self.groups.get_or_insert_with(|| Groups::behind(before))
    }

    /// How many groups are distinguished.
    pub(super) fn groups_len(&self) -> usize {
        self.groups.as_ref().map_or(0, Groups::len)
    }

    fn add_groups(&mut self, closed: &Closed, slo_ns: Option<u64>, room: usize) {
        let max_ns = closed.cell.max_ns;
        match (&closed.groups, &mut self.groups) {
            (Some(groups), _) => self.groups_from_now().add(groups, max_ns, slo_ns, room),
            // They add up to all, also when the configuration does not ask for them any more.
            (None, Some(own)) => own.add_others(Sums::of(&closed.cell, max_ns, slo_ns)),
            (None, None) => {}
        }
    }

    /// Adds a window; `room`: so many groups may be added.
    pub(super) fn add(&mut self, closed: &Closed, slo_ns: Option<u64>, room: usize) {
        self.add_groups(closed, slo_ns, room);
        let Closed {
            cell,
            incomplete,
            has_causes,
            parts,
            groups: _,
            build_id: _,
        } = closed;
        for (ns, count) in durations(cell, cell.max_ns) {
            let at = self.place_of(ns);
            if let Some(bucket) = self.buckets.get_mut(at) {
                bucket.count += count;
            }
            self.native.add(ns, count);
            if slo_ns.is_some_and(|slo_ns| ns > slo_ns) {
                self.slow += count;
            }
        }
        self.duration_ns += u128::from(cell.sum.ledger.latency_ns);
        for (part, ns) in parts {
            match self.parts.get_mut(part) {
                Some(sum) => *sum += u128::from(*ns),
                None => {
                    self.parts.insert(part.clone(), u128::from(*ns));
                }
            }
        }
        if *has_causes {
            let sums = self.causes.get_or_insert_default();
            for (sum, cause) in sums.iter_mut().zip(Cause::ALL) {
                *sum += u128::from(cell.sum.causes.get(cause));
            }
        }
        self.incomplete += incomplete;
        self.recorded += cell.count;
    }

    /// Complete requests.
    pub(super) fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.count).sum()
    }

    /// In order of their edges; the last one has none.
    pub(super) fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }
}
