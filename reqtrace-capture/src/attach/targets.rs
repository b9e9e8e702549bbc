//! Whom probes are set for: planned probes and processes in, links out, which come and go with
//! the processes.
//!
//! Probes in the executable are set for all that run it, so that a child is probed from its first
//! instruction; the kernel programs pick the traced processes. A library is mapped by processes that have
//! nothing to do with the trace, and each hit would cost them a trap: probes in libraries are set for
//! the traced processes only, one by one, and for a child when the kernel tells of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::thread::JoinHandle;

use log::{debug, info, warn};

use super::detach::{self, Link};
use super::identity::Identity;
use super::probes::ProbePlan;
use super::programs::{Programs, UPROBES};
use super::uprobe::Engine;
use crate::kernel::clock;
use crate::kernel::processes::is_alive;
use reqtrace_base::error::{Error, Result};
use reqtrace_binary::lazy::LazyFile;
use reqtrace_recording::LateChildren;

/// The service of a process: the index of its profile; `None` when it is of none.
pub type ServiceOf = Box<dyn Fn(u32) -> Option<usize> + Send>;

/// Whom to trace.
pub struct Whom<'a> {
    /// Processes.
    pub pids: &'a [u32],
    /// Files that they execute, or will: a process that has not begun executes something else.
    pub programs: &'a [LazyFile],
    /// Whether programs are expected that are not known yet.
    pub more_programs: bool,
    /// Whether the children that they start are traced too.
    pub follow: bool,
    /// Probes in files that processes share are set for the processes of their own service.
    pub service_of: ServiceOf,
}

/// A probe that is set for each process by itself.
struct Shared {
    plan: ProbePlan,
    /// The programs that it was planned for.
    programs: BTreeSet<Identity>,
}

/// What is set for all that run a program.
#[derive(Default)]
struct OfProgram {
    plans: Vec<ProbePlan>,
    /// None while tracing is suspended.
    links: Vec<Link>,
}

/// The probes of a trace.
pub(super) struct Probes {
    loaded: Box<dyn Programs>,
    service_of: ServiceOf,
    /// By the program's file.
    of_programs: BTreeMap<Identity, OfProgram>,
    of_processes: BTreeMap<u32, Own>,
    /// Set for each process by itself.
    shared: Vec<Shared>,
    late: LateChildren,
    unprobed: u64,
    warned: bool,
    is_suspended: bool,
    /// None is set for all that run a file any more.
    is_apart: bool,
    /// Takes probes out since tracing was suspended.
    suspending: Option<JoinHandle<()>>,
}

impl Probes {
    /// Sets them. Without `follow` all of them are set for these processes only.
    ///
    /// # Errors
    ///
    /// When one cannot be set; what was set by then is taken out.
    pub(super) fn set(
        loaded: Box<dyn Programs>,
        plans: &[ProbePlan],
        whom: Whom<'_>,
    ) -> Result<Self> {
        let Whom {
            pids,
            programs,
            follow,
            service_of,
            ..
        } = whom;
        let own = identities(programs);
        let (of_programs, shared) = match follow {
            true => split(plans, &own),
            false => (BTreeMap::new(), plans.to_vec()),
        };
        let shared = shared.into_iter().map(|plan| Shared {
            plan,
            programs: own.clone(),
        });
        let mut probes = Self {
            loaded,
            service_of,
            of_programs: BTreeMap::new(),
            of_processes: BTreeMap::new(),
            shared: shared.collect(),
            late: LateChildren::default(),
            unprobed: 0,
            warned: false,
            is_suspended: false,
            is_apart: false,
            suspending: None,
        };
        let of_files = of_programs.values().map(Vec::len).sum::<usize>();
        for (program, plans) in of_programs {
            probes.set_for_all(program, plans)?;
        }
        for &pid in pids {
            probes.set_shared(pid)?;
        }
        info!(
            "probes set by {}: {} for all that run their file, {} for {} processes each",
            probes.engine(),
            of_files,
            probes.shared.len(),
            pids.len()
        );
        Ok(probes)
    }

    /// What sets them.
    pub(super) fn engine(&self) -> Engine {
        self.loaded.engine()
    }

    /// Whether probes of processes that come are set by perf events.
    pub(super) fn sets_by_perf_events(&self) -> bool {
        self.loaded.sets_by_perf_events()
    }

    /// What they run.
    pub(super) fn loaded(&self) -> &dyn Programs {
        &*self.loaded
    }

    /// The same, to be changed.
    pub(super) fn programs(&mut self) -> &mut dyn Programs {
        &mut *self.loaded
    }

