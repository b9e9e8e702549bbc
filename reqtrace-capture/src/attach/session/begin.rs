//! The begin of a session: what was loaded in, attached in an order that misses nothing.

use aya::maps::RingBuf;
use aya::programs::BtfTracePoint;
use aya::programs::tp_btf::BtfTracePointLink;
use reqtrace_common::config::{Control, follow};

use super::{Session, map_fd};
use crate::attach::estimate::HitCost;
use crate::attach::grace::GracePeriod;
use crate::attach::loader::Loaded;
use crate::attach::named::{map_error, program};
use crate::attach::overhead::Traps;
use crate::attach::probes::ProbePlan;
use crate::attach::processes::{trace_processes, watch_threads};
use crate::attach::refused::chain;
use crate::attach::sampling::{Sampling, SamplingPlan};
use crate::attach::sent::Seconds;
use crate::attach::stacks::StackTable;
use crate::attach::sums::{Filling, Forgotten};
use crate::attach::tables::UnwindTables;
use crate::attach::targets::{self, Probes, Whom};
use crate::kernel::features::{
    BLOCK, CPU_SWITCH, INTERRUPT_SWITCH, INTERRUPTS, MIGRATE, PAGE_FAULT, TRACEPOINTS,
    socket_tracepoints,
};
use crate::kernel::{clock, memory};
use reqtrace_base::error::{Error, Result};

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
        trace_processes(&mut self.ebpf, pids, children)?;
        let programs = targets::identities(whom.programs);
        let kernel_memory = self
            .ebpf
            .maps()
            .filter_map(|(_, map)| memory::fd_field(map_fd(map)?, "memlock"))
            .sum();
        let grace = GracePeriod::new()?;
        let ring = RingBuf::try_from(self.take_map("RING")?).map_err(map_error)?;
        let stacks = StackTable::new(self.take_map("STACKS")?)?;
        let tables = match self.tables.take() {
            Some(compiled) => {
                let rows = self.take_map("UNWIND_ROWS")?;
                let index = self.take_map("UNWIND_INDEX")?;
                let mappings = self.take_map("MAPPINGS")?;
                Some(UnwindTables::new(compiled, rows, index, mappings)?)
            }
            None => None,
        };
        let begun_ns = clock::monotonic_ns();
        let mut tracepoints = Vec::new();
        // Programs of one tracepoint run in the order in which they were attached.
        let disks = BLOCK.map(|(name, _)| name);
        let others = socket_tracepoints()
            .chain([MIGRATE, PAGE_FAULT])
            .chain(disks)
            .chain(INTERRUPTS);
        let first = [CPU_SWITCH, INTERRUPT_SWITCH].into_iter();
        for name in first.chain(TRACEPOINTS).chain(others) {
            let program: &mut BtfTracePoint = program(&mut self.ebpf, name)?;
            // They were loaded if they are wanted and there.
            if program.fd().is_ok() {
                tracepoints.push(attach(name, program)?);
            }
        }
        let sampling = match sampling {
            Some(plan) => Sampling::begin(&mut self.ebpf, plan)?,
            None => Sampling::default(),
        };
        let mut session = Session {
            sampling,
            probes: Probes::set(self.setter, plans, whom)?,
            ebpf: self.ebpf,
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
            grace,
            filling: Filling::new(self.sizes),
            seconds: Seconds::new(begun_ns),
            detaching: None,
        };
        session.start_ns = clock::monotonic_ns();
        session.own_cpu_ns = clock::own_cpu_ns(false);
        session.control.start_ns = session.start_ns;
        session.control.sample_every = sample_every;
        session.write_control()?;
        watch_threads(&mut session.ebpf)?;
        Ok((session, stacks))
    }

    fn take_map(&mut self, name: &str) -> Result<aya::maps::Map> {
        self.ebpf
            .take_map(name)
            .ok_or_else(|| Error::failed(format!("the kernel object has no map `{name}`")))
    }
}

fn attach(name: &str, program: &mut BtfTracePoint) -> Result<BtfTracePointLink> {
    let link = program.attach().and_then(|id| program.take_link(id));
    link.map_err(|error| {
        Error::unsupported(format!("the tracepoint `{name}` could not be attached"))
            .because(chain(&error))
    })
}
