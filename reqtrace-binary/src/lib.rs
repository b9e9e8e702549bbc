//! Programs, as files and as what a process has mapped: ELF files, their debug files, names of
//! addresses, unwind tables.

mod contained;
pub mod debuginfo;
pub mod demangle;
pub mod elf;
pub mod files;
pub mod frames;
#[doc(hidden)]
pub mod fuzz;
pub mod go;
mod landing;
pub mod lazy;
pub mod maps;
pub mod privileged;
pub mod procfs;
pub mod status;
pub mod symbolize;
pub mod unwind;
pub mod variables;

pub use contained::log_contained_panics;
use reqtrace_base::error;
