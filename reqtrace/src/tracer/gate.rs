//! What is asked before anything is attached: is it safe, and what would it cost?
//!
//! In: resolved markers, planned probes, processes. Out: a trace may go on, or the error that says why
//! not and what overrules it.

use log::info;

use crate::attach::estimate::{HitCost, Rate};
use crate::attach::{ProbePlan, rate, safety, self_test};
use crate::capture::Notices;
use crate::error::{Error, Result};
use crate::report::text::number;
use crate::resolve::ResolvedProfile;

/// Share of the CPU time from which on the cost is said although it is allowed.
const WORTH_SAYING: f64 = 0.1;

/// What may be traced at all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gate {
    /// Share of the process's CPU time that the probes may take, percent; 100: any.
    pub(super) max_probe_rate: f64,
    /// Trace in spite of that, and of programs that requests may not fit.
    pub(super) accept_risk: bool,
}

/// Refuses what would harm the program, and what may, unless `--yes`.
pub(super) fn safety(
    gate: &Gate,
    notices: &Notices,
    resolved: &[ResolvedProfile],
    pids: &[u32],
) -> Result<()> {
    let judgement = safety::judge(resolved, pids)?;
    for warning in &judgement.warnings {
        notices.warn(warning);
    }
    if let Some(error) = judgement.refused.into_iter().next() {
        return Err(error);
    }
    for error in judgement.doubted {
        if !gate.accept_risk {
            return Err(error);
        }
        notices.warn(error);
    }
    Ok(())
}

/// Refuses what would cost more than `--max-probe-rate`, and gives what a hit costs here. With
/// `--yes`, when any cost is allowed, and before the program has begun, the load is not measured.
pub(super) fn rate(
    gate: &Gate,
    notices: &Notices,
    plans: &[ProbePlan],
    pids: &[u32],
    has_begun: bool,
) -> Result<HitCost> {
    let cost = self_test::run()?.cost;
    let limit = gate.max_probe_rate / 100.0;
    if gate.accept_risk || limit >= 1.0 || !has_begun {
        return Ok(cost);
    }
    let measured = rate::measure(plans, pids, limit, cost)?;
    let per_second = number(measured.per_second().round() as u64);
    let percent = (measured.share() * 100.0).round();
    info!(
        "the probes were hit {per_second} times a second: {percent} % of the processes' CPU time; \
         counted for {} ms",
        measured.elapsed.as_millis()
    );
    if measured.share() > limit {
        return Err(refusal(&measured, gate.max_probe_rate));
    }
    if measured.share() >= WORTH_SAYING {
        notices.note(format_args!(
            "the probes are hit {per_second} times a second: tracing will take about {percent} % of \
             the CPU time at this load"
        ));
    }
    Ok(cost)
}

fn refusal(measured: &Rate, limit: f64) -> Error {
    let (sample, without) = match measured.sample_within(limit / 100.0) {
        Some(every) => (
            format!("record one of {every} requests (--sample 1/{every}), "),
            "",
        ),
        None => (
            String::new(),
            "; no --sample would fit, as the traps alone take more than that",
        ),
    };
    Error::usage(format!(
        "the probes would be hit {} times a second or more: tracing would take about {:.0} % of \
         the CPU time, and --max-probe-rate allows {limit:.0} %{without}",
        number(measured.per_second().round() as u64),
        measured.share() * 100.0
    ))
    .next(format!(
        "{sample}mark a function that is called less often (`reqtrace functions -p PID NAME \
         --count 1` counts calls), wait for less load, or trace all the same with --yes",
    ))
}
