//! A build without Parquet: `[rows]` in, what to do instead out.

use std::sync::Arc;

use reqtrace_base::error::{Error, Result};

use super::queue::Queue;
use crate::config::Rows;
use crate::ids::Machine;
use crate::metrics::Metrics;

/// Nobody writes.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) queue: Queue,
}

impl Writer {
    /// # Errors
    ///
    /// Always.
    pub(crate) fn start(
        _config: &Rows,
        _machine: &Arc<Machine>,
        _has_spans: bool,
        _metrics: &Arc<Metrics>,
    ) -> Result<Self> {
        Err(
            Error::usage("[rows]: this reqtrace was built without Parquet")
                .next("leave out [rows], or build it with --features parquet"),
        )
    }

    pub(crate) fn end(self) {}
}
