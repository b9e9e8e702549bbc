//! What of a kernel object needs privileges once it is loaded: its programs in, what is attached of them out.
//!
//! The process that traces does it itself ([`Own`]), or asks one that may.

use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};

use aya::Ebpf;
use aya::programs::perf_event::{
    HardwareEvent, PerfEvent, PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent,
};
use aya::programs::{BtfTracePoint, Iter, Program, ProgramError};
use aya::util::online_cpus;
use reqtrace_recording::ProgramCost;
use serde::{Deserialize, Serialize};

use super::detach::Link;
use super::refused::chain;
use super::uprobe::{Engine, Place, Refused, Setter};
use crate::kernel::features::{
    BLOCK, CPU_SWITCH, INTERRUPT_SWITCH, INTERRUPTS, MIGRATE, PAGE_FAULT, TRACEPOINTS,
    WATCH_THREADS, socket_tracepoints,
};
use crate::kernel::memory::fd_field;
use reqtrace_base::error::{Error, Result};

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

/// The program that takes samples.
pub(super) const SAMPLER: &str = "sample";

/// What interrupts the CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CpuEngine {
    /// The kernel's timer: samples are as many as the time that was spent.
    #[default]
    CpuClock,
    /// Cycles that the CPU counts, where it does: samples see the kernel with interrupts off, too.
    Cycles,
}

impl CpuEngine {
    /// Its name in outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CpuClock => "cpu-clock",
            Self::Cycles => "cycles",
        }
    }

    pub(super) fn event(self) -> PerfEventConfig {
        match self {
            Self::CpuClock => PerfEventConfig::Software(SoftwareEvent::CpuClock),
            Self::Cycles => PerfEventConfig::Hardware(HardwareEvent::CpuCycles),
        }
    }
}

impl fmt::Display for CpuEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Loaded programs.
pub(crate) trait Programs: Send {
    /// What sets probes.
    fn engine(&self) -> Engine;

    /// Whether a probe for one process is set by a perf event.
    fn sets_by_perf_events(&self) -> bool;

    /// Sets a probe with this program at each place. Where one cannot be set the others are; what could not be set is in the
    /// second list.
    ///
    /// # Errors
    ///
    /// When a program cannot be loaded, or the kernel has no uprobes.
    fn set(&mut self, program: &str, places: &[Place<'_>]) -> Result<(Vec<Link>, Vec<Refused>)>;

    /// Attaches the programs of the scheduler and others, as far as they are loaded.
    ///
    /// # Errors
    ///
    /// When one cannot be attached.
    fn attach_tracepoints(&mut self) -> Result<Vec<Link>>;

    /// Lets the kernel watch all threads that traced processes have, from now on. Without blame nothing is done.
    ///
    /// # Errors
    ///
    /// When the program cannot be run.
    fn watch_threads(&mut self) -> Result<()>;

    /// Begins to take samples on all CPUs, so many a second.
    ///
    /// # Errors
    ///
    /// What the kernel says; then none are taken.
    fn sample(&mut self, engine: CpuEngine, rate_hz: u32) -> io::Result<Vec<Link>>;

    /// What the kernel has counted of each program.
    ///
    /// # Errors
    ///
    /// When there is no such program.
    fn costs(&self) -> Result<Vec<ProgramCost>>;
}

/// Programs that this process has loaded.
pub(crate) struct Own {
    ebpf: Ebpf,
    setter: Setter,
}

impl Own {
    pub(super) fn new(ebpf: Ebpf, setter: Setter) -> Self {
        Self { ebpf, setter }
    }

    fn get<'a, P>(&'a self, name: &str) -> Result<&'a P>
    where
        &'a P: TryFrom<&'a Program, Error = ProgramError>,
    {
        let program = self.ebpf.program(name).ok_or_else(|| missing(name))?;
        program
            .try_into()
            .map_err(|error: ProgramError| missing(name).because(error))
    }

    fn get_mut<'a, P>(&'a mut self, name: &str) -> Result<&'a mut P>
    where
        &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
    {
        let program = self.ebpf.program_mut(name).ok_or_else(|| missing(name))?;
        program
            .try_into()
            .map_err(|error: ProgramError| missing(name).because(error))
    }
}

