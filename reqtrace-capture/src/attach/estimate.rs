//! What tracing would take: hits and the cost of one in, a share of CPU time out. Pure numbers.

use std::time::Duration;

use reqtrace_recording::range_ns;
use serde::{Deserialize, Serialize};

/// What the tracer's program takes longer than the one that counts. `cargo xtask bench` shows what
/// it takes in all.
pub const PROGRAM: Duration = Duration::from_nanos(400);

/// The same for a request that is left out by `--sample`.
const LEFT_OUT: Duration = Duration::from_nanos(60);

/// Hits per second that cost next to nothing on any machine.
const HARMLESS: f64 = 1000.0;

/// Samples that are proposed, up to one of so many.
const MOST: u32 = 1024;

/// What a thread pays for one hit of a counting probe: the trap and the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HitCost {
    /// On an instruction that the kernel executes itself: `push`, `nop`, jumps. Functions mostly
    /// begin with one.
    pub emulated: Duration,
    /// On any other, which is single-stepped out of line: a second trap. `ret` is one.
    pub stepped: Duration,
    /// By a uretprobe: the trap at the entry, and the trampoline at the return.
    pub returned: Duration,
    /// What a hit takes at most: the same with empty caches, as a big program has them, in percent; 100 or
    /// more, 0 when it is not known.
    pub cold_percent: u32,
}

/// What happens when a probe is hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The kernel executes the instruction itself.
    Emulated,
    /// The instruction is single-stepped.
    Stepped,
    /// The return address is replaced.
    Returned,
}

impl HitCost {
    /// Of one kind.
    #[must_use]
    pub fn of(&self, kind: Kind) -> Duration {
        match kind {
            Kind::Emulated => self.emulated,
            Kind::Stepped => self.stepped,
            Kind::Returned => self.returned,
        }
    }
}

/// What was measured before tracing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Hits of all probes, by whomever.
    pub hits: u64,
    /// For how long they were counted.
    pub elapsed: Duration,
    /// CPU time of the processes meanwhile, without what counting took.
    pub work: Duration,
    /// What the traps of so many hits take.
    pub traps: Duration,
    /// What the tracer's program takes longer than the one that counts, for each hit; 0 when
    /// nothing but counting is planned.
    pub program: Duration,
    /// For how long the busiest thread slept.
    pub slept: Duration,
    /// As in [`HitCost::cold_percent`].
    pub cold_percent: u32,
}

impl Rate {
    /// Hits per second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.hits as f64 / self.elapsed.as_secs_f64().max(1e-6)
    }

    /// Whether so few hits cost next to nothing on any machine.
    #[must_use]
    pub fn is_harmless(&self) -> bool {
        self.per_second() < HARMLESS
    }

    /// Share of the CPU time that tracing would take, 0 to 1: of what the processes take with
    /// it and of what their busiest thread leaves unused. A process that mostly sleeps pays for
    /// a trap with time that it has.
    ///
    /// It is the middle of the range: who is refused cannot trace at all, and who is let in has the guard, which goes
    /// by the upper end.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.share_of(middle(self.tracing(None)))
    }

    /// Share of the processes' own CPU time that tracing would take, 0 to 1: at least, and at most, as
    /// `Overhead::shares` says it of a trace.
    #[must_use]
    pub fn shares(&self) -> [f64; 2] {
        let awake = Self {
            slept: Duration::ZERO,
            ..*self
        };
        self.tracing(None).map(|tracing| awake.share_of(tracing))
    }

    /// The same if nothing more were hit until `window` is over, and the busiest thread slept.
    #[must_use]
    pub fn share_at_least(&self, window: Duration) -> f64 {
        let rest = window.saturating_sub(self.elapsed);
        let whole = Self {
            slept: self.slept + rest,
            ..*self
        };
        whole.share()
    }

    /// The smallest N for which recording one of N requests stays within a limit; `None`: none
    /// does, since a trap costs the same whether its request is recorded or not.
    #[must_use]
    pub fn sample_within(&self, limit: f64) -> Option<u32> {
        let mut every = 2;
        while every <= MOST {
            if self.share_of(middle(self.tracing(Some(every)))) <= limit {
                return Some(every);
            }
            every *= 2;
        }
        None
    }

    /// What it would take: at least, and at most.
    fn tracing(&self, sample: Option<u32>) -> [Duration; 2] {
        let each = match sample {
            Some(every) => self.program / every + LEFT_OUT,
            None => self.program,
        };
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let programs_ns = self.hits.saturating_mul(ns(each));
        range_ns(ns(self.traps), programs_ns, self.cold_percent).map(Duration::from_nanos)
    }

    fn share_of(&self, tracing: Duration) -> f64 {
        let tracing = tracing.as_secs_f64();
        let whole = self.work.as_secs_f64() + tracing + self.slept.as_secs_f64();
        if whole > 0.0 { tracing / whole } else { 0.0 }
    }
}

/// The middle of a range.
fn middle([least, most]: [Duration; 2]) -> Duration {
    least.saturating_add(most) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn rate(work: u32, traps: u32, slept: u32) -> Rate {
        Rate {
            hits: 0,
            elapsed: 500 * MS,
            work: work * MS,
            traps: traps * MS,
            program: PROGRAM,
            slept: slept * MS,
            cold_percent: 0,
        }
    }

    #[track_caller]
    fn about(share: f64, expected: f64) {
        assert!((share - expected).abs() < 1e-3, "{share}");
    }

    #[test]
    fn a_busy_thread_pays_with_its_work_and_a_sleeping_one_with_its_sleep() {
        // One CPU busy: for 250 ms of work tracing takes 250 ms.
        about(rate(250, 250, 0).share(), 0.5);
        // Four CPUs busy.
        about(rate(1900, 100, 0).share(), 0.05);
        // Hardly any work, but half of it traps: of 500 ms they are 4 %.
        about(rate(20, 20, 460).share(), 0.04);
        // The same work by a thread that waits for a CPU all the time.
        about(rate(20, 20, 0).share(), 0.5);
        about(rate(1, 0, 400).share(), 0.0);
        about(Rate::default().share(), 0.0);
    }

    #[test]
    fn the_range_is_of_busy_time_and_the_limit_is_held_against_its_middle() {
        let rate = Rate {
            cold_percent: 300,
            ..rate(100, 100, 0)
        };
        let [least, most] = rate.shares();
        about(least, 0.5);
        about(most, 0.75);
        about(rate.share(), 200.0 / 300.0);
        // Sleep is time to spare, and no time of the processes.
        let sleeping = Rate {
            slept: 700 * MS,
            ..rate
        };
        about(sleeping.share(), 0.2);
        assert_eq!(sleeping.shares(), rate.shares());
    }

    #[test]
    fn nothing_is_certain_before_the_window_is_over() {
        let early = Rate {
            elapsed: 100 * MS,
            ..rate(0, 100, 0)
        };
        about(early.share(), 1.0);
        about(early.share_at_least(500 * MS), 0.2);
        about(rate(0, 500, 0).share_at_least(500 * MS), 1.0);
    }

    #[test]
    fn a_sample_saves_programs_not_traps() {
        // A million hits: the programs take 400 ms.
        let busy = |traps| Rate {
            hits: 1_000_000,
            ..rate(500, traps, 0)
        };
        about(busy(100).share(), 0.5);
        assert_eq!(busy(100).sample_within(0.4), Some(4));
        // One of many: 160 ms of 660 are left.
        assert_eq!(busy(100).sample_within(0.25), Some(64));
        assert_eq!(busy(100).sample_within(0.2), None);
        assert_eq!(busy(400).sample_within(0.4), None);
    }
}
