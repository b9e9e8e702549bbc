//! Symbolize: addresses in, [`Frame`]s out. Never a wrong name.
//!
//! An address that no known symbol covers is `[module+0xoffset]` (an ELF virtual address, the same
//! in every process), `[vdso+0xoffset]`, `[anonymous]` (executable memory without a file, such as
//! that of a JIT that writes no `/tmp/perf-PID.map`), `[kernel+0xaddress]` or `[unknown]`.

mod copy;
pub mod elf;
pub mod kernel;
mod perf_map;
pub mod user;

pub use reqtrace_base::frame::{AddressSpace, Frame, UNKNOWN};
pub use reqtrace_base::names;
