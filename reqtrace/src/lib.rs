//! reqtrace: a request-synchronous, application-aware off-CPU tracer.
//!
//! This crate puts the stages together, each of which is a crate of its own, and has the command line
//! around all:
//!
//! ```text
//! profile ──► resolve ──► capture ──► events ──┬──► recording ──► file
//!                                              ├──► analysis ──► output
//!                                              └──► live view
//! ```
//!
//! `analysed` is all of it as a library: what to trace in; events, the model and a report out.

#[cfg(feature = "capture")]
pub mod analysed;
pub mod cli;
#[cfg(feature = "capture")]
mod live;
