//! Where units of a runtime are made: which of them are requests in; the markers of their begins, and of those that are no
//! requests, out.

use super::{Change, Edge, GOES_ON, HAS_HANDLE, NOTIFIED, TABLE, marker, state};
use crate::{ConditionSpec, KeySpec, MarkerSpec, Role, Test, ValueSource, ValueSpec};
use reqtrace_common::registers::Register;

/// The state of a goroutine that waits in a queue of the runtime. One that is made for a coroutine begins in another one.
const RUNNABLE: i64 = 1;

/// The state of a task that was just spawned: three references above six bits.
const SPAWNED: u64 = 3 << 6 | HAS_HANDLE | NOTIFIED;

/// The spawn of a unit whose type fits a glob.
pub(crate) fn spawned(pattern: &str, queue: usize) -> MarkerSpec {
    let mut when = vec![is_new_task()];
    if pattern != "*" {
        when.push(ConditionSpec {
            value: ValueSpec {
                deref: vec![TABLE, 0],
                ..state(Edge::Queue)
            },
            test: Test::Unit(pattern.to_owned()),
            negate: false,
        });
    }
    MarkerSpec {
        waits_in: Some(queue),
        is_touch: false,
        is_queued: true,
        ..marker(Role::Begin, Edge::Queue, when)
    }
}

/// The spawn of a goroutine that starts with a function that fits a glob.
pub(crate) fn goroutine_spawned(pattern: &str, queue: usize) -> MarkerSpec {
    let edge = Edge::Goroutine(Change::Spawn);
    let mut when = vec![is_new_goroutine()];
    if pattern != "*" {
        let start = ValueSpec {
            deref: vec![GOES_ON],
            ..state(edge)
        };
        when.push(ConditionSpec {
            value: start,
            test: Test::Starts(pattern.to_owned()),
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
