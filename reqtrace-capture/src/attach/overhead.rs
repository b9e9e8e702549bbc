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

/// What a trap costs at the probes of each program, in the order of [`MARKERS`].
#[derive(Clone, Copy, Debug)]
pub(super) struct TrapCosts([Duration; MARKERS.len()]);

impl TrapCosts {
    /// The mean over the probes of each program.
    pub(super) fn of<'a>(
        plans: impl IntoIterator<Item = &'a ProbePlan> + Clone,
        cost: HitCost,
    ) -> Self {
        Self(MARKERS.map(|(name, _)| {
            let plans = plans.clone().into_iter();
            let mine = plans.filter(|plan| plan.program == name);
            let costs: Vec<Duration> = mine.map(|plan| cost.of(kind(plan))).collect();
            let sum: Duration = costs.iter().sum();
            sum.checked_div(costs.len() as u32).unwrap_or_default()
        }))
    }
}

fn kind(plan: &ProbePlan) -> Kind {
    if plan.on_return() {
        return Kind::Returned;
    }
    rate::kind(plan.instruction)
}

/// What all of it took since the start; the processes' own time is left to the caller.
pub(super) fn of(ebpf: &Ebpf, traps: TrapCosts) -> Result<Overhead> {
    let times: PerCpuArray<_, ProgramTime> =
        PerCpuArray::try_from(map(ebpf, "COSTS")?).map_err(map_error)?;
    let time = |index: u32| -> Result<ProgramTime> {
        let mut sum = ProgramTime::default();
        for cpu in times.get(&index, 0).map_err(map_error)?.iter() {
            sum.merge(cpu);
        }
        Ok(sum)
    };
    let mut overhead = Overhead {
        programs_ns: time(program::SWITCH)?.total_ns() + time(program::SAMPLE)?.total_ns(),
        tracer_ns: own_cpu_ns(),
        ..Overhead::default()
    };
    for ((_, index), trap) in MARKERS.into_iter().zip(traps.0) {
        let time = time(index)?;
        overhead.hits += time.runs;
        overhead.programs_ns += time.total_ns();
        overhead.traps_ns += time.runs.saturating_mul(trap.as_nanos() as u64);
    }
    Ok(overhead)
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
