//! Who has a CPU while a watched thread waits for it, with blame: all switches, and where watched threads wait, in;
//! a record of each wait that was not short out.
//!
//! A runnable thread waits in the queue of one CPU: that which it left, to which it was woken, or to which it was
//! moved. Whoever ran there meanwhile is in that CPU's ring of runs, which only its own switches write, under its queue's lock. It is
//! read there when the thread comes to the CPU, and by who moves the thread away, who holds the same lock.

use core::ffi::c_void;
use core::mem::{offset_of, size_of};
use core::{ptr, slice};

use aya_ebpf::helpers::generated::{bpf_get_smp_processor_id, bpf_ktime_get_ns, bpf_loop};
use aya_ebpf::helpers::{bpf_probe_read_kernel, bpf_probe_read_kernel_buf};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, PerCpuArray};
use aya_ebpf::programs::BtfTracePointContext;
use reqtrace_common::config::{NOT_IN_THIS_KERNEL, tid_flag as flag};
use reqtrace_common::cpu::{
    CpuWaitRecord, MAX_RUNNERS, MAX_RUNS, Run, RunnerRecord, Runs, SHORT_WAIT_NS,
};
use reqtrace_common::limits::COMM_LEN;
use reqtrace_common::record::kind;
use reqtrace_common::thread::{ThreadState, is_preemption, phase};

use crate::blame;
use crate::emit;
use crate::file;
use crate::globals::{
    CFS_LIMITED, GROUP_QUEUES, TASK_COMM, TASK_GROUP, TASK_POLICY, TASK_PRIORITY, TASK_QUEUE,
    TASK_QUEUED, TASK_TGID, TASK_THROTTLED,
};
use crate::maps::{THREADS, Tids, stopped};
use crate::task::{self, Task};
use crate::watch;

/// The runs of each CPU; sized by user space before loading. No map of one entry for each CPU: another CPU's is read, too.
#[map]
static RUNS: Array<Runs> = Array::with_max_entries(1, 0);

/// Where a record is put together. Interrupts are off wherever that is done, and it does not nest.
#[map]
static CPU_WAIT: PerCpuArray<Look> = PerCpuArray::with_max_entries(1, 0);

/// Runs are looked at from the last one back. No part of it is on the stack, of which `sched_switch` has none left.
#[repr(C)]
struct Look {
    record: CpuWaitRecord,
    /// The run that was looked at last.
    at: u64,
    /// When it began.
    until_ns: u64,
}

/// Whose run it is is not known, or not yet.
const NOT_KNOWN: u32 = u32::MAX;

/// Real time is below.
const FIRST_FAIR: u32 = 100;

/// `sched_switch(bool preempt, prev, next, unsigned int prev_state)`.
#[inline(always)]
pub(crate) fn switch(ctx: &BtfTracePointContext) -> i32 {
    let prev_task: Task = ctx.arg(1);
    let prev = task::tid(prev_task);
    let next_task: Task = ctx.arg(2);
    let next = task::tid(next_task);
    // SAFETY: no precondition.
    let now = unsafe { bpf_ktime_get_ns() };
    switched(prev_task, prev, next_task, next, now);
    let Some(tids) = Tids::table() else { return 0 };
    let is_watched = |byte| byte == flag::IN_REQUEST || blame::is_followed(byte);
    let (left_byte, arrived_byte) = (tids.get(prev), tids.get(next));
    if is_watched(left_byte) {
        left(ctx, prev, blame::is_helper(left_byte), now);
    }
    if blame::is_helper(left_byte) && !stopped() {
        watch::leaves(tids, prev, ctx.arg(3));
    }
    if is_watched(arrived_byte) && !stopped() {
        arrived(next_task, next, blame::is_helper(arrived_byte), now);
    }
    0
}

