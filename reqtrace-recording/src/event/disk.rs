//! What block devices did.

use super::Comm;

/// An I/O of a thread of which all intervals are recorded; or sums of what another process did with a disk. Only traces with
/// blame have these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// The disk: major number shifted by 20, and minor number.
    pub device: u32,
    /// Its name, of at most 15 bytes.
    pub disk: Comm,
    /// Process that queued it; 0: it is not known.
    pub tgid: u32,
    /// Thread that queued it.
    pub tid: u32,
    /// Name of that thread.
    pub comm: Comm,
    /// Whether that is a thread of the kernel's own, such as a journal's.
    pub is_kernel: bool,
    /// Whether it is a sum.
    pub is_sum: bool,
    /// When it was queued, or since when it is a sum, `CLOCK_MONOTONIC` ns.
    pub from_ns: u64,
    /// When the device got it; 0 of a sum, and of a flush that the kernel did together with others.
    pub issued_ns: u64,
    /// When it was complete.
    pub until_ns: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// How many there were.
    pub count: u64,
    /// How many of these had the device empty its cache.
    pub flushes: u64,
}
