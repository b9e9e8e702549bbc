//! Names as the analysis asks for them: addresses in, frames out.

pub use reqtrace_base::frame::{AddressSpace, Frame, UNKNOWN};
pub use reqtrace_base::names;

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
