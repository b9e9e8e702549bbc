//! A start that is ready: loaded programs in, a trace with everything attached out.

use std::collections::BTreeSet;

use std::os::fd::OwnedFd;
use std::time::Instant;

use log::info;
use reqtrace_recording::{Header, UnmatchedWait, Untraced};

use super::Wanted;
use crate::attach::estimate::HitCost;
use crate::attach::{CpuEngine, Loaded, PlanTables, ProbePlan, Session, StackTable, Whom};
use crate::events::Names;
use crate::kernel::{Feature, Host, memory, processes, socket_kinds};
use crate::symbolize::LiveSymbolizer;
use crate::tracer::ahead::Ahead;
use crate::tracer::follow::Keyed;
use crate::tracer::header::header;
use crate::tracer::latecomers::{Latecomers, Unused};
use crate::tracer::resolved::Found;
use crate::tracer::stopper::Stopper;
use crate::tracer::trace::{Events, Trace};
use crate::tracer::watched::Watched;
use reqtrace_base::error::Result;
use reqtrace_binary::lazy::LazyFile;
use reqtrace_profile::Profiles;

/// The probes to set, and the tables that they refer to.
pub(super) struct Probes {
    pub(super) plans: Vec<ProbePlan>,
    pub(super) tables: PlanTables,
}

/// Everything that is to be attached, and that may be.
pub(super) struct Ready {
    pub(super) wanted: Wanted,
    pub(super) found: Found,
    pub(super) probes: Probes,
    pub(super) host: Host,
    /// What this kernel cannot say, in words.
    pub(super) lacks: Vec<String>,
    pub(super) symbols: LiveSymbolizer,
    pub(super) monotonic_to_unix_ns: i64,
    /// While it is open the kernel counts the time of programs.
    pub(super) stats: Option<OwnedFd>,
    pub(super) loaded: Loaded,
    pub(super) cost: HitCost,
    /// What the processes took before.
    pub(super) untraced: Option<Untraced>,
    pub(super) unmatched: Ahead<Vec<UnmatchedWait>>,
}

impl Ready {
    /// The profiles as they are used in these programs.
    pub(super) fn profiles(&self) -> &Profiles {
        &self.wanted.profiles
    }

    /// Attaches.
    pub(super) fn attach(self) -> Result<Trace> {
        let Self {
            mut wanted,
            found,
            probes,
            host,
            lacks,
            symbols,
            monotonic_to_unix_ns,
            stats,
            loaded,
            cost,
            untraced,
            unmatched,
        } = self;
        let (session, stacks) = wanted.attach(loaded, &probes, &found, cost)?;
        if let Some(warning) = session.sampling_warning() {
            wanted.notices.warn(warning);
        }
        let Wanted {
            profiles,
            processes,
            pids,
            owned,
            programs,
            options,
            notices,
            files,
            left_out,
            ..
        } = wanted;
        let header = Header {
            start_ns: session.start_ns(),
            unmatched_waits: unmatched.wait()?,
            blame: options.blame,
            holders: options.knows_unrecorded(),
            before: options.before,
            interrupts: options.interrupts,
            steal: options.interrupts && host.features.has(Feature::Steal),
            sockets: socket_kinds_of(options.before, &pids),
            cpu_rate: session
                .cpu_engine()
                .and(options.samples)
                .map_or(0, |plan| plan.rate_hz),
            cpu_engine: session.cpu_engine().map_or("", CpuEngine::name).to_owned(),
            options: options.recorded(&profiles),
            lacks,
            ..header(&host, &profiles, &found.resolved, monotonic_to_unix_ns)
        };
        drop(processes);
        files.forget();
        memory::give_memory_back();
        let events = Events {
            header,
            names: Names::new(stacks, symbols, files, &profiles, found.units.clone()),
            request_types: profiles.requests().count(),
            keyed: Keyed {
                has_keys: profiles.have_keys(),
                ends: profiles.text_ends(),
            },
            processes: owned,
            pids,
            // Those of a watched program are looked for again and again.
            left_out: if programs.is_empty() { left_out } else { 0 },
            latecomers: Latecomers {
                probed: found.probed,
                unprobed: found.unprobed,
                units: found.units,
                left: BTreeSet::new(),
                profiles,
                accept_risk: options.accept_risk,
                notices: notices.clone(),
                waiting: Vec::new(),
                unused: Unused::default(),
            },
            watched: Watched::new(programs),
            untraced,
            cold_percent: cost.cold_percent,
        };
        let stopper = Stopper::new()?;
        Ok(Trace::new(
            session, events, stats, options, notices, stopper,
        ))
    }
}

impl Wanted {
    /// Attaches what was loaded, and finds the children that were started meanwhile.
    fn attach(
        &mut self,
        loaded: Loaded,
        probes: &Probes,
        found: &Found,
        cost: HitCost,
    ) -> Result<(Session, StackTable)> {
        let attach_started = Instant::now();
        let programs = self.processes.iter();
        let programs: Vec<LazyFile> = programs
            .map(|process| process.executable.open.clone())
            .collect();
        let (mut session, stacks) = loaded.attach(
            &probes.plans,
            Whom {
                pids: &self.pids,
                programs: &programs,
                more_programs: found.has_masters,
                follow: self.options.follow,
                service_of: found.service_of(&self.profiles),
            },
            cost,
            self.options.sample_every,
            self.options.samples,
        )?;
        if self.options.follow {
            // Those that were started before the kernel programs saw forks.
            let mut late: Vec<u32> = processes::descendants(&self.pids)
                .into_iter()
                .filter(|pid| !self.pids.contains(pid))
                .collect();
            let room = self.sizes.processes() - self.pids.len();
            self.left_out += late.len().saturating_sub(room) as u64;
            late.truncate(room);
            session.trace_children(&late)?;
            self.pids.extend(late);
        }
        info!(
            "{} probes attached in {:.0?}; kernel memory {} KiB",
            probes.plans.len(),
            attach_started.elapsed(),
            session.kernel_memory() / 1024
        );
        Ok((session, stacks))
    }
}

/// The hint about requests of which nobody knows how long their data had waited goes by it.
fn socket_kinds_of(before: bool, pids: &[u32]) -> Vec<String> {
    let pids = if before { pids } else { &[] };
    let kinds = socket_kinds::of(pids).into_iter();
    kinds.map(str::to_owned).collect()
}
