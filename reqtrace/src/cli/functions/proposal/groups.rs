//! Which functions work on the same objects: the pointers of each [`Source`] in, [`Group`]s out.

use std::collections::{BTreeMap, BTreeSet};

use reqtrace_common::call::CallRecord;

use super::sources::{Source, Value};
use super::{CLEAR, MANY};

/// An object is no larger, as far as one in another is looked for, bytes.
const MAX_OBJECT: u64 = 8 << 10;

/// Of so many values of a hundred another one must be at the same distance.
const EMBEDDED: usize = 95;

/// A function of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// Where it has the pointer.
    pub(super) source: Source,
    /// Bytes from the object of the group to that pointer.
    pub(super) offset: u64,
}

/// Functions that have pointers to the same objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    /// Each function once.
    pub(super) members: Vec<Member>,
    /// Functions that have most of these pointers, but mostly others.
    pub(super) strangers: Vec<usize>,
    /// The objects.
    values: BTreeSet<Value>,
}

type Sources = BTreeMap<Source, BTreeSet<Value>>;

/// Groups of at least one function each.
pub(super) fn groups(sources: &Sources, calls: &[CallRecord]) -> Vec<Group> {
    let mut groups = equals(sources);
    take_in(&mut groups, sources);
    let mut groups: Vec<Group> = groups
        .into_iter()
        .map(|group| Group::of(&group, sources))
        .filter(|group| group.values.len() > 1)
        .collect();
    let alone = groups.iter().filter(|group| group.members.len() == 1);
    let alone: Vec<Group> = alone.cloned().collect();
    for group in groups.iter_mut().filter(|group| group.members.len() > 1) {
        let has_most = |one: &&Group| shared(&one.values, &group.values) * 2 >= group.values.len();
        let strangers = alone.iter().filter(has_most).flat_map(Group::functions);
        let strangers: Vec<usize> = strangers.collect();
        group.strangers.extend(strangers);
    }
    // The larger ones first: what another one is joined to stays.
    groups.sort_by_key(|group| std::cmp::Reverse((group.values.len(), group.members.len())));
    let mut joined: Vec<Group> = Vec::new();
    for group in groups {
        let near = joined.iter_mut().find_map(|outer| {
            let distance = outer.distance(&group, calls)?;
            Some((outer, distance))
        });
        match near {
            Some((outer, distance)) => outer.join(group, distance),
            None => joined.push(group),
        }
    }
    joined
}

fn shared(one: &BTreeSet<Value>, other: &BTreeSet<Value>) -> usize {
    let (fewer, more) = match one.len() <= other.len() {
        true => (one, other),
        false => (other, one),
    };
    fewer.iter().filter(|value| more.contains(value)).count()
}

/// Sources of which each has half of what another one has, and the reverse.
fn equals(sources: &Sources) -> Vec<BTreeSet<Source>> {
    let mut groups: Vec<BTreeSet<Source>> = Vec::new();
    for (&source, values) in sources {
        let is_like = |other: &Source| {
            let others = &sources[other];
            shared(values, others) * 2 >= values.len().max(others.len())
        };
        let (like, mut rest): (Vec<_>, Vec<_>) = groups
            .into_iter()
            .partition(|group| group.iter().any(is_like));
        let mut one: BTreeSet<Source> = like.into_iter().flatten().collect();
        one.insert(source);
        rest.push(one);
        groups = rest;
    }
    groups
}

/// Puts sources that are alone into the group that has most of what they have.
fn take_in(groups: &mut Vec<BTreeSet<Source>>, sources: &Sources) {
    let (several, alone): (Vec<_>, Vec<_>) = std::mem::take(groups)
        .into_iter()
        .partition(|group| group.len() > 1);
    *groups = several;
    let mut alone: Vec<Source> = alone.into_iter().flatten().collect();
    alone.sort_by_key(|source| std::cmp::Reverse(sources[source].len()));
    for source in alone {
        let own = &sources[&source];
        let of = |group: &BTreeSet<Source>| -> usize {
            let all = group.iter().flat_map(|other| &sources[other]);
            let all: BTreeSet<Value> = all.copied().collect();
            shared(own, &all)
        };
        let best = groups
            .iter_mut()
            .map(|group| (of(group), group.len(), group))
            .filter(|(both, ..)| *both > 0 && both * 2 >= own.len())
            .max_by_key(|(both, size, _)| (*both, *size));
        match best {
            Some((.., group)) => {
                group.insert(source);
            }
            None => groups.push(BTreeSet::from([source])),
        }
    }
}

