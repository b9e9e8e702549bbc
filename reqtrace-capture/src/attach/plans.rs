//! The plans of probes: chains of them in, indices for attach cookies out. The same chain is stored once, and the room of
//! one that no probe names any more is for others.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use reqtrace_common::cookie::Cookie;
use reqtrace_common::label::LabelPlan;
use reqtrace_common::limits::{MAX_LABEL_PLANS, MAX_MARKER_PLANS};
use reqtrace_common::marker::{AttributePlan, MarkerPlan};

use super::probes::ProbePlan;
use reqtrace_base::error::{Error, Result};
use reqtrace_profile::Role;
use reqtrace_resolve::ResolvedMarker;

/// A marker of a request type in one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MarkerName {
    /// The number of the request type in the trace.
    pub(crate) request: u32,
    /// The key of the profile.
    pub(crate) marker: &'static str,
    /// Function or offset.
    pub(crate) place: String,
    /// The file, as the process sees it.
    pub(crate) object: String,
    /// Probes that it needs there.
    pub(crate) probes: u64,
}

impl MarkerName {
    /// That of a marker of a request type.
    pub(super) fn of(request: usize, role: Role, marker: &ResolvedMarker) -> Self {
        Self {
            request: request as u32,
            marker: role.name(),
            place: marker.place(),
            object: marker.object_shown.clone(),
            probes: marker.sites.len() as u64,
        }
    }
}

/// What chains are made of.
trait Plan: Clone + Default + Ord {
    /// With the index of the next one of its chain, 0 at the end.
    fn with_next(&self, next: u32) -> Self;
}

impl Plan for LabelPlan {
    fn with_next(&self, next: u32) -> Self {
        Self { next, ..*self }
    }
}

impl Plan for AttributePlan {
    fn with_next(&self, next: u32) -> Self {
        Self { next, ..*self }
    }
}

/// A plan, and whose it is.
type Named = (MarkerPlan, MarkerName);

impl Plan for Named {
    fn with_next(&self, next: u32) -> Self {
        (MarkerPlan { next, ..self.0 }, self.1.clone())
    }
}

/// Chains of one kind. Those of a chain lie one behind the other.
#[derive(Clone, Debug)]
struct Chains<P> {
    /// The first one stands for none.
    plans: Vec<P>,
    first: BTreeMap<Vec<P>, u32>,
    has_gaps: bool,
    /// So many find room in the kernel's table.
    room: usize,
}

/// Room for plans of programs that come while the trace lasts: so many times those of the first, and so many at least. Plans that
/// are equal are one: a program that is started again needs none.
const ROOM: usize = 16;
const LEAST_ROOM: usize = 1024;

impl<P: Plan> Default for Chains<P> {
    fn default() -> Self {
        Self {
            plans: vec![P::default()],
            first: BTreeMap::new(),
            has_gaps: false,
            room: const {
                assert!(MAX_MARKER_PLANS == MAX_LABEL_PLANS);
                MAX_MARKER_PLANS
            },
        }
    }
}

impl<P: Plan> Chains<P> {
    /// From now on there is room for these plans, and if more come for some more.
    fn settle(&mut self, more: bool) {
        let now = self.plans.len();
        let room = (now * ROOM).max(LEAST_ROOM).min(self.room);
        self.room = if more { room.max(now) } else { now };
    }

    /// The index of a chain, which is added when it is not there. 0 for an empty one; `None` when the plans would not find
    /// room.
    fn index_of(&mut self, chain: &[P]) -> Option<u32> {
        if chain.is_empty() {
            return Some(0);
        }
        if let Some(first) = self.first.get(chain) {
            return Some(*first);
        }
        let first = self.room_for(chain.len());
        let end = first + chain.len();
        if end > self.room {
            return None;
        }
        let all = self.plans.len().max(end);
        self.plans.resize(all, P::default());
        for (plan, index) in chain.iter().zip(first..) {
            let next = if index + 1 == end {
                0
            } else {
                index as u32 + 1
            };
            self.plans[index] = plan.with_next(next);
        }
        self.first.insert(chain.to_vec(), first as u32);
        Some(first as u32)
    }

