//! Whether the kernel sets the probes: planned ones in, the first that it refuses out.
//!
//! Which instructions it probes depends on its version, and it says so only where a process has mapped the
//! file: of a program that does not run yet it takes any probe, and then sets none. So the files are mapped here,
//! and probed for this process alone.

use std::io;

use log::debug;
use memmap2::{Mmap, MmapOptions};

use super::ProbePlan;
use super::count::Counter;
use super::estimate::Kind;
use super::rate;
use super::uprobe::is_of_instruction;
use reqtrace_base::error::{Error, Result};

/// The first probe on an instruction that the kernel does not probe, as an error that names both.
///
/// # Errors
///
/// [`reqtrace_base::error::Kind::Unsupported`] when it cannot be tried, for want of permission.
pub fn refused(plans: &[ProbePlan]) -> Result<Option<Error>> {
    let is_unsure = |plan: &&ProbePlan| rate::kind(plan.instruction) != Kind::Emulated;
    let unsure: Vec<&ProbePlan> = plans.iter().filter(is_unsure).collect();
    if unsure.is_empty() {
        return Ok(None);
    }
    let mapped: Vec<io::Result<Mmap>> = unsure.iter().map(|plan| map(plan)).collect();
    let places: Vec<_> = unsure.iter().map(|plan| rate::place(plan)).collect();
    let refused = Counter::try_places(&places)?;
    drop(mapped);
    for (index, error) in refused {
        if is_of_instruction(&error) {
            return Ok(Some(unsure[index].refused(error)));
        }
        debug!("tried {}: {error}", unsure[index].shown);
    }
    Ok(None)
}

/// Maps the place of a probe as a program does.
fn map(plan: &ProbePlan) -> io::Result<Mmap> {
    let file = plan.object.open()?;
    let mut options = MmapOptions::new();
    options.offset(plan.file_offset).len(1);
    // SAFETY: nothing reads or executes the mapping, whatever becomes of the file.
    unsafe { options.map_copy(&*file) }?.make_exec()
}
