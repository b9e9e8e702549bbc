//! The file: blocks one after the other, each whole by itself.

mod block;
pub mod fuzz;
mod reader;
mod series;
mod writer;

#[cfg(test)]
pub(crate) mod tests;

pub use block::MAJOR;
pub use reader::{Ending, Reader};
pub use series::Series;
pub use writer::Writer;

pub(crate) use writer::{BlockWriter, Compressor, head_until};