    /// Where as many plans find room.
    fn room_for(&self, count: usize) -> usize {
        if !self.has_gaps {
            return self.plans.len();
        }
        let mut end = 1;
        for chain in self.chains() {
            if chain.start - end >= count {
                break;
            }
            end = chain.end;
        }
        end
    }

    /// Where the chains lie, in order.
    fn chains(&self) -> impl Iterator<Item = Range<usize>> {
        let chains = self.first.iter();
        let mut chains: Vec<_> = chains
            .map(|(chain, first)| *first as usize..*first as usize + chain.len())
            .collect();
        chains.sort_unstable_by_key(|chain| chain.start);
        chains.into_iter()
    }

    /// Chains whose index is not among these go. Returns the indices of their plans.
    fn keep(&mut self, used: &BTreeSet<u32>) -> Vec<u32> {
        let mut freed = Vec::new();
        self.first.retain(|chain, first| {
            let stays = used.contains(first);
            if !stays {
                freed.extend(*first..*first + chain.len() as u32);
            }
            stays
        });
        for index in &freed {
            self.plans[*index as usize] = P::default();
        }
        let end = self.chains().last().map_or(1, |chain| chain.end);
        self.plans.truncate(end);
        self.has_gaps |= !freed.is_empty();
        freed
    }
}

/// Plans for labels, markers and attributes, as the kernel programs have them.
#[derive(Clone, Debug, Default)]
pub struct PlanTables {
    reads_texts: bool,
    labels: Chains<LabelPlan>,
    markers: Chains<Named>,
    /// Markers that need no plan.
    plain: BTreeSet<MarkerName>,
    attributes: Chains<AttributePlan>,
}

impl PlanTables {
    /// No plans yet. Labels, and attributes that are texts, are read only if that is asked for.
    #[must_use]
    pub fn new(reads_texts: bool) -> Self {
        Self {
            reads_texts,
            ..Self::default()
        }
    }

    /// Whether labels, and attributes that are texts, are read.
    #[must_use]
    pub fn reads_texts(&self) -> bool {
        self.reads_texts
    }

    /// The kernel's tables are made for these plans, and if more programs may come for theirs.
    pub(super) fn settle(&mut self, more: bool) {
        self.labels.settle(more);
        self.markers.settle(more);
        self.attributes.settle(more);
    }

    /// For how many plans the kernel's tables have room: for labels, markers and attributes.
    pub(super) fn rooms(&self) -> [u32; 3] {
        let rooms = [self.labels.room, self.markers.room, self.attributes.room];
        rooms.map(|room| room as u32)
    }

    /// The index of a chain of ways to read a label; 0 when labels are not read.
    ///
    /// # Errors
    ///
    /// When there are more plans than indices, as in what follows.
    pub(super) fn label(&mut self, chain: &[LabelPlan]) -> Result<u16> {
        if !self.reads_texts {
            return Ok(0);
        }
        let index = self.labels.index_of(chain);
        index.map(|index| index as u16).ok_or_else(|| {
            Error::usage(format!(
                "the labels need more than {} ways to be read",
                self.labels.room
            ))
            .next("trace fewer programs at once, or without --labels")
        })
    }

    /// The same of what markers do.
    pub(super) fn markers(&mut self, chain: &[Named]) -> Result<u16> {
        let index = self.markers.index_of(chain);
        index
            .map(|index| index as u16)
            .ok_or_else(|| full(self.markers.room))
    }

    /// The same of ways to read attributes.
    pub(super) fn attributes(&mut self, chain: &[AttributePlan]) -> Result<u32> {
        let index = self.attributes.index_of(chain);
        index.ok_or_else(|| full(self.attributes.room))
    }

    /// A marker that needs no plan.
    pub(super) fn plain(&mut self, name: MarkerName) {
        self.plain.insert(name);
    }

