//! Symbolize: addresses in, [`Frame`]s out. Never a wrong name.

/// Names addresses. The live one asks blazesym; tests replay a table.
pub trait Symbolizer {
    /// Frames of a user stack of a process, innermost first, inlined callers expanded.
    fn user(&mut self, space: AddressSpace, addresses: &[u64]) -> Vec<Frame>;
    /// Frames of a kernel stack, innermost first.
    fn kernel(&mut self, addresses: &[u64]) -> Vec<Frame>;
}

/// An address space: a process between two execs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AddressSpace {
    /// The process.
    pub tgid: u32,
    /// How often it had called exec since tracing began.
    pub exec_generation: u32,
}

/// One frame, ready to print.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// Demangled function name, or `[module+0xoffset]`, or `[unknown]`.
    pub name: String,
}
