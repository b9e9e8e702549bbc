//! The scheduler's side: blocks of threads in a request. Interrupts are off and a run-queue lock is
//! held, so everything here is bounded, and threads outside a request cost one byte's look each.

use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::helpers::{bpf_ktime_get_ns, bpf_probe_read_user};
use aya_ebpf::programs::BtfTracePointContext;

use reqtrace_common::config::tid_flag as flag;
use reqtrace_common::cost::program;
use reqtrace_common::filter::StackFilter;
use reqtrace_common::futex::holder_is;
use reqtrace_common::loss::Loss;
use reqtrace_common::record::{BlockSite, FILE_NONE, FileId};
use reqtrace_common::sums::{StackSum, StackSumKey, off_kind};
use reqtrace_common::syscall::{SYS_FUTEX, has_size, takes_file_descriptor};
use reqtrace_common::thread::{
    Closed, Fault, Interval, RequestState, Thread, ThreadState, is_preemption,
};

use crate::assembly::{add, barrier};
use crate::globals::{HISTOGRAM_WANTED, STACK_MAX_NS, STACK_MIN_NS, STACK_STATE};
use crate::maps::{STACK_SUMS, THREADS, Tids, lose, set_tid_flag, stopped, sum_made, window};
use crate::task::{self, Task, UserContext};
use crate::uprobes::replaced_return;
use crate::{blame, cost, file, histogram, holder, stack};

/// `sched_switch(bool preempt, prev, next, unsigned int prev_state)`, since 5.18.
#[inline(always)]
pub(crate) fn switch(ctx: &BtfTracePointContext) -> i32 {
    let prev_task: Task = ctx.arg(1);
    let prev = task::tid(prev_task);
    let next_task: Task = ctx.arg(2);
    let next = task::tid(next_task);
    let Some(tids) = Tids::table() else { return 0 };
    let (left, arrived) = (tids.get(prev), tids.get(next));
    let leaves = left == flag::IN_REQUEST;
    let arrives = arrived == flag::IN_REQUEST;
    let (helper_leaves, helper_arrives) = (blame::is_followed(left), blame::is_followed(arrived));
    if !(leaves || arrives || helper_leaves || helper_arrives) {
        return 0;
    }
    // SAFETY: no precondition.
    let now = unsafe { bpf_ktime_get_ns() };
    if stopped() {
        return 0;
    }
    if leaves {
        leave(ctx, prev, now);
    }
    if arrives {
        arrive(next, now);
    }
    if helper_leaves {
        blame::leave(ctx, tids, prev, now);
    }
    if helper_arrives {
        blame::arrive(next, arrived, now);
    }
    cost::ended(program::SWITCH, now);
    0
}

/// A thread in a request leaves its CPU.
#[inline(always)]
fn leave(ctx: &BtfTracePointContext, tid: u32, now: u64) {
    let Some(thread) = THREADS.get_ptr_mut(tid) else {
        lose(Loss::ThreadMissing);
        return;
    };
    // SAFETY: the thread is being switched out here, so nothing else changes its state, but for
    // the waker's fields.
    let Thread { state, request, .. } = unsafe { &mut *thread };
    if state.is_off_cpu() {
        lose(Loss::SwitchInUnseen);
    }
    if request.keyed.is_taken() {
        // The thread finds that out at its next marker.
        set_tid_flag(tid, flag::LEFT);
        return;
    }
    let user = task::user_context();
    if request.frame_is_gone(user.sp, return_slot(request)) {
        request.abandon(now);
        set_tid_flag(tid, flag::LEFT);
        return;
    }
    let flag: u64 = ctx.arg(0);
    let prev_state: u32 = ctx.arg(3);
    let preempted = is_preemption(flag & 1 != 0, prev_state);
    let wanted = stack::wanted(preempted);
    let site = if preempted && wanted == 0 {
        BlockSite::PREEMPTED
    } else {
        // A preemption has no wait class, so its file does not matter.
        let file = if preempted {
            FILE_NONE
        } else {
            file_of(state, &user)
        };
        let space = u64::from(state.tgid) << 32 | u64::from(state.exec_generation);
        let user_stack = stack::user(ctx, &user, space, state.inherited, wanted);
        BlockSite {
            kernel_stack: stack::kernel(ctx, wanted, user_stack ^ user.syscall as u64),
            user_stack,
            syscall: user.syscall,
            file,
        }
    };
    begin_change(state);
    state.switch_out(now, preempted, prev_state, site);
    end_change(state);
    if blame::wanted() {
        state.futex = 0;
        (state.holder_is, state.holder) = (holder_is::NO_FUTEX, 0);
        if !preempted && user.syscall == SYS_FUTEX {
            state.futex = user.first_argument;
            (state.holder_is, state.holder) = holder::of(user.first_argument);
        }
    }
}

