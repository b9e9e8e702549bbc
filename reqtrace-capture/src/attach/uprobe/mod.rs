//! Uprobes: places in files and a kernel object in, links out that hold the probes there.
//!
//! Two engines set them. A `uprobe_multi` link (6.6) holds all places of one file for one program
//! and is gone in one go; a perf event holds one place, and each waits for the kernel when it is
//! taken out. The second is for older kernels, and for what the first refuses.

mod filter;
mod multi;
mod perf;
mod setter;

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;

pub use filter::goes_by_process;
use perf::UprobeEvents;
pub(crate) use perf::not_permitted;
pub use perf::perf_events_want_admin;
pub(super) use setter::{NOT_SUPPORTED, Refused, Setter};

/// `BPF_LINK_CREATE` of `enum bpf_cmd` (5.7; with a cookie 5.15).
const BPF_LINK_CREATE: libc::c_long = 28;

/// What sets uprobes on this kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
pub(super) struct Place<'a> {
    /// File to open.
    pub(super) object: &'a Path,
    /// Offset in it, bytes.
    pub(super) file_offset: u64,
    /// Offset in it of the reference counter, bytes.
    pub(super) counter: Option<u64>,
    /// Hit when the function returns.
    pub(super) on_return: bool,
    /// One process; `None`: all that run the file.
    pub(super) process: Option<u32>,
    /// The program's cookie.
    pub(super) cookie: u64,
}

/// Probes that are set; they are taken out when this is dropped.
#[derive(Debug)]
pub(super) struct UprobeLink(OwnedFd);

impl UprobeLink {
    /// Takes the probes out; waits until the kernel has done it.
    pub(super) fn detach(self) {
        drop(self.0);
    }
}
