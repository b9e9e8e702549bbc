//! What a running trace takes: the kernel programs' own times, hits of probes and the tracer's CPU
//! time in, an [`Overhead`] out.

use std::time::Duration;

use reqtrace_common::cost::{ProgramTime, program};

use super::batch;
use super::estimate::{HitCost, Kind};
use super::maps::Maps;
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

/// The time of each program.
type Times = [ProgramTime; program::COUNT as usize];

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

    /// What so many hits cost at the probes of now, ns.
    fn ns_now(&self, runs: &Runs) -> u64 {
        let of = |(runs, each): (&u64, &Duration)| runs.saturating_mul(each.as_nanos() as u64);
        runs.iter().zip(&self.each).map(of).sum()
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

/// What all of it took since the start; the processes' own time and reqtrace's are left to the caller.
pub(super) fn of(maps: &Maps, traps: &Traps) -> Result<Overhead> {
    let times = times(maps)?;
    let runs = runs_of(&times);
    Ok(Overhead {
        hits: runs.iter().sum(),
        traps_ns: traps.ns(&runs),
        programs_ns: times.iter().map(ProgramTime::total_ns).sum(),
        ..Overhead::default()
    })
}

/// What traps have taken of processes that are not traced since the start, about, ns.
pub(super) fn foreign_ns(maps: &Maps, traps: &Traps) -> Result<u64> {
    let times = times(maps)?;
    let runs = MARKERS.map(|(_, program)| times[program as usize].foreign_runs());
    Ok(traps.ns_now(&runs))
}

/// How often the programs for markers have run since the start.
pub(super) fn runs(maps: &Maps) -> Result<Runs> {
    Ok(runs_of(&times(maps)?))
}

fn runs_of(times: &Times) -> Runs {
    MARKERS.map(|(_, program)| times[program as usize].runs)
}

/// The times of all programs, by their indices.
fn times(maps: &Maps) -> Result<Times> {
    let mut times = Times::default();
    let table = maps.map("COSTS")?;
    batch::of_cpus(table, times.len(), |program, of_cpu| {
        times[program].merge(of_cpu);
    })?;
    Ok(times)
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