    /// A process is traced that runs its program since then, `CLOCK_MONOTONIC` ns. It may have waited until
    /// the probes for all that run its program were set.
    pub(super) fn follow(&mut self, pid: u32, since_ns: u64, has_waited: bool) {
        match self.set_shared(pid) {
            Ok(is_any) if is_any || has_waited => self.was_late(pid, since_ns),
            Ok(_) => {}
            Err(error) => self.is_unprobed(pid, &error),
        }
    }

    fn is_unprobed(&mut self, pid: u32, error: &Error) {
        self.unprobed += 1;
        // Or it is gone already.
        if Path::new(&format!("/proc/{pid}")).exists() && !self.warned {
            warn!("requests of process {pid} are not seen: {error}");
            self.warned = true;
        }
        debug!("no probes for process {pid}: {error}");
    }

    fn was_late(&mut self, pid: u32, since_ns: u64) {
        let late_ns = clock::monotonic_ns().saturating_sub(since_ns);
        self.late.count += 1;
        self.late.slowest_ns = self.late.slowest_ns.max(late_ns);
        debug!("probes of process {pid} set {late_ns} ns after its start");
    }

    /// Sets the probes of a program that a process runs since then, `CLOCK_MONOTONIC` ns: those in its
    /// executable for all that run it, also when the process has left.
    ///
    /// # Errors
    ///
    /// When one cannot be set, or a file cannot be opened; then nothing is set for the program and nothing planned, and
    /// nobody hits what was set by then.
    pub(super) fn add(
        &mut self,
        plans: &[ProbePlan],
        program: &Identity,
        pid: u32,
        since_ns: u64,
    ) -> Result<()> {
        let planned = self.plan_program(plans, program);
        let set = planned.and_then(|()| match self.set_shared(pid) {
            Err(error) if !is_alive(pid) => {
                debug!("process {pid} left before all of its probes were set: {error}");
                Ok(())
            }
            outcome => outcome.map(|_| self.was_late(pid, since_ns)),
        });
        // It is tried again with the same plans, or others get their places.
        set.inspect_err(|_| detach::all(self.take_program(program)))
    }

    /// Sets the probes in a program's executable, and plans the others for its processes.
    fn plan_program(&mut self, plans: &[ProbePlan], program: &Identity) -> Result<()> {
        let own = BTreeSet::from([program.clone()]);
        let (of_programs, shared) = split(plans, &own);
        for (program, plans) in of_programs {
            self.set_for_all(program, plans)?;
        }
        for plan in shared {
            let mut all = self.shared.iter_mut();
            if let Some(known) = all.find(|known| known.plan.is_same(&plan)) {
                known.programs.extend(own.iter().cloned());
                continue;
            }
            self.shared.push(Shared {
                plan,
                programs: own.clone(),
            });
        }
        Ok(())
    }

    /// Nobody runs this program any more, and nobody will: its probes go, in a thread of their own, and what was
    /// planned for its processes only.
    pub(super) fn forget_program(&mut self, program: &Identity) {
        let links = self.take_program(program);
        if !links.is_empty() {
            detach::in_background(links);
        }
    }

    /// Nothing is planned for this program any more. Returns what was set for all that run it, to be taken out.
    fn take_program(&mut self, program: &Identity) -> Vec<Link> {
        for shared in &mut self.shared {
            shared.programs.remove(program);
        }
        let stays: Vec<bool> = self
            .shared
            .iter()
            .map(|shared| !shared.programs.is_empty())
            .collect();
        for own in self.of_processes.values_mut() {
            own.plans = stays[..own.plans].iter().filter(|stays| **stays).count();
        }
        self.shared.retain(|shared| !shared.programs.is_empty());
        let of_program = self.of_programs.remove(program);
        of_program.map(|own| own.links).unwrap_or_default()
    }

    /// From the next time on that all are set, each is for one process.
    pub(super) fn set_apart(&mut self) {
        self.is_apart = true;
    }

    /// Sets probes for all that run this program; once tracing goes on, if it is suspended.
    fn set_for_all(&mut self, program: Identity, plans: Vec<ProbePlan>) -> Result<()> {
        if self.is_apart {
            self.share(&program, plans);
            return Ok(());
        }
        let links = match self.is_suspended {
            true => Vec::new(),
            false => set(&mut *self.loaded, &plans, None)?,
        };
        let own = self.of_programs.entry(program).or_default();
        own.plans.extend(plans);
        own.links.extend(links);
        Ok(())
    }

    /// Plans for this program are set for each process by itself.
    fn share(&mut self, program: &Identity, plans: Vec<ProbePlan>) {
        let programs = BTreeSet::from([program.clone()]);
        self.shared.extend(plans.into_iter().map(|plan| Shared {
            plan,
            programs: programs.clone(),
        }));
    }

