//! `reqtrace --profile P -p PID`: options in, a report out.

use super::options::TraceOptions;
use crate::error::{Error, Result};

/// Traces.
///
/// # Errors
///
/// Always, until the stages after resolving are there.
pub fn run(_options: TraceOptions) -> Result<()> {
    Err(Error::failed("tracing is not built into this version yet"))
}
