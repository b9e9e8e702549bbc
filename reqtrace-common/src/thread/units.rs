//! Units of a runtime, such as tasks: which of them a thread enters and leaves in; the one that it runs, and the job that
//! it has just done, out.

use core::mem::offset_of;

use crate::keyed::Job;

/// Units that a thread can run one inside the other and still be known by.
const MAX_UNITS: usize = 4;

/// The units that a thread runs, in one line of a CPU's cache. One is inside another where a unit drives a runtime of its own.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units {
    /// From the outermost on; from `depth` on what it has left there last.
    keys: [u64; MAX_UNITS],
    /// How many there are, those without room in `keys` too.
    depth: u32,
    /// The thread, where threads have places that others can have: see [`crate::passed::place`]. 0: the place is free.
    owner: u32,
    /// When it entered the outermost one, `CLOCK_MONOTONIC` nanoseconds; [`NOT_TIMED`]: not read, and later than anything known.
    entered_ns: u64,
    /// The last job, if it has entered none since.
    job: Job,
    /// The same as `entered_ns` of the last one that it entered within another one.
    inner_ns: u64,
}

impl Units {
    /// None.
    pub const NONE: Self = Self {
        keys: [0; MAX_UNITS],
        depth: 0,
        owner: 0,
        entered_ns: 0,
        job: Job::NONE,
        inner_ns: 0,
    };

    /// Which of its words has `depth` and, in the upper half, `owner`: both are 0 in a free place.
    pub const WORD: usize = offset_of!(Self, depth) / 8;

    /// None, in a place that this thread has.
    #[must_use]
    pub const fn none_of(owner: u32) -> Self {
        Self {
            owner,
            ..Self::NONE
        }
    }

    /// Whose place it is.
    #[must_use]
    #[inline(always)]
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Whether the thread runs none.
    #[must_use]
    #[inline(always)]
    pub fn is_none(&self) -> bool {
        self.depth == 0
    }

    /// The outermost, if there is none within; 0: there is.
    #[must_use]
    #[inline(always)]
    pub fn only(&self) -> u64 {
        if self.depth == 1 { self.keys[0] } else { 0 }
    }

    /// Whether the thread runs none, and has taken up none since then. `is_within`: but for the outermost, which runs others all its
    /// life.
    #[must_use]
    #[inline(always)]
    pub fn is_none_since(&self, ns: u64, is_within: bool) -> bool {
        let (depth, entered_ns) = match is_within {
            true => (1, self.inner_ns),
            false => (0, self.entered_ns),
        };
        self.depth == depth && entered_ns <= ns
    }

    /// The thread runs this unit from now on. One that it runs already is the innermost then: what was inside was left
    /// unseen.
    #[inline(always)]
    pub fn enter(&mut self, key: u64, now: u64) {
        let mut at = self.find(key);
        if at == NOWHERE {
            at = self.depth;
        }
        if at == 0 {
            self.entered_ns = now;
            self.job = Job::NONE;
        } else {
            self.inner_ns = now;
        }
        if at < MAX_UNITS as u32 {
            // A mask, and no comparison, which Linux 6.1 forgets.
            self.keys[at as usize & (MAX_UNITS - 1)] = key;
        }
        self.depth = at + 1;
    }

    /// The same of a unit that is no request. Only when jobs began matters: what has left a unit that was none runs others such,
    /// and their clock is not read. Each request type has a marker there: it may be entered already.
    #[inline(always)]
    pub fn enter_other(&mut self, key: u64, clock: impl FnOnce() -> u64) {
        let now = if self.depth > 0 && self.keys[0] != key {
            NOT_TIMED
        } else if self.depth > 0 || self.entered_ns == NOT_TIMED {
            self.entered_ns
        } else {
            clock()
        };
        self.enter(key, now);
    }

