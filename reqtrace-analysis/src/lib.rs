//! Analysis: what a trace saw in, the model of its report out.

pub mod aggregate;
pub mod classify;
pub mod decode;
pub mod report;
pub mod symbolize;

use reqtrace_base::{error, text};
use reqtrace_profile as profile;