/// This CPU goes from one thread to another. What is known of a thread is read when it leaves: of one that comes it is not in the
/// cache.
#[inline(always)]
fn switched(prev_task: Task, prev: u32, next_task: Task, next: u32, now: u64) {
    // SAFETY: no precondition.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    let Some(runs) = RUNS.get_ptr_mut(cpu) else {
        return;
    };
    // SAFETY: only this CPU writes to its entry, interrupts are off, and the mask keeps indices below MAX_RUNS.
    unsafe {
        let first = (&raw mut (*runs).runs).cast::<Run>();
        let at = (*runs).next;
        let last = first.add(at.wrapping_sub(1) as usize & (MAX_RUNS - 1));
        if (*last).tid != prev {
            // A switch went unseen: nobody knows when, also of a run that was looked at while it went on.
            (*last).tgid = NOT_KNOWN;
        } else {
            (*last).tgid = task::tgid(prev_task);
            (*last).policy = task::read_u32(prev_task, &TASK_POLICY);
            (*last).priority = task::read_u32(prev_task, &TASK_PRIORITY);
            let comm = prev_task.cast::<u8>().add(TASK_COMM.load() as usize);
            let words = (&raw mut (*last).comm).cast::<u64>();
            words.write(comm.cast::<u64>().read_volatile());
            words
                .add(1)
                .write(comm.add(8).cast::<u64>().read_volatile());
        }
        let run = first.add(at as usize & (MAX_RUNS - 1));
        (*run).since_ns = now;
        (*run).tid = next;
        (*run).tgid = NOT_KNOWN;
        (*runs).current = next_task as u64;
        (*runs).next = at.wrapping_add(1);
    }
}

const _: () = assert!(COMM_LEN == 16, "it is copied as two words");

/// A watched thread leaves this CPU.
#[inline(always)]
fn left(ctx: &BtfTracePointContext, tid: u32, is_helper: bool, now: u64) {
    let Some(thread) = THREADS.get_ptr_mut(tid) else {
        return;
    };
    // SAFETY: the thread is being switched out here, so nothing else changes its state, but for the waker's fields.
    let state = unsafe { &mut (*thread).state };
    if is_helper {
        watch::switches(state, now);
    }
    let (flag, prev_state): (u64, u32) = (ctx.arg(0), ctx.arg(3));
    let task: Task = ctx.arg(1);
    let is_runnable = is_preemption(flag & 1 != 0, prev_state);
    // SAFETY: no precondition.
    state.queued_on = unsafe { bpf_get_smp_processor_id() };
    state.queued_ns = now;
    state.limit_ns = limited_ns(task);
    state.limited = u32::from(is_runnable && is_throttled(task));
}

/// A watched thread is woken.
#[inline(always)]
pub(crate) fn woken(task: Task, state: &mut ThreadState, now: u64) {
    // One that was preempted waits already; one that is on a CPU has yet to leave it.
    if state.phase == phase::BLOCKED {
        state.queued_ns = now;
        state.limit_ns = limited_ns(task);
    }
}

/// A watched thread comes to this CPU; its state is still that of before.
#[inline(always)]
fn arrived(task: Task, tid: u32, is_helper: bool, now: u64) {
    let Some(thread) = THREADS.get_ptr_mut(tid) else {
        return;
    };
    // SAFETY: the thread is being switched in here, so nothing else changes its state.
    let state = unsafe { &mut (*thread).state };
    if is_helper {
        watch::switches(state, now);
    }
    // SAFETY: no precondition.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    // Otherwise a move went unseen.
    if state.is_off_cpu() && state.queued_on == cpu {
        waited(task, state, now);
    }
}

/// `sched_migrate_task(task, dest_cpu)`: a thread that is off its CPU gets another one. It is queued, and the lock of
/// its queue is held; or it is being woken, and in no queue.
#[inline(always)]
pub(crate) fn moved(ctx: &BtfTracePointContext) -> i32 {
    let task: Task = ctx.arg(0);
    let to: i32 = ctx.arg(1);
    let tid = task::tid(task);
    let Some(tids) = Tids::table() else { return 0 };
    let byte = tids.get(tid);
    if byte != flag::IN_REQUEST && !blame::is_followed(byte) {
        return 0;
    }
    let Some(thread) = THREADS.get_ptr_mut(tid) else {
        return 0;
    };
    if stopped() {
        return 0;
    }
    // SAFETY: the thread is on no CPU, and who moves it is alone in that.
    let state = unsafe { &mut (*thread).state };
    if !state.is_off_cpu() {
        return 0;
    }
    // SAFETY: no precondition.
    let now = unsafe { bpf_ktime_get_ns() };
    let is_runnable = state.phase == phase::PREEMPTED || state.wake_ns > state.out_ns;
    if is_runnable && task::read_u32(task, &TASK_QUEUED) != 0 {
        waited(task, state, now);
        state.queued_ns = now;
    }
    state.queued_on = to as u32;
    state.limit_ns = limited_there(task, to as u32);
    0
}

