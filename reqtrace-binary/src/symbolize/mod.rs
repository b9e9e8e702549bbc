//! Symbolize: addresses in, [`Frame`]s out. Never a wrong name.
//!
//! An address that no known symbol covers is `[module+0xoffset]` (an ELF virtual address, the same
//! in every process), `[vdso+0xoffset]`, `[anonymous]` (executable memory without a file, such as
//! that of a JIT that writes no `/tmp/perf-PID.map`), `[kernel+0xaddress]` or `[unknown]`.

mod copy;
mod dwarf;
pub mod elf;
pub mod kernel;
pub(crate) mod perf_map;
pub mod user;

pub use reqtrace_base::frame::{AddressSpace, Frame, UNKNOWN};
pub use reqtrace_base::names;

use crate::demangle::signature;

/// The symbols of a file, as they are named in a trace.
pub(crate) fn fuzz_names(file: &std::fs::File, addresses: &[u64]) {
    let mut room = copy::Room::default();
    if let Ok(copy) = copy::Copy::of(file, "fuzz", true, &mut room) {
        for &address in addresses {
            for debug in [false, true] {
                if let Some(symbol) = copy.symbol(address, debug, &mut room) {
                    std::hint::black_box(signature(&symbol.name));
                }
            }
        }
    }
}

/// The names of a perf map.
pub(crate) fn fuzz_perf_map(bytes: &[u8], addresses: &[u64]) {
    perf_map::fuzz(bytes, addresses);
}
