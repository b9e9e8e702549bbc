//! Plans of markers: what a profile says of a marker or an attribute, and a probed instruction in; what
//! the kernel programs do there out.
//!
//! The chains that plans form at one place are made when all markers are known; see `attach`.

use reqtrace_common::keyed::MAX_KEY_PARTS;
use reqtrace_common::label::Reading;
use reqtrace_common::marker::{
    AttributePlan, Condition, MAX_CONDITIONS, MAX_NUMBERS, MAX_WAITS, MarkerPlan, condition_kind,
    marker_flag, op, park_kind, place_number,
};

use super::goroutines;
use super::labels;
use super::readings::{INT, POINTER, Place};
use super::runtime;
use reqtrace_base::error::{Error, Result};
use reqtrace_profile::{
    AttributeSpec, Change, ConditionSpec, Edge, KeySpec, MarkerSpec, PlaceSpec, Role, Test,
    ValueSpec,
};

type Conditions = [Condition; MAX_CONDITIONS];

/// What a marker does at one place: one plan, or several where one of several texts may be there.
/// `None`: the end that a request has by itself.
///
/// # Errors
///
/// A value that cannot be read there.
pub(super) fn of_marker(
    role: Role,
    spec: Option<&MarkerSpec>,
    place: &Place<'_>,
) -> Result<Vec<MarkerPlan>> {
    let mut plan = MarkerPlan {
        op: match role {
            Role::Begin => op::BEGIN,
            Role::Resume => op::RESUME,
            Role::Park | Role::Idle => op::PARK,
            Role::Note | Role::Child => op::NOTE,
            Role::Ready => op::READY,
            Role::Adopt => op::ADOPT,
            Role::End | Role::Recover | Role::Done => op::END,
            Role::Attribute => op::NONE,
        },
        flags: marker_flag::CURRENT,
        ..MarkerPlan::default()
    };
    let Some(spec) = spec else {
        return Ok(vec![plan]);
    };
    match &spec.key {
        KeySpec::Current => {}
        KeySpec::Unit => plan.flags = marker_flag::UNIT,
        KeySpec::Key(key) => {
            (plan.key, plan.key_parts) = key_of(key, place)?;
            plan.flags = 0;
        }
    }
    plan.park.kind = match (role, &spec.place) {
        // On the runtime's own stack, whose frame pointers lead to that of the goroutine that makes another one ready.
        (Role::Ready, PlaceSpec::Edge(Edge::Goroutine(Change::Ready))) => park_kind::WAKER,
        // There the runtime's own stack is the thread's.
        (_, PlaceSpec::Edge(Edge::Goroutine(_))) => park_kind::NONE,
        (Role::Park, PlaceSpec::Edge(Edge::Leave)) => park_kind::NOTED,
        (Role::Note, PlaceSpec::Edge(Edge::Done)) => park_kind::NONE,
        (Role::Park | Role::Idle | Role::Note, _) => park_kind::HERE,
        (Role::Ready, _) => park_kind::WAKER,
        _ => park_kind::NONE,
    };
    match spec.place {
        PlaceSpec::Edge(Edge::Resume) => plan.flags |= marker_flag::ENTERS,
        PlaceSpec::Edge(Edge::Leave | Edge::Done) => plan.flags |= marker_flag::LEAVES,
        PlaceSpec::Edge(Edge::Wait | Edge::Waker) => {
            let here = place.address.unwrap_or_default();
            let waits = runtime::waits(place.object, place.object.shapes(), here);
            let used = waits.len().min(MAX_WAITS);
            plan.park.waits[..used].copy_from_slice(&waits[..used]);
            plan.park.waits_used = used as u32;
        }
        PlaceSpec::Edge(Edge::Queue) if role == Role::Ready => {
            let here = place.address.unwrap_or_default();
            let (code, places) = runtime::wakes(place.object, place.object.shapes(), here);
            plan.park.waits[..code.len()].copy_from_slice(&code);
            plan.park.waits_used = code.len() as u32;
            plan.park.drivers = places;
            (plan.park.joins, plan.park.dropped) = runtime::joins();
            let jobs = place.object.shapes().of_jobs();
            for (into, schedule) in plan.park.jobs.iter_mut().zip(jobs) {
                *into = schedule.wrapping_sub(here).cast_signed();
            }
        }
        PlaceSpec::Edge(Edge::Goroutine(Change::Park)) => {
            (plan.park, _) = goroutines::park(place.object);
        }
        PlaceSpec::Edge(Edge::Goroutine(Change::Ready)) => {
            (plan.park, _) = goroutines::park(place.object);
            plan.park.kind = park_kind::WAKER;
        }
        _ => {}
    }
    match (role, &spec.place) {
        (Role::Done, _) => plan.flags |= marker_flag::DROPS,
        (Role::Note, PlaceSpec::Edge(Edge::Done)) => plan.flags |= marker_flag::JOB,
        (Role::Child, _) => plan.flags |= marker_flag::CHILD,
        _ => {}
    }
    if let Some(to) = &spec.to {
        (plan.to, plan.to_parts) = key_of(to, place)?;
    }
    if spec.is_touch {
        plan.flags |= marker_flag::TOUCH;
    }
    if spec.is_queued {
        plan.flags |= marker_flag::QUEUED;
    }
    if spec.is_child {
        plan.flags |= marker_flag::OF_REQUEST;
    }
    if spec.has_children {
        plan.flags |= marker_flag::HAS_CHILDREN;
    }
    plan.place = spec.waits_in.map_or(0, |index| place_number(index) + 1);
    let all = conditions(&spec.when, place)?;
    Ok(all
        .into_iter()
        .map(|when| {
            let mut way = plan;
            way.when = when;
            way
        })
        .collect())
}

