//! Where a request was parked that may have been at one of several places: those, and who made it ready, in; what it has waited
//! for out.
//!
//! A task may look at several things in one turn whether it can go on: a timer and a channel, or a connection and what the
//! answer waits for. A runtime's drivers wake those that wait for times and sockets, and nobody else does.

use super::state::is_several;
use super::{Job, PARKED};

/// Who made a request ready is no driver of a runtime, and its stack is in no task.
pub const NO_DRIVER: u32 = 0xff;

/// It is what a thread does while it runs a task.
pub const BY_TASK: u32 = 0xfe;

/// What a request has waited for that was at one of these places, a bit for each. `by` is the place of the driver that made
/// it ready and 1, [`NO_DRIVER`] or [`BY_TASK`]; 0: not known. `drivers` are the places of all drivers.
#[must_use]
#[inline(always)]
pub const fn waits_at(may_be_at: u32, by: u32, drivers: u32) -> Job {
    if by == 0 || drivers == 0 {
        return Job::NONE;
    }
    let left = if by == NO_DRIVER || by == BY_TASK {
        may_be_at & !drivers
    } else {
        may_be_at & 1_u32.wrapping_shl(by - 1)
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

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: u32 = 2;
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
    fn the_driver_tells_which_of_its_places_it_was() {
        assert_eq!(at(&[TIMER, SOCKET], TIMER + 1), Some(TIMER));
        assert_eq!(at(&[TIMER, SOCKET, PARKED], SOCKET + 1), Some(SOCKET));
        assert_eq!(
            at(&[LOCK, SOCKET], TIMER + 1),
            None,
            "it did not wait for that"
        );
    }

    #[test]
    fn who_is_no_driver_leaves_what_is_no_drivers() {
        assert_eq!(at(&[LOCK, SOCKET, TIMER], NO_DRIVER), Some(LOCK));
        assert_eq!(at(&[LOCK, SOCKET, TIMER], BY_TASK), Some(LOCK));
        assert_eq!(at(&[LOCK, PARKED, SOCKET], NO_DRIVER), None);
        assert_eq!(at(&[PARKED, SOCKET], NO_DRIVER), None);
        assert_eq!(at(&[TIMER, SOCKET], NO_DRIVER), None);
    }

    #[test]
    fn nothing_is_known_without_a_stack_or_names_of_drivers() {
        assert_eq!(at(&[LOCK, SOCKET], 0), None);
        assert_eq!(waits_at(1 << LOCK | 1 << SOCKET, NO_DRIVER, 0), Job::NONE);
    }
}