impl Group {
    fn of(sources_of_group: &BTreeSet<Source>, sources: &Sources) -> Self {
        let values_of = |wanted: &dyn Fn(&Source) -> bool| -> BTreeSet<Value> {
            let all = sources_of_group.iter().filter(|source| wanted(source));
            all.flat_map(|source| &sources[source]).copied().collect()
        };
        let mut group = Self::default();
        // Each function has the pointer in one place: where it has most of what the others have.
        let mut chosen: BTreeMap<usize, (usize, Source)> = BTreeMap::new();
        for &source in sources_of_group {
            let others = values_of(&|other| other.function != source.function);
            let both = shared(&sources[&source], &others);
            let best = chosen.entry(source.function).or_insert((both, source));
            if both > best.0 {
                *best = (both, source);
            }
        }
        for (&function, &(both, source)) in &chosen {
            let own = &sources[&source];
            if chosen.len() > 1 && (own.len() - both) * 2 > own.len() {
                group.strangers.push(function);
                continue;
            }
            group.members.push(Member { source, offset: 0 });
            group.values.extend(own);
        }
        // A function that all others are strangers of is alone.
        if group.members.is_empty() {
            let most = chosen
                .values()
                .max_by_key(|(_, source)| sources[source].len());
            if let Some((_, source)) = most {
                group
                    .strangers
                    .retain(|&function| function != source.function);
                group.members.push(Member {
                    source: *source,
                    offset: 0,
                });
                group.values.extend(&sources[source]);
            }
        }
        group
    }

    /// Bytes from the objects of this group to those of the other one, if it is the same for nearly all of
    /// them: one is a part of the other.
    fn distance(&self, other: &Self, calls: &[CallRecord]) -> Option<i64> {
        // Of a function that is alone, and has all kinds of objects, others are no parts.
        let is_like = self.members.len() > 1 || other.values.len() * 2 >= self.values.len();
        if other.values.len() < MANY || !is_like {
            return None;
        }
        let mut distances: BTreeMap<i64, usize> = BTreeMap::new();
        for &(tgid, value) in &other.values {
            let near = (tgid, value.saturating_sub(MAX_OBJECT))..=(tgid, value + MAX_OBJECT);
            for (_, outer) in self.values.range(near) {
                let distance = value.wrapping_sub(*outer).cast_signed();
                *distances.entry(distance).or_default() += 1;
            }
        }
        // In an array the distances to the next objects fit too, but not for the last one.
        let most = distances.values().copied().max()?;
        distances.retain(|_, count| *count == most);
        if most * 100 < other.values.len() * EMBEDDED {
            return None;
        }
        if distances.len() == 1 {
            return distances.into_keys().next();
        }
        // Of several the right one is that of calls one after the other.
        let mut followed: BTreeMap<i64, usize> = BTreeMap::new();
        let mut last: BTreeMap<u32, (bool, Value)> = BTreeMap::new();
        for call in calls {
            let of = |group: &Self| group.members.iter().find_map(|one| one.object(call));
            for (is_other, value) in [(false, of(self)), (true, of(other))] {
                let Some(value) = value else { continue };
                let before = last.insert(call.tid, (is_other, value));
                if let Some((was_other, before)) = before
                    && was_other != is_other
                {
                    let (outer, inner) = if is_other {
                        (before, value)
                    } else {
                        (value, before)
                    };
                    let distance = inner.1.wrapping_sub(outer.1).cast_signed();
                    *followed.entry(distance).or_default() += 1;
                }
            }
        }
        let all: usize = followed.values().sum();
        let best = distances.keys().max_by_key(|&&distance| {
            let count = followed.get(&distance).copied().unwrap_or(0);
            (count, std::cmp::Reverse(distance.unsigned_abs()))
        });
        let of_best = |distance: &i64| followed.get(distance).copied().unwrap_or(0);
        best.copied()
            .filter(|best| of_best(best) * 2 >= all && all > 0)
    }

    /// Takes in the functions of a group whose objects are so many bytes behind those of this one.
    fn join(&mut self, other: Self, distance: i64) {
        let own: BTreeSet<usize> = self.functions().collect();
        let behind = distance.max(0).unsigned_abs();
        let before = distance.min(0).unsigned_abs();
        // The object is the outer one.
        for member in &mut self.members {
            member.offset += before;
        }
        self.values = self
            .values
            .iter()
            .map(|(tgid, value)| (*tgid, value - before))
            .collect();
        let others = other.members.into_iter();
        let others = others.filter(|member| !own.contains(&member.source.function));
        self.members.extend(others.map(|member| Member {
            offset: member.offset + behind,
            ..member
        }));
        self.members.sort_by_key(|member| member.source);
        self.strangers.extend(other.strangers);
        self.strangers.sort_unstable();
        self.strangers.dedup();
    }

    fn functions(&self) -> impl Iterator<Item = usize> {
        self.members.iter().map(|member| member.source.function)
    }
}

impl Member {
    /// The object of the group that a call is about.
    pub(super) fn object(&self, call: &CallRecord) -> Option<Value> {
        let (tgid, value) = self.source.of(call)?;
        Some((tgid, value.wrapping_sub(self.offset)))
    }
}

/// The index of the number that is nearly all of their sum.
pub(super) fn clear(numbers: &[u64]) -> Option<usize> {
    let all: u64 = numbers.iter().sum();
    let most = numbers
        .iter()
        .enumerate()
        .max_by_key(|(_, number)| **number);
    most.filter(|(_, number)| all > 0 && **number * 100 >= all * CLEAR)
        .map(|(index, _)| index)
}
