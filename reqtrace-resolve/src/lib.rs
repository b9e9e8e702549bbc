//! Resolve: a [`reqtrace_profile::Profile`] and a process in, [`ResolvedProfile`] out: which bytes of
//! which files to probe.
//!
//! Nothing is attached: this crate knows no kernel program, no trace and no model.

pub mod arguments;
mod calls;
mod conditions;
mod emulated;
mod evaluate;
mod goroutines;
pub mod hazards;
mod instructions;
mod labels;
mod markers;
pub mod missing;
mod opened;
mod plans;
pub mod probeable;
pub mod process;
mod readings;
mod resolved;
pub mod returns;
mod runtime;
pub mod search;
pub mod starts;
pub mod symbols;
mod target;
mod unmatched;
pub mod usdt;
mod variants;

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod objects;

use std::collections::BTreeSet;

use reqtrace_binary::elf::Object;

pub use conditions::{Choice, settle};
pub use hazards::Hazards;
pub use markers::{resolve, resolve_file, resolve_in};
pub use opened::{ObjectFile, Objects, Opened};
pub use process::Process;
pub use readings::UnitAt;
pub use resolved::{
    Doubt, ProbeSite, ResolvedMarker, ResolvedProfile, ResolvedRequest, UnitNames, Unread,
};
pub use target::Target;
pub use unmatched::unmatched_without_symbols;

/// Types of the tasks of a program on tokio, as its names have them, by the function that polls them: several where the linker
/// has put what is equal together. Empty of any other program.
#[must_use]
pub fn task_types(object: &Object) -> Vec<BTreeSet<String>> {
    runtime::task_types(object)
}

/// Whether a program runs tasks of tokio, stripped or not.
#[must_use]
pub fn runs_tasks(object: &Object) -> bool {
    runtime::runs_tasks(object)
}
