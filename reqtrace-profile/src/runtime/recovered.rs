//! Requests that are left by a panic: begin and end in; the marker where a goroutine goes on behind one, out.

use super::{by_sched, marker};
use crate::edge::{Change, Edge};
use crate::marker::{MarkerSpec, Role};
use crate::place::{At, PlaceSpec};

/// Where a goroutine goes on behind a panic, and the request ends if its function is left by that. Only a request that is one
/// call of one function is over when that is on the stack no more.
pub(crate) fn recovered(begin: &MarkerSpec, end: &MarkerSpec) -> Option<MarkerSpec> {
    let (
        PlaceSpec::Function {
            patterns,
            at: At::Entry,
        },
        PlaceSpec::Function {
            patterns: left,
            at: At::Return,
        },
    ) = (&begin.place, &end.place)
    else {
        return None;
    };
    let is_one_call = patterns == left
        && (&begin.object, begin.is_all) == (&end.object, end.is_all)
        && end.called_by.is_none()
        && end.when.is_empty();
    let edge = Edge::Goroutine(Change::Recover);
    is_one_call.then(|| by_sched(marker(Role::Recover, edge, Vec::new())))
}
