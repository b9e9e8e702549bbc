//! What a running trace takes: the kernel programs' own times, hits of probes and the tracer's CPU
//! time in, an [`Overhead`] out.

use std::time::Duration;

use aya::Ebpf;
use aya::maps::PerCpuArray;
use reqtrace_common::cost::{ProgramTime, program};

use super::estimate::{HitCost, Kind};
use super::named::{map, map_error};
use super::probes::ProbePlan;
use super::rate;
use reqtrace_base::error::Result;
use reqtrace_recording::Overhead;

/// Programs for markers, by their index in the kernel's table.
const MARKERS: [(&str, u32); 9] = [
    ("request_begin", program::BEGIN),
    ("request_end", program::END),
    ("request_begin_ret", program::BEGIN_RET),
    ("request_end_ret", program::END_RET),
    ("marker", program::MARKER),
    ("marked_begin", program::MARKED_BEGIN),
    ("marked_end", program::MARKED_END),
    ("marked_begin_ret", program::MARKED_BEGIN_RET),
    ("marked_end_ret", program::MARKED_END_RET),
];

/// How often each program has run, in the order of [`MARKERS`].
pub(super) type Runs = [u64; MARKERS.len()];

/// What the traps at the probes of each program, in the order of [`MARKERS`], have cost, and cost from now on.
#[derive(Clone, Debug, Default)]
pub(super) struct Traps {
    each: [Duration; MARKERS.len()],
    /// When `each` came to be: what had run by then, and what that had cost, ns.
    runs: Runs,
    ns: u64,
}

impl Traps {
    /// At these probes, from the start on.
    pub(super) fn at<'a>(
        plans: impl IntoIterator<Item = &'a ProbePlan> + Clone,
        cost: HitCost,
    ) -> Self {
        Self {
            each: mean_costs(plans, cost),
            ..Self::default()
        }
    }

    /// There are these probes since the programs had run so often. What had run until then has cost what it did.
    pub(super) fn are_at<'a>(
        &mut self,
        plans: impl IntoIterator<Item = &'a ProbePlan> + Clone,
        cost: HitCost,
        runs: Runs,
    ) {
        self.change(mean_costs(plans, cost), runs);
    }

    fn change(&mut self, each: [Duration; MARKERS.len()], runs: Runs) {
        self.ns = self.ns(&runs);
        self.runs = runs;
        self.each = each;
    }

    /// What they have cost since the start, when the programs have run so often, ns.
    fn ns(&self, runs: &Runs) -> u64 {
        let mut ns = self.ns;
        for ((runs, before), each) in runs.iter().zip(self.runs).zip(self.each) {
            let since = runs.saturating_sub(before);
            ns += since.saturating_mul(each.as_nanos() as u64);
        }
        ns
    }
}

/// The mean over the probes of each program.
fn mean_costs<'a>(
    plans: impl IntoIterator<Item = &'a ProbePlan> + Clone,
    cost: HitCost,
) -> [Duration; MARKERS.len()] {
    MARKERS.map(|(name, _)| {
        let plans = plans.clone().into_iter();
        let mine = plans.filter(|plan| plan.program == name);
        let costs: Vec<Duration> = mine.map(|plan| cost.of(kind(plan))).collect();
        let sum: Duration = costs.iter().sum();
        sum.checked_div(costs.len() as u32).unwrap_or_default()
    })
}

fn kind(plan: &ProbePlan) -> Kind {
    if plan.on_return() {
        return Kind::Returned;
    }
    rate::kind(plan.instruction)
}

/// What all of it took since the start; the processes' own time is left to the caller.
pub(super) fn of(ebpf: &Ebpf, traps: &Traps) -> Result<Overhead> {
    let mut overhead = Overhead {
        programs_ns: time(ebpf, program::SWITCH)?.total_ns()
            + time(ebpf, program::SAMPLE)?.total_ns(),
        tracer_ns: own_cpu_ns(),
        ..Overhead::default()
    };
    let times = times(ebpf)?;
    for time in &times {
        overhead.hits += time.runs;
        overhead.programs_ns += time.total_ns();
    }
    overhead.traps_ns = traps.ns(&times.map(|time| time.runs));
    Ok(overhead)
}

/// How often the programs for markers have run since the start.
pub(super) fn runs(ebpf: &Ebpf) -> Result<Runs> {
    Ok(times(ebpf)?.map(|time| time.runs))
}

/// The times of the programs for markers.
fn times(ebpf: &Ebpf) -> Result<[ProgramTime; MARKERS.len()]> {
    let mut times = [ProgramTime::default(); MARKERS.len()];
    for (into, (_, index)) in times.iter_mut().zip(MARKERS) {
        *into = time(ebpf, index)?;
    }
    Ok(times)
}

fn time(ebpf: &Ebpf, index: u32) -> Result<ProgramTime> {
    let times: PerCpuArray<_, ProgramTime> =
        PerCpuArray::try_from(map(ebpf, "COSTS")?).map_err(map_error)?;
    let mut sum = ProgramTime::default();
    for cpu in times.get(&index, 0).map_err(map_error)?.iter() {
        sum.merge(cpu);
    }
    Ok(sum)
}

/// CPU time of this program, all its threads, ns.
pub(super) fn own_cpu_ns() -> u64 {
    // SAFETY: plain numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid place for the result.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let ns = |time: libc::timeval| {
        time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_usec.cast_unsigned() * 1000
    };
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the first program, or the last one.
    fn runs(first: u64, last: u64) -> Runs {
        let mut runs = Runs::default();
        runs[0] = first;
        runs[MARKERS.len() - 1] = last;
        runs
    }

    #[test]
    fn what_has_run_keeps_its_cost_when_its_probes_go() {
        let mut traps = Traps::default();
        let each = |ns| [Duration::from_nanos(ns); MARKERS.len()];
        traps.change(each(500), runs(0, 0));
        assert_eq!(traps.ns(&runs(10, 4)), 14 * 500);
        // The only program that had these probes has gone.
        traps.change(each(0), runs(10, 4));
        assert_eq!(traps.ns(&runs(10, 4)), 14 * 500);
        traps.change(each(300), runs(10, 4));
        assert_eq!(traps.ns(&runs(11, 6)), 14 * 500 + 3 * 300);
    }
}
