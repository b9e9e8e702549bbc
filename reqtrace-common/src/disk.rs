//! What block devices do, with blame: one I/O of a watched thread, or sums of a process that nobody watches.

use crate::limits::COMM_LEN;

/// I/O that is remembered from when it is queued until it is complete.
pub const MAX_OPEN_IO: u32 = 1 << OPEN_IO_BITS;
const OPEN_IO_BITS: u32 = 14;

/// So many places one I/O may have. What was queued longest ago makes room.
pub const OPEN_IO_WAYS: u32 = 4;

/// The first place of what has a number, which is an address but for a constant.
#[inline]
#[must_use]
pub const fn first_place(number: u64) -> u32 {
    // They are aligned to cache lines; and the golden ratio.
    let hash = (number >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> (64 - OPEN_IO_BITS)) as u32 & !(OPEN_IO_WAYS - 1)
}

/// Processes and devices with sums. Beyond that the kernel forgets who used a device longest ago.
pub const MAX_DISK_USERS: u32 = 1 << 10;

/// So long I/O of one process on one device is added up before it is sent, ns.
pub const SUMMED_NS: u64 = 100_000_000;

/// Who queued an I/O, and what it is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenIo {
    /// A number that its `bio` has as long as it is on its way; 0: the place is free, 1: it is being filled.
    pub bio: u64,
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_thousand_of_one_slab_have_room() {
        for size in (64..=1024).step_by(64) {
            let mut groups: BTreeMap<u32, u32> = BTreeMap::new();
            for index in 0..1_000 {
                let place = first_place(0xffff_8881_0123_4000 + index * size);
                assert!(place + OPEN_IO_WAYS <= MAX_OPEN_IO, "{place}");
                assert_eq!(place % OPEN_IO_WAYS, 0);
                *groups.entry(place).or_default() += 1;
            }
            let most = groups.values().max();
            assert!(most <= Some(&OPEN_IO_WAYS), "{size}: {most:?}");
        }
    }
}
