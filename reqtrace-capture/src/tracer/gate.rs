//! What is asked before anything is attached: is it safe, and what would it cost?
//!
//! In: resolved markers, planned probes, processes. Out: a trace may go on, or the error that says why
//! not and what overrules it.

use log::info;

use super::ahead::Ahead;
use crate::attach::SelfTest;
use crate::attach::estimate::{HitCost, Rate};
use crate::attach::{ProbePlan, rate, safety, trial};
use crate::events::Notices;
use reqtrace_base::error::{Error, Result};
use reqtrace_base::figures::{number, range};
use reqtrace_profile::{CHEAP, Origin, Profiles};
use reqtrace_recording::Untraced;
use reqtrace_resolve::ResolvedProfile;

/// Share of the CPU time from which on the cost is shown although it is allowed.
const WORTH_SAYING: f64 = 0.1;

/// What may be traced at all, and what is to be traced.
pub(super) struct Gate<'a> {
    /// Share of the process's CPU time that the probes may take, percent; 100: any.
    pub(super) max_probe_rate: f64,
    /// Trace in spite of that, and of programs that requests may not fit.
    pub(super) accept_risk: bool,
    /// Where warnings go.
    pub(super) notices: &'a Notices,
    /// The markers, found.
    pub(super) resolved: &'a [ResolvedProfile],
    /// The profiles as written.
    pub(super) profiles: &'a Profiles,
    /// The probes for them.
    pub(super) plans: &'a [ProbePlan],
    /// The processes.
    pub(super) pids: &'a [u32],
    /// Whether they run already.
    pub(super) has_begun: bool,
}

impl Gate<'_> {
    /// Asks both, and gives what a hit costs here, and what the processes take as long as they are not traced. What is safe is judged while the load is counted; so is
    /// done what is `also` to be done before something is traced, whose result is given back.
    ///
    /// # Errors
    ///
    /// What is not safe; then what costs too much.
    pub(super) fn pass<T>(
        &self,
        cost: Ahead<Result<SelfTest>>,
        also: impl FnOnce() -> T,
    ) -> Result<(HitCost, Option<Untraced>, T)> {
        let cost = cost.wait().flatten()?.cost;
        // With --yes, when any cost is allowed, and before the program has begun, nothing is counted. Nor is it
        // where a probe, and be it one that counts, may do harm.
        let is_doubted = self
            .resolved
            .iter()
            .any(|profile| !profile.doubts.is_empty());
        if self.accept_risk || self.limit() >= 1.0 || !self.has_begun || is_doubted {
            self.safety()?;
            if !self.has_begun
                && let Some(error) = trial::refused(self.plans)?
            {
                return Err(error);
            }
            return Ok((cost, None, also()));
        }
        let mut judged = Ok(());
        let measured = rate::measure(self.plans, self.pids, self.limit(), cost, || {
            judged = self.safety();
            also()
        });
        judged?;
        let (measured, result) = measured?;
        self.load(&measured)?;
        let untraced = Untraced {
            work_ns: measured.work.as_nanos() as u64,
            hits: measured.hits,
        };
        Ok((cost, Some(untraced), result))
    }

    fn limit(&self) -> f64 {
        self.max_probe_rate / 100.0
    }

    /// Refuses what would harm the program, and what may, unless `--yes`.
    fn safety(&self) -> Result<()> {
        let judgement = safety::judge(self.resolved, self.pids);
        for warning in &judgement.warnings {
            self.notices.warn(warning);
        }
        if let Some(error) = judgement.refused.into_iter().next() {
            return Err(error);
        }
        for error in judgement.doubted {
            if !self.accept_risk {
                return Err(error);
            }
            self.notices.warn(error);
        }
        Ok(())
    }

    /// Refuses what would cost more than `--max-probe-rate`.
    fn load(&self, measured: &Rate) -> Result<()> {
        let per_second = number(measured.per_second().round() as u64);
        let takes = range(measured.shares());
        info!(
            "the probes were hit {per_second} times a second: {takes} of the processes' CPU \
             time; counted for {} ms",
            measured.elapsed.as_millis()
        );
        if measured.share() > self.limit() {
            return Err(refusal(measured, self.max_probe_rate, self.profiles));
        }
        if measured.share() >= WORTH_SAYING {
            self.notices.note(format_args!(
                "the probes are hit {per_second} times a second: tracing will take about {takes} \
                 of the processes' CPU time at this load"
            ));
        }
        Ok(())
    }
}

fn refusal(measured: &Rate, limit: f64, profiles: &Profiles) -> Error {
    let with_fewer = profiles.all().iter().find(|profile| profile.can_be_cheap());
    let cheap = with_fewer.map_or_else(String::new, |profile| {
        let name = match &profile.origin {
            Origin::BuiltIn => profile.name.clone(),
            // A path has a slash.
            Origin::File(path) if path.components().count() == 1 => format!("./{}", path.display()),
            Origin::File(path) => path.display().to_string(),
        };
        format!("have fewer probes (--profile {name}{CHEAP}), ")
    });
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
        "the probes would be hit {} times a second or more: tracing would take about {} of \
         the processes' CPU time, and --max-probe-rate allows {limit:.0} %{without}",
        number(measured.per_second().round() as u64),
        range(measured.shares())
    ))
    .next(format!(
        "{cheap}{sample}mark a function that is called less often (`reqtrace functions -p PID NAME \
         --count 1` counts calls), wait for less load, or trace all the same with --yes",
    ))
}
