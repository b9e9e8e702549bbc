//! What is asked before anything is attached: is it safe, and what would it cost?
//!
//! In: resolved markers, planned probes, processes. Out: a trace may go on, or the error that says why
//! not and what overrules it.

use log::info;

use super::progress::can_redraw;
use crate::attach::ProbePlan;
use crate::attach::rate::{self, Rate};
use crate::attach::safety;
use crate::cli::args::TraceOptions;
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
        eprintln!("reqtrace: {warning}");
    }
    if let Some(error) = judgement.refused.into_iter().next() {
        return Err(error);
    }
    for error in judgement.doubted {
        if !options.yes {
            return Err(error);
        }
        eprintln!("reqtrace: {error}");
    }
    Ok(())
}

/// Refuses what would cost more than `--max-probe-rate`. With `--yes`, or when any cost is
/// allowed, nothing is measured.
pub(super) fn rate(options: &TraceOptions, plans: &[ProbePlan], pids: &[u32]) -> Result<()> {
    let limit = options.max_probe_rate / 100.0;
    if options.yes || limit >= 1.0 {
        return Ok(());
    }
    let terminal = !options.outputs.quiet && can_redraw();
    if terminal {
        eprint!("measuring what the probes would cost…");
    }
    let measured = rate::measure(plans, pids, limit);
    if terminal {
        eprint!("\r\x1b[K");
    }
    let measured = measured?;
    let per_second = number(measured.per_second().round() as u64);
    let percent = (measured.share() * 100.0).round();
    info!(
        "the probes were hit {per_second} times a second: {percent} % of the processes' CPU time"
    );
    if measured.share() > limit {
        return Err(refusal(&measured, options.max_probe_rate));
    }
    if measured.share() >= WORTH_SAYING && !options.outputs.quiet {
        eprintln!(
            "reqtrace: the probes are hit {per_second} times a second: tracing will take about \
             {percent} % of the CPU time at this load"
        );
    }
    Ok(())
}

fn refusal(measured: &Rate, limit: f64) -> Error {
    Error::usage(format!(
        "the probes would be hit {} times a second or more: tracing would take about {:.0} % of \
         the CPU time, and --max-probe-rate allows {limit:.0} %",
        number(measured.per_second().round() as u64),
        measured.share() * 100.0
    ))
    .next(
        "mark a function that is called less often (`reqtrace functions -p PID NAME --count 1` \
         counts calls), wait for less load, or trace all the same with --yes",
    )
}
