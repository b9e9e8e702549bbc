//! The worker: what faces the network and the disk is a process apart, and has no privilege.
//!
//! ```text
//! tracing process                                        worker
//!   sessions ──► rows ─────── socket of rows ──────────►   writer of files
//!            ──► rollups ──── socket of roll-ups ──────►   writer of files
//!            ──► spans ────── socket of spans ─────────►   sender to a collector
//!            ──► stacks ───── socket of profiles ──────►   writer of files, sender to a Pyroscope
//!   metrics  ◄─────────────── control ────────────────►   listener: GET /metrics
//! ```
//!
//! In: a configuration. Out: a worker that runs, and the ends of its sockets. It is this program again, started before
//! anything is traced, so that it never has a descriptor of the kernel's programs or of a process. It gets the socket that
//! listens, and those of rows, roll-ups, spans and profiles, over the control socket (`SCM_RIGHTS`). All that it may ask for is the text of the
//! metrics: no message of its names a path, a process or a descriptor. Each process ends when the other one does.

mod message;
mod profiles;
mod records;
mod run;
mod spans;
mod start;
#[cfg(test)]
mod tests;

pub use run::run;
pub(crate) use run::{alone, begin_as};
pub(crate) use start::SELF;
pub(crate) use start::Worker;
