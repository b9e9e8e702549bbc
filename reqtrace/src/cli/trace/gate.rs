//! What is asked before anything is attached: is it safe, and what would it cost?
//!
//! In: resolved markers, planned probes, processes. Out: a trace may go on, or the error that says why
//! not and what overrules it.

use clap::CommandFactory as _;
use log::info;

use crate::attach::estimate::{HitCost, Rate};
use crate::attach::{ProbePlan, rate, safety, self_test};
use crate::cli::args::{Args, TraceOptions};
use crate::error::{Error, Result};
use crate::report::text::number;
use crate::resolve::ResolvedProfile;

/// Share of the CPU time from which on the cost is said although it is allowed.
const WORTH_SAYING: f64 = 0.1;

/// Refuses what would harm the program, and what may, unless `--yes`.
pub(super) fn safety(
    options: &TraceOptions,
    resolved: &[ResolvedProfile],
    pids: &[u32],
) -> Result<()> {
    let judgement = safety::judge(resolved, pids)?;
    for warning in &judgement.warnings {
        crate::say!("reqtrace: {warning}");
    }
    if let Some(error) = judgement.refused.into_iter().next() {
        return Err(error);
    }
    for error in judgement.doubted {
        if !options.yes {
            return Err(error);
        }
        crate::say!("reqtrace: {error}");
    }
    Ok(())
}

/// Refuses what would cost more than `--max-probe-rate`, and gives what a hit costs here. With
/// `--yes`, when any cost is allowed, and before the program has begun, the load is not measured.
pub(super) fn rate(
    options: &TraceOptions,
    plans: &[ProbePlan],
    pids: &[u32],
    has_begun: bool,
) -> Result<HitCost> {
    let cost = self_test::run()?.cost;
    let limit = options.max_probe_rate / 100.0;
    if options.yes || limit >= 1.0 || !has_begun {
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
        return Err(refusal(&measured, options.max_probe_rate));
    }
    if measured.share() >= WORTH_SAYING && !options.outputs.quiet {
        crate::say!(
            "reqtrace: the probes are hit {per_second} times a second: tracing will take about \
             {percent} % of the CPU time at this load"
        );
    }
    Ok(cost)
}

/// Whether this version has `--sample`.
fn can_sample() -> bool {
    let command = Args::command();
    command.get_arguments().any(|arg| arg.get_id() == "sample")
}

fn refusal(measured: &Rate, limit: f64) -> Error {
    let (sample, without) = match measured.sample_within(limit / 100.0) {
        _ if !can_sample() => (String::new(), ""),
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
