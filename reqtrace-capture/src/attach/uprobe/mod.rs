//! Uprobes: places in files and a kernel object in, links out that hold the probes there.
//!
//! Two engines set them. A `uprobe_multi` link (6.6) holds all places of one file for one program
//! and is gone in one go; a perf event holds one place, and each waits for the kernel when it is
//! taken out. The second is for older kernels, and for what the first refuses.

mod filter;
mod multi;
mod own;
mod perf;
mod setter;

use std::fmt;

pub use filter::goes_by_process;
use reqtrace_binary::lazy::LazyFile;

pub(super) use own::file_offset_of;
use perf::UprobeEvents;
pub(crate) use perf::not_permitted;
pub use perf::perf_events_want_admin;
use serde::{Deserialize, Serialize};
pub(crate) use setter::Refused;
pub(super) use setter::{Setter, is_of_instruction};

/// `BPF_LINK_CREATE` of `enum bpf_cmd` (5.7; with a cookie 5.15).
const BPF_LINK_CREATE: libc::c_long = 28;

/// What sets uprobes on this kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Engine {
    /// One link for many probes (6.6).
    UprobeMulti,
    /// A perf event for each probe.
    PerfEvents,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UprobeMulti => "uprobe_multi",
            Self::PerfEvents => "perf events",
        })
    }
}

/// Where a probe is set, and for which processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// The file.
    pub(crate) object: &'a LazyFile,
    /// Offset in it, bytes.
    pub(crate) file_offset: u64,
    /// Offset in it of the reference counter, bytes.
    pub(crate) counter: Option<u64>,
    /// Hit when the function returns.
    pub(crate) on_return: bool,
    /// One process; `None`: all that run the file.
    pub(crate) process: Option<u32>,
    /// The program's cookie.
    pub(crate) cookie: u64,
}
