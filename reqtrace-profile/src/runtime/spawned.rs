//! Where units of a runtime are made: which of them are requests in; the markers of their begins, and of those that are no
//! requests, out.

use super::{GOES_ON, HAS_HANDLE, NOTIFIED, marker, state};
use crate::edge::{Change, Edge};
use crate::marker::{KeySpec, MarkerSpec, Role};
use crate::value::{ConditionSpec, Test, ValueSource, ValueSpec};
use reqtrace_common::marker::UNIT_TABLE;
use reqtrace_common::registers::Register;

/// The state of a goroutine that waits in a queue of the runtime. One that is made for a coroutine begins in another one.
const RUNNABLE: i64 = 1;

/// The state of a task that was just spawned: three references above six bits.
const SPAWNED: u64 = 3 << 6 | HAS_HANDLE | NOTIFIED;

/// The spawn of a unit whose type fits a glob.
pub(crate) fn spawned(pattern: &str, queue: usize) -> MarkerSpec {
    let of_type = (polled_by(), Test::Unit(pattern.to_owned()));
    begin(Edge::Queue, is_new_task(), pattern, of_type, queue)
}

/// The spawn of a goroutine that starts with a function that fits a glob.
pub(crate) fn goroutine_spawned(pattern: &str, queue: usize) -> MarkerSpec {
    let edge = Edge::Goroutine(Change::Spawn);
    let of_type = (starts_with(), Test::Starts(pattern.to_owned()));
    begin(edge, is_new_goroutine(), pattern, of_type, queue)
}

/// A request begins where a unit is made and queued, if its type is the wanted one; `*`: any is.
fn begin(
    edge: Edge,
    is_new: ConditionSpec,
    pattern: &str,
    (value, test): (ValueSpec, Test),
    queue: usize,
) -> MarkerSpec {
    let mut when = vec![is_new];
    if pattern != "*" {
        when.push(ConditionSpec {
            value,
            test,
            negate: false,
        });
    }
    MarkerSpec {
        waits_in: Some(queue),
        is_touch: false,
        is_queued: true,
        ..marker(Role::Begin, edge, when)
    }
}

/// The address of what polls a task that is queued.
pub(crate) fn polled_by() -> ValueSpec {
    ValueSpec {
        deref: vec![UNIT_TABLE, 0],
        ..state(Edge::Queue)
    }
}

/// That of the function that a goroutine starts with, where it is made.
pub(crate) fn starts_with() -> ValueSpec {
    ValueSpec {
        deref: vec![GOES_ON],
        ..state(Edge::Goroutine(Change::Spawn))
    }
}

/// The spawn of a unit by a request, or by such a unit, that is no request itself: not of a type that fits a glob.
pub(crate) fn child_spawned(but: Option<&str>, queue: usize) -> MarkerSpec {
    as_child(spawned(but.unwrap_or("*"), queue))
}

/// The same of a goroutine.
pub(crate) fn child_goroutine_spawned(but: Option<&str>, queue: usize) -> MarkerSpec {
    as_child(goroutine_spawned(but.unwrap_or("*"), queue))
}

fn as_child(mut begin: MarkerSpec) -> MarkerSpec {
    let of_types = begin.when.iter_mut();
    let of_types = of_types.filter(|one| matches!(one.test, Test::Unit(_) | Test::Starts(_)));
    of_types.for_each(|one| one.negate = true);
    MarkerSpec {
        is_child: true,
        ..begin
    }
}

/// A request makes a unit that is no request of its type.
pub(crate) fn child() -> MarkerSpec {
    MarkerSpec {
        key: KeySpec::Current,
        is_touch: false,
        ..marker(Role::Child, Edge::Queue, vec![is_new_task()])
    }
}

/// The same in Go.
pub(crate) fn child_goroutine() -> MarkerSpec {
    let edge = Edge::Goroutine(Change::Spawn);
    MarkerSpec {
        key: KeySpec::Current,
        is_touch: false,
        ..marker(Role::Child, edge, vec![is_new_goroutine()])
    }
}

fn is_new_task() -> ConditionSpec {
    ConditionSpec {
        value: state(Edge::Queue),
        test: Test::OneOf(vec![SPAWNED.cast_signed()]),
        negate: false,
    }
}

/// One that begins in the queue, and not as a coroutine.
fn is_new_goroutine() -> ConditionSpec {
    ConditionSpec {
        value: ValueSpec {
            source: ValueSource::Register(Register::Rcx),
            deref: Vec::new(),
            add: 0,
            size: Some(4),
        },
        test: Test::OneOf(vec![RUNNABLE]),
        negate: false,
    }
}
