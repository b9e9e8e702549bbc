//! reqtrace: a request-synchronous, application-aware off-CPU tracer.
//!
//! The modules are the stages, in the order in which data goes through them:
//!
//! ```text
//! profile ──► resolve ──► attach ──► (kernel programs) ──► decode ──► aggregate
//!                                                                         │
//!                     report ◄── classify ◄── symbolize ◄─────────────────┘
//! ```
//!
//! `kernel` is what reqtrace knows about the running kernel, `cli` is the command line around all.

pub mod aggregate;
pub mod attach;
pub mod classify;
pub mod cli;
pub mod debuginfo;
pub mod decode;
pub mod error;
pub mod kernel;
pub mod profile;
pub mod report;
pub mod resolve;
pub mod symbolize;
pub mod text;
pub mod unwind;
