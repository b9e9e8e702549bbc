//! Names as the analysis uses them.

pub use reqtrace_base::frame::{AddressSpace, Frame, UNKNOWN};
pub use reqtrace_base::names;
