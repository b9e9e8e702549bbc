//! What the commands of `cargo xtask` share with the benchmarks: set-up, builds, child processes, where things are.
//!
//! In: what the machine is needed for. Out: a machine that has it, and the programs built.

mod environments;
pub mod kernel;
mod linker;
pub mod packages;
pub mod page_checks;
pub mod process;
mod servers;
pub mod setup;
mod toolchain;
pub mod workspace;
