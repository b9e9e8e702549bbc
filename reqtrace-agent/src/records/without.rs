//! A build without Parquet: `[rows]` in, what to do instead out.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use reqtrace_base::error::{Error, Result};

use super::Message;
use crate::config::Rows;
use crate::ids::Machine;
use crate::metrics::Metrics;

/// Nobody writes.
#[derive(Debug)]
pub(crate) struct Writer<R>(PhantomData<R>);

impl<R> Writer<R> {
    /// # Errors
    ///
    /// Always.
    pub(crate) fn start(
        _config: &Rows,
        _machine: &Machine,
        _metrics: &Arc<Metrics>,
        _from: Receiver<Message<R>>,
    ) -> Result<Self> {
        Err(
            Error::usage("[rows]: this reqtrace was built without Parquet")
                .next("leave out [rows], or build it with --features parquet"),
        )
    }

    pub(crate) fn wait(self) {}
}
