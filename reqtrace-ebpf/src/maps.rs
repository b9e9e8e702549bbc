//! All maps, and the few ways in which they are touched.

use aya_ebpf::bindings::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC, BPF_NOEXIST};
use aya_ebpf::helpers::generated::{bpf_get_prandom_u32, bpf_get_smp_processor_id, bpf_jiffies64};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf};
use reqtrace_common::config::{Control, Filled, Process, tid_flag as flag};
use reqtrace_common::filter::LengthHistogram;
use reqtrace_common::futex::RWLOCK_WORDS;
use reqtrace_common::keyed::{KEY_COUNTERS, KeyEntry, KeyId, key_counter};
use reqtrace_common::label::LabelPlan;
use reqtrace_common::limits::{
    MAX_ADDRESS_SPACES, MAX_FILES, MAX_PROCESSES, MAX_REQUEST_TYPES, MAX_SAMPLE_EVERY,
    MAX_STACK_SUMS, MAX_STACKS, MAX_THREADS, MAX_WATCHED_PROGRAMS, RING_BYTES, TID_TABLE_SIZE,
};
use reqtrace_common::loss::Loss;
use reqtrace_common::marker::{AttributePlan, BriefPlan, MarkerCounts, MarkerHits, MarkerPlan};
use reqtrace_common::origin::{LATELY_PARKED, ParkedCount};
use reqtrace_common::record::{FileId, IntervalRecord, StackId};
use reqtrace_common::sums::{
    SECONDS, SentSums, StackSum, StackSumKey, StoredStack, TypeTotals, WalkTotals,
};
use reqtrace_common::thread::{RequestState, Thread};
use reqtrace_common::unwind::{BLOCK, Mappings, Row};

use crate::assembly::{add, add_word, compare_exchange};
use crate::file::{FileScratch, Known};
use crate::globals::CPUS;
use crate::origin;
use crate::unwind::Walker;

/// One byte per thread id: the first and for most switches the only look. User space maps it, to take a process out.
#[map]
static TIDS: Array<[u8; TID_TABLE_SIZE]> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// State per thread that has been in a request.
#[map]
pub(crate) static THREADS: HashMap<u32, Thread> = HashMap::with_max_entries(MAX_THREADS, 0);

/// Traced processes by tgid.
#[map]
pub(crate) static PROCESSES: HashMap<u32, Process> = HashMap::with_max_entries(MAX_PROCESSES, 0);

/// Programs whose processes are traced whoever starts them: the inode number of each, and the bits of
/// [`follow`](reqtrace_common::config::follow) that its processes get. Two files may have one number: user
/// space looks at the device.
#[map]
pub(crate) static WATCHED: HashMap<u64, u32> = HashMap::with_max_entries(MAX_WATCHED_PROGRAMS, 0);

/// Totals per request type and CPU, so that CPUs do not fight for a cache line. A marker's program
/// can be preempted by that of another thread on the same CPU: changes are atomic all the same.
#[map]
pub(crate) static TOTALS: PerCpuArray<TypeTotals> =
    PerCpuArray::with_max_entries(MAX_REQUEST_TYPES as u32, 0);

/// What was sent, by the second of the end modulo [`SECONDS`].
#[map]
pub(crate) static SENT: PerCpuArray<SentSums> = PerCpuArray::with_max_entries(SECONDS, 0);

/// Sums per stack pair, of two windows; see [`window`].
#[map]
pub(crate) static STACK_SUMS: HashMap<StackSumKey, StackSum> =
    HashMap::with_max_entries(MAX_STACK_SUMS, 0);

/// Files that were blocked on lately.
#[map]
pub(crate) static FILES: LruHashMap<FileId, Known> = LruHashMap::with_max_entries(MAX_FILES, 0);

/// Where an interval is put together. Only `sched_switch` uses it: interrupts are off there and it does not
/// nest.
#[map]
pub(crate) static INTERVAL: PerCpuArray<IntervalRecord> = PerCpuArray::with_max_entries(1, 0);

/// Where the words of a lock are read. Only `sched_switch` uses it.
#[map]
pub(crate) static FUTEX_SCRATCH: PerCpuArray<[u32; RWLOCK_WORDS]> =
    PerCpuArray::with_max_entries(1, 0);

/// Where the name of a file is put together. Only `sched_switch` uses it: interrupts are off there
/// and it does not nest.
#[map]
pub(crate) static FILE_SCRATCH: PerCpuArray<FileScratch> = PerCpuArray::with_max_entries(1, 0);

