//! Another process that attaches: who has given the privileges up says once who does it for this one; what is to be loaded
//! in, programs and tables out.

use std::io;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::estimate::HitCost;
use super::grace::GracePeriod;
use super::maps::Maps;
use super::programs::Programs;
use super::uprobe::Engine;
use super::wanted::{CountPlan, LoadPlan};
use reqtrace_base::error::Result;

/// What a self-test has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelfTest {
    /// What sets probes on this kernel.
    pub engine: Engine,
    /// What one hit costs.
    pub cost: HitCost,
    /// CPUs that hit probes at the same time when that was measured.
    pub cpus: usize,
}

/// Attaches for a process that may not.
pub(crate) trait Elsewhere: Send + Sync {
    /// Loads the tracer's programs.
    ///
    /// # Errors
    ///
    /// When the kernel does not take them, or nobody answers.
    fn load(&self, plan: &LoadPlan) -> Result<(Box<dyn Programs>, Maps, GracePeriod)>;

    /// Loads the counting program.
    ///
    /// # Errors
    ///
    /// As [`Elsewhere::load`].
    fn count(&self, plan: CountPlan) -> Result<(Box<dyn Programs>, Maps)>;

    /// What a hit costs.
    ///
    /// # Errors
    ///
    /// When probes cannot be set, or are not hit, or nobody answers.
    fn self_test(&self) -> Result<SelfTest>;

    /// Lets a thread of this process come first, or no longer.
    ///
    /// # Errors
    ///
    /// When that is refused.
    fn come_first(&self, tid: u32, first: bool) -> io::Result<()>;
}

static ELSEWHERE: OnceLock<Box<dyn Elsewhere>> = OnceLock::new();

/// From now on this process attaches nothing by itself. The first who is named does it for ever.
pub(crate) fn let_attach(elsewhere: impl Elsewhere + 'static) {
    let _ = ELSEWHERE.set(Box::new(elsewhere));
}

/// Who attaches for this process; `None`: it does itself.
pub(crate) fn elsewhere() -> Option<&'static dyn Elsewhere> {
    ELSEWHERE.get().map(Box::as_ref)
}