    /// Keeps what these probes name. Returns the indices of the plans for markers that are free now.
    pub(super) fn keep<'a>(&mut self, probes: impl Iterator<Item = &'a ProbePlan>) -> Vec<u32> {
        let (mut labels, mut markers) = (BTreeSet::new(), BTreeSet::new());
        for probe in probes {
            let index = Cookie::decode(probe.cookie).label.into();
            match probe.names_label() {
                true => labels.insert(index),
                false => markers.insert(index),
            };
        }
        let freed = self.markers.keep(&markers);
        let left = self.markers.plans.iter();
        let (of_markers, attributes) = left
            .map(|(plan, _)| (plan.label, plan.attributes))
            .unzip::<_, _, Vec<_>, BTreeSet<_>>();
        labels.extend(of_markers);
        self.labels.keep(&labels);
        self.attributes.keep(&attributes);
        freed
    }

    /// All plans for labels, in the order of their indices; the first stands for none, as in what follows.
    pub(super) fn label_plans(&self) -> &[LabelPlan] {
        &self.labels.plans
    }

    /// All plans for markers, and whose they are.
    pub(super) fn marker_plans(&self) -> &[Named] {
        &self.markers.plans
    }

    /// Whether all plans of the chain with this index are of threads in a request.
    pub(super) fn are_of_requests(&self, index: u16) -> bool {
        let plan = |index: u32| match index {
            0 => None,
            _ => self.markers.plans.get(index as usize).map(|(plan, _)| plan),
        };
        let first = plan(index.into());
        first.is_some()
            && std::iter::successors(first, |before| plan(before.next))
                .all(MarkerPlan::is_of_request)
    }

    /// Where the chains of these lie.
    pub(super) fn marker_chains(&self) -> impl Iterator<Item = Range<usize>> {
        self.markers.chains()
    }

    /// Markers that need no plan.
    pub(super) fn plain_names(&self) -> &BTreeSet<MarkerName> {
        &self.plain
    }

    /// All plans for attributes.
    pub(super) fn attribute_plans(&self) -> &[AttributePlan] {
        &self.attributes.plans
    }
}

fn full(room: usize) -> Error {
    Error::usage(format!(
        "the markers need more than {room} plans: each place that reads a variable, and \
         each text of a condition, is one"
    ))
    .next("trace fewer programs at once, or use fewer texts in conditions")
}

#[cfg(test)]
mod tests {
    use reqtrace_common::marker::{marker_flag, op};

    use super::*;

    fn attribute(index: u32) -> AttributePlan {
        AttributePlan {
            index,
            ..AttributePlan::default()
        }
    }

    fn nexts(chains: &Chains<AttributePlan>) -> Vec<u32> {
        chains.plans.iter().map(|plan| plan.next).collect()
    }

    #[test]
    fn equal_chains_share_an_index_and_end() {
        let mut chains = Chains::default();
        let both = [attribute(1), attribute(2)];
        assert_eq!(chains.index_of(&[]), Some(0));
        assert_eq!(chains.index_of(&both), Some(1));
        assert_eq!(chains.index_of(&[attribute(1)]), Some(3));
        assert_eq!(chains.index_of(&both), Some(1));
        assert_eq!(nexts(&chains), [0, 2, 0, 0]);
    }

    #[test]
    fn what_nobody_names_makes_room_for_what_fits() {
        let mut chains = Chains {
            room: 8,
            ..Chains::default()
        };
        let chain = |from: u32, count: u32| -> Vec<AttributePlan> {
            (from..from + count).map(attribute).collect()
        };
        let places = [(10, 2), (20, 3), (30, 1)].map(|(from, count)| {
            let index = chains.index_of(&chain(from, count));
            index.unwrap()
        });
        assert_eq!(places, [1, 3, 6]);
        assert_eq!(chains.index_of(&chain(40, 2)), None);
        assert_eq!(chains.keep(&BTreeSet::from([1, 6])), [3, 4, 5]);
        // The first gap in which it fits; what is still there stays where it is.
        assert_eq!(chains.index_of(&chain(40, 2)), Some(3));
        assert_eq!(chains.index_of(&chain(50, 1)), Some(5));
        assert_eq!(chains.index_of(&chain(10, 2)), Some(1));
        assert_eq!(nexts(&chains), [0, 2, 0, 4, 0, 0, 0]);
        assert_eq!(chains.index_of(&chain(20, 3)), None);
        chains.keep(&BTreeSet::new());
        assert_eq!(chains.plans.len(), 1);
        assert_eq!(chains.index_of(&chain(20, 3)), Some(1));
    }