/// A wait for a CPU is over, or goes on in another queue.
#[inline(always)]
fn waited(task: Task, state: &ThreadState, now: u64) {
    let mut from_ns = state.queued_ns;
    if state.phase == phase::BLOCKED && state.wake_ns > from_ns {
        from_ns = state.wake_ns;
    }
    let waited_ns = now.wrapping_sub(from_ns);
    // One that nobody was seen to wake has no begin.
    if from_ns == 0 || from_ns > now || waited_ns < SHORT_WAIT_NS {
        return;
    }
    let (Some(runs), Some(look)) = (RUNS.get_ptr(state.queued_on), CPU_WAIT.get_ptr_mut(0)) else {
        return;
    };
    let mut held_ns = waited_ns;
    if state.limited == 0 {
        let by_group = limited_ns(task).wrapping_sub(state.limit_ns);
        let is_fair = task::read_u32(task, &TASK_PRIORITY) >= FIRST_FAIR;
        if !is_fair || state.limit_ns == 0 {
            held_ns = 0;
        } else if by_group < waited_ns {
            held_ns = by_group;
        }
    }
    // SAFETY: this CPU's own entry, and interrupts are off.
    let look = unsafe { &mut *look };
    let record = &mut look.record;
    record.kind = kind::CPU_WAIT;
    record.tgid = state.tgid;
    record.tid = state.tid;
    record.cpu = state.queued_on;
    record.from_ns = from_ns;
    record.until_ns = now;
    record.limited_ns = held_ns;
    record.used = 0;
    record.pad = 0;
    // While the limit holds a group back, who runs is not in its way: when that was is not known exactly.
    if held_ns == 0 {
        record.runners = [RunnerRecord::default(); MAX_RUNNERS];
        // SAFETY: points into the map.
        look.at = unsafe { (*runs).next };
        look.until_ns = now;
        // SAFETY: the callback has the signature that the helper calls.
        unsafe {
            bpf_loop(
                MAX_RUNS as u32 - 1,
                look_at_run as *mut c_void,
                ptr::null_mut(),
                0,
            );
        }
    }
    emit::cpu_wait(&look.record);
}

/// The run before. Returns 1 to stop.
extern "C" fn look_at_run(_index: u32, _: *mut c_void) -> u64 {
    let Some(look) = CPU_WAIT.get_ptr_mut(0) else {
        return 1;
    };
    // SAFETY: this CPU's own entry, and interrupts are off; the masks keep indices in their bounds.
    unsafe {
        let record = &raw mut (*look).record;
        let Some(runs) = RUNS.get_ptr_mut((*record).cpu) else {
            return 1;
        };
        let at = (*look).at.wrapping_sub(1);
        (*look).at = at;
        let run = (&raw mut (*runs).runs)
            .cast::<Run>()
            .add(at as usize & (MAX_RUNS - 1));
        let since_ns = (*run).since_ns;
        if since_ns == 0 {
            return 1;
        }
        let (first_ns, until_ns) = ((*record).from_ns, (*look).until_ns);
        let from_ns = if since_ns > first_ns {
            since_ns
        } else {
            first_ns
        };
        if from_ns < until_ns {
            (*look).until_ns = from_ns;
            if (*run).tgid == NOT_KNOWN && at.wrapping_add(1) == (*runs).next {
                goes_on(runs, run);
            }
            if (*run).tgid != NOT_KNOWN {
                add(record, run, until_ns - from_ns);
            }
        }
        u64::from(since_ns <= first_ns)
    }
}

/// Reads what is known of the thread that has a CPU while another one is moved away from it.
#[inline(always)]
unsafe fn goes_on(runs: *const Runs, run: *mut Run) {
    // SAFETY: by the caller, who holds the lock of that CPU's queue: the thread cannot leave.
    unsafe {
        let task = (*runs).current;
        // Into its place: a copy of it on the stack, which is not filled where this fails, is what kernels before 6.3 refuse.
        let comm = (task + u64::from(TASK_COMM.load())) as *const u8;
        let comm = bpf_probe_read_kernel_buf(comm, &mut (*run).comm);
        if let (Some(tgid), Some(policy), Some(priority), Ok(())) = (
            file::read(task, &TASK_TGID),
            file::read(task, &TASK_POLICY),
            file::read(task, &TASK_PRIORITY),
            comm,
        ) {
            (*run).policy = policy;
            (*run).priority = priority;
            (*run).tgid = tgid;
        }
    }
}

