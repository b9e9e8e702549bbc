//! What every user-space crate of reqtrace needs: the error with its exit code, names of functions,
//! globs, and what a process and a frame are called.

pub mod error;
pub mod frame;
pub mod names;
pub mod plain;
pub mod text;