/// A thread of which another one takes a copy sees that it is not whole.
#[inline(always)]
fn begin_change(state: &mut ThreadState) {
    state.version = state.version.wrapping_add(1);
    barrier();
}

/// It is whole again.
#[inline(always)]
fn end_change(state: &mut ThreadState) {
    barrier();
    state.version = state.version.wrapping_add(1);
}

/// The file that a thread blocks on; notes how many bytes of it were asked for.
#[inline(always)]
fn file_of(state: &mut ThreadState, user: &UserContext) -> FileId {
    state.bytes = 0;
    if takes_file_descriptor(user.syscall) {
        let (file, place) = file::behind(user.first_argument);
        if has_size(user.syscall) {
            let [buffer, size, offset] = task::second_to_fourth();
            // A call may block more than once, always with the same arguments. The next one is at another
            // place in the file.
            let call = file::mix(file::mix(file::mix(place, buffer), size), offset);
            if call != state.call {
                state.bytes = size;
            }
            state.call = call;
        }
        return file;
    }
    let Fault { address, pc, sp } = state.fault;
    // Of a fault before, the thread has gone on since.
    if user.syscall < 0 && address != 0 && pc == user.pc && sp == user.sp {
        return file::mapped_at(address);
    }
    FILE_NONE
}

/// `page_fault_user(address, regs, error_code)`: a page fault in user code begins.
#[inline(always)]
pub(crate) fn fault(ctx: &BtfTracePointContext) -> i32 {
    let Some(tids) = Tids::table() else { return 0 };
    let (_, tid) = task::current_ids();
    if tids.get(tid) != flag::IN_REQUEST {
        return 0;
    }
    let Some(thread) = THREADS.get_ptr_mut(tid) else {
        return 0;
    };
    let user = task::user_context();
    // SAFETY: it is the current thread, and nobody else writes to this.
    unsafe {
        (*thread).state.fault = Fault {
            address: ctx.arg(0),
            pc: user.pc,
            sp: user.sp,
        };
    }
    0
}

/// What stands now where the request's return address stood. Behind any tracer's uretprobe the kernel
/// knows it.
#[inline(always)]
pub(crate) fn return_slot(request: &RequestState) -> Option<u64> {
    if request.begin_return == 0 {
        return None;
    }
    // SAFETY: the helper checks the address.
    let now = unsafe { bpf_probe_read_user(request.begin_sp as *const u64) }.ok()?;
    if now == request.begin_return {
        return Some(now);
    }
    Some(replaced_return(request.begin_sp).unwrap_or(now))
}

