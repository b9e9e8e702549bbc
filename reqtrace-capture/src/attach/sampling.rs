//! The sampling clock: a rate in, one interrupt source per CPU with the program that takes samples out.

use std::io;

use super::detach::Link;
use super::programs::{CpuEngine, Programs};
use reqtrace_base::error::{Error, Result};

/// How samples are to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplingPlan {
    /// Samples a second and CPU: 1 to [`reqtrace_common::limits::MAX_CPU_RATE`].
    pub rate_hz: u32,
    /// What to take first; the kernel's timer where that is not to be had.
    pub engine: CpuEngine,
    /// Whether a trace without samples is refused.
    pub is_required: bool,
}

/// Samples that are being taken.
#[derive(Debug, Default)]
pub(super) struct Sampling {
    /// What interrupts the CPUs; `None` when nothing does.
    pub(super) engine: Option<CpuEngine>,
    /// What is not as it was asked for, and what to do.
    pub(super) warning: Option<String>,
    pub(super) links: Vec<Link>,
}

impl Sampling {
    /// Begins to take samples.
    ///
    /// # Errors
    ///
    /// When the kernel lets us take none and the plan requires some. Otherwise there is a warning then, and the trace
    /// goes on without.
    pub(super) fn begin(programs: &mut dyn Programs, plan: SamplingPlan) -> Result<Self> {
        let mut by = |engine| programs.sample(engine, plan.rate_hz);
        let refused = match by(plan.engine) {
            Ok(links) => return Ok(Self::of(plan.engine, links, None)),
            Err(refused) => refused,
        };
        if plan.engine == CpuEngine::CpuClock {
            return Self::without(&refused, plan);
        }
        match by(CpuEngine::CpuClock) {
            Ok(links) => {
                let warning = format!(
                    "{} cannot be counted here ({}): samples are taken by {}",
                    plan.engine,
                    refused,
                    CpuEngine::CpuClock
                );
                Ok(Self::of(CpuEngine::CpuClock, links, Some(warning)))
            }
            Err(refused) => Self::without(&refused, plan),
        }
    }

    fn of(engine: CpuEngine, links: Vec<Link>, warning: Option<String>) -> Self {
        Self {
            engine: Some(engine),
            warning,
            links,
        }
    }

    fn without(refused: &io::Error, plan: SamplingPlan) -> Result<Self> {
        let next = advice(refused);
        if plan.is_required {
            return Err(Error::unsupported(format!(
                "no samples of requests on their CPUs can be taken: {refused}"
            ))
            .next(next));
        }
        Ok(Self {
            warning: Some(format!(
                "no samples of requests on their CPUs are taken: {refused}. Everything else is traced. To have \
                 them, {next}; --cpu-rate 0 asks for none"
            )),
            ..Self::default()
        })
    }
}

/// What to do where samples are refused.
fn advice(error: &io::Error) -> &'static str {
    if [libc::EACCES, libc::EPERM, libc::ENOSYS]
        .into_iter()
        .any(|code| error.raw_os_error() == Some(code))
    {
        "run as root or with CAP_PERFMON; in a container, allow perf_event_open(): --security-opt \
         seccomp=unconfined"
    } else if error.raw_os_error() == Some(libc::EINVAL) {
        "see whether kernel.perf_event_max_sample_rate is below --cpu-rate"
    } else {
        "see what `reqtrace doctor` says of CPU samples"
    }
}
