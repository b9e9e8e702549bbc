//! What every user-space crate of reqtrace needs: the error with its exit code, names of functions,
//! globs, what a process and a frame are called, figures as people read and write them, and messages.

pub mod error;
pub mod figures;
pub mod frame;
pub mod names;
pub mod plain;
pub mod quantity;
pub mod say;
pub mod text;