    /// Takes all probes out, in a thread of its own: on a busy machine that takes seconds. What is planned stays, and what
    /// comes meanwhile is planned too.
    pub(super) fn suspend(&mut self) {
        self.is_suspended = true;
        let links = self.links();
        self.suspending = detach::in_background(links);
    }

    /// Whether all are out since they were suspended.
    pub(super) fn are_out(&self) -> bool {
        self.suspending.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Sets them again, those in shared files for these processes.
    ///
    /// # Errors
    ///
    /// When one cannot be set.
    pub(super) fn resume(&mut self, pids: &BTreeSet<u32>) -> Result<()> {
        self.is_suspended = false;
        if self.is_apart {
            for (program, own) in std::mem::take(&mut self.of_programs) {
                self.share(&program, own.plans);
            }
        }
        for own in self.of_programs.values_mut() {
            own.links = set(&mut *self.loaded, &own.plans, None)?;
        }
        for &pid in pids {
            if let Err(error) = self.set_shared(pid) {
                self.is_unprobed(pid, &error);
            }
        }
        Ok(())
    }

    fn links(&mut self) -> Vec<Link> {
        let of_processes = std::mem::take(&mut self.of_processes);
        let of_programs = self.of_programs.values_mut();
        let of_programs = of_programs.flat_map(|own| std::mem::take(&mut own.links));
        let of_processes = of_processes.into_values().flat_map(|own| own.links);
        of_programs.chain(of_processes).collect()
    }

    /// Sets the probes in shared files for a process: those of its service that it has not yet. Returns
    /// whether there were any.
    fn set_shared(&mut self, pid: u32) -> Result<bool> {
        if self.is_suspended || self.shared.is_empty() {
            return Ok(false);
        }
        let of = self.of_processes.get(&pid);
        let (known, before) = of.map_or((0, None), |own| (own.plans, Some(own.service)));
        let Some(service) = (self.service_of)(pid) else {
            return Ok(false);
        };
        // It may run another service's program than before.
        let known = match before {
            Some(before) if before != service => {
                self.forget(&BTreeSet::from([pid]));
                0
            }
            _ => known,
        };
        if known == self.shared.len() {
            return Ok(false);
        }
        let new = self.shared[known..].iter();
        let new = new.map(|shared| &shared.plan);
        let new: Vec<&ProbePlan> = new.filter(|plan| plan.service == service).collect();
        let is_any = !new.is_empty();
        let links = set(&mut *self.loaded, new, Some(pid))?;
        let own = self.of_processes.entry(pid).or_default();
        (own.plans, own.service) = (self.shared.len(), service);
        own.links.extend(links);
        Ok(is_any)
    }

    /// Processes without probes that should have some.
    pub(super) fn unprobed(&self) -> u64 {
        self.unprobed
    }

    /// Children that got probes late.
    pub(super) fn late(&self) -> LateChildren {
        self.late
    }

    /// These processes have left. Their links go in a thread of their own: that takes a while.
    pub(super) fn forget(&mut self, pids: &BTreeSet<u32>) {
        let gone = pids.iter().filter_map(|pid| self.of_processes.remove(pid));
        let links: Vec<_> = gone.flat_map(|own| own.links).collect();
        if !links.is_empty() {
            detach::in_background(links);
        }
    }

    /// Gives all of them away, to be taken out. No more are set from then on.
    pub(super) fn take(&mut self) -> Vec<Link> {
        self.shared.clear();
        self.links()
    }

    /// Waits for those that are being taken out since tracing was suspended.
    pub(super) fn wait(&mut self) {
        if let Some(thread) = self.suspending.take() {
            // It does nothing that can panic.
            let _ = thread.join();
        }
    }
}

/// The probes of one process.
#[derive(Default)]
struct Own {
    /// So many of the shared plans are set, as far as they are for its service.
    plans: usize,
    service: usize,
    links: Vec<Link>,
}

/// Probes in these programs, by file, and the others.
fn split(
    plans: &[ProbePlan],
    programs: &BTreeSet<Identity>,
) -> (BTreeMap<Identity, Vec<ProbePlan>>, Vec<ProbePlan>) {
    let mut of_programs: BTreeMap<Identity, Vec<ProbePlan>> = BTreeMap::new();
    let mut others = Vec::new();
    for plan in plans {
        let file = Identity::of(&plan.object);
        if programs.contains(&file) {
            of_programs.entry(file).or_default().push(plan.clone());
        } else {
            others.push(plan.clone());
        }
    }
    (of_programs, others)
}

/// Whether children of processes that run these files get some of their probes only after they have started.
pub(super) fn are_late_in_children(plans: &[ProbePlan], programs: &[LazyFile]) -> bool {
    let own = identities(programs);
    plans
        .iter()
        .any(|plan| !own.contains(&Identity::of(&plan.object)))
}

/// Sets probes for all that run their file, or for one process.
fn set<'a>(
    programs: &mut dyn Programs,
    plans: impl IntoIterator<Item = &'a ProbePlan>,
    process: Option<u32>,
) -> Result<Vec<Link>> {
    let plans: Vec<&ProbePlan> = plans.into_iter().collect();
    let mut links = Vec::new();
    for name in UPROBES {
        let of_name = plans.iter().filter(|plan| plan.program == name);
        let mine: Vec<&ProbePlan> = of_name.copied().collect();
        if mine.is_empty() {
            continue;
        }
        let places: Vec<_> = mine.iter().map(|plan| plan.place(process)).collect();
        let (set, refused) = programs.set(name, &places)?;
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
    let files = pids.iter().map(|pid| LazyFile::executable_of(*pid));
    identities(&files.collect::<Vec<_>>())
}

pub(super) fn identities(files: &[LazyFile]) -> BTreeSet<Identity> {
    files.iter().map(Identity::of).collect()
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use reqtrace_recording::ProgramCost;

    use super::*;
    use crate::attach::programs::CpuEngine;
    use crate::attach::uprobe::{Place, Refused};

    /// Sets nothing, but counts: each link is one more of `set`. For one process it may refuse to.
    struct Counting {
        set: Arc<()>,
        refuses: Arc<AtomicBool>,
    }

    impl Programs for Counting {
        fn engine(&self) -> Engine {
            Engine::UprobeMulti
        }

        fn sets_by_perf_events(&self) -> bool {
            false
        }

        fn set(&mut self, _: &str, places: &[Place<'_>]) -> Result<(Vec<Link>, Vec<Refused>)> {
            let is_of_one = places.iter().any(|place| place.process.is_some());
            if is_of_one && self.refuses.load(Ordering::Relaxed) {
                return Err(Error::failed("not for this process"));
            }
            let links = places.iter().map(|_| Link::of(Arc::clone(&self.set)));
            Ok((links.collect(), Vec::new()))
        }

        fn attach_tracepoints(&mut self) -> Result<Vec<Link>> {
            Ok(Vec::new())
        }

        fn watch_threads(&mut self) -> Result<()> {
            Ok(())
        }

        fn sample(&mut self, _: CpuEngine, _: u32) -> io::Result<Vec<Link>> {
            Ok(Vec::new())
        }

        fn costs(&self) -> Result<Vec<ProgramCost>> {
            Ok(Vec::new())
        }
    }

    fn plan(object: &str) -> ProbePlan {
        ProbePlan {
            object: LazyFile::at(object),
            program: UPROBES[0],
            ..ProbePlan::of_nothing()
        }
    }

    #[test]
    fn a_program_has_all_of_its_probes_or_none() {
        let (set, refuses) = (Arc::new(()), Arc::new(AtomicBool::new(true)));
        let counting = Counting {
            set: Arc::clone(&set),
            refuses: Arc::clone(&refuses),
        };
        let whom = Whom {
            pids: &[],
            programs: &[],
            more_programs: true,
            follow: true,
            service_of: Box::new(|_| Some(0)),
        };
        let mut probes = Probes::set(Box::new(counting), &[], whom).unwrap();
        let links = || Arc::strong_count(&set) - 2;
        let plans = [plan("/nowhere/program"), plan("/nowhere/library")];
        let program = Identity::of(&plans[0].object);
        let own = std::process::id();
        // It is tried several times.
        for _ in 0..2 {
            assert!(probes.add(&plans, &program, own, 0).is_err());
            assert_eq!((links(), probes.shared.len()), (0, 0));
            assert!(probes.of_programs.is_empty());
        }
        refuses.store(false, Ordering::Relaxed);
        probes.add(&plans, &program, own, 0).unwrap();
        assert_eq!((links(), probes.shared.len()), (2, 1));
        assert_eq!((probes.late().count, probes.unprobed()), (1, 0));

        // Of a process that has left those of its program stay, for others.
        refuses.store(true, Ordering::Relaxed);
        let plans = [plan("/nowhere/other"), plan("/nowhere/its-library")];
        let other = Identity::of(&plans[0].object);
        probes.add(&plans, &other, u32::MAX, 0).unwrap();
        assert_eq!((links(), probes.shared.len()), (3, 2));
        assert_eq!(probes.late().count, 1);
    }
}
