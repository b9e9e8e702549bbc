//! Unwind tables: the executable mappings of a process in, tables for the kernel programs out.
//!
//! ```text
//! /proc/PID/maps ──► process ──► object (ELF, .eh_frame) ──► table (rows) ──► registry (positions)
//! ```
//!
//! The format of a table is [`reqtrace_common::unwind`]; `docs/internals.md` says what it can and
//! cannot express.

mod object;
mod process;
mod registry;
mod table;
#[cfg(test)]
mod walk;

pub use object::{Frames, Object, ObjectError, Segment};
pub use process::NoTable;
pub use registry::{ProcessTables, Progress, Registry, RegistryStats, Upload, Without};
pub use table::{Table, TableError, TableStats, Unsupported, UnsupportedCause, function_ranges};

/// Rows that all objects of a trace can have together: 32 MiB of kernel memory, some twenty times
/// what a large server and its libraries need.
pub const MAX_ROWS: u32 = 4 << 20;
/// Entries of all chunk indices together: 512 MiB of code, 8 MiB of kernel memory.
pub const MAX_INDEX: u32 = 2 << 20;
