//! What block devices do, with blame: I/O that is queued, issued and complete in; a record of each that a watched thread
//! queued, and sums of all other by process out.
//!
//! A `bio` is known from when a request is taken for it, by the thread that queues it, until that request is complete. Who waits for I/O
//! that a limit holds back has none yet, and neither has who waits for pages that another thread writes.

use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::helpers::generated::{bpf_get_current_comm, bpf_ktime_get_ns};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, LruHashMap};
use aya_ebpf::programs::BtfTracePointContext;
use reqtrace_common::config::tid_flag as flag;
use reqtrace_common::disk::{
    DiskRecord, MAX_DISK_USERS, MAX_OPEN_IO, OPEN_IO_WAYS, OpenIo, SUMMED_NS, first_place,
};
use reqtrace_common::limits::COMM_LEN;
use reqtrace_common::loss::Loss;
use reqtrace_common::record::kind;

use crate::assembly::{add, compare_exchange, distance};
use crate::before::{Object, field};
use crate::blame;
use crate::emit;
use crate::globals::{
    BDEV_DISK, BIO_DEVICE, BIO_OPERATION, DISK_MAJOR, DISK_MINOR, DISK_NAME, REQUEST_BIO,
};
use crate::maps::{RING, Tids, lose, stopped};
use crate::task;

/// I/O on its way, near the place that its `bio` has. No hash map of the kernel's: to insert into one that forgets takes longer than
/// all else here.
#[map]
static OPEN_IO: Array<OpenIo> = Array::with_max_entries(MAX_OPEN_IO, 0);

/// Sums by device and process; user space takes what is left at the end.
#[map]
static DISK_USERS: LruHashMap<u64, DiskRecord> = LruHashMap::with_max_entries(MAX_DISK_USERS, 0);

/// Where a new entry of [`DISK_USERS`] is copied from.
static NEW_USER: DiskRecord = DiskRecord {
    kind: kind::DISK,
    device: 0,
    tgid: 0,
    tid: 0,
    from_ns: 0,
    issued_ns: 0,
    until_ns: 0,
    read_bytes: 0,
    written_bytes: 0,
    count: 0,
    flushes: 0,
    is_sum: 1,
    is_kernel: 0,
    comm: [0; COMM_LEN],
    disk: [0; COMM_LEN],
};

/// The kernel's numbers of operations, and of the flag for a flush before it (`blk_types.h`).
const OPERATION: u32 = 0xff;
const FLUSH: u32 = 2;
const PREFLUSH: u32 = 1 << 18;
const FUA: u32 = 1 << 17;
/// A mark of our own: it was complete once.
const DONE: u32 = 1 << 31;

/// [`OpenIo::bio`] of a place that is free, and of one that is being filled.
const FREE: u64 = 0;
const FILLED: u64 = 1;

/// `block_getrq(bio)`: in the thread that queues it.
#[inline(always)]
pub(crate) fn queued(ctx: &BtfTracePointContext) -> i32 {
    let bio: Object = ctx.arg(0);
    if stopped() {
        return 0;
    }
    let number = number(bio);
    let Some(open) = claim(number) else {
        return 0;
    };
    let (tgid, tid) = task::current_ids();
    let byte = Tids::table().map_or(flag::NONE, |tids| tids.get(tid));
    // SAFETY: the place is this program's; the helper writes at most the size it is given, and the other has no precondition.
    unsafe {
        look(bio, open);
        (*open).tgid = tgid;
        (*open).tid = tid;
        (*open).is_watched = u32::from(byte == flag::IN_REQUEST || blame::is_followed(byte));
        (*open).is_kernel = u32::from(task::is_kernel_thread());
        bpf_get_current_comm((&raw mut (*open).comm).cast(), COMM_LEN as u32);
        (*open).queued_ns = bpf_ktime_get_ns();
        filled(open, number);
    }
    0
}

/// The number of a `bio`: how far it is from these places.
#[inline(always)]
fn number(bio: Object) -> u64 {
    OPEN_IO
        .get_ptr(0)
        .map_or(FREE, |first| distance(bio.cast(), first.cast()))
}

/// What is known of a `bio` that is on its way.
#[inline(always)]
fn find(number: u64) -> Option<*mut OpenIo> {
    let first = first_place(number);
    for way in 0..OPEN_IO_WAYS {
        let open = OPEN_IO.get_ptr_mut(first + way)?;
        // SAFETY: points into the map.
        if unsafe { (&raw const (*open).bio).read_volatile() } == number {
            return Some(open);
        }
    }
    None
}

