//! Units of a runtime, tasks of tokio and goroutines: what kind of request they are in; the markers at the runtime's edges,
//! and which state of a task is meant at each, out.
//!
//! A goroutine is named by the address of its `g`, which is in a register wherever Go code runs and the first argument
//! where the runtime changes its state. That argument alone tells which one is meant, and the place what happens to it.
//! Where it is made, the address that it goes on at is the function that it starts with.
//!
//! A unit of tokio is named by the address of its header. Its first word is the state that the runtime changes: bits, and above
//! them a count of references. Behind the edge of a queue that word says whether a task is new, as nothing but the
//! list of tasks, the queue and its handle refer to one that was just spawned. At the edge of leaving it is read
//! before the runtime changes it: the task may be gone afterwards.

use reqtrace_common::marker::{TABLE_SCHEDULE, UNIT_TABLE};
use reqtrace_common::registers::Register;

mod reasons;
mod recovered;
mod spawned;
mod waits;

pub use reasons::{SLEEP_OF_GO, place_of_reason};
use reasons::{places_of_goroutines, stopped};
pub(super) use recovered::recovered;
pub(super) use spawned::{
    child, child_goroutine, child_goroutine_spawned, child_spawned, goroutine_spawned, polled_by,
    spawned, starts_with,
};
pub use waits::{
    BESIDE_REQUESTS, BESIDE_REQUESTS_MANGLED, DRIVERS_OF_TOKIO, GIVEN_UP, TokioDriver, TokioWait,
    TokioWaker, WAITS_OF_TOKIO, WAKERS_OF_TOKIO, dropped_of_tokio, joins_of_tokio,
};
use waits::{places_of_tasks, pool};

use super::edge::{Change, Edge};
use super::marker::{KeySpec, MarkerSpec, Role};
use super::place::PlaceSpec;
use super::value::{ConditionSpec, Test, ValueSource, ValueSpec};

/// Where a request is that is ready and waits for a thread of its runtime: the name of the place.
pub const RUNTIME: &str = "waited for the runtime";

/// Where a goroutine is that the runtime has stopped, such as for the collector of garbage: the name of the place.
pub const STOPPED: &str = "stopped by the runtime";

impl Edge {
    /// Where the unit is.
    const fn unit(self) -> ValueSource {
        match self {
            Self::Queue => ValueSource::Unit(1),
            Self::Resume | Self::Leave | Self::Wait | Self::Waker | Self::Done => {
                ValueSource::Unit(0)
            }
            Self::Goroutine(_) => ValueSource::Register(Register::Rax),
        }
    }
}

/// Where a `g` has the address that its goroutine goes on at, the same in all versions that are known.
pub const GOES_ON: i32 = 0x40;

/// Where it has what a thread needs to go on with it, of which that is a part.
pub const SCHED: i32 = 0x38;

/// Bits of a task's state.
const RUNNING: u64 = 1;
const COMPLETE: u64 = 2;
const NOTIFIED: u64 = 4;
const HAS_HANDLE: u64 = 8;
const CANCELLED: u64 = 32;

/// The markers of requests that are units, or that are within units, but for begin and end.
pub(super) struct Edges {
    pub(super) resume: Vec<MarkerSpec>,
    pub(super) park: Vec<MarkerSpec>,
    pub(super) ready: Vec<MarkerSpec>,
    /// Where such requests are while no thread runs them: the queue first.
    pub(super) places: Vec<String>,
}

