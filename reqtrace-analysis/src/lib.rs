//! Analysis: the events of a trace in, the model of its report out.
//!
//! It reads no clock, host, locale, terminal or `/proc`: the same events give the same report, live or
//! from a recording.

pub mod aggregate;
pub mod blame;
mod bounded;
pub mod cells;
pub mod classify;
pub mod fingerprint;
mod label;
mod page;
pub mod report;
pub mod symbolize;
mod verdict;

use reqtrace_base::error;
use reqtrace_profile as profile;