/// Lengths of intervals per stack pair, of two windows; sized by user space before loading, when they are wanted.
#[map]
pub(crate) static HISTOGRAMS: HashMap<StackSumKey, LengthHistogram> =
    HashMap::with_max_entries(1, 0);

/// Stacks by id, of two windows; see [`window`].
#[map]
pub(crate) static STACKS: HashMap<StackId, StoredStack> = HashMap::with_max_entries(MAX_STACKS, 0);

/// What walking user stacks took. Only `sched_switch` counts here, with interrupts off.
#[map]
pub(crate) static WALKS: PerCpuArray<WalkTotals> = PerCpuArray::with_max_entries(1, 0);

/// Where a stack is read into, one entry for each [`walk_of`].
#[map]
pub(crate) static STACK_SCRATCH: PerCpuArray<StoredStack> =
    PerCpuArray::with_max_entries(walk_of::COUNT, 0);

/// The walk under way, and a piece of the stack that it goes up, one entry for each [`walk_of`].
#[map]
pub(crate) static WALKER: PerCpuArray<Walker> = PerCpuArray::with_max_entries(walk_of::COUNT, 0);

/// Whose walk it is. The two may be under way on one CPU at the same time: samples that are taken by
/// hardware come as NMIs, which nothing holds up.
pub(crate) mod walk_of {
    /// The scheduler's programs: interrupts are off there, and they do not nest.
    pub(crate) const SCHEDULER: u32 = 0;
    /// The program that takes samples, which does not nest either.
    pub(crate) const SAMPLER: u32 = 1;
    /// How many there are.
    pub(super) const COUNT: u32 = 2;
}

/// Executable mappings per address space; filled by user space. Not preallocated: an entry is
/// 8 KiB, and most traces have a few.
#[map]
pub(crate) static MAPPINGS: HashMap<u64, Mappings> =
    HashMap::with_max_entries(MAX_ADDRESS_SPACES, BPF_F_NO_PREALLOC);

/// Unwind rows of all objects, in blocks; sized by user space before loading.
#[map]
pub(crate) static UNWIND_ROWS: Array<[Row; BLOCK]> = Array::with_max_entries(1, 0);

/// Chunk indices of all objects, in blocks; sized by user space before loading.
#[map]
pub(crate) static UNWIND_INDEX: Array<[u32; BLOCK]> = Array::with_max_entries(1, 0);

/// Where `sched_waking` turns the address of its context into a number; interrupts are off there.
#[map]
pub(crate) static FRAME_SCRATCH: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// How labels are read, by the index in a begin's cookie; sized by user space before loading.
#[map]
pub(crate) static LABEL_PLANS: Array<LabelPlan> = Array::with_max_entries(1, 0);

/// Plans of markers, by the index in a probe's cookie; sized by user space before loading.
#[map]
pub(crate) static MARKER_PLANS: Array<MarkerPlan> = Array::with_max_entries(1, 0);

/// The same in brief, by the same index.
#[map]
pub(crate) static BRIEF_PLANS: Array<BriefPlan> = Array::with_max_entries(1, 0);

/// What is counted of each of [`MARKER_PLANS`], by CPU: see [`of_this_cpu`]; sized by user space before loading. Programs on one
/// CPU can preempt each other: additions are atomic all the same.
#[map]
pub(crate) static MARKER_COUNTS: Array<MarkerCounts> = Array::with_max_entries(1, 0);

/// The same of how often each was hit.
#[map]
pub(crate) static MARKER_HITS: Array<MarkerHits> = Array::with_max_entries(1, 0);

/// Plans of attributes, by the index in a marker's plan; sized by user space before loading.
#[map]
pub(crate) static ATTRIBUTE_PLANS: Array<AttributePlan> = Array::with_max_entries(1, 0);

/// Where the request of each key is; sized by user space before loading, when there are keys.
#[map]
pub(crate) static KEYS: HashMap<KeyId, KeyEntry> = HashMap::with_max_entries(1, 0);

/// How many of [`KEYS`] have this [`key_counter`], and more while one comes or goes. User space maps it, as it takes keys out
/// too.
#[map]
static KEY_COUNTS: Array<[u32; KEY_COUNTERS]> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// Requests that no thread runs, by their tickets. Not preallocated: there are few most of the time.
#[map]
pub(crate) static PARKED: HashMap<u64, RequestState> =
    HashMap::with_max_entries(1, BPF_F_NO_PREALLOC);