/// A place for a `bio`, to be filled: its own, if the end of another one at its address went unseen; a free one; or that of
/// what was queued longest ago. `None`: another CPU was quicker, and of this I/O nobody is known.
#[inline(always)]
fn claim(number: u64) -> Option<*mut OpenIo> {
    let first = first_place(number);
    let (mut place, mut since_ns, mut holds) = (first, u64::MAX, FILLED);
    for way in 0..OPEN_IO_WAYS {
        let open = OPEN_IO.get_ptr(first + way)?;
        // SAFETY: points into the map.
        let its_bio = unsafe { (&raw const (*open).bio).read_volatile() };
        if its_bio == number || its_bio == FREE {
            (place, holds) = (first + way, its_bio);
            break;
        }
        // SAFETY: as above.
        let its_ns = unsafe { (&raw const (*open).queued_ns).read_volatile() };
        if its_bio != FILLED && its_ns < since_ns {
            (place, since_ns, holds) = (first + way, its_ns, its_bio);
        }
    }
    let open = OPEN_IO.get_ptr_mut(place)?;
    // SAFETY: points to an aligned number in the map.
    let found = unsafe { compare_exchange(&raw mut (*open).bio, holds, FILLED) };
    (holds != FILLED && found == holds).then_some(open)
}

/// What was claimed has all it needs.
#[inline(always)]
unsafe fn filled(open: *mut OpenIo, number: u64) {
    // SAFETY: by the caller.
    unsafe { (&raw mut (*open).bio).write_volatile(number) }
}

/// Writes what the kernel knows of it.
#[inline(always)]
unsafe fn look(bio: Object, open: *mut OpenIo) {
    // SAFETY: by the caller; loads of fields from BTF pointers, of which a fault yields 0.
    unsafe {
        let device: Object = field(bio, &BIO_DEVICE);
        let disk: Object = field(device, &BDEV_DISK);
        let (major, minor): (u32, u32) = (field(disk, &DISK_MAJOR), field(disk, &DISK_MINOR));
        (*open).operation = field(bio, &BIO_OPERATION);
        (*open).device = major << 20 | minor & 0xf_ffff;
        (*open).issued_ns = 0;
        let name = (&raw mut (*open).disk).cast::<u64>();
        name.write_unaligned(field(disk, &DISK_NAME));
        name.add(1)
            .write_unaligned(field(disk.wrapping_add(8), &DISK_NAME));
    }
}

const _: () = assert!(COMM_LEN == 16, "it is copied as two words");

/// `block_rq_issue(rq)`: the device gets it.
#[inline(always)]
pub(crate) fn issued(ctx: &BtfTracePointContext) -> i32 {
    let request: Object = ctx.arg(0);
    // SAFETY: a load of a field from a BTF pointer.
    let bio: Object = unsafe { field(request, &REQUEST_BIO) };
    if let Some(open) = find(number(bio)) {
        // SAFETY: points into the map; the request is at one place at a time.
        unsafe { (*open).issued_ns = bpf_ktime_get_ns() }
    }
    0
}

/// `block_rq_complete(rq, error, nr_bytes)`.
#[inline(always)]
pub(crate) fn complete(ctx: &BtfTracePointContext) -> i32 {
    let (request, bytes): (Object, u32) = (ctx.arg(0), ctx.arg(2));
    // SAFETY: a load of a field from a BTF pointer.
    let bio: Object = unsafe { field(request, &REQUEST_BIO) };
    // A request of the kernel's own for a flush has none; those whom it is for are complete by themselves.
    if bio.is_null() || stopped() {
        return 0;
    }
    let Some(open) = find(number(bio)).or_else(|| unknown(bio)) else {
        lose(Loss::DiskRingFull);
        return 0;
    };
    // SAFETY: no precondition; points into the map, and the request is complete once.
    unsafe {
        let now = bpf_ktime_get_ns();
        let is_first = (*open).operation & DONE == 0;
        if (*open).is_watched != 0 {
            // Its bytes were there the first time.
            let bytes = if is_first { u64::from(bytes) } else { 0 };
            send(|record| alone(record, open, bytes, now));
        } else if is_first {
            sum(open, u64::from(bytes), now);
        }
        // A write with a flush is complete twice where the device needs a flush after it: then who waits for it goes on.
        if is_first && (*open).operation & (PREFLUSH | FUA) != 0 {
            (*open).operation |= DONE;
            (*open).queued_ns = now;
            (*open).issued_ns = 0;
        } else {
            (&raw mut (*open).bio).write_volatile(FREE);
        }
    }
    0
}

/// I/O that was on its way when tracing began, or has another first `bio` by now.
#[inline(always)]
fn unknown(bio: Object) -> Option<*mut OpenIo> {
    let number = number(bio);
    let open = claim(number)?;
    // SAFETY: the place is this program's.
    unsafe {
        (*open).tgid = 0;
        (*open).tid = 0;
        (*open).is_watched = 0;
        (*open).is_kernel = 0;
        (*open).comm = [0; COMM_LEN];
        (*open).queued_ns = 0;
        look(bio, open);
        filled(open, number);
    }
    Some(open)
}

