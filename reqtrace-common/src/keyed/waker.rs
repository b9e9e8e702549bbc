//! Where a request was parked that may have been at one of several places: those, and who made it ready, in; what it has waited
//! for out.
//!
//! A task may look at several things in one turn whether it can go on: a timer and a channel, or a connection and what the
//! answer waits for. A runtime's drivers wake those that wait for times and sockets, and nobody else does. Of others the code is
//! known that lets a lock or a permit go, or notifies: its frame is in the stack.

use super::state::is_several;
use super::{Job, PARKED};

/// Who made a request ready did so while its thread ran a task.
pub const BY_TASK: u32 = 1 << 30;

/// The stack of who made a request ready is known to its end: what is not in it has not made it ready.
pub const BY_WHOLE_STACK: u32 = 1 << 31;

/// Places of a stack of who made a request ready, a bit for each number.
const PLACES: u32 = BY_TASK - 1;

/// What a request has waited for that was at one of these places, a bit for each. `by` is what the stack of who made it ready says:
/// the places whose requests its code makes ready, a bit for each, [`BY_TASK`] and [`BY_WHOLE_STACK`]; 0: not known. `drivers` are
/// the places of all drivers.
#[must_use]
#[inline(always)]
pub const fn waits_at(may_be_at: u32, by: u32, drivers: u32) -> Job {
    let left = if by & PLACES != 0 {
        may_be_at & by & PLACES
    } else if by != 0 && drivers != 0 {
        may_be_at & !drivers
    } else {
        0
    };
    if left == 0 || is_several(left) || left == 1 << PARKED {
        return Job::NONE;
    }
    let mut place = 0;
    while place < 31 && left >> place != 1 {
        place += 1;
    }
    Job::waits_at(place)
}

/// The same by a thread that has just done a unit, and is still in it: with the places whose requests wait for that, unless it is
/// known otherwise. `dropped` are those whose requests may go on when what the unit leaves behind is dropped.
#[must_use]
#[inline(always)]
pub const fn by_done(by: u32, may_be_at: u32, joins: u32, dropped: u32) -> u32 {
    if by & PLACES != 0 || may_be_at & joins == 0 || may_be_at & dropped != 0 {
        return by;
    }
    by | joins
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: u32 = 2;
    const PERMIT: u32 = 4;
    const NOTIFY: u32 = 6;
    const TIMER: u32 = 3;
    const SOCKET: u32 = 11;
    const DRIVERS: u32 = 1 << TIMER | 1 << SOCKET;

    fn at(places: &[u32], by: u32) -> Option<u32> {
        let may_be_at = places.iter().map(|place| 1 << place).sum();
        let job = waits_at(may_be_at, by, DRIVERS);
        assert_eq!(job.since_ns(), 0);
        job.named().checked_sub(1)
    }

    #[test]
    fn a_unit_that_is_done_tells_that_it_was_waited_for() {
        const JOIN: u32 = 12;
        const CHANNEL: u32 = 5;
        let done_by = |places: &[u32], by: u32| {
            let may_be_at = places.iter().map(|place| 1 << place).sum();
            at(places, by_done(by, may_be_at, 1 << JOIN, 1 << CHANNEL))
        };
        assert_eq!(done_by(&[JOIN, NOTIFY, SOCKET], BY_TASK), Some(JOIN));
        // Its code says something else, it was not waited for, or what it has left behind may be it.
        assert_eq!(done_by(&[JOIN, LOCK], BY_TASK | 1 << LOCK), Some(LOCK));
        assert_eq!(done_by(&[LOCK, SOCKET], BY_TASK), Some(LOCK));
        assert_eq!(done_by(&[JOIN, CHANNEL], BY_TASK), None);
    }

    #[test]
    fn the_driver_tells_which_of_its_places_it_was() {
        assert_eq!(at(&[TIMER, SOCKET], 1 << TIMER), Some(TIMER));
        assert_eq!(at(&[TIMER, SOCKET, PARKED], 1 << SOCKET), Some(SOCKET));
        let within_a_task = 1 << TIMER | BY_TASK;
        assert_eq!(at(&[TIMER, LOCK], within_a_task), Some(TIMER));
        assert_eq!(
            at(&[LOCK, SOCKET], 1 << TIMER),
            None,
            "it did not wait for that"
        );
    }

    #[test]
    fn who_is_no_driver_leaves_what_is_no_drivers() {
        for by in [BY_WHOLE_STACK, BY_TASK, BY_TASK | BY_WHOLE_STACK] {
            assert_eq!(at(&[LOCK, SOCKET, TIMER], by), Some(LOCK));
            assert_eq!(at(&[LOCK, PARKED, SOCKET], by), None);
            assert_eq!(at(&[LOCK, NOTIFY, SOCKET], by), None);
            assert_eq!(at(&[PARKED, SOCKET], by), None);
            assert_eq!(at(&[TIMER, SOCKET], by), None);
        }
    }

    #[test]
    fn who_lets_something_go_tells_what() {
        let releases = 1 << LOCK | 1 << PERMIT | BY_TASK | BY_WHOLE_STACK;
        assert_eq!(at(&[LOCK, NOTIFY, SOCKET], releases), Some(LOCK));
        assert_eq!(at(&[PERMIT, NOTIFY, PARKED], releases), Some(PERMIT));
        assert_eq!(at(&[LOCK, PERMIT, NOTIFY], releases), None);
        assert_eq!(at(&[NOTIFY, SOCKET], releases), None);
        // Drivers need not be known.
        let found = waits_at(1 << LOCK | 1 << NOTIFY, releases, 0);
        assert_eq!(found.named().checked_sub(1), Some(LOCK));
    }

    #[test]
    fn nothing_is_known_without_a_stack_or_names_of_drivers() {
        assert_eq!(at(&[LOCK, SOCKET], 0), None);
        let found = waits_at(1 << LOCK | 1 << SOCKET, BY_WHOLE_STACK, 0);
        assert_eq!(found, Job::NONE);
    }
}