/// How many of these there are, and more while one comes or goes; and when the last one came that used sockets. User space maps it, as it takes some out too. Only with blame of
/// requests with a key.
#[map]
static PARKED_COUNT: Array<ParkedCount> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// The next ticket: see [`reqtrace_common::keyed::Word`].
#[map]
pub(crate) static TICKET: Array<u64> = Array::with_max_entries(1, 0);

/// Records for user space.
#[map]
pub(crate) static RING: RingBuf = RingBuf::with_byte_size(RING_BYTES, 0);

/// Counters of [`Loss`].
#[map]
static LOSSES: Array<u64> = Array::with_max_entries(Loss::ALL.len() as u32, 0);

/// How many entries were made in the tables that user space empties.
#[map]
static FILLED: Array<Filled> = Array::with_max_entries(1, 0);

/// What user space says while tracing.
#[map]
static CONTROL: Array<Control> = Array::with_max_entries(1, 0);

/// Where a new entry of [`THREADS`] is copied from: it is larger than the BPF stack.
static NEW_THREAD: Thread = Thread::ZERO;

/// Makes the entry of a thread.
#[inline(always)]
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "by value it would be copied to the stack, which has 512 bytes"
)]
pub(crate) fn insert_new(tid: u32, flags: u64) -> Result<(), i32> {
    THREADS.insert(tid, &NEW_THREAD, flags)
}

/// The entry of a thread, made if there is none.
#[inline(always)]
pub(crate) fn thread_or_new(tid: u32) -> Option<*mut Thread> {
    if let Some(state) = THREADS.get_ptr_mut(tid) {
        return Some(state);
    }
    match insert_new(tid, 0) {
        Ok(()) => {}
        Err(E2BIG) => {
            lose(Loss::ThreadTableFull);
            return None;
        }
        Err(_) => {
            lose(Loss::ThreadInsert);
            return None;
        }
    }
    THREADS.get_ptr_mut(tid)
}

/// Where the current CPU's entry is, of a table that has one by index and CPU. A table of the kernel's with one for each CPU takes a
/// line of the cache more, for a pointer, and its entries begin anywhere in a line.
#[inline(always)]
pub(crate) fn of_this_cpu(index: u32) -> u32 {
    // SAFETY: no precondition.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    index.wrapping_mul(CPUS.load()).wrapping_add(cpu)
}

/// The counter of keys with this first part.
#[inline(always)]
fn key_count(key: u64) -> Option<*mut u32> {
    let counts = KEY_COUNTS.get_ptr_mut(0)?.cast::<u32>();
    // SAFETY: the mask keeps the index below KEY_COUNTERS, a power of two.
    Some(unsafe { counts.add(key_counter(key) & (KEY_COUNTERS - 1)) })
}

/// Whether a request may have a key with this first part. If not, none has.
#[inline(always)]
pub(crate) fn may_have_key(key: u64) -> bool {
    // SAFETY: points into the map.
    key_count(key).is_none_or(|count| unsafe { count.read_volatile() } != 0)
}

/// Makes the entry of a key. It is counted before it is there.
#[inline(always)]
pub(crate) fn insert_key(id: &KeyId, entry: &KeyEntry) -> Result<(), i32> {
    let key = id.key[0];
    count_key(key, 1);
    let inserted = KEYS.insert(id, entry, u64::from(BPF_NOEXIST));
    if inserted.is_err() {
        count_key(key, u32::MAX);
    }
    inserted
}

/// Takes the entry of a key out. It is counted until it is gone.
#[inline(always)]
pub(crate) fn remove_key(id: &KeyId) {
    // Read before: where it lies in the entry itself, that is another key's at once.
    // SAFETY: the reference is valid.
    let key = unsafe { (&raw const id.key[0]).read_volatile() };
    if KEYS.remove(id).is_ok() {
        count_key(key, u32::MAX);
    }
}

#[inline(always)]
fn count_key(key: u64, by: u32) {
    if let Some(count) = key_count(key) {
        // SAFETY: points into the map.
        unsafe { add_word(count, by) }
    }
}

/// Stores a request that no thread runs. It is counted before it is there.
#[inline(always)]
pub(crate) fn insert_parked(ticket: u64, request: &RequestState) -> bool {
    count_parked(1);
    parks(request);
    let is_stored = PARKED
        .insert(ticket, request, u64::from(BPF_NOEXIST))
        .is_ok();
    if !is_stored {
        count_parked(u32::MAX);
    }
    is_stored
}

