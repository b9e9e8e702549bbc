//! Events: records of the ring and what the kernel's maps hold in, a stream of events out.
//!
//! Everything that needs root, the kernel or `/proc` ends here. What comes out goes to sinks: the same
//! events, in the same order.

mod file_names;
mod holders;
mod limits;
mod names;
mod notice;
mod sink;
mod stream;
mod windows;

pub(crate) use names::{Names, UnitsOfPrograms};
pub use notice::{Notice, Notices};
pub use sink::{EventSink, Fanout};
pub(crate) use stream::Stream;
pub(crate) use windows::Windows;
