//! A profile: the stacks of a period in; its bytes, and what its file and its labels are called by, out.

use std::io;

use reqtrace_analysis::report::StacksRow;
use reqtrace_output::pprof;
use serde::{Deserialize, Serialize};

use super::queue::About;

/// A profile of a request type in a period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Made {
    pub(super) service: String,
    pub(super) request: String,
    pub(super) start_unix_ns: u64,
    /// Of all its requests.
    pub(super) latency_ns: u64,
    /// One without samples has nothing to show.
    pub(super) has_samples: bool,
    /// In the format of pprof, compressed.
    pub(super) bytes: Vec<u8>,
}

impl Made {
    /// Makes it.
    ///
    /// # Errors
    ///
    /// When it cannot be compressed.
    pub(crate) fn of(about: &About, row: &StacksRow) -> io::Result<Self> {
        Ok(Self {
            service: about.service.clone(),
            request: row.request.clone(),
            start_unix_ns: row.start_unix_ns,
            latency_ns: row.latency_ns,
            has_samples: !row.stacks.is_empty(),
            bytes: pprof::of_period(row, &about.service, &about.names)?,
        })
    }
}
