//! Capture: records of the ring and what the kernel's maps hold in, a stream of events out.
//!
//! Everything that needs root, the kernel or `/proc` ends here. What comes out goes to the analysis,
//! and to a recording when one is wanted: the same events, in the same order.

mod file_names;
mod holders;
mod names;
mod observer;
mod stream;
mod windows;

pub(crate) use names::Names;
pub(crate) use observer::Notices;
pub use observer::{Notice, Observer, RunState, Running};
pub(crate) use stream::Stream;
pub(crate) use windows::Windows;
