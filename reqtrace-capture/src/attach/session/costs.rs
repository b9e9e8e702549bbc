//! What a running trace costs: the kernel's counters and the tracer's own time in, sums out.

use std::os::fd::{AsFd as _, AsRawFd as _};

use aya::maps::PerCpuArray;
use aya::programs::BtfTracePoint;
use aya::programs::perf_event::PerfEvent;
use log::info;
use reqtrace_common::sums::WalkTotals;
use reqtrace_recording::Overhead;
use reqtrace_recording::{Cost, ProgramCost, WalkCost};

use super::Session;
use crate::attach::named::{map, map_error, program_of};
use crate::attach::overhead;
use crate::attach::sampling::SAMPLER;
use crate::attach::targets::UPROBES;
use crate::kernel::clock;
use crate::kernel::features::{BLOCK, CPU_SWITCH, MIGRATE, TRACEPOINTS, socket_tracepoints};
use crate::kernel::memory::fd_field;
use reqtrace_base::error::{Error, Result};

impl Session {
    /// What tracing took since the start, without what the processes took.
    ///
    /// # Errors
    ///
    /// When the kernel's table of times cannot be read.
    pub fn overhead(&self) -> Result<Overhead> {
        let mut overhead = overhead::of(&self.ebpf, &self.traps)?;
        let own_ns = clock::own_cpu_ns(self.is_of_thread);
        overhead.tracer_ns = own_ns.saturating_sub(self.own_cpu_ns);
        overhead.elapsed_ns = clock::monotonic_ns().saturating_sub(self.start_ns);
        Ok(overhead)
    }

    /// From now on what reqtrace takes itself is what this thread takes: others of the process trace something else.
    pub(crate) fn is_of_this_thread(&mut self) {
        self.is_of_thread = true;
        self.own_cpu_ns = clock::own_cpu_ns(true);
    }

    /// What the kernel programs have cost so far.
    ///
    /// # Errors
    ///
    /// When a map cannot be read.
    pub(crate) fn cost(&self) -> Result<Cost> {
        if let Some((cost, _)) = &self.detaching {
            return Ok(cost.clone());
        }
        Ok(Cost {
            programs: self.costs()?,
            walks: self.walks()?,
            ..Cost::default()
        })
    }

    /// What walking user stacks took; `None` when that was not counted.
    fn walks(&self) -> Result<Option<WalkCost>> {
        let map: PerCpuArray<_, WalkTotals> =
            PerCpuArray::try_from(map(&self.ebpf, "WALKS")?).map_err(map_error)?;
        let mut sum = WalkTotals::ZERO;
        for cpu in map.get(&0, 0).map_err(map_error)?.iter() {
            sum.merge(cpu);
        }
        if sum.known_user + sum.known_kernel > 0 {
            info!(
                "{} user stacks and {} kernel stacks were remembered; to check them they were walked again",
                sum.known_user, sum.known_kernel
            );
        }
        if sum.known_at_markers > 0 {
            info!("{} stacks at markers were remembered", sum.known_at_markers);
        }
        Ok((sum.count > 0).then(|| WalkCost {
            walks: sum.count,
            frames: sum.frames,
            run_ns: sum.ns,
            p999_ns: sum.quantile_ns(999),
            max_ns: sum.max_ns,
        }))
    }

    fn costs(&self) -> Result<Vec<ProgramCost>> {
        let ebpf = &self.ebpf;
        let mut costs = Vec::new();
        for name in TRACEPOINTS {
            let program: &BtfTracePoint = program_of(ebpf, name)?;
            let file = program
                .fd()
                .map_err(|error| Error::failed(format!("`{name}` has no file")).because(error))?;
            costs.push(cost(name, [file.as_fd().as_raw_fd()].into_iter()));
        }
        let disks = BLOCK.map(|(name, _)| name);
        for name in socket_tracepoints()
            .chain([CPU_SWITCH, MIGRATE])
            .chain(disks)
        {
            let program: &BtfTracePoint = program_of(ebpf, name)?;
            if let Ok(file) = program.fd() {
                costs.push(cost(name, [file.as_fd().as_raw_fd()].into_iter()));
            }
        }
        if self.sampling.engine.is_some() {
            let program: &PerfEvent = program_of(ebpf, SAMPLER)?;
            let file = program.fd().map_err(|error| {
                Error::failed(format!("`{SAMPLER}` has no file")).because(error)
            })?;
            costs.push(cost(SAMPLER, [file.as_fd().as_raw_fd()].into_iter()));
        }
        for name in UPROBES {
            costs.push(cost(name, self.probes.files(name)));
        }
        Ok(costs)
    }
}

/// What the kernel counted of a program, in all forms in which it is loaded.
fn cost(name: &str, files: impl Iterator<Item = i32>) -> ProgramCost {
    let mut cost = ProgramCost {
        name: name.to_owned(),
        runs: 0,
        run_ns: 0,
        recursion_misses: 0,
    };
    for file in files {
        cost.runs += fd_field(file, "run_cnt").unwrap_or(0);
        cost.run_ns += fd_field(file, "run_time_ns").unwrap_or(0);
        cost.recursion_misses += fd_field(file, "recursion_misses").unwrap_or(0);
    }
    cost
}
