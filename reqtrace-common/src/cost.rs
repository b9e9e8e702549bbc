//! What the kernel programs take by their own clock: one run in [`TIMED_ONE_IN`] is timed.

/// One run in so many is timed: a power of two.
pub const TIMED_ONE_IN: u64 = 64;

/// A timed run above this was interrupted by something else, ns: it is left out.
pub const LONGEST_NS: u64 = 1_000_000;

/// Indices of the programs in the table.
pub mod program {
    /// `request_begin`.
    pub const BEGIN: u32 = 0;
    /// `request_end`.
    pub const END: u32 = 1;
    /// `request_begin_ret`.
    pub const BEGIN_RET: u32 = 2;
    /// `request_end_ret`.
    pub const END_RET: u32 = 3;
    /// `sched_switch`, for threads in a request.
    pub const SWITCH: u32 = 4;
    /// `sample`, for threads in a request.
    pub const SAMPLE: u32 = 5;
    /// `marker`.
    pub const MARKER: u32 = 6;
    /// `marked_begin`.
    pub const MARKED_BEGIN: u32 = 7;
    /// `marked_end`.
    pub const MARKED_END: u32 = 8;
    /// `marked_begin_ret`.
    pub const MARKED_BEGIN_RET: u32 = 9;
    /// `marked_end_ret`.
    pub const MARKED_END_RET: u32 = 10;
    /// How many there are.
    pub const COUNT: u32 = 11;
}

/// Runs of one program on one CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramTime {
    /// Always 0: see [`crate::layout`].
    pub before: u64,
    /// All of them.
    pub runs: u64,
    /// When the run began that is being timed, `CLOCK_MONOTONIC` ns; 0: none is.
    pub started_ns: u64,
    /// Those that were timed.
    pub timed: u64,
    /// What these took, ns.
    pub timed_ns: u64,
    /// Of those whose begin was timed, the runs in processes that are not traced: probes are set for all that run a file.
    pub foreign: u64,
    /// Always 0.
    pub pad: [u64; 2],
}

impl ProgramTime {
    /// Adds those of another CPU.
    pub fn merge(&mut self, other: &Self) {
        self.runs += other.runs;
        self.timed += other.timed;
        self.timed_ns += other.timed_ns;
        self.foreign += other.foreign;
    }

    /// Runs in processes that are not traced, about.
    #[must_use]
    pub fn foreign_runs(&self) -> u64 {
        (self.foreign * TIMED_ONE_IN).min(self.runs)
    }

    /// What all runs took, ns, if the others took as long as those that were timed.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        let total = u128::from(self.timed_ns) * u128::from(self.runs);
        total.checked_div(u128::from(self.timed)).unwrap_or(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timed_runs_stand_for_all() {
        let mut time = ProgramTime {
            runs: 640,
            timed: 10,
            timed_ns: 5000,
            started_ns: 7,
            ..ProgramTime::default()
        };
        assert_eq!(time.total_ns(), 320_000);
        time.merge(&ProgramTime {
            runs: 64,
            timed: 1,
            timed_ns: 600,
            ..ProgramTime::default()
        });
        assert_eq!((time.runs, time.timed, time.timed_ns), (704, 11, 5600));
        time.foreign = 3;
        assert_eq!(time.foreign_runs(), 192);
        time.foreign = 12;
        assert_eq!(time.foreign_runs(), 704, "the first one is timed, too");
        assert_eq!(ProgramTime::default().total_ns(), 0);
    }
}
