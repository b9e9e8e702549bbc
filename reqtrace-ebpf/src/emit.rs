//! Records for user space: sent, or counted as lost.

use core::mem::{offset_of, size_of};
use core::slice;

use aya_ebpf::bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP};

use reqtrace_common::cpu::CpuWaitRecord;
use reqtrace_common::keyed::{By, Job};
use reqtrace_common::limits::{MAX_LONGEST, MAX_PATH, MAX_SLOTS, RING_BYTES};
use reqtrace_common::loss::Loss;
use reqtrace_common::record::{
    AwayRecord, ExtraRecord, FileRecord, HelperRecord, IntervalRecord, LastRun, LongBlock,
    MAX_PARKS, OriginRecord, ParkSlot, ProcessRecord, RequestRecord, STACK_NONE, SampleRecord,
    Slot, kind, waker_is,
};

use crate::cpu;
use crate::maps::{RING, lose};
use crate::totals;

/// User space reads the ring every 50 to 200 ms; it is woken only when a quarter is full,
/// so that a busy server is not slowed down by one wakeup per request.
#[inline(always)]
pub(crate) fn wakeup() -> u64 {
    if RING.query(u64::from(BPF_RB_AVAIL_DATA)) > u64::from(RING_BYTES / 4) {
        u64::from(BPF_RB_FORCE_WAKEUP)
    } else {
        u64::from(BPF_RB_NO_WAKEUP)
    }
}

/// The same for a record that came to be then. How full the ring is is asked once in some 16 times: it has room for tens of thousands.
#[inline(always)]
fn wakeup_now_and_then(at_ns: u64) -> u64 {
    if (at_ns >> 6) & 15 == 0 {
        wakeup()
    } else {
        u64::from(BPF_RB_NO_WAKEUP)
    }
}

/// Sends a closed request, as far as it is used: most block nowhere, so a short record is the rule.
#[inline(always)]
pub(crate) fn request(record: &RequestRecord) {
    let slots = at_most(record.slots_used, MAX_SLOTS);
    let longest = at_most(record.longest_used, MAX_LONGEST);
    let len = if record.label_len != 0 {
        size_of::<RequestRecord>()
    } else if slots != 0 {
        offset_of!(RequestRecord, slots) + slots * size_of::<Slot>()
    } else {
        offset_of!(RequestRecord, longest) + longest * size_of::<LongBlock>()
    };
    // SAFETY: the record is in a map and at least this long.
    let bytes = unsafe { slice::from_raw_parts((&raw const *record).cast::<u8>(), len) };
    match RING.output::<[u8]>(bytes, wakeup_now_and_then(record.end_ns)) {
        Ok(()) => totals::sent(record),
        Err(_) => lose(Loss::RingFull),
    }
}

/// Sends that a request was there which is not recorded. One that is lost is known by its intervals, if it has any, and counted
/// as one of those.
#[inline(always)]
pub(crate) fn unrecorded(record: &RequestRecord) {
    let len = offset_of!(RequestRecord, longest);
    // SAFETY: the record is in a map and at least this long.
    let bytes = unsafe { slice::from_raw_parts((&raw const *record).cast::<u8>(), len) };
    if RING
        .output::<[u8]>(bytes, wakeup_now_and_then(record.end_ns))
        .is_err()
    {
        lose(Loss::IntervalRingFull);
    }
}

/// Sends what a request has beside its record, before that; whether there was room.
#[inline(always)]
pub(crate) fn extra(record: &ExtraRecord) -> bool {
    let parks = at_most(record.parks_used, MAX_PARKS);
    let len = offset_of!(ExtraRecord, parks) + parks * size_of::<ParkSlot>();
    // SAFETY: the record is in a map and at least this long.
    let bytes = unsafe { slice::from_raw_parts((&raw const *record).cast::<u8>(), len) };
    let sent = RING
        .output::<[u8]>(bytes, u64::from(BPF_RB_NO_WAKEUP))
        .is_ok();
    // Of one that is not sent only texts stay behind.
    if !sent && record.is_withheld != 0 {
        lose(Loss::TextRingFull);
    }
    sent
}

