//! What a running trace costs: the kernel's counters and the tracer's own time in, sums out.

use aya::maps::PerCpuArray;
use log::info;
use reqtrace_common::sums::WalkTotals;
use reqtrace_recording::Overhead;
use reqtrace_recording::{Cost, ProgramCost, WalkCost};

use super::Session;
use crate::attach::maps::map_error;
use crate::attach::overhead;
use crate::attach::programs::SAMPLER;
use crate::kernel::clock;
use reqtrace_base::error::Result;

impl Session {
    /// What tracing took since the start, without what the processes took.
    ///
    /// # Errors
    ///
    /// When the kernel's table of times cannot be read.
    pub fn overhead(&self) -> Result<Overhead> {
        let mut overhead = overhead::of(&self.maps, &self.traps)?;
        let own_ns = clock::own_cpu_ns(self.is_of_thread);
        overhead.tracer_ns = own_ns.saturating_sub(self.own_cpu_ns);
        overhead.elapsed_ns = clock::monotonic_ns().saturating_sub(self.start_ns);
        Ok(overhead)
    }

    /// What probes took of processes that are not traced and run the same files, since the start, about, ns.
    ///
    /// # Errors
    ///
    /// When the kernel's table of times cannot be read.
    pub(crate) fn foreign_ns(&self) -> Result<u64> {
        overhead::foreign_ns(&self.maps, &self.traps)
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
            programs: self.programs()?,
            walks: self.walks()?,
            ..Cost::default()
        })
    }

    fn programs(&self) -> Result<Vec<ProgramCost>> {
        let mut costs = self.probes.loaded().costs()?;
        costs.retain(|cost| cost.name != SAMPLER || self.sampling.engine.is_some());
        Ok(costs)
    }

    /// What walking user stacks took; `None` when that was not counted.
    fn walks(&self) -> Result<Option<WalkCost>> {
        let map: PerCpuArray<_, WalkTotals> =
            PerCpuArray::try_from(self.maps.map("WALKS")?).map_err(map_error)?;
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
}
