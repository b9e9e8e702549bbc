//! Who ended a wait: wakings in, wakers noted at the thread that is woken; with blame, intervals of threads
//! in requests and of helpers out.
//!
//! A helper is a thread that has met no marker. It is watched from when it wakes a thread in a request, or another
//! helper, and for some seconds after that; those of traced processes before that: see [`crate::watch`].

use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::helpers::generated::bpf_get_current_comm;
use aya_ebpf::programs::BtfTracePointContext;

use reqtrace_common::config::{stacks_wanted, tid_flag as flag};
use reqtrace_common::futex::holder_is;
use reqtrace_common::limits::{COMM_LEN, HELD_UP_NS, HOLDER_NS};
use reqtrace_common::loss::Loss;
use reqtrace_common::origin::{Sender, sender_is};
use reqtrace_common::record::{
    BlockSite, FILE_NONE, HelperRecord, STACK_NONE, WakerRecord, kind, waker_context, waker_is,
};
use reqtrace_common::syscall::may_send;
use reqtrace_common::thread::{Closed, Interval, Thread, ThreadState, is_preemption, phase};

use crate::assembly::forgotten;
use crate::cpu;
use crate::delivery::segment;
use crate::emit;
use crate::globals::{BLAME_WANTED, HOLDERS_WANTED};
use crate::maps::{INTERVAL, PROCESSES, THREADS, Tids, has_state, lose, stopped, thread_or_new};
use crate::stack;
use crate::task::{self, Task};

/// How long a helper is watched after it last woke somebody.
pub(crate) const HELPS_NS: u64 = 10_000_000_000;

/// So often may a helper of a process that is not traced switch in without waking anybody, and once more in each of these times.
const IDLE_SWITCHES: u64 = 32;
const IDLE_SWITCH_NS: u64 = 10_000_000;

/// Whether intervals are to be sent. A constant to the verifier.
#[inline(always)]
pub(crate) fn wanted() -> bool {
    BLAME_WANTED.load() != 0
}

/// Whether a thread's byte says that it is a helper.
#[inline(always)]
pub(crate) fn is_helper(byte: u8) -> bool {
    wanted() && (byte == flag::HELPER || byte == flag::BORN_HELPER)
}

/// The same, or that it is in a request that is not recorded: such a one is followed as a helper is, for whoever it holds up.
#[inline(always)]
pub(crate) fn is_followed(byte: u8) -> bool {
    is_helper(byte) || holders_wanted() && byte == flag::UNSAMPLED
}

/// `sched_waking(task)`: may fire before the thread has left its CPU; the time is always stored,
/// and `switch_in` decides what it means.
#[inline(always)]
pub(crate) fn waking(ctx: &BtfTracePointContext) -> i32 {
    let woken: Task = ctx.arg(0);
    let tid = task::tid(woken);
    let Some(tids) = Tids::table() else { return 0 };
    let byte = tids.get(tid);
    if byte != flag::IN_REQUEST && !is_followed(byte) {
        return 0;
    }
    let Some(thread) = THREADS.get_ptr_mut(tid) else {
        lose(Loss::ThreadMissing);
        return 0;
    };
    if stopped() {
        return 0;
    }
    // SAFETY: no precondition.
    let now = unsafe { bpf_ktime_get_ns() };
    let (tgid, tid) = task::current_ids();
    let mut is_itself = task::in_task_context(ctx);
    // ksoftirqd does the work of interrupts on its own stack: the names on it tell.
    let mut is_clear = is_itself && !(wanted() && task::is_kernel_thread());
    let (mut whose, mut stack) = (segment::NONE, STACK_NONE);
    if wanted() && !is_clear {
        (whose, stack) = stack::waker(ctx);
        if whose == segment::OWN {
            stack = STACK_NONE;
        }
    }
    let (whose, stack) = (forgotten(whose, now), forgotten(stack, now));
    is_itself |= whose == segment::OWN;
    is_clear |= whose == segment::OWN;
    let mut waker = WakerRecord {
        tid,
        tgid,
        context: if is_clear {
            waker_context::TASK
        } else if whose == segment::OTHERS {
            waker_context::DELIVERS
        } else {
            waker_context::UNCLEAR
        },
        is: waker_is::UNKNOWN,
        since_ns: 0,
        stack,
        request_type: 0,
        exec_generation: 0,
    };
    if wanted() {
        if is_clear {
            // SAFETY: points into the map.
            let woken = unsafe { (*thread).state.tgid };
            // Where a client's wait ends explains none of a request.
            if byte == flag::IN_REQUEST || PROCESSES.get_ptr(woken).is_some() {
                stands_at(ctx, &mut waker);
            }
        }
        look_at(&mut waker, is_itself, tids, now);
        if holders_wanted() && is_clear && byte == flag::IN_REQUEST {
            // SAFETY: points into the map; the woken thread is off its CPU, or about to be.
            held_up(unsafe { &(*thread).state }, waker.tid, tids, now);
        }
    }
    // SAFETY: only the waker's fields are written, and a thread has one waker at a time: this
    // runs under its pi_lock.
    unsafe {
        (*thread).state.waking(now, &waker);
        if wanted() {
            cpu::woken(woken, &mut (*thread).state, now);
        }
    }
    0
}