/// Sends where a request was while no thread ran it. It is written into the ring at once: markers have no
/// stack to spare.
#[inline(always)]
pub(crate) fn away(by: &By, fill: impl FnOnce(&mut AwayRecord)) {
    let Some(mut entry) = RING.reserve::<AwayRecord>(0) else {
        return lose(Loss::IntervalRingFull);
    };
    // SAFETY: any bytes are a record, and all of its fields are written before it is submitted.
    let record = unsafe { &mut *entry.as_mut_ptr() };
    record.kind = kind::AWAY;
    record.by_tid = by.tid;
    record.by_is = waker_is::UNKNOWN;
    record.by_request_type = 0;
    record.by_begin_ns = by.begin_ns;
    record.is_ready = 0;
    record.goes_on = u32::from(by.is_own);
    record.job = Job::NONE;
    record.by_stack = STACK_NONE;
    record.ran = LastRun::NONE;
    if by.is_in_request {
        record.by_is = waker_is::IN_REQUEST;
        record.by_request_type = by.request_type;
    } else if by.begin_ns != 0 {
        record.by_is = waker_is::HELPER;
    }
    fill(record);
    entry.submit(wakeup());
}

/// Sends what a parked request went on with; written into the ring at once too.
#[inline(always)]
pub(crate) fn origin(record: OriginRecord) {
    let Some(mut entry) = RING.reserve::<OriginRecord>(0) else {
        return lose(Loss::IntervalRingFull);
    };
    entry.write(record);
    entry.submit(wakeup());
}

/// Sends an interval. One that is lost shows by its number.
#[inline(always)]
pub(crate) fn interval(record: &IntervalRecord) {
    if RING
        .output::<IntervalRecord>(record, wakeup_now_and_then(record.in_ns))
        .is_err()
    {
        lose(Loss::IntervalRingFull);
    }
}

/// Sends who had a CPU that a thread waited for. Without it that is not known.
#[inline(always)]
pub(crate) fn cpu_wait(record: &CpuWaitRecord) {
    let wakeup = wakeup_now_and_then(record.until_ns);
    if RING.output::<[u8]>(cpu::used(record), wakeup).is_err() {
        lose(Loss::CpuWaitRingFull);
    }
}

/// Sends a sample.
#[inline(always)]
pub(crate) fn sample(record: &SampleRecord) {
    if RING.output::<SampleRecord>(record, wakeup()).is_err() {
        lose(Loss::SampleRingFull);
    }
}

/// Sends the name of a helper. Without it, it has that of its process.
#[inline(always)]
pub(crate) fn helper(record: &HelperRecord) {
    if RING.output::<HelperRecord>(record, wakeup()).is_err() {
        lose(Loss::IntervalRingFull);
    }
}

#[inline(always)]
fn at_most(value: u32, limit: usize) -> usize {
    let value = value as usize;
    if value > limit { limit } else { value }
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

/// Sends the name of a file, as far as it is used; whether there was room.
#[inline(always)]
pub(crate) fn file(record: &FileRecord) -> bool {
    let flags = wakeup();
    // SAFETY: a field of a map's value. Read last: kernel 6.1 forgets the bounds of a number that was kept on the stack.
    let used = unsafe { (&raw const record.len).read_volatile() };
    let len = offset_of!(FileRecord, names) + at_most(used, MAX_PATH);
    // SAFETY: the record is in a map and at least this long.
    let bytes = unsafe { slice::from_raw_parts((&raw const *record).cast::<u8>(), len) };
    let sent = RING.output::<[u8]>(bytes, flags).is_ok();
    if !sent {
        lose(Loss::FileNotice);
    }
    sent
}