/// Sends a record, which is written into the ring at once: there is no stack to spare.
#[inline(always)]
fn send(fill: impl FnOnce(*mut DiskRecord)) {
    let Some(mut entry) = RING.reserve::<DiskRecord>(0) else {
        return lose(Loss::DiskRingFull);
    };
    fill(entry.as_mut_ptr());
    entry.submit(emit::wakeup());
}

/// One I/O.
#[inline(always)]
unsafe fn alone(record: *mut DiskRecord, open: *const OpenIo, bytes: u64, now: u64) {
    // SAFETY: by the caller.
    unsafe {
        named(record, open);
        (*record).from_ns = (*open).queued_ns;
        (*record).issued_ns = (*open).issued_ns;
        (*record).until_ns = now;
        let is_write = is_write(open);
        (*record).read_bytes = if is_write { 0 } else { bytes };
        (*record).written_bytes = if is_write { bytes } else { 0 };
        let is_first = (*open).operation & DONE == 0;
        (*record).count = u64::from(is_first);
        (*record).flushes = if is_first { flushes(open) } else { 0 };
        (*record).is_sum = 0;
    }
}

#[inline(always)]
unsafe fn named(record: *mut DiskRecord, open: *const OpenIo) {
    // SAFETY: by the caller.
    unsafe {
        (*record).kind = kind::DISK;
        (*record).device = (*open).device;
        (*record).tgid = (*open).tgid;
        (*record).tid = (*open).tid;
        (*record).is_kernel = (*open).is_kernel;
        (*record).comm = (*open).comm;
        (*record).disk = (*open).disk;
    }
}

#[inline(always)]
unsafe fn is_write(open: *const OpenIo) -> bool {
    // SAFETY: by the caller.
    unsafe { (*open).operation & 1 != 0 }
}

#[inline(always)]
unsafe fn flushes(open: *const OpenIo) -> u64 {
    // SAFETY: by the caller.
    let operation = unsafe { (*open).operation };
    u64::from(operation & PREFLUSH != 0 || operation & OPERATION == FLUSH)
}

/// Adds I/O to that of its process, which is sent when it has been added up for long.
#[inline(always)]
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "by value it would be copied to the stack, which has 512 bytes"
)]
unsafe fn sum(open: *const OpenIo, bytes: u64, now: u64) {
    // SAFETY: by the caller.
    let key = unsafe { u64::from((*open).device) << 32 | u64::from((*open).tgid) };
    if DISK_USERS.get_ptr(key).is_none()
        && DISK_USERS
            .insert(key, &NEW_USER, BPF_NOEXIST.into())
            .is_ok()
        && let Some(user) = DISK_USERS.get_ptr_mut(key)
    {
        // SAFETY: points into the map, and only who made the entry does this.
        unsafe { named(user, open) }
    }
    let Some(user) = DISK_USERS.get_ptr_mut(key) else {
        return;
    };
    // SAFETY: points into the map. Who changes the begin of a sum is the one who sends it; others may add meanwhile, so
    // what is sent is taken away again.
    unsafe {
        // One that was sent begins with what comes next.
        if (&raw const (*user).count).read_volatile() == 0 {
            (&raw mut (*user).from_ns).write_volatile(now);
        }
        let into = if is_write(open) {
            &raw mut (*user).written_bytes
        } else {
            &raw mut (*user).read_bytes
        };
        add(into, bytes);
        add(&raw mut (*user).count, 1);
        add(&raw mut (*user).flushes, flushes(open));
        (&raw mut (*user).until_ns).write_volatile(now);
        let from_ns = (&raw const (*user).from_ns).read_volatile();
        if now < from_ns
            || now - from_ns < SUMMED_NS
            || compare_exchange(&raw mut (*user).from_ns, from_ns, now) != from_ns
        {
            return;
        }
        send(|record| {
            named(record, open);
            (*record).from_ns = from_ns;
            (*record).issued_ns = 0;
            (*record).until_ns = now;
            (*record).is_sum = 1;
            (*record).read_bytes = take(&raw mut (*user).read_bytes);
            (*record).written_bytes = take(&raw mut (*user).written_bytes);
            (*record).count = take(&raw mut (*user).count);
            (*record).flushes = take(&raw mut (*user).flushes);
        });
    }
}

/// What a number has, which is taken away from it.
#[inline(always)]
unsafe fn take(number: *mut u64) -> u64 {
    // SAFETY: by the caller: points to a number in a map.
    unsafe {
        let taken = number.read_volatile();
        add(number, taken.wrapping_neg());
        taken
    }
}