/// Notes the user stack of a waker that runs on its own behalf, if its process is traced: from there it ended
/// the wait.
#[inline(always)]
fn stands_at(ctx: &BtfTracePointContext, waker: &mut WakerRecord) {
    let wanted = stack::wanted(false);
    if wanted & stacks_wanted::USER == 0 {
        return;
    }
    let Some(process) = PROCESSES.get_ptr(waker.tgid) else {
        return;
    };
    // SAFETY: points into the map.
    let (generation, inherited) = unsafe { ((*process).exec_generation, (*process).inherited) };
    let space = u64::from(waker.tgid) << 32 | u64::from(generation);
    waker.exec_generation = generation;
    waker.stack = stack::user(ctx, &task::user_context(), space, inherited, wanted);
}

/// What the waker is doing. One that nobody has looked at becomes a helper.
#[inline(always)]
fn look_at(waker: &mut WakerRecord, is_itself: bool, tids: Tids, now: u64) {
    if waker.tid == 0 {
        return;
    }
    let byte = tids.get(waker.tid);
    // Interrupts come upon any thread; one that sends may have run this by itself.
    let is_by_itself = is_itself || !has_state(byte) && may_send(task::user_context().syscall);
    waker.is = match byte {
        flag::KNOWN | flag::LEFT => waker_is::BETWEEN_REQUESTS,
        flag::PASSED => waker_is::NOT_RECORDED,
        flag::UNSAMPLED if !holders_wanted() => waker_is::NOT_RECORDED,
        flag::IN_REQUEST | flag::UNSAMPLED => {
            if let Some(thread) = THREADS.get_ptr(waker.tid) {
                // SAFETY: it is the current thread, whose request is open.
                unsafe {
                    waker.since_ns = (*thread).request.record.begin_ns;
                    waker.request_type = (*thread).request.record.request_type;
                }
                // Of one with a key that is not recorded nothing is known.
                if waker.since_ns == 0 {
                    waker_is::NOT_RECORDED
                } else {
                    waker_is::IN_REQUEST
                }
            } else {
                waker_is::UNKNOWN
            }
        }
        flag::HELPER | flag::BORN_HELPER => {
            if let Some(thread) = THREADS.get_ptr_mut(waker.tid) {
                // SAFETY: it is the current thread.
                unsafe {
                    if is_by_itself {
                        needed(&mut (*thread).state, now);
                    }
                    waker.since_ns = (*thread).state.helper_ns;
                }
                waker_is::HELPER
            } else {
                waker_is::UNKNOWN
            }
        }
        _ if is_by_itself => {
            if introduce(waker.tgid, waker.tid, now) {
                let new = if byte == flag::BORN {
                    flag::BORN_HELPER
                } else {
                    flag::HELPER
                };
                tids.set(waker.tid, new);
                waker.since_ns = now;
                waker_is::HELPER
            } else {
                waker_is::UNKNOWN
            }
        }
        _ => waker_is::UNKNOWN,
    };
}

