//! Symbolize: addresses in, [`Frame`]s out. Never a wrong name.
//!
//! An address that no known symbol covers is `[module+0xoffset]` (an ELF virtual address, the same
//! in every process), `[vdso+0xoffset]`, `[anonymous]` (executable memory without a file, such as
//! that of a JIT that writes no `/tmp/perf-PID.map`), `[kernel+0xaddress]` or `[unknown]`.

pub mod elf;
pub mod kernel;
pub mod live;
pub mod maps;
pub mod names;
mod perf_map;
pub mod user;

use serde::{Deserialize, Serialize};

pub use live::LiveSymbolizer;

/// Names addresses. The live one asks blazesym; tests replay a table.
pub trait Symbolizer {
    /// Frames of a user stack of a process, innermost first, inlined callers expanded.
    fn user(&mut self, space: AddressSpace, addresses: &[u64]) -> Vec<Frame>;
    /// Frames of a kernel stack, innermost first.
    fn kernel(&mut self, addresses: &[u64]) -> Vec<Frame>;
    /// The name that a thread has now; `None` when it has left, or is not known.
    fn thread_name(&mut self, _tgid: u32, _tid: u32) -> Option<String> {
        None
    }
}

/// An address space: a process between two execs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AddressSpace {
    /// The process.
    pub tgid: u32,
    /// How often it had called exec since tracing began.
    pub exec_generation: u32,
}

impl<S: Symbolizer + ?Sized> Symbolizer for &mut S {
    fn user(&mut self, space: AddressSpace, addresses: &[u64]) -> Vec<Frame> {
        (**self).user(space, addresses)
    }

    fn kernel(&mut self, addresses: &[u64]) -> Vec<Frame> {
        (**self).kernel(addresses)
    }

    fn thread_name(&mut self, tgid: u32, tid: u32) -> Option<String> {
        (**self).thread_name(tgid, tid)
    }
}

/// Name of an address where nothing was mapped.
pub const UNKNOWN: &str = "[unknown]";

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Frame {
    /// Demangled function name, or `[module+0xoffset]`, or `[unknown]`.
    pub name: String,
}

impl Frame {
    /// A frame of that name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }

    /// Whether nothing was mapped there when it was looked up.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.name == UNKNOWN
    }

    /// Whether it names a function, and not only a place or that something is missing.
    #[must_use]
    pub fn is_named(&self) -> bool {
        !self.name.starts_with('[')
    }
}
