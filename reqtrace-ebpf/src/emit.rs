//! Records for user space: sent, or counted as lost.

use core::mem::{offset_of, size_of};
use core::slice;

use aya_ebpf::bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP};

use reqtrace_common::limits::{MAX_SLOTS, RING_BYTES};
use reqtrace_common::loss::Loss;
use reqtrace_common::record::{FileRecord, ProcessRecord, RequestRecord, Slot, kind};

use crate::maps::{RING, lose};

/// User space looks at the ring every few milliseconds; it is woken only when a quarter is full,
/// so that a busy server is not slowed down by one wakeup per request.
#[inline(always)]
fn wakeup() -> u64 {
    if RING.query(u64::from(BPF_RB_AVAIL_DATA)) > u64::from(RING_BYTES / 4) {
        u64::from(BPF_RB_FORCE_WAKEUP)
    } else {
        u64::from(BPF_RB_NO_WAKEUP)
    }
}

/// Sends a closed request: the used slots, or all of it when it has a label.
#[inline(always)]
pub(crate) fn request(record: &RequestRecord) {
    let mut used = record.slots_used as usize;
    if used > MAX_SLOTS {
        used = MAX_SLOTS;
    }
    let len = if record.label_len == 0 {
        offset_of!(RequestRecord, slots) + used * size_of::<Slot>()
    } else {
        size_of::<RequestRecord>()
    };
    // SAFETY: the record is in a map and at least this long.
    let bytes = unsafe { slice::from_raw_parts((&raw const *record).cast::<u8>(), len) };
    if RING.output::<[u8]>(bytes, wakeup()).is_err() {
        lose(Loss::RingFull);
    }
}

/// Sends news of a process at once: its memory maps must be read before they change.
#[inline(always)]
pub(crate) fn process(record: &ProcessRecord) {
    if RING
        .output::<ProcessRecord>(record, u64::from(BPF_RB_FORCE_WAKEUP))
        .is_err()
    {
        lose(Loss::ProcessNotice);
    }
}

/// Asks user space to find out what a descriptor is.
#[inline(always)]
pub(crate) fn file(tgid: u32, exec_generation: u32, fd: i32) {
    let record = FileRecord {
        kind: kind::FILE,
        tgid,
        exec_generation,
        fd,
    };
    if RING
        .output::<FileRecord>(&record, u64::from(BPF_RB_FORCE_WAKEUP))
        .is_err()
    {
        lose(Loss::FileNotice);
    }
}