/// The current thread, as one that sends data to a traced one. It is watched from now on, as one that wakes.
#[inline(always)]
pub(crate) fn sender(now: u64) -> Sender {
    let (tgid, tid) = task::current_ids();
    let mut waker = WakerRecord {
        tid,
        tgid,
        context: waker_context::TASK,
        is: waker_is::UNKNOWN,
        since_ns: 0,
        stack: STACK_NONE,
        request_type: 0,
        exec_generation: 0,
    };
    if let Some(tids) = Tids::table() {
        look_at(&mut waker, true, tids, now);
    }
    Sender {
        who: sender_is::THREAD,
        tgid,
        tid,
        is: waker.is,
        since_ns: waker.since_ns,
        request_type: waker.request_type,
        ..Sender::NONE
    }
}

/// Whether requests are drawn, and it is to be known all the same who holds up those that are recorded. A constant to the
/// verifier.
#[inline(always)]
pub(crate) fn holders_wanted() -> bool {
    HOLDERS_WANTED.load() != 0
}

/// The current thread ended a wait of a recorded request: if that was long, its own requests are all recorded for a while.
#[inline(always)]
fn held_up(woken: &ThreadState, tid: u32, tids: Tids, now: u64) {
    let waited_ns = now.saturating_sub(woken.out_ns);
    if woken.phase != phase::BLOCKED || waited_ns < HELD_UP_NS || !has_state(tids.get(tid)) {
        return;
    }
    if let Some(thread) = THREADS.get_ptr_mut(tid) {
        // SAFETY: the current thread's own entry; it is no helper, so that nothing else reads this.
        unsafe { (*thread).state.needed_ns = now };
    }
}

/// Whether the current thread, which has this byte, held up a recorded request a while ago. It is asked before its request
/// begins and does not depend on it, so that its weight is 1.
#[inline(always)]
pub(crate) fn is_holder(tid: u32, byte: u8) -> bool {
    if !holders_wanted() || !has_state(byte) {
        return false;
    }
    let Some(thread) = THREADS.get_ptr(tid) else {
        return false;
    };
    // SAFETY: the current thread's own entry.
    let needed_ns = unsafe { (*thread).state.needed_ns };
    // SAFETY: no precondition.
    needed_ns != 0 && unsafe { bpf_ktime_get_ns() }.saturating_sub(needed_ns) <= HOLDER_NS
}

/// A helper was needed, or is watched on as if it had been. It runs, so it is watched from now on if it was not yet.
#[inline(always)]
pub(crate) fn needed(state: &mut ThreadState, now: u64) {
    if state.helper_ns == 0 {
        state.helper_ns = now;
    }
    state.needed_ns = now;
    state.needed_sequence = state.sequence;
}

/// Whether a helper is watched on. One of another process that switches often and is hardly needed costs more than it can ever tell:
/// a client that woke a thread in a request once goes on with tens of thousands of requests in 10 s.
#[inline(always)]
fn is_needed(state: &ThreadState, now: u64) -> bool {
    let since_ns = now.wrapping_sub(state.needed_ns);
    let switches = state.sequence.wrapping_sub(state.needed_sequence);
    since_ns <= HELPS_NS
        && (u64::from(switches) <= IDLE_SWITCHES + since_ns / IDLE_SWITCH_NS
            || PROCESSES.get_ptr(state.tgid).is_some())
}

/// Begins to watch the current thread.
#[inline(always)]
pub(crate) fn introduce(tgid: u32, tid: u32, now: u64) -> bool {
    let Some(thread) = thread_or_new(tid) else {
        return false;
    };
    // SAFETY: it is the current thread, and nobody looks at it yet.
    unsafe { identify(&mut (*thread).state, tgid, tid, now) }
    let mut comm = [0; COMM_LEN];
    // SAFETY: the helper writes at most the size it is given.
    unsafe {
        bpf_get_current_comm(comm.as_mut_ptr().cast(), COMM_LEN as u32);
    }
    name(tgid, tid, &comm);
    true
}

#[inline(always)]
pub(crate) fn identify(state: &mut ThreadState, tgid: u32, tid: u32, now: u64) {
    let exec_generation = match PROCESSES.get_ptr(tgid) {
        // SAFETY: points into the map.
        Some(process) => unsafe { (*process).exec_generation },
        None => 0,
    };
    state.tgid = tgid;
    state.tid = tid;
    state.exec_generation = exec_generation;
    state.helper_ns = now;
    state.needed_ns = now;
    state.needed_sequence = state.sequence;
}