/// Takes it out. It is counted until it is gone.
#[inline(always)]
pub(crate) fn remove_parked(ticket: u64) {
    if PARKED.remove(ticket).is_ok() {
        count_parked(u32::MAX);
    }
}

#[inline(always)]
pub(crate) fn count_parked(by: u32) {
    if origin::wanted()
        && let Some(parked) = PARKED_COUNT.get_ptr_mut(0)
    {
        // SAFETY: points into the map.
        unsafe { add_word(&raw mut (*parked).count, by) }
    }
}

/// A request is parked: one that uses sockets may wait for what comes to them, and so may others.
#[inline(always)]
pub(crate) fn parks(request: &RequestState) {
    if origin::wanted()
        && request.keyed.used_count != 0
        && let Some(parked) = PARKED_COUNT.get_ptr_mut(0)
    {
        // SAFETY: points into the map; of two at once either's time will do. Helper without precondition.
        unsafe { (&raw mut (*parked).at).write_volatile(bpf_jiffies64()) };
    }
}

/// Whether any request is parked that is recorded.
#[inline(always)]
pub(crate) fn is_any_parked() -> bool {
    // SAFETY: points into the map.
    PARKED_COUNT
        .get_ptr(0)
        .is_none_or(|parked| unsafe { (&raw const (*parked).count).read_volatile() } != 0)
}

/// Whether any is, or one that used sockets was a while ago.
#[inline(always)]
pub(crate) fn was_any_parked() -> bool {
    // SAFETY: as above; helper without precondition.
    PARKED_COUNT.get_ptr(0).is_none_or(|parked| unsafe {
        (&raw const (*parked).count).read_volatile() != 0
            || bpf_jiffies64().wrapping_sub((&raw const (*parked).at).read_volatile())
                < LATELY_PARKED
    })
}

/// `E2BIG`: what a full hash map answers.
pub(crate) const E2BIG: i32 = -7;

/// How often a byte is tried to be changed while its neighbours change.
const TRIES: usize = 8;

/// The table of one byte per thread, looked up once per program.
#[derive(Clone, Copy)]
pub(crate) struct Tids(*mut u8);

impl Tids {
    /// `None` never happens: the array has one entry.
    #[inline(always)]
    pub(crate) fn table() -> Option<Self> {
        Some(Self(TIDS.get_ptr_mut(0)?.cast()))
    }

    /// The value of a thread's byte.
    #[inline(always)]
    pub(crate) fn get(self, tid: u32) -> u8 {
        // SAFETY: the mask keeps the index below TID_TABLE_SIZE, a power of two.
        unsafe {
            self.0
                .add(tid as usize & (TID_TABLE_SIZE - 1))
                .read_volatile()
        }
    }

    /// Sets a thread's byte if it is this one, which the thread itself may change meanwhile. Whether it was set.
    #[inline(always)]
    pub(crate) fn replace(self, tid: u32, from: u8, to: u8) -> bool {
        let at = tid as usize & (TID_TABLE_SIZE - 1);
        let shift = (at as u32 & 7) * 8;
        // SAFETY: as above; eight bytes that are aligned to eight.
        let word = unsafe { self.0.add(at & !7).cast::<u64>() };
        for _ in 0..TRIES {
            // SAFETY: as above.
            let found = unsafe { word.read_volatile() };
            if (found >> shift) as u8 != from {
                return false;
            }
            let new = found & !(0xff << shift) | u64::from(to) << shift;
            // SAFETY: as above.
            if unsafe { compare_exchange(word, found, new) } == found {
                return true;
            }
        }
        false
    }

    /// Sets a thread's byte.
    #[inline(always)]
    pub(crate) fn set(self, tid: u32, flag: u8) {
        // SAFETY: as above.
        unsafe {
            self.0
                .add(tid as usize & (TID_TABLE_SIZE - 1))
                .write_volatile(flag);
        }
    }
}

/// Whether a thread has met a marker, by its byte: then it has a state.
#[inline(always)]
pub(crate) fn has_state(byte: u8) -> bool {
    matches!(
        byte,
        flag::KNOWN | flag::IN_REQUEST | flag::UNSAMPLED | flag::PASSED | flag::LEFT
    )
}

