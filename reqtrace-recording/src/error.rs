//! Why a recording could not be written or read.

use std::io;

use crate::event::SYSCALLS;
use crate::file::MAJOR;

/// Result of every fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// No block of a recording was found.
    #[error("it is no recording of reqtrace: no block begins with the bytes `reqtrace`")]
    NotARecording,
    /// There are blocks, but none of those that are whole has the header of the trace.
    #[error("no whole block has the header of the trace, so nothing in it can be named")]
    NoHeader,
    /// It is of a machine whose system calls are not known here.
    #[error(
        "it is of a machine of the architecture `{architecture}` with the system calls `{syscalls}`, and this \
         reqtrace knows those of `{SYSCALLS}`"
    )]
    Foreign {
        /// Its architecture.
        architecture: String,
        /// Its table of system calls.
        syscalls: String,
    },
    /// Files were to be read as one that are not of one trace.
    #[error("{0}")]
    Mixed(String),
    /// It was written by a newer version.
    #[error("it has version {found} of the format, and this reqtrace reads up to {MAJOR}")]
    Newer {
        /// Its version.
        found: u16,
    },
}
