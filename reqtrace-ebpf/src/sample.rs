//! Samples: a tick of the sampling clock in; where the thread is that runs, if it is in a request, out.
//!
//! The clock is a timer's interrupt or, with hardware cycles, an NMI. An NMI may come upon any program of this
//! object, in the middle of anything. So nothing is changed here that another program changes: a thread's
//! state is only looked at, walks have memory of their own ([`walk_of`](crate::maps::walk_of)), and what is
//! inserted into the table of stacks is inserted by the kernel, which refuses when that table's lock is held
//! on this CPU.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::programs::PerfEventContext;

use reqtrace_common::config::tid_flag as flag;
use reqtrace_common::cost::program;
use reqtrace_common::loss::Loss;
use reqtrace_common::record::{STACK_NONE, SampleRecord, kind};

use crate::maps::{THREADS, Tids, lose, stopped};
use crate::sched::return_slot;
use crate::task;
use crate::{cost, emit, stack};

/// The privilege level in a code segment's selector: not 0 in user space.
const PRIVILEGE: u64 = 3;

/// Takes a sample of the current thread.
#[inline(always)]
pub(crate) fn take(ctx: &PerfEventContext) -> u32 {
    let (_, tid) = task::current_ids();
    let Some(tids) = Tids::table() else { return 0 };
    if tids.get(tid) != flag::IN_REQUEST || stopped() {
        return 0;
    }
    let wanted = stack::wanted(false);
    if wanted == 0 {
        return 0;
    }
    // SAFETY: no precondition.
    let now = unsafe { bpf_ktime_get_ns() };
    let Some(thread) = THREADS.get_ptr(tid) else {
        lose(Loss::ThreadMissing);
        return 0;
    };
    // SAFETY: it is the current thread, and the entry of one that is alive is not removed.
    let (state, request) = unsafe { (&(*thread).state, &(*thread).request) };
    // Between the scheduler's program and the switch itself it is the current thread still.
    if state.is_off_cpu() {
        return 0;
    }
    let in_kernel = in_kernel(ctx);
    let mut user = task::user_context();
    user.is_interrupted = !in_kernel;
    // The request has been left without an end, and nobody has noticed yet.
    if request.frame_is_gone(user.sp, return_slot(request)) {
        return 0;
    }
    let record = &request.record;
    let space = u64::from(state.tgid) << 32 | u64::from(state.exec_generation);
    let kernel_stack = if in_kernel {
        stack::sampled_kernel(ctx, wanted)
    } else {
        STACK_NONE
    };
    let user_stack = stack::sampled_user(ctx, &user, space, state.inherited, wanted);
    emit::sample(&SampleRecord {
        kind: kind::SAMPLE,
        tgid: state.tgid,
        tid,
        exec_generation: state.exec_generation,
        request_type: record.request_type,
        weight: record.weight,
        request_begin_ns: record.begin_ns,
        at_ns: now,
        user_stack,
        kernel_stack,
    });
    cost::ended(program::SAMPLE, now);
    0
}

/// Whether the sample has come upon the kernel.
#[inline(always)]
fn in_kernel(ctx: &PerfEventContext) -> bool {
    // SAFETY: a load of a field of the context.
    let selector = unsafe { (&raw const (*ctx.ctx).regs.cs).read_volatile() };
    selector & PRIVILEGE == 0
}
