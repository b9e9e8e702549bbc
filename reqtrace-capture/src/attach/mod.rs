//! Attach: resolved markers and processes in, a running [`Session`] out.
//!
//! Two types say how far it has come: [`Loaded`] (the verifier has taken the programs) and
//! [`Session`] (attached).

mod batch;
mod by_descriptor;
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
mod maps;
mod marked;
mod object;
mod open;
mod overhead;
mod planner;
mod plans;
mod probes;
mod processes;
mod programs;
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
mod wanted;

pub use by_descriptor::maps_go_by_descriptor;
pub(crate) use detach::all as detach_all;
pub(crate) use grace::GracePeriod;
pub(crate) use loader::load_here;
pub use loader::{KernelTypes, Loaded, Loader, load};
pub(crate) use maps::Maps;
pub use open::{RunState, Running};
pub use plans::PlanTables;
pub use probes::{Identity, ProbePlan};
pub(crate) use programs::{Link, Own, Programs};
pub use sampling::{CpuEngine, SamplingPlan};
pub use session::Session;
pub use sizes::Sizes;
pub use stacks::StackTable;
pub(crate) use sums::Sums;
pub use tables::Compiled;
pub use targets::{ServiceOf, Whom};
pub use uprobe::{Engine, goes_by_process, perf_events_want_admin};
pub(crate) use uprobe::{Place, Refused};
pub use wanted::LoadOptions;
pub(crate) use wanted::LoadPlan;
