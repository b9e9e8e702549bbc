//! Whom probes are set for: planned probes and processes in, links out, which come and go with
//! the processes.
//!
//! Probes in the executable are set for all that run it, so that a child is probed from its first
//! instruction; the kernel programs pick the traced processes. A library is mapped by processes that have
//! nothing to do with the trace, and each hit would cost them a trap: probes in libraries are set for
//! the traced processes only, one by one, and for a child when the kernel tells of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use log::{debug, info, warn};

use super::detach;
use super::probes::{Identity, ProbePlan};
use super::uprobe::{Engine, Setter, UprobeLink};
use crate::error::Result;
use crate::kernel::clock;
use reqtrace_analysis::report::LateChildren;

/// Programs for markers: those of ends first, so that no begin is seen without its end.
pub(super) const UPROBES: [&str; 9] = [
    "request_end",
    "request_end_ret",
    "marked_end",
    "marked_end_ret",
    "marker",
    "request_begin",
    "request_begin_ret",
    "marked_begin",
    "marked_begin_ret",
];

/// The service of a process: the index of its profile; `None` when it is of none.
pub type ServiceOf = Box<dyn Fn(u32) -> Option<usize> + Send>;

/// Whom to trace.
pub struct Whom<'a> {
    /// Processes.
    pub pids: &'a [u32],
    /// Whether the children that they start are traced too.
    pub follow: bool,
    /// Probes in files that processes share are set for the processes of their own service.
    pub service_of: ServiceOf,
}

/// The probes of a trace.
pub(super) struct Probes {
    setter: Setter,
    service_of: ServiceOf,
    of_files: Vec<UprobeLink>,
    of_processes: BTreeMap<u32, Vec<UprobeLink>>,
    /// Set for each process by itself.
    shared: Vec<ProbePlan>,
    late: LateChildren,
    warned: bool,
}

impl Probes {
    /// Sets them. Without `follow` all of them are set for these processes only.
    ///
    /// # Errors
    ///
    /// When one cannot be set; what was set by then is taken out.
    pub(super) fn set(setter: Setter, plans: &[ProbePlan], whom: Whom<'_>) -> Result<Self> {
        let Whom {
            pids,
            follow,
            service_of,
        } = whom;
        let (files, shared): (Vec<_>, Vec<_>) = if follow {
            let own = executables(pids);
            let plans = plans.iter().cloned();
            plans.partition(|plan| own.contains(&Identity::of(&plan.object)))
        } else {
            (Vec::new(), plans.to_vec())
        };
        let mut probes = Self {
            setter,
            service_of,
            of_files: Vec::new(),
            of_processes: BTreeMap::new(),
            shared,
            late: LateChildren::default(),
            warned: false,
        };
        probes.of_files = set(&mut probes.setter, &files, None)?;
        for &pid in pids {
            let links = probes.set_shared(pid)?;
            probes.of_processes.insert(pid, links);
        }
        info!(
            "probes set by {}: {} for all that run their file, {} for {} processes each",
            probes.engine(),
            files.len(),
            probes.shared.len(),
            pids.len()
        );
        Ok(probes)
    }

    /// What sets them.
    pub(super) fn engine(&self) -> Engine {
        self.setter.engine()
    }

    /// Descriptors of one of [`UPROBES`].
    pub(super) fn files(&self, name: &str) -> impl Iterator<Item = i32> {
        self.setter.files(name)
    }

    /// A child is traced that runs since then, `CLOCK_MONOTONIC` ns.
    pub(super) fn follow(&mut self, pid: u32, since_ns: u64) {
        if self.shared.is_empty() || self.of_processes.contains_key(&pid) {
            return;
        }
        match self.set_shared(pid) {
            Ok(links) => {
                self.of_processes.insert(pid, links);
                let late_ns = clock::monotonic_ns().saturating_sub(since_ns);
                self.late.count += 1;
                self.late.slowest_ns = self.late.slowest_ns.max(late_ns);
                debug!("probes of process {pid} set {late_ns} ns after its start");
            }
            // Gone already.
            Err(error) if !Path::new(&format!("/proc/{pid}")).exists() => {
                debug!("no probes for process {pid}: {error}");
            }
            Err(error) => {
                if !self.warned {
                    warn!("requests of process {pid} are not seen: {error}");
                }
                self.warned = true;
            }
        }
    }

    /// Sets the probes in shared files for a process: those of its service.
    fn set_shared(&mut self, pid: u32) -> Result<Vec<UprobeLink>> {
        let service = (self.service_of)(pid);
        let own = self
            .shared
            .iter()
            .filter(|plan| Some(plan.service) == service);
        set(&mut self.setter, own, Some(pid))
    }

    /// Children that got probes late.
    pub(super) fn late(&self) -> LateChildren {
        self.late
    }

    /// These processes have left. Their links go in a thread of their own: that takes a while.
    pub(super) fn forget(&mut self, pids: &BTreeSet<u32>) {
        let gone = pids.iter().filter_map(|pid| self.of_processes.remove(pid));
        let links: Vec<_> = gone.flatten().collect();
        if !links.is_empty() {
            std::thread::spawn(move || detach::all(links));
        }
    }

    /// Gives all of them away, to be taken out. No more are set from then on.
    pub(super) fn take(&mut self) -> Vec<UprobeLink> {
        self.shared.clear();
        let of_processes = std::mem::take(&mut self.of_processes);
        let mut links = std::mem::take(&mut self.of_files);
        links.extend(of_processes.into_values().flatten());
        links
    }
}

/// Whether children of these processes get some of their probes only after they have started.
pub(super) fn are_late_in_children(plans: &[ProbePlan], pids: &[u32]) -> bool {
    let own = executables(pids);
    plans
        .iter()
        .any(|plan| !own.contains(&Identity::of(&plan.object)))
}

/// Sets probes for all that run their file, or for one process.
fn set<'a>(
    setter: &mut Setter,
    plans: impl IntoIterator<Item = &'a ProbePlan>,
    process: Option<u32>,
) -> Result<Vec<UprobeLink>> {
    let plans: Vec<&ProbePlan> = plans.into_iter().collect();
    let mut links = Vec::new();
    for name in UPROBES {
        let of_name = plans.iter().filter(|plan| plan.program == name);
        let mine: Vec<&ProbePlan> = of_name.copied().collect();
        if mine.is_empty() {
            continue;
        }
        let places: Vec<_> = mine.iter().map(|plan| plan.place(process)).collect();
        let (set, refused) = setter.set(name, &places)?;
        links.extend(set);
        if let Some(first) = refused.into_iter().next() {
            detach::all(links);
            return Err(mine[first.index].refused(first.error));
        }
    }
    Ok(links)
}

/// The files that these processes execute.
pub(super) fn executables(pids: &[u32]) -> BTreeSet<Identity> {
    let files = pids.iter().map(|pid| format!("/proc/{pid}/exe"));
    files.map(|file| Identity::of(Path::new(&file))).collect()
}
