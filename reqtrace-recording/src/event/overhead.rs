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

    /// Share of the processes' own CPU time that traps and programs took, 0 to 1: at least, and at most, as
    /// [`Overhead::inside_ns`]. What they sleep is in neither.
    #[must_use]
    pub fn shares(&self, cold_percent: u32) -> [f64; 2] {
        let processes_ns = self.processes_ns.max(1) as f64;
        self.inside_ns(cold_percent)
            .map(|ns| ns as f64 / processes_ns)
    }

    /// The share that a limit is held against, 0 to 1: the most that tracing takes of the processes' CPU time, as a
    /// limit that is reached too late harms them. While that is less than a tenth of one CPU, nobody has to wait
    /// for it: then, and where the tracer itself takes more, it is of what the processes and the tracer took,
    /// or of one CPU's time, if that is more.
    #[must_use]
    pub fn guarded_share(&self, cold_percent: u32) -> f64 {
        let [_, most_ns] = self.inside_ns(cold_percent);
        let is_little = most_ns < self.elapsed_ns / LITTLE;
        let [_, most] = self.shares(cold_percent);
        self.with_tracer(most_ns)
            .max(if is_little { 0.0 } else { most })
            .min(1.0)
    }

    /// The share that the limit of a session for months is held against, 0 to 1: the most that traps and programs take of the
    /// processes' CPU time, however little that is; processes that take less than a tenth of one CPU count as a tenth.
    /// Where the tracer itself takes more: as [`Self::guarded_share`].
    #[must_use]
    pub fn lasting_share(&self, cold_percent: u32) -> f64 {
        let [_, most_ns] = self.inside_ns(cold_percent);
        self.with_tracer(most_ns)
            .max(self.lasting_part(most_ns))
            .min(1.0)
    }

    /// The same of traps alone, which recording less does not change.
    #[must_use]
    pub fn lasting_traps(&self) -> f64 {
        self.lasting_part(self.traps_ns.min(self.processes_ns))
    }

    fn lasting_part(&self, ns: u64) -> f64 {
        ns as f64 / self.processes_ns.max(self.elapsed_ns / LITTLE).max(1) as f64
    }

    /// What traps, programs and the tracer take of what the processes and the tracer took, or of one CPU.
    fn with_tracer(&self, inside_ns: u64) -> f64 {
        let taken = self.processes_ns.saturating_add(self.tracer_ns);
        let taken = taken.max(self.elapsed_ns).max(1);
        inside_ns.saturating_add(self.tracer_ns) as f64 / taken as f64
    }

    /// What traps and programs took of the processes' own CPU time, ns: at least, and at most, if a trap may take
    /// `cold_percent` of what it takes with warm caches.
    #[must_use]
    pub fn inside_ns(&self, cold_percent: u32) -> [u64; 2] {
        range_ns(self.traps_ns, self.programs_ns, cold_percent).map(|ns| ns.min(self.processes_ns))
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

/// One of so many parts of a CPU's time is little.
const LITTLE: u64 = 10;

/// What traps and programs take, ns: at least, and at most, if a trap may take `cold_percent` of what it takes with
/// warm caches. Whatever says what tracing takes says this.
#[must_use]
pub fn range_ns(traps_ns: u64, programs_ns: u64, cold_percent: u32) -> [u64; 2] {
    let most_ns = u128::from(traps_ns) * u128::from(cold_percent.max(100)) / 100;
    let most_ns = u64::try_from(most_ns).unwrap_or(u64::MAX);
    [traps_ns, most_ns].map(|traps_ns| traps_ns.saturating_add(programs_ns))
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
        let about = |share: f64, wanted: f64| assert!((share - wanted).abs() < 1e-9, "{share}");
        about(busy.guarded_share(0), 0.1);
        let idle = Overhead {
            processes_ns: 200,
            ..busy
        };
        // Its own 200 ns are nearly all tracing, and more than a tenth of the CPU.
        about(idle.guarded_share(0), 0.8);
        about(idle.guarded_share(120), 0.9);
        let [least, most] = idle.shares(120);
        about(least, 0.8);
        about(most, 0.9);
        // The same of a longer time is little: it is held against one CPU, with the tracer's own.
        let sleeping = Overhead {
            elapsed_ns: 2000,
            ..idle
        };
        about(sleeping.guarded_share(0), 0.1);
        assert_eq!(sleeping.shares(120), idle.shares(120));
        // A session for months takes its share of what the service takes, however long that sleeps.
        about(sleeping.lasting_share(0), 0.8);
        about(sleeping.lasting_share(120), 0.9);
        about(sleeping.lasting_traps(), 0.5);
        // Below a tenth of a CPU it is of that.
        let small = Overhead {
            elapsed_ns: 16_000,
            ..idle
        };
        about(small.lasting_share(0), 0.1);
        about(small.lasting_traps(), 100.0 / 1600.0);
        about(small.guarded_share(0), 200.0 / 16_000.0);
        about(busy.lasting_share(0), busy.guarded_share(0));
        // Of busy time, however long it slept; no more than there was of it.
        assert_eq!(idle.inside_ns(0), [160, 160]);
        assert_eq!(idle.inside_ns(120), [160, 180]);
        assert_eq!(idle.inside_ns(180), [160, 200]);
        about(Overhead::default().guarded_share(0), 0.0);
        assert_eq!(busy.since(&idle).processes_ns, 1760);
        assert_eq!(busy.since(&idle).traps_ns, 0);
    }
}
