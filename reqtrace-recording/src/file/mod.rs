//! The file: blocks one after the other, each whole by itself.

mod block;
pub mod fuzz;
mod reader;
mod writer;

#[cfg(test)]
mod tests;

pub use block::MAJOR;
pub use reader::{Ending, Reader};
pub use writer::Writer;

pub(crate) use writer::BlockWriter;