/// A thread in a request gets a CPU.
#[inline(always)]
fn arrive(tid: u32, now: u64) {
    let Some(thread) = THREADS.get_ptr_mut(tid) else {
        lose(Loss::ThreadMissing);
        return;
    };
    // SAFETY: the thread is being switched in here, so nothing else changes its state.
    let thread = unsafe { &mut *thread };
    begin_change(&mut thread.state);
    // On both ways, not before them: the verifier of 6.1 does not see that two branches ask the same.
    let Some((closed, no_slot_ns)) = thread.switch_in(now) else {
        end_change(&mut thread.state);
        return;
    };
    end_change(&mut thread.state);
    if thread.request.keyed.is_taken() {
        // Another thread runs the request, so this is not its time.
        if blame::wanted() {
            blame::ended(&mut thread.state, &closed, now, 0, 0);
        }
        return;
    }
    if no_slot_ns != 0 {
        lose(Loss::SlotsFull);
    }
    add_to_sums(thread, &closed);
    if blame::wanted() {
        let record = &thread.request.record;
        let (begin_ns, request_type) = (record.begin_ns, record.request_type);
        blame::ended(&mut thread.state, &closed, now, begin_ns, request_type);
    }
}

#[inline(always)]
fn add_to_sums(thread: &Thread, closed: &Closed) {
    let (kind, off_ns, run_queue_ns) = match closed.interval {
        Interval::Block {
            blocked_ns,
            run_queue_ns,
        } => (off_kind::BLOCK, blocked_ns, run_queue_ns),
        Interval::Preempted { preempted_ns } => (off_kind::PREEMPTED, preempted_ns, 0),
    };
    let whole_ns = off_ns + run_queue_ns;
    let record = &thread.request.record;
    let weight = u64::from(record.weight);
    let filter = StackFilter {
        min_ns: STACK_MIN_NS.load(),
        max_ns: STACK_MAX_NS.load(),
        state: STACK_STATE.load(),
    };
    let outside = if filter.keeps(thread.state.out_state, whole_ns) {
        0
    } else {
        off_kind::OUTSIDE
    };
    let window = if window() == 0 {
        0
    } else {
        off_kind::ODD_WINDOW
    };
    let key = StackSumKey {
        user_stack: closed.site.user_stack,
        kernel_stack: closed.site.kernel_stack,
        tgid: record.tgid,
        exec_generation: record.exec_generation,
        request_type: record.request_type,
        off_kind: kind | outside | window,
        syscall: closed.site.syscall,
        file: closed.site.file,
    };
    if HISTOGRAM_WANTED.load() != 0 {
        histogram::count(&key, whole_ns, weight);
    }
    let bytes = match closed.interval {
        Interval::Block { .. } => thread.state.bytes * weight,
        Interval::Preempted { .. } => 0,
    };
    if let Some(sum) = STACK_SUMS.get_ptr_mut(key) {
        // SAFETY: entries of this window are not removed: see `window`; the maximum may lose a race,
        // by then another interval of about its length has been stored.
        unsafe {
            add(&raw mut (*sum).off_ns, off_ns * weight);
            add(&raw mut (*sum).run_queue_ns, run_queue_ns * weight);
            add(&raw mut (*sum).count, weight);
            if bytes != 0 {
                add(&raw mut (*sum).bytes, bytes);
            }
            if (*sum).longest_ns < off_ns {
                (*sum).longest_ns = off_ns;
            }
            if (*sum).longest_run_queue_ns < run_queue_ns {
                (*sum).longest_run_queue_ns = run_queue_ns;
            }
        }
        return;
    }
    let first = StackSum {
        off_ns: off_ns * weight,
        run_queue_ns: run_queue_ns * weight,
        count: weight,
        longest_ns: off_ns,
        bytes,
        longest_run_queue_ns: run_queue_ns,
    };
    if STACK_SUMS
        .insert(key, first, u64::from(BPF_NOEXIST))
        .is_ok()
    {
        sum_made();
    } else {
        // Another CPU may have inserted it since.
        let Some(sum) = STACK_SUMS.get_ptr_mut(key) else {
            lose(Loss::StackSumFull);
            return;
        };
        // SAFETY: as above.
        unsafe {
            add(&raw mut (*sum).off_ns, off_ns * weight);
            add(&raw mut (*sum).run_queue_ns, run_queue_ns * weight);
            add(&raw mut (*sum).count, weight);
            add(&raw mut (*sum).bytes, bytes);
        }
    }
}
