//! What tracing itself took.

use serde::{Deserialize, Serialize};

/// CPU time of a trace, and of what it traced, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overhead {
    /// Traps of probes: hits times what one costs on this machine.
    pub traps_ns: u64,
    /// Programs on probes and, for threads in a request, on the scheduler: one run in 64 is timed.
    pub programs_ns: u64,
    /// The tracer itself.
    pub tracer_ns: u64,
    /// The traced processes, traps and programs included.
    pub processes_ns: u64,
    /// For how long.
    pub elapsed_ns: u64,
    /// Hits of probes.
    pub hits: u64,
}

impl Overhead {
    /// All of it.
    #[must_use]
    pub fn tracing_ns(&self) -> u64 {
        self.traps_ns + self.programs_ns + self.tracer_ns
    }

    /// Share of the CPU time, 0 to 1: of what the processes and the tracer took, or of one CPU's
    /// time, if that is more. A process that mostly sleeps has time to spare.
    #[must_use]
    pub fn share(&self) -> f64 {
        let taken = (self.processes_ns + self.tracer_ns).max(self.elapsed_ns);
        if taken == 0 {
            return 0.0;
        }
        (self.tracing_ns() as f64 / taken as f64).min(1.0)
    }

    /// What traps and programs took of the processes' own CPU time, ns: at least, and at most, if a trap may take
    /// `cold_percent` of what it takes with warm caches.
    #[must_use]
    pub fn inside_ns(&self, cold_percent: u32) -> [u64; 2] {
        let most_ns = u128::from(self.traps_ns) * u128::from(cold_percent.max(100)) / 100;
        let most_ns = u64::try_from(most_ns).unwrap_or(u64::MAX);
        [self.traps_ns, most_ns].map(|traps_ns| {
            let ns = traps_ns.saturating_add(self.programs_ns);
            ns.min(self.processes_ns)
        })
    }

    /// What has been added since an earlier look.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            traps_ns: self.traps_ns.saturating_sub(before.traps_ns),
            programs_ns: self.programs_ns.saturating_sub(before.programs_ns),
            tracer_ns: self.tracer_ns.saturating_sub(before.tracer_ns),
            processes_ns: self.processes_ns.saturating_sub(before.processes_ns),
            elapsed_ns: self.elapsed_ns.saturating_sub(before.elapsed_ns),
            hits: self.hits.saturating_sub(before.hits),
        }
    }
}

/// What the processes did before they were traced, while calls of their markers were only counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Untraced {
    /// Their CPU time without what counting took, ns.
    pub work_ns: u64,
    /// Calls of markers.
    pub hits: u64,
}

/// A part of a trace in which less was recorded, because tracing took too much.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShedSpan {
    /// What was left out: `stacks`, or `stacks, 3 of 4 requests`.
    pub what: String,
    /// Since when, ns from the start of the trace.
    pub from_ns: u64,
    /// Until when.
    pub to_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_the_time_taken_or_of_one_cpu() {
        let busy = Overhead {
            traps_ns: 100,
            programs_ns: 60,
            tracer_ns: 40,
            processes_ns: 1960,
            elapsed_ns: 1000,
            hits: 10,
        };
        assert_eq!(busy.tracing_ns(), 200);
        assert!((busy.share() - 0.1).abs() < 1e-9);
        let idle = Overhead {
            processes_ns: 200,
            ..busy
        };
        assert!((idle.share() - 0.2).abs() < 1e-9);
        // Of busy time, however long it slept; no more than there was of it.
        assert_eq!(idle.inside_ns(0), [160, 160]);
        assert_eq!(idle.inside_ns(120), [160, 180]);
        assert_eq!(idle.inside_ns(180), [160, 200]);
        assert!(Overhead::default().share() < 1e-9);
        assert_eq!(busy.since(&idle).processes_ns, 1760);
        assert_eq!(busy.since(&idle).traps_ns, 0);
    }
}