/// Sends the name of a helper.
#[inline(always)]
pub(crate) fn name(tgid: u32, tid: u32, comm: &[u8; COMM_LEN]) {
    emit::helper(&HelperRecord {
        kind: kind::HELPER,
        tgid,
        tid,
        pad: 0,
        comm: *comm,
    });
}

/// A helper leaves its CPU, or a thread in a request that is not recorded.
#[inline(always)]
pub(crate) fn leave(ctx: &BtfTracePointContext, tids: Tids, tid: u32, now: u64) {
    let Some(thread) = THREADS.get_ptr_mut(tid) else {
        lose(Loss::ThreadMissing);
        return;
    };
    // SAFETY: the thread is being switched out here, so nothing else changes its state, but for
    // the waker's fields.
    let state = unsafe { &mut (*thread).state };
    let byte = tids.get(tid);
    if byte == flag::UNSAMPLED {
        state.futex = 0;
        (state.holder_is, state.holder) = (holder_is::NO_FUTEX, 0);
    } else if !is_needed(state, now) {
        let before = if byte == flag::BORN_HELPER {
            flag::BORN
        } else {
            flag::NONE
        };
        // What it does from now on is not known: if it becomes one again, it is one since then.
        state.helper_ns = 0;
        // Its entry stays until it exits: another CPU may be about to wake it.
        tids.set(tid, before);
        return;
    }
    let flag: u64 = ctx.arg(0);
    let prev_state: u32 = ctx.arg(3);
    let preempted = is_preemption(flag & 1 != 0, prev_state);
    let site = BlockSite {
        kernel_stack: STACK_NONE,
        user_stack: STACK_NONE,
        syscall: task::user_context().syscall,
        file: FILE_NONE,
    };
    state.switch_out(now, preempted, prev_state, site);
}

/// It gets a CPU again.
#[inline(always)]
pub(crate) fn arrive(tid: u32, byte: u8, now: u64) {
    let Some(thread) = THREADS.get_ptr_mut(tid) else {
        lose(Loss::ThreadMissing);
        return;
    };
    // SAFETY: the thread is being switched in here, so nothing else changes its state.
    let Thread { state, request, .. } = unsafe { &mut *thread };
    if let Some(closed) = state.switch_in(now) {
        let (begin_ns, request_type) = match byte {
            flag::UNSAMPLED => (request.record.begin_ns, request.record.request_type),
            _ => (0, 0),
        };
        ended(state, &closed, now, begin_ns, request_type);
    }
}

/// Sends an interval that is over. `begin_ns` is that of the thread's request, 0 when it is in none.
#[inline(always)]
pub(crate) fn ended(
    state: &mut ThreadState,
    closed: &Closed,
    now: u64,
    begin_ns: u64,
    request_type: u32,
) {
    let sequence = state.sequence;
    state.sequence = sequence.wrapping_add(1);
    let Some(record) = INTERVAL.get_ptr_mut(0) else {
        return;
    };
    // SAFETY: this CPU's own entry, and interrupts are off.
    let record = unsafe { &mut *record };
    record.kind = kind::INTERVAL;
    record.tgid = state.tgid;
    record.tid = state.tid;
    record.exec_generation = state.exec_generation;
    record.sequence = sequence;
    record.request_type = request_type;
    record.request_begin_ns = begin_ns;
    record.out_ns = closed.start_ns;
    record.in_ns = now;
    record.site = closed.site;
    record.futex = state.futex;
    record.holder_is = state.holder_is;
    record.holder = state.holder;
    record.waker = state.waker;
    match closed.interval {
        Interval::Preempted { .. } => {
            record.preempted = 1;
            record.wake_ns = 0;
        }
        Interval::Block { blocked_ns, .. } => {
            record.preempted = 0;
            record.wake_ns = closed.start_ns + blocked_ns;
        }
    }
    if !closed.woken {
        record.waker.context = waker_context::UNKNOWN;
        record.waker.is = waker_is::UNKNOWN;
        record.waker.tid = 0;
        record.waker.tgid = 0;
        record.waker.stack = STACK_NONE;
    }
    emit::interval(record);
}
