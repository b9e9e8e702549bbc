//! What becomes of the objects of a group: calls in, for each object the calls that had it, in their order, out.

use std::collections::{BTreeMap, HashMap};

use reqtrace_common::call::CallRecord;

use super::groups::Member;
use super::sources::{Slot, Value};

/// How an object got to a call from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// No call had it before.
    First,
    /// On the same thread, which had no other object there in between.
    Direct,
    /// While another call with it runs.
    Inside,
    /// On the same thread, after the function of the call before had another object on it.
    Turn,
    /// On another thread.
    Move,
}

impl Step {
    /// Whether it tells that objects are not done with one after the other by one thread.
    pub(super) fn is_back(self) -> bool {
        matches!(self, Self::Turn | Self::Move)
    }
}

/// A call with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Index of the function among those of the group.
    pub(super) part: usize,
    /// How the object got there.
    pub(super) step: Step,
    /// What it returned, if that was seen: its lower half.
    pub(super) result: Option<i32>,
}

/// The calls with one object.
pub(super) struct Life {
    /// Its process.
    pub(super) tgid: u32,
    /// One at least.
    pub(super) events: Vec<Event>,
    tid: u32,
}

impl Life {
    /// Calls that are not inside another one.
    pub(super) fn outer(&self) -> impl DoubleEndedIterator<Item = &Event> {
        let mut events = self.events.iter();
        let first = events.next();
        let is_outer = |event: &&Event| event.step != Step::Inside;
        first.into_iter().chain(events.filter(is_outer))
    }
}

/// A call that runs: the object, and the index of its event.
type Running = Option<(Value, usize)>;

/// The objects, in the order in which they were seen first.
pub(super) fn lives(members: &[Member], calls: &[CallRecord]) -> Vec<Life> {
    let mut lives: Vec<Life> = Vec::new();
    let mut of_object: HashMap<Value, usize> = HashMap::new();
    // The object that a function had last on a thread.
    let mut last: HashMap<(u32, usize), Value> = HashMap::new();
    let mut running: HashMap<u32, Vec<Running>> = HashMap::new();
    let part_of: BTreeMap<(usize, bool), usize> = members
        .iter()
        .enumerate()
        .map(|(part, one)| ((one.source.function, one.source.slot == Slot::Result), part))
        .collect();
    for call in calls {
        let depth = call.depth as usize;
        let running = running.entry(call.tid).or_default();
        if let (true, Some(Some((object, event)))) = (call.is_return(), running.get(depth)) {
            let life = of_object.get(object).and_then(|&life| lives.get_mut(life));
            let event = life.and_then(|life| life.events.get_mut(*event));
            if let Some(event) = event {
                event.result = Some(call.values[0] as i32);
            }
        }
        running.resize(depth, None);
        let part = part_of.get(&(call.number() as usize, call.is_return()));
        let object = part.and_then(|&part| Some((part, members[part].object(call)?)));
        let Some((part, object)) = object else {
            if !call.is_return() {
                running.push(None);
            }
            continue;
        };
        let is_inside = running.iter().flatten().any(|(outer, _)| *outer == object);
        let known = of_object.get(&object).copied();
        let step = match known.map(|life| &lives[life]) {
            None => Step::First,
            Some(_) if is_inside => Step::Inside,
            Some(life) if life.tid != call.tid => Step::Move,
            Some(life) => {
                let before = life.outer().next_back().map_or(part, |event| event.part);
                match last.get(&(call.tid, before)) {
                    Some(other) if *other != object => Step::Turn,
                    _ => Step::Direct,
                }
            }
        };
        let life = known.unwrap_or_else(|| {
            of_object.insert(object, lives.len());
            lives.push(Life {
                tgid: object.0,
                events: Vec::new(),
                tid: call.tid,
            });
            lives.len() - 1
        });
        let life = &mut lives[life];
        if step != Step::Inside {
            life.tid = call.tid;
        }
        life.events.push(Event {
            part,
            step,
            result: None,
        });
        last.insert((call.tid, part), object);
        if !call.is_return() {
            running.push(Some((object, life.events.len() - 1)));
        }
    }
    lives
}
