//! Waits of threads for CPUs: as events have them in; as they are kept, and who had the CPU in a part of one, out.

use std::sync::Arc;

use reqtrace_recording::{CpuWait, Runner};

/// A wait of a thread for a CPU, as it is kept.
#[derive(Debug)]
pub(super) struct Waited {
    pub(super) from_ns: u64,
    pub(super) until_ns: u64,
    cpu: u32,
    limited_ns: u64,
    /// Of one that a limit held back.
    cgroup: Option<Arc<str>>,
    runners: Box<[Runner]>,
}

impl Waited {
    pub(super) fn of(wait: &CpuWait) -> Self {
        Self {
            from_ns: wait.from_ns,
            until_ns: wait.until_ns,
            cpu: wait.cpu,
            limited_ns: wait.limited_ns,
            cgroup: (!wait.cgroup.is_empty()).then(|| wait.cgroup.as_str().into()),
            runners: wait.runners.as_slice().into(),
        }
    }

    /// What it takes.
    pub(super) fn bytes(&self) -> usize {
        let cgroup = self.cgroup.as_ref().map_or(0, |cgroup| cgroup.len());
        size_of::<Self>() + self.runners.len() * size_of::<Runner>() + cgroup
    }

    /// Who took how much of the part of this wait that lies between two times. Of a part everybody has the same share
    /// as of the whole.
    pub(super) fn between(&self, from_ns: u64, until_ns: u64) -> impl Iterator<Item = By<'_>> {
        let (from_ns, until_ns) = (from_ns.max(self.from_ns), until_ns.min(self.until_ns));
        let all = u128::from(self.until_ns - self.from_ns).max(1);
        let part = u128::from(until_ns.saturating_sub(from_ns));
        let scaled = move |ns: u64| (u128::from(ns) * part / all) as u64;
        let runners = self.runners.iter();
        let runners = runners.map(move |runner| (Taker::Runner(runner), scaled(runner.ns)));
        let cgroup = self.cgroup.as_deref().unwrap_or_default();
        let limit = (Taker::Limit(cgroup), scaled(self.limited_ns));
        runners
            .chain([limit])
            .filter(|(_, ns)| *ns > 0)
            .map(move |(taker, ns)| By {
                taker,
                cpu: self.cpu,
                from_ns,
                ns,
            })
    }
}

/// What one had.
#[derive(Clone, Copy, Debug)]
pub(super) struct By<'a> {
    pub(super) taker: Taker<'a>,
    pub(super) cpu: u32,
    pub(super) from_ns: u64,
    pub(super) ns: u64,
}

/// Who has a CPU that another waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taker<'a> {
    /// A process, or nobody: the CPU was idle.
    Runner(&'a Runner),
    /// The limit of this cgroup: nobody has it.
    Limit(&'a str),
}