    #[test]
    fn more_plans_than_indices_are_refused() {
        let mut tables = PlanTables::new(true);
        let label = |kind| LabelPlan {
            kind,
            ..LabelPlan::default()
        };
        let marker = |op| {
            let plan = MarkerPlan {
                op,
                ..MarkerPlan::default()
            };
            (plan, MarkerName::default())
        };
        for kind in 1..MAX_LABEL_PLANS as u32 {
            tables.label(&[label(kind)]).unwrap();
            tables.markers(&[marker(kind)]).unwrap();
        }
        let errors = [
            tables.label(&[label(u32::MAX)]).unwrap_err(),
            tables.markers(&[marker(u32::MAX)]).unwrap_err(),
        ];
        for error in errors {
            assert!(error.to_string().contains("4096"), "{error}");
        }
        assert_eq!(tables.label(&[label(7)]).unwrap(), 7);
        assert_eq!(tables.markers(&[marker(7)]).unwrap(), 7);
    }

    #[test]
    fn room_is_made_for_what_is_there_or_for_some_more() {
        let with = |count: u32| {
            let mut tables = PlanTables::new(true);
            let chain: Vec<_> = (0..count).map(attribute).collect();
            tables.attributes(&chain).unwrap();
            tables
        };
        let rooms = |count: u32, more: bool| {
            let mut tables = with(count);
            tables.settle(more);
            tables.rooms()
        };
        // The first of each stands for none.
        assert_eq!(rooms(3, false), [1, 1, 4]);
        assert_eq!(rooms(3, true), [1024, 1024, 1024]);
        assert_eq!(rooms(99, true), [1024, 1024, 1600]);
        assert_eq!(rooms(999, true), [1024, 1024, 4096]);
        let mut tables = with(3);
        tables.settle(false);
        assert_eq!(tables.attributes(&[attribute(1), attribute(2)]).ok(), None);
        assert_eq!(tables.attributes(&[0, 1, 2].map(attribute)).unwrap(), 1);
    }

    #[test]
    fn a_chain_is_of_requests_when_all_of_it_is() {
        let mut tables = PlanTables::new(true);
        let mut chain = |plans: &[(u32, u32)]| {
            let plans: Vec<_> = plans
                .iter()
                .map(|(op, flags)| {
                    let plan = MarkerPlan {
                        op: *op,
                        flags: *flags,
                        ..MarkerPlan::default()
                    };
                    (plan, MarkerName::default())
                })
                .collect();
            let index = tables.markers(&plans).unwrap();
            tables.are_of_requests(index)
        };
        assert!(chain(&[(op::NOTE, 0), (op::NOTE, marker_flag::CHILD)]));
        assert!(!chain(&[(op::NOTE, 0), (op::PARK, 0)]));
        assert!(!chain(&[(op::NOTE, marker_flag::JOB)]));
        assert!(!chain(&[(op::NONE, 0)]));
        assert!(!chain(&[]));
    }

    #[test]
    fn labels_and_attributes_of_a_marker_stay_with_it() {
        let mut tables = PlanTables::new(true);
        let chains = [1, 2].map(|number| {
            let plan = MarkerPlan {
                label: tables
                    .label(&[LabelPlan {
                        kind: number,
                        ..LabelPlan::default()
                    }])
                    .unwrap()
                    .into(),
                attributes: tables.attributes(&[attribute(number)]).unwrap(),
                ..MarkerPlan::default()
            };
            tables.markers(&[(plan, MarkerName::default())]).unwrap()
        });
        let cookie = |label| {
            Cookie {
                label,
                ..Cookie::decode(0)
            }
            .encode()
        };
        let second = ProbePlan {
            cookie: cookie(chains[1]),
            program: "marker",
            ..ProbePlan::of_nothing()
        };
        assert_eq!(tables.keep([&second].into_iter()), [1]);
        let kept = |plans: Vec<u32>| {
            plans
                .into_iter()
                .filter(|one| *one != 0)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            kept(tables.label_plans().iter().map(|plan| plan.kind).collect()),
            [2]
        );
        assert_eq!(
            kept(
                tables
                    .attribute_plans()
                    .iter()
                    .map(|plan| plan.index)
                    .collect()
            ),
            [2]
        );
    }
}