/// The value of a thread's byte.
#[inline(always)]
pub(crate) fn tid_flag(tid: u32) -> u8 {
    Tids::table().map_or(0, |table| table.get(tid))
}

/// Sets a thread's byte.
#[inline(always)]
pub(crate) fn set_tid_flag(tid: u32, flag: u8) {
    if let Some(table) = Tids::table() {
        table.set(tid, flag);
    }
}

/// Whether all probes are set and tracing has not been stopped.
#[inline(always)]
pub(crate) fn tracing() -> bool {
    match CONTROL.get_ptr(0) {
        // SAFETY: points to the map's only entry.
        Some(control) => unsafe {
            (&raw const (*control).start_ns).read_volatile() != 0
                && (&raw const (*control).stop_ns).read_volatile() == 0
        },
        None => false,
    }
}

/// How many requests one that begins now stands for; 0: it is not recorded. Each is drawn by itself,
/// by a `random` number, so that no rhythm of the load is in step with it.
#[inline(always)]
pub(crate) fn draw_weight(random: impl FnOnce() -> u32) -> u32 {
    let Some(control) = CONTROL.get_ptr(0) else {
        return 1;
    };
    // SAFETY: points to the map's only entry.
    let every = unsafe { (&raw const (*control).sample_every).read_volatile() };
    let every = if every > MAX_SAMPLE_EVERY {
        MAX_SAMPLE_EVERY
    } else {
        every
    };
    if every <= 1 {
        return 1;
    }
    let drawn = u64::from(random());
    if (drawn * every) >> 32 == 0 {
        every as u32
    } else {
        0
    }
}

/// A random number by the kernel.
#[inline(always)]
pub(crate) fn random_by_kernel() -> u32 {
    // SAFETY: no precondition.
    unsafe { bpf_get_prandom_u32() }
}

/// Whether user space has asked for no more stacks.
#[inline(always)]
pub(crate) fn stacks_shed() -> bool {
    match CONTROL.get_ptr(0) {
        // SAFETY: points to the map's only entry.
        Some(control) => unsafe { (&raw const (*control).shed_stacks).read_volatile() != 0 },
        None => true,
    }
}

/// Whether tracing has been stopped.
#[inline(always)]
pub(crate) fn stopped() -> bool {
    match CONTROL.get_ptr(0) {
        // SAFETY: points to the map's only entry; user space writes it once.
        Some(control) => unsafe { (&raw const (*control).stop_ns).read_volatile() != 0 },
        None => true,
    }
}

/// The window that entries of [`STACKS`], [`STACK_SUMS`] and [`HISTOGRAMS`] are made and changed in
/// now, 0 or 1. It is a bit of their keys.
///
/// Only `sched_switch` and `sample` touch these tables, the one with interrupts off, the other in an
/// interrupt. User space changes the window, waits for an RCU grace period, which is over when all such
/// sections that had begun are, and takes out the entries of the window before: no program can still have a
/// pointer to them, or find them.
#[inline(always)]
pub(crate) fn window() -> u64 {
    epoch() & 1
}

/// The number of the window, which never comes again.
#[inline(always)]
pub(crate) fn epoch() -> u64 {
    match CONTROL.get_ptr(0) {
        // SAFETY: points to the map's only entry.
        Some(control) => unsafe { (&raw const (*control).window).read_volatile() },
        None => 0,
    }
}

/// The number of the period of file names.
#[inline(always)]
pub(crate) fn file_period() -> u64 {
    match CONTROL.get_ptr(0) {
        // SAFETY: points to the map's only entry.
        Some(control) => unsafe { (&raw const (*control).file_period).read_volatile() },
        None => 0,
    }
}

/// Counts an entry of [`STACKS`].
#[inline(always)]
pub(crate) fn stack_made() {
    if let Some(filled) = FILLED.get_ptr_mut(0) {
        // SAFETY: points into the map.
        unsafe { add(&raw mut (*filled).stacks, 1) }
    }
}

/// Counts an entry of [`STACK_SUMS`].
#[inline(always)]
pub(crate) fn sum_made() {
    if let Some(filled) = FILLED.get_ptr_mut(0) {
        // SAFETY: points into the map.
        unsafe { add(&raw mut (*filled).sums, 1) }
    }
}

/// Counts a loss.
#[inline(always)]
pub(crate) fn lose(loss: Loss) {
    if let Some(counter) = LOSSES.get_ptr_mut(loss as u32) {
        // SAFETY: points into the map.
        unsafe { add(counter, 1) }
    }
}