impl Edges {
    /// `queue` is the index of [`RUNTIME`] among the places.
    pub(super) fn new(queue: usize) -> Self {
        let is_idle = bits(Edge::Resume, RUNNING | COMPLETE, 0);
        let is_parked = bits(Edge::Leave, NOTIFIED | CANCELLED, 0);
        let is_woken = bits(Edge::Leave, NOTIFIED | CANCELLED, NOTIFIED);
        let is_job = ConditionSpec {
            value: ValueSpec {
                deref: vec![UNIT_TABLE, TABLE_SCHEDULE],
                ..state(Edge::Done)
            },
            test: Test::Job,
            negate: false,
        };
        let queued = |marker| MarkerSpec {
            waits_in: Some(queue),
            ..marker
        };
        Self {
            resume: vec![marker(Role::Resume, Edge::Resume, vec![is_idle])],
            park: vec![
                marker(Role::Park, Edge::Leave, vec![is_parked]),
                MarkerSpec {
                    key: KeySpec::Unit,
                    ..marker(Role::Note, Edge::Wait, Vec::new())
                },
                marker(Role::Note, Edge::Waker, Vec::new()),
                MarkerSpec {
                    waits_in: Some(pool()),
                    ..marker(Role::Note, Edge::Done, vec![is_job])
                },
            ],
            ready: vec![
                queued(marker(Role::Ready, Edge::Queue, Vec::new())),
                queued(marker(Role::Ready, Edge::Leave, vec![is_woken])),
            ],
            places: places_of_tasks(),
        }
    }

    /// The same of goroutines.
    pub(super) fn of_goroutines(queue: usize) -> Self {
        let at = |role, change| marker(role, Edge::Goroutine(change), Vec::new());
        let queued = |change| MarkerSpec {
            waits_in: Some(queue),
            ..at(Role::Ready, change)
        };
        let switch = by_sched(at(Role::Resume, Change::Switch));
        Self {
            resume: vec![at(Role::Resume, Change::Resume), switch],
            park: vec![
                at(Role::Park, Change::Park),
                MarkerSpec {
                    waits_in: Some(stopped()),
                    ..at(Role::Park, Change::Stop)
                },
            ],
            ready: vec![queued(Change::Ready), queued(Change::Leave)],
            places: places_of_goroutines(),
        }
    }

    /// Only those by which a thread takes a unit up and leaves it. `queues`: new units come by the edge of a queue, which
    /// is probed then, and says of all when they are ready.
    pub(super) fn cheap(mut self, queues: bool) -> Self {
        let has_waits = self.park.iter().any(|marker| marker.role == Role::Note);
        if has_waits {
            self.park.retain(|marker| marker.role == Role::Park);
            self.places.truncate(1);
        }
        self.ready.retain(|marker| match marker.place {
            PlaceSpec::Edge(Edge::Queue) => queues,
            PlaceSpec::Edge(edge) => edge != Edge::Goroutine(Change::Ready),
            _ => true,
        });
        self
    }
}

/// The goroutine that a thread runs, wherever Go code runs.
pub(super) fn goroutine() -> ValueSpec {
    ValueSpec {
        source: ValueSource::Register(Register::R14),
        deref: Vec::new(),
        add: 0,
        size: Some(8),
    }
}

/// Where a unit is done: its end, or that of what is in it.
pub(super) fn done(role: Role) -> MarkerSpec {
    marker(role, Edge::Done, Vec::new())
}

/// The same of a goroutine.
pub(super) fn goroutine_done(role: Role) -> MarkerSpec {
    marker(role, Edge::Goroutine(Change::Done), Vec::new())
}

fn marker(role: Role, edge: Edge, when: Vec<ConditionSpec>) -> MarkerSpec {
    let unit = ValueSpec {
        deref: Vec::new(),
        ..state(edge)
    };
    MarkerSpec {
        role,
        place: PlaceSpec::Edge(edge),
        object: None,
        called_by: None,
        is_all: true,
        when,
        key: KeySpec::Key(vec![unit]),
        to: None,
        waits_in: None,
        is_touch: true,
        is_queued: false,
        is_child: false,
        has_children: false,
    }
}

/// At this marker not the goroutine is given, but what a thread needs to go on with it.
fn by_sched(mut marker: MarkerSpec) -> MarkerSpec {
    if let KeySpec::Key(key) = &mut marker.key {
        key.iter_mut()
            .for_each(|value| value.add = -i64::from(SCHED));
    }
    marker
}

/// The state of the unit at an edge.
fn state(edge: Edge) -> ValueSpec {
    ValueSpec {
        source: edge.unit(),
        deref: vec![0],
        add: 0,
        size: Some(8),
    }
}

fn bits(edge: Edge, mask: u64, are: u64) -> ConditionSpec {
    ConditionSpec {
        value: state(edge),
        test: Test::Bits { mask, are },
        negate: false,
    }
}
