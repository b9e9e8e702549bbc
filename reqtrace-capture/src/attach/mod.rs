//! Attach: resolved markers and processes in, a running [`Session`] out.
//!
//! Two types say how far it has come: [`Loaded`] (the verifier has taken the programs) and
//! [`Session`] (attached).

mod batch;
mod calls;
mod chains;
pub mod count;
pub(crate) mod decode;
mod detach;
pub mod estimate;
mod file;
mod grace;
pub mod guard;
mod image;
mod loader;
mod marked;
mod named;
mod object;
mod open;
mod overhead;
mod planner;
mod plans;
mod probes;
mod processes;
pub mod rate;
mod refused;
pub mod safety;
mod sampling;
pub mod self_test;
mod sent;
mod session;
mod sizes;
mod stacks;
mod sums;
mod system;
mod tables;
mod targets;
pub mod trial;
mod uprobe;

pub use loader::{KernelTypes, LoadOptions, Loaded, Loader, load};
pub use open::{RunState, Running};
pub use plans::PlanTables;
pub use probes::{Identity, ProbePlan};
pub use sampling::{CpuEngine, SamplingPlan};
pub use session::Session;
pub use sizes::Sizes;
pub use stacks::StackTable;
pub(crate) use sums::Sums;
pub use tables::Compiled;
pub(crate) use targets::path_of;
pub use targets::{ServiceOf, Whom};
pub use uprobe::{Engine, goes_by_process, perf_events_want_admin};
