//! What block devices do, with blame: one I/O of a watched thread, or sums of a process that nobody watches.

use crate::limits::COMM_LEN;

/// I/O that is remembered from when it is queued until it is complete; the kernel forgets what was queued longest ago.
pub const MAX_OPEN_IO: u32 = 1 << 14;

/// Processes and devices with sums. Beyond that the kernel forgets who used a device longest ago.
pub const MAX_DISK_USERS: u32 = 1 << 10;

/// So long I/O of one process on one device is added up before it is sent, ns.
pub const SUMMED_NS: u64 = 100_000_000;

/// Who queued an I/O, and what it is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenIo {
    /// When it was queued, `CLOCK_MONOTONIC` nanoseconds.
    pub queued_ns: u64,
    /// When the device got it, the last time; 0: it has not yet.
    pub issued_ns: u64,
    /// Process that queued it.
    pub tgid: u32,
    /// Thread that queued it.
    pub tid: u32,
    /// The disk: major number shifted by 20, and minor number.
    pub device: u32,
    /// The kernel's operation and flags.
    pub operation: u32,
    /// 1: its thread is watched, and it is sent by itself.
    pub is_watched: u32,
    /// 1: its thread is one of the kernel's own.
    pub is_kernel: u32,
    /// Name of the thread, padded with NUL.
    pub comm: [u8; COMM_LEN],
    /// Name of the disk, cut.
    pub disk: [u8; COMM_LEN],
}

/// I/O that is complete.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskRecord {
    /// [`crate::record::kind::DISK`].
    pub kind: u32,
    /// [`OpenIo::device`].
    pub device: u32,
    /// Process that queued it; 0: it is not known.
    pub tgid: u32,
    /// Thread; of a sum the one that came first.
    pub tid: u32,
    /// When it was queued, or since when it is a sum, `CLOCK_MONOTONIC` nanoseconds.
    pub from_ns: u64,
    /// When the device got it; 0 of a sum, and of a flush that the kernel did with others.
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
    /// 1: a sum of a process that is not watched.
    pub is_sum: u32,
    /// [`OpenIo::is_kernel`].
    pub is_kernel: u32,
    /// [`OpenIo::comm`].
    pub comm: [u8; COMM_LEN],
    /// [`OpenIo::disk`].
    pub disk: [u8; COMM_LEN],
}
