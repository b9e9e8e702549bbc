//! reqtrace: a request-synchronous, application-aware off-CPU tracer.
//!
//! The modules are the stages, in the order in which data goes through them:
//!
//! ```text
//! profile ──► resolve ──► attach ──► (kernel programs) ──► capture ──► recording ──► file
//!                                                                         │           │
//!                                             output ◄── analysis ◄───────┴───────────┘
//! ```
//!
//! [`Tracer`] is all of it as a library: what to trace in; events, the model and a report out. `kernel`
//! is what reqtrace knows about the running kernel, `cli` is the command line around all.

#[cfg(feature = "capture")]
pub mod attach;
#[cfg(feature = "capture")]
mod capture;
pub mod cli;
#[cfg(feature = "capture")]
#[doc(hidden)]
pub mod fuzz;
#[cfg(feature = "capture")]
pub mod kernel;
#[cfg(feature = "capture")]
mod live;
#[cfg(feature = "capture")]
pub mod symbolize;
#[cfg(feature = "capture")]
pub mod tracer;

pub use reqtrace_analysis::{aggregate, classify};
pub use reqtrace_base::{error, names, plain, text};
#[cfg(feature = "capture")]
pub use reqtrace_binary::{debuginfo, unwind};
pub use reqtrace_profile as profile;
pub use reqtrace_recording::{Event, Request};

pub use aggregate::Aggregator;
#[cfg(feature = "capture")]
pub use tracer::Tracer;
