//! Capture: resolved markers and processes in, the events of a trace out.
//!
//! ```text
//! reqtrace-resolve ──► attach ──► (kernel programs) ──► events ──► sinks
//! ```
//!
//! [`tracer`] is all of it as a library: what to trace in, a stream of events to an
//! [`EventSink`](events::EventSink) out. `kernel` is what is known of the running kernel, `symbolize` the
//! names of a live trace. This crate knows no model, no output and no command line.

pub mod attach;
pub mod attacher;
pub mod events;
#[doc(hidden)]
pub mod fuzz;
pub mod kernel;
pub mod socket;
pub mod symbolize;
pub mod tracer;