    /// A request begins in the unit that it runs, whose clock is read now if it was not before.
    #[inline(always)]
    pub fn begins(&mut self, clock: impl FnOnce() -> u64) {
        let entered_ns = match self.depth {
            0 | 1 => &mut self.entered_ns,
            _ => &mut self.inner_ns,
        };
        if *entered_ns == NOT_TIMED {
            *entered_ns = clock();
        }
    }

    /// The one that it has left last, if it runs none, or but for the outermost; 0: it does.
    #[must_use]
    #[inline(always)]
    pub fn left(&self, is_within: bool) -> u64 {
        let [first, second, ..] = self.keys;
        match (self.depth, is_within) {
            (0, false) => first,
            (1, true) => second,
            _ => 0,
        }
    }

    /// Its thread leaves: another one may take its place.
    #[inline(always)]
    pub fn forget(&mut self) {
        self.keys = [0; MAX_UNITS];
        (self.entered_ns, self.inner_ns) = (0, 0);
        self.job = Job::NONE;
    }

    /// It runs it no more, nor what is inside.
    #[inline(always)]
    pub fn leave(&mut self, key: u64) {
        let at = self.find(key);
        if at != NOWHERE {
            self.depth = at;
        } else if self.depth > MAX_UNITS as u32 {
            self.depth -= 1;
        }
    }

    /// The same of a unit that is neither a request nor a job.
    #[inline(always)]
    pub fn leave_other(&mut self, key: u64) {
        if self.find(key) == 0 {
            self.entered_ns = NOT_TIMED;
        }
        self.leave(key);
    }

    /// It is done with this job. Requests that it makes ready before it enters another unit have waited for the job: in this
    /// place until a thread had taken it. Nothing is known of a job that was not timed.
    #[inline(always)]
    pub fn leave_job(&mut self, key: u64, place: u32) {
        if self.find(key) == 0 {
            if self.entered_ns != NOT_TIMED {
                self.job = Job::new(self.entered_ns, place);
            }
            self.entered_ns = 0;
        }
        self.leave(key);
    }

    /// Has done this job elsewhere.
    #[inline(always)]
    pub fn set_job(&mut self, job: Job) {
        self.job = job;
    }

    /// The job that it has just done.
    #[must_use]
    #[inline(always)]
    pub fn job(&self) -> Job {
        self.job
    }

    /// The innermost; `0` when it runs none, or one that has no room.
    #[must_use]
    #[inline(always)]
    pub fn current(&self) -> u64 {
        let depth = self.depth;
        if depth == 0 || depth > MAX_UNITS as u32 {
            return 0;
        }
        self.keys[(depth - 1) as usize & (MAX_UNITS - 1)]
    }

    #[inline(always)]
    fn find(&self, key: u64) -> u32 {
        let mut at = 0;
        while at < MAX_UNITS {
            if (at as u32) < self.depth && self.keys[at] == key {
                return at as u32;
            }
            at += 1;
        }
        NOWHERE
    }
}

/// Its clock was not read.
const NOT_TIMED: u64 = u64::MAX;