/// The readings of a key, and how many there are.
fn key_of(key: &[ValueSpec], place: &Place<'_>) -> Result<([Reading; MAX_KEY_PARTS], u32)> {
    let mut readings = [Reading::default(); MAX_KEY_PARTS];
    for (reading, value) in readings.iter_mut().zip(key) {
        *reading = place.reading(value, POINTER, None)?;
    }
    Ok((readings, key.len() as u32))
}

/// How one attribute of a request type is read at one place; `index` is that of its name.
///
/// # Errors
///
/// A value that cannot be read there.
pub(super) fn of_attribute(
    spec: &AttributeSpec,
    index: usize,
    place: &Place<'_>,
) -> Result<Vec<AttributePlan>> {
    let (kind, value, length) = labels::text(&spec.kind, &spec.value, place)?;
    let plan = AttributePlan {
        value,
        length,
        kind,
        index: index as u32,
        most: spec.most as u32,
        keep_last: u32::from(spec.keep_last),
        ..AttributePlan::default()
    };
    let all = conditions(&spec.when, place)?;
    Ok(all
        .into_iter()
        .map(|when| AttributePlan { when, ..plan })
        .collect())
}

/// All values that a marker reads.
pub(super) fn values_of_marker(spec: &MarkerSpec) -> impl Iterator<Item = &ValueSpec> {
    let key: &[ValueSpec] = match &spec.key {
        KeySpec::Key(key) => key,
        KeySpec::Current | KeySpec::Unit => &[],
    };
    let when = spec.when.iter().map(|when| &when.value);
    key.iter().chain(spec.to.iter().flatten()).chain(when)
}

/// All values that an attribute reads.
pub(super) fn values_of_attribute(spec: &AttributeSpec) -> impl Iterator<Item = &ValueSpec> {
    let when = spec.when.iter().map(|when| &when.value);
    let text = labels::length(&spec.kind).into_iter();
    text.chain(when).chain([&spec.value])
}

/// Each way in which all conditions can hold; one without any when there are none.
fn conditions(specs: &[ConditionSpec], place: &Place<'_>) -> Result<Vec<Conditions>> {
    let mut ways = vec![Conditions::default()];
    for (index, spec) in specs.iter().enumerate().take(MAX_CONDITIONS) {
        let here = condition(spec, place)?;
        ways = ways
            .iter()
            .flat_map(|way| {
                here.iter().map(move |condition| {
                    let mut way = *way;
                    way[index] = *condition;
                    way
                })
            })
            .collect();
    }
    Ok(ways)
}

/// The ways in which one condition can hold: one for each text.
fn condition(spec: &ConditionSpec, place: &Place<'_>) -> Result<Vec<Condition>> {
    let negate = u32::from(spec.negate);
    let number_of = |value: &ValueSpec, kind, given: &[i64]| -> Result<Vec<Condition>> {
        let mut numbers = [0; MAX_NUMBERS];
        let used = given.len().min(MAX_NUMBERS);
        numbers[..used].copy_from_slice(&given[..used]);
        Ok(vec![Condition {
            value: place.reading(value, INT, Some(true))?,
            numbers,
            kind,
            negate,
            used: used as u32,
            ..Condition::default()
        }])
    };
    let number = |kind, given: &[i64]| number_of(&spec.value, kind, given);
    match &spec.test {
        Test::OneOf(numbers) => number(condition_kind::ONE_OF, numbers),
        Test::Range(from, to) => number(condition_kind::RANGE, &[*from, *to]),
        Test::Bits { mask, are } => {
            let numbers = [mask.cast_signed(), are.cast_signed()];
            number(condition_kind::BITS, &numbers)
        }
        Test::Unit(_) | Test::Starts(_) | Test::Job => {
            let here = place.address.unwrap_or_default();
            let mut value = spec.value.clone();
            let functions = match &spec.test {
                Test::Unit(pattern) => {
                    let shapes = place.object.shapes();
                    let polls = runtime::polls(place.object, shapes, pattern)?;
                    match shapes.tables_of(&polls) {
                        // Which saves a read of memory.
                        Some(tables) => {
                            value.deref.pop();
                            tables
                        }
                        None => polls,
                    }
                }
                Test::Starts(pattern) => goroutines::started_by(place.object, pattern)?,
                _ => place.object.shapes().of_jobs().into_iter().collect(),
            };
            let from_here = |function: &u64| function.wrapping_sub(here).cast_signed();
            let from_here: Vec<i64> = functions.iter().map(from_here).collect();
            if spec.negate && from_here.len() > MAX_NUMBERS {
                return Err(Error::usage(format!(
                    "children = true: {} types of units are requests themselves, and at most {MAX_NUMBERS} can be told from \
                     children",
                    from_here.len()
                ))
                .next("choose a narrower `unit`, or leave `children` out"));
            }
            let ways = from_here.chunks(MAX_NUMBERS);
            let ways = ways.map(|few| number_of(&value, condition_kind::CODE, few));
            Ok(ways.collect::<Result<Vec<_>>>()?.concat())
        }
        Test::Text(texts) => {
            let value = place.reading(&spec.value, POINTER, None)?;
            let one = |text: &String| {
                let mut condition = Condition {
                    value,
                    kind: condition_kind::TEXT,
                    negate,
                    used: text.len() as u32,
                    ..Condition::default()
                };
                condition.text[..text.len()].copy_from_slice(text.as_bytes());
                condition
            };
            Ok(texts.iter().map(one).collect())
        }
    }
}