/// Adds a run to those of its process. Where there is no room the process with least goes, and is not known.
#[inline(always)]
unsafe fn add(record: *mut CpuWaitRecord, run: *const Run, ns: u64) {
    // SAFETY: by the caller; indices are below MAX_RUNNERS, by the loop and by the mask.
    unsafe {
        let runners = (&raw mut (*record).runners).cast::<RunnerRecord>();
        let (mut into, mut least_ns) = (0_u64, u64::MAX);
        for index in 0..MAX_RUNNERS {
            let runner = runners.add(index);
            let (its_ns, its_tgid) = ((*runner).ns, (*runner).tgid);
            if its_ns != 0 && its_tgid == (*run).tgid {
                into = index as u64;
                break;
            }
            if its_ns < least_ns {
                least_ns = its_ns;
                into = index as u64;
            }
        }
        let into = into as usize & (MAX_RUNNERS - 1);
        let runner = runners.add(into);
        if (*runner).ns == 0 || (*runner).tgid != (*run).tgid {
            if (*runner).ns >= ns {
                return;
            }
            (*runner).ns = 0;
            (*runner).longest_ns = 0;
            (*runner).tgid = (*run).tgid;
        }
        (*runner).ns += ns;
        if ns > (*runner).longest_ns {
            (*runner).longest_ns = ns;
            (*runner).tid = (*run).tid;
            (*runner).policy = (*run).policy;
            (*runner).priority = (*run).priority;
            (*runner).comm = (*run).comm;
        }
        if into as u32 >= (*record).used {
            (*record).used = into as u32 + 1;
        }
    }
}

/// The bytes of a record that are used.
pub(crate) fn used(record: &CpuWaitRecord) -> &[u8] {
    let used = record.used as usize;
    let used = if used > MAX_RUNNERS {
        MAX_RUNNERS
    } else {
        used
    };
    let len = offset_of!(CpuWaitRecord, runners) + used * size_of::<RunnerRecord>();
    // SAFETY: the record is at least this long.
    unsafe { slice::from_raw_parts((&raw const *record).cast::<u8>(), len) }
}

/// Whether the limit of its cgroup has just taken a thread off its CPU: since 6.18 each thread has that.
#[inline(always)]
fn is_throttled(task: Task) -> bool {
    if TASK_THROTTLED.load() == NOT_IN_THIS_KERNEL {
        return false;
    }
    // SAFETY: a load of a field from a BTF pointer; a fault yields 0.
    unsafe {
        task.cast::<u8>()
            .add(TASK_THROTTLED.load() as usize)
            .read_volatile()
            != 0
    }
}

/// Whether the kernel counts only for the queue of a cgroup on a CPU how long its limit held it back: before 6.18.
#[inline(always)]
fn counts_by_group() -> bool {
    TASK_THROTTLED.load() == NOT_IN_THIS_KERNEL && TASK_QUEUE.load() != NOT_IN_THIS_KERNEL
}

/// How long the limit of its cgroup, or of one above, has held back the queue that a thread is in, ns, and 1; 0: that is not
/// counted. What goes on is added when it is over.
#[inline(always)]
fn limited_ns(task: Task) -> u64 {
    if !counts_by_group() {
        return 0;
    }
    // SAFETY: loads of fields from BTF pointers; a fault yields 0.
    unsafe {
        let queue = task
            .cast::<u8>()
            .add(TASK_QUEUE.load() as usize)
            .cast::<*const u8>()
            .read_volatile();
        queue
            .add(CFS_LIMITED.load() as usize)
            .cast::<u64>()
            .read_volatile()
            .wrapping_add(1)
    }
}

/// The same of the queue on another CPU, to which the thread is moved.
#[inline(always)]
fn limited_there(task: Task, cpu: u32) -> u64 {
    if !counts_by_group() {
        return 0;
    }
    // SAFETY: a load of a field from a BTF pointer.
    let group = unsafe {
        task.cast::<u8>()
            .add(TASK_GROUP.load() as usize)
            .cast::<u64>()
            .read_volatile()
    };
    let Some(queues) = read(group.wrapping_add(u64::from(GROUP_QUEUES.load()))) else {
        return 0;
    };
    let Some(queue) = read(queues.wrapping_add(8 * u64::from(cpu))) else {
        return 0;
    };
    read(queue.wrapping_add(u64::from(CFS_LIMITED.load()))).map_or(0, |ns| ns.wrapping_add(1))
}

#[inline(always)]
fn read(address: u64) -> Option<u64> {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel(address as *const u64) }.ok()
}