/// Not among those that are known.
const NOWHERE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    /// Enters these, and says what is run then.
    fn entered(keys: &[u64]) -> Units {
        let mut units = Units::NONE;
        for key in keys {
            units.enter(*key, 0);
        }
        units
    }

    #[test]
    fn the_innermost_is_run_and_what_is_left_takes_what_is_inside_along() {
        let mut units = entered(&[]);
        assert_eq!(units.current(), 0);
        units.leave(7);
        assert_eq!(units.current(), 0);
        units = entered(&[7, 8, 9]);
        assert_eq!(units.current(), 9);
        units.leave(9);
        assert_eq!(units.current(), 8);
        units.leave(5);
        assert_eq!(units.current(), 8);
        units.leave(7);
        assert_eq!(units.current(), 0);
    }

    #[test]
    fn what_is_run_already_is_entered_once() {
        let mut units = entered(&[7, 8, 7]);
        assert_eq!(units, entered(&[7, 8, 7, 7]));
        assert_eq!(units.current(), 7);
        units.leave(7);
        assert_eq!(units.current(), 0);
    }

    #[test]
    fn a_unit_without_room_is_not_taken_for_another_one() {
        let mut units = entered(&[1, 2, 3, 4, 5, 6]);
        assert_eq!(units.current(), 0);
        units.leave(6);
        assert_eq!(units.current(), 0);
        units.leave(5);
        assert_eq!(units.current(), 4);
        units = entered(&[1, 2, 3, 4, 5]);
        units.leave(2);
        assert_eq!(units.current(), 1);
    }

    #[test]
    fn who_is_made_ready_after_a_job_has_waited_for_it() {
        const POOL: u32 = 11;
        let mut units = Units::NONE;
        units.enter(7, 100);
        // It drives tasks of its own.
        units.enter(8, 150);
        units.leave(8);
        assert_eq!(units.job(), Job::NONE);
        units.leave_job(7, POOL);
        assert_eq!((units.current(), units.job()), (0, Job::new(100, POOL)));
        units.enter(9, 200);
        assert_eq!(units.job(), Job::NONE);
        // A task of a job is none, nor is one that was never run.
        units.leave_job(5, POOL);
        units.enter(10, 300);
        units.leave_job(10, POOL);
        assert_eq!((units.current(), units.job()), (9, Job::NONE));
        units.leave_job(9, POOL);
        assert_eq!(units.job(), Job::new(200, POOL));
    }

    #[test]
    fn a_thread_that_leaves_tasks_reads_no_clock_until_it_has_done_a_job() {
        const POOL: u32 = 11;
        let mut units = Units::NONE;
        let never = || panic!("the clock was read");
        units.enter_other(7, || 100);
        units.leave_other(7);
        units.enter_other(8, never);
        assert!(!units.is_none_since(200, false));
        units.leave_other(8);
        // It has taken one up since, whenever that was.
        assert!(!units.is_none_since(u64::MAX - 1, false));
        // A request that begins in a unit is timed from then on.
        units.enter_other(8, never);
        units.begins(|| 250);
        units.begins(never);
        assert!((units.left(false), units.current()) == (0, 8));
        units.leave(8);
        assert_eq!(units.left(false), 8);
        assert!(units.is_none_since(250, false) && !units.is_none_since(249, false));
        // So is one that is a unit.
        units.enter(9, 300);
        units.leave(9);
        assert!(units.is_none_since(300, false) && !units.is_none_since(299, false));
        units.enter_other(7, || 400);
        units.leave_other(7);
        // Of its first job it is not known when it began.
        units.enter_other(10, never);
        units.enter_other(11, never);
        units.leave_other(11);
        units.leave_job(10, POOL);
        assert_eq!(units.job(), Job::NONE);
        units.enter_other(12, || 500);
        units.enter_other(12, never);
        // What a job drives is within it.
        units.enter_other(13, never);
        units.leave_other(13);
        units.leave_job(12, POOL);
        assert_eq!(units.job(), Job::new(500, POOL));
    }

    #[test]
    fn a_worker_that_is_a_job_itself_runs_others_within() {
        let worker = 1;
        let mut units = Units::NONE;
        units.enter(worker, 100);
        assert_eq!((units.only(), units.left(true)), (worker, 0));
        units.enter(7, 200);
        assert_eq!((units.only(), units.left(true)), (0, 0));
        units.leave(7);
        assert_eq!((units.only(), units.left(true)), (worker, 7));
        assert!(units.is_none_since(200, true) && !units.is_none_since(199, true));
        assert!(!units.is_none_since(200, false));
        units.enter_other(8, || panic!("the clock was read"));
        units.leave_other(8);
        assert_eq!(units.left(true), 8);
        assert!(!units.is_none_since(u64::MAX - 1, true));
        units.enter_other(8, || panic!("the clock was read"));
        units.begins(|| 300);
        units.leave(8);
        assert!(units.is_none_since(300, true) && !units.is_none_since(299, true));
    }
}
