//! Values of options of a trace: words of the command line in, what capture knows them as out.

use clap::ValueEnum;
use reqtrace_capture::{attach, tracer};

/// How to unwind user stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Unwind {
    /// By .eh_frame, and by frame pointers through code that has none.
    #[default]
    Auto,
    /// By frame pointers, for programs built with them.
    Fp,
    /// By .eh_frame only: a stack ends at code that has none.
    Dwarf,
}

impl From<Unwind> for tracer::Unwind {
    fn from(unwind: Unwind) -> Self {
        match unwind {
            Unwind::Auto => Self::Auto,
            Unwind::Fp => Self::Fp,
            Unwind::Dwarf => Self::Dwarf,
        }
    }
}

/// What interrupts the CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CpuEngine {
    /// The kernel's timer: samples are as many as the time that was spent.
    #[default]
    CpuClock,
    /// Cycles that the CPU counts, where it does: samples see the kernel with interrupts off, too.
    Cycles,
}

impl From<CpuEngine> for attach::CpuEngine {
    fn from(engine: CpuEngine) -> Self {
        match engine {
            CpuEngine::CpuClock => Self::CpuClock,
            CpuEngine::Cycles => Self::Cycles,
        }
    }
}
