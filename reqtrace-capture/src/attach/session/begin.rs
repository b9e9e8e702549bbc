//! The begin of a session: what was loaded in, attached in an order that misses nothing.

use aya::maps::RingBuf;
use reqtrace_common::config::{Control, follow};

use super::Session;
use crate::attach::estimate::HitCost;
use crate::attach::loader::Loaded;
use crate::attach::maps::map_error;
use crate::attach::overhead::Traps;
use crate::attach::probes::ProbePlan;
use crate::attach::processes::trace_processes;
use crate::attach::sampling::{Sampling, SamplingPlan};
use crate::attach::sent::Seconds;
use crate::attach::stacks::StackTable;
use crate::attach::sums::{Filling, Forgotten};
use crate::attach::tables::UnwindTables;
use crate::attach::targets::{self, Probes, Whom};
use crate::kernel::clock;
use reqtrace_base::error::Result;

impl Loaded {
    /// Attaches everything: scheduler programs first, then the probes of ends, then of begins. Samples are taken
    /// if the kernel lets us: see [`Session::cpu_engine`].
    ///
    /// # Errors
    ///
    /// When a program or probe cannot be attached; what was attached by then is detached.
    pub fn attach(
        mut self,
        plans: &[ProbePlan],
        whom: Whom<'_>,
        cost: HitCost,
        sample_every: u64,
        sampling: Option<SamplingPlan>,
    ) -> Result<(Session, StackTable)> {
        let pids = whom.pids;
        let are_late = whom.more_programs || targets::are_late_in_children(plans, whom.programs);
        let children = match (whom.follow, are_late) {
            (false, _) => 0,
            (true, false) => follow::CHILDREN,
            (true, true) => follow::CHILDREN | follow::LATE,
        };
        trace_processes(&mut self.maps, pids, children)?;
        let programs = targets::identities(whom.programs);
        let kernel_memory = self.maps.memory();
        let ring = RingBuf::try_from(self.maps.take("RING")?).map_err(map_error)?;
        let stacks = StackTable::new(self.maps.take("STACKS")?)?;
        let tables = match self.tables.take() {
            Some(compiled) => {
                let rows = self.maps.take("UNWIND_ROWS")?;
                let index = self.maps.take("UNWIND_INDEX")?;
                let mappings = self.maps.take("MAPPINGS")?;
                Some(UnwindTables::new(compiled, rows, index, mappings)?)
            }
            None => None,
        };
        let begun_ns = clock::monotonic_ns();
        let tracepoints = self.programs.attach_tracepoints()?;
        let sampling = match sampling {
            Some(plan) => Sampling::begin(&mut *self.programs, plan)?,
            None => Sampling::default(),
        };
        let mut session = Session {
            sampling,
            probes: Probes::set(self.programs, plans, whom)?,
            maps: self.maps,
            ring,
            log: self.log,
            tracepoints,
            kernel_memory,
            tables,
            children,
            start_ns: 0,
            control: Control::default(),
            planned: vec![(programs, plans.to_vec())],
            forgotten: Forgotten::default(),
            plans: self.plans,
            cost,
            traps: Traps::at(plans, cost),
            is_of_thread: false,
            own_cpu_ns: 0,
            sample_every,
            grace: self.grace,
            filling: Filling::new(self.sizes),
            seconds: Seconds::new(begun_ns),
            detaching: None,
        };
        session.start_ns = clock::monotonic_ns();
        session.own_cpu_ns = clock::own_cpu_ns(false);
        session.control.start_ns = session.start_ns;
        session.control.sample_every = sample_every;
        session.write_control()?;
        session.probes.programs().watch_threads()?;
        Ok((session, stacks))
    }
}