fn missing(name: &str) -> Error {
    Error::failed(format!("the kernel object has no program `{name}`"))
}

/// All programs of tracepoints, in the order in which they are attached: those of one tracepoint run in it.
fn tracepoints() -> impl Iterator<Item = &'static str> {
    let first = [CPU_SWITCH, INTERRUPT_SWITCH].into_iter();
    first
        .chain(TRACEPOINTS)
        .chain(socket_tracepoints())
        .chain([MIGRATE, PAGE_FAULT])
        .chain(BLOCK.map(|(name, _)| name))
        .chain(INTERRUPTS)
}

impl Programs for Own {
    fn engine(&self) -> Engine {
        self.setter.engine()
    }

    fn sets_by_perf_events(&self) -> bool {
        self.setter.sets_by_perf_events()
    }

    fn set(&mut self, program: &str, places: &[Place<'_>]) -> Result<(Vec<Link>, Vec<Refused>)> {
        self.setter.set(program, places)
    }

    fn attach_tracepoints(&mut self) -> Result<Vec<Link>> {
        let mut links = Vec::new();
        for name in tracepoints() {
            let program: &mut BtfTracePoint = self.get_mut(name)?;
            // They were loaded if they are wanted and there.
            if program.fd().is_err() {
                continue;
            }
            let link = program.attach().and_then(|id| program.take_link(id));
            links.push(Link::of(link.map_err(|error| {
                Error::unsupported(format!("the tracepoint `{name}` could not be attached"))
                    .because(chain(&error))
            })?));
        }
        Ok(links)
    }

    fn watch_threads(&mut self) -> Result<()> {
        let program: &mut Iter = self.get_mut(WATCH_THREADS)?;
        if program.fd().is_err() {
            return Ok(());
        }
        let failed = || Error::failed("the threads of the traced processes could not be looked at");
        let link = program.attach().and_then(|link| program.take_link(link));
        let link = link.map_err(|error| failed().because(chain(&error)))?;
        let mut threads = link
            .into_file()
            .map_err(|error| failed().because(chain(&error)))?;
        // It has no output; reading runs it for each thread.
        io::copy(&mut threads, &mut io::sink()).map_err(|error| failed().because(error))?;
        Ok(())
    }

    fn sample(&mut self, engine: CpuEngine, rate_hz: u32) -> io::Result<Vec<Link>> {
        let cpus = online_cpus().map_err(|(path, error)| {
            io::Error::new(error.kind(), format!("{path} cannot be read: {error}"))
        })?;
        let program: &mut PerfEvent = self
            .get_mut(SAMPLER)
            .map_err(|error| io::Error::other(error.to_string()))?;
        let mut links = Vec::with_capacity(cpus.len());
        for cpu in cpus {
            let attached = program.attach(
                engine.event(),
                PerfEventScope::AllProcessesOneCpu { cpu },
                SamplePolicy::Frequency(u64::from(rate_hz)),
                false,
            );
            let link = attached.and_then(|id| program.take_link(id));
            match link.map_err(of_kernel) {
                Ok(link) => links.push(Link::of(link)),
                // It has just gone off line.
                Err(error)
                    if engine == CpuEngine::CpuClock
                        && error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(links)
    }

    fn costs(&self) -> Result<Vec<ProgramCost>> {
        let mut costs = Vec::new();
        for name in tracepoints() {
            let program: &BtfTracePoint = self.get(name)?;
            if let Ok(file) = program.fd() {
                costs.push(cost(name, [file.as_fd().as_raw_fd()].into_iter()));
            }
        }
        let sampler: &PerfEvent = self.get(SAMPLER)?;
        if let Ok(file) = sampler.fd() {
            costs.push(cost(SAMPLER, [file.as_fd().as_raw_fd()].into_iter()));
        }
        for name in UPROBES {
            costs.push(cost(name, self.setter.files(name)));
        }
        Ok(costs)
    }
}

/// The kernel's error among aya's.
fn of_kernel(error: ProgramError) -> io::Error {
    match error {
        ProgramError::SyscallError(error) => error.io_error,
        error => io::Error::other(chain(&error)),
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
