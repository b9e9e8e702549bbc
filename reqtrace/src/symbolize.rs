//! Symbolize: the names of a live trace.

pub mod live;

pub use live::LiveSymbolizer;
pub use reqtrace_binary::symbolize::{AddressSpace, Frame, UNKNOWN, kernel, names, user};
