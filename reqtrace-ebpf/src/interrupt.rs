//! What takes the CPU from a thread in a request without a switch, with `--interrupts`: begins and ends of interrupts and softirqs,
//! and switches in; how long these and the hypervisor took, beside the request's record, out.
//!
//! Each CPU has clocks. A request gets what they advance while one of its threads runs there: from a switch or marker to the next.

use aya_ebpf::helpers::generated::bpf_get_current_task_btf;
use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;
use aya_ebpf::programs::BtfTracePointContext;
use reqtrace_common::clocks::{Clocks, CpuClocks};
use reqtrace_common::config::{NOT_IN_THIS_KERNEL, tid_flag as flag};
use reqtrace_common::thread::Thread;

use crate::before::{Object, field, read};
use crate::globals::{CFS_RUN_QUEUE, CPU_RUN_QUEUE, CPU_STEAL, INTERRUPT_CLOCKS_WANTED, TASK_CFS};
use crate::maps::{THREADS, Tids, stopped};
use crate::request::bpf_now;
use crate::task::{self, Task};

/// This CPU's.
#[map]
static CPU_CLOCKS: PerCpuArray<CpuClocks> = PerCpuArray::with_max_entries(1, 0);

/// Whether they are wanted. A constant to the verifier.
#[inline(always)]
fn wanted() -> bool {
    INTERRUPT_CLOCKS_WANTED.load() != 0
}

/// Which of them begins or ends.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Interrupt,
    Softirq,
}

/// One begins.
#[inline(always)]
pub(crate) fn begins(kind: Kind) -> i32 {
    if let Some(cpu) = CPU_CLOCKS.get_ptr_mut(0) {
        // SAFETY: this CPU's own entry. An interrupt may come between, which has ended by the next line.
        unsafe {
            turn(&mut *cpu);
            match kind {
                Kind::Interrupt => (*cpu).interrupts += 1,
                Kind::Softirq => (*cpu).softirqs += 1,
            }
        }
    }
    0
}

/// One ends. One that had begun before tracing did is not known.
#[inline(always)]
pub(crate) fn ends(kind: Kind) -> i32 {
    if let Some(cpu) = CPU_CLOCKS.get_ptr_mut(0) {
        // SAFETY: as above.
        unsafe {
            turn(&mut *cpu);
            match kind {
                Kind::Interrupt => (*cpu).interrupts = (*cpu).interrupts.saturating_sub(1),
                Kind::Softirq => (*cpu).softirqs = (*cpu).softirqs.saturating_sub(1),
            }
        }
    }
    0
}

/// The time is read last, so that hardly any interrupt comes before it is used.
#[inline(always)]
fn turn(cpu: &mut CpuClocks) {
    let steal_ns = steal_ns();
    cpu.turn(bpf_now(), steal_ns);
}

/// `sched_switch(bool preempt, prev, next, unsigned int prev_state)`, before the program that closes the interval.
#[inline(always)]
pub(crate) fn switch(ctx: &BtfTracePointContext) -> i32 {
    let (prev, next): (Task, Task) = (ctx.arg(1), ctx.arg(2));
    let (prev, next) = (task::tid(prev), task::tid(next));
    let Some(tids) = Tids::table() else { return 0 };
    let (leaves, arrives) = (
        tids.get(prev) == flag::IN_REQUEST,
        tids.get(next) == flag::IN_REQUEST,
    );
    if !(leaves || arrives) || stopped() {
        return 0;
    }
    let now = clocks();
    if leaves && let Some(thread) = THREADS.get_ptr_mut(prev) {
        // SAFETY: the thread is being switched out here, so nothing else changes its state.
        unsafe { stops_at(&mut *thread, &now) };
    }
    if arrives && let Some(thread) = THREADS.get_ptr_mut(next) {
        // SAFETY: it is being switched in here.
        unsafe { ((*thread).state.clocks, (*thread).state.is_clocked) = (now, 1) };
    }
    0
}

/// The current thread goes on with a request, or begins one, and its byte says so.
#[inline(always)]
pub(crate) fn starts(tid: u32) {
    if wanted() {
        clocks_start(tid);
    }
}

/// It ends it, or leaves it; its byte does not say so yet.
#[inline(always)]
pub(crate) fn stops(tid: u32) {
    if wanted() {
        clocks_stop(tid);
    }
}

/// A function with an external name, as the next one: programs at markers have no stack to spare. If the thread is switched out
/// meanwhile, the program of switches does this.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn clocks_start(tid: u32) -> u32 {
    if let Some(thread) = THREADS.get_ptr_mut(tid) {
        // SAFETY: the current thread's own entry.
        let thread = unsafe { &mut *thread };
        let before = switches(thread);
        let now = clocks();
        if switches(thread) == before {
            (thread.state.clocks, thread.state.is_clocked) = (now, 1);
        }
    }
    0
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn clocks_stop(tid: u32) -> u32 {
    if let Some(thread) = THREADS.get_ptr_mut(tid) {
        // SAFETY: the current thread's own entry.
        let thread = unsafe { &mut *thread };
        let before = switches(thread);
        let now = clocks();
        if switches(thread) == before {
            stops_at(thread, &now);
        }
    }
    0
}

#[inline(always)]
fn switches(thread: &Thread) -> u32 {
    // SAFETY: the reference is valid; the scheduler's programs change the counter while this thread is switched out.
    unsafe { (&raw const thread.state.switches).read_volatile() }
}

#[inline(always)]
fn stops_at(thread: &mut Thread, now: &Clocks) {
    let Thread { state, request, .. } = thread;
    // Another thread runs it by now, or it is not known since when this one does.
    if request.keyed.is_taken() || state.is_clocked == 0 {
        return;
    }
    state.is_clocked = 0;
    request.keyed.extra().lost.add(&state.clocks, now);
}

/// This CPU's clocks, now.
#[inline(always)]
fn clocks() -> Clocks {
    let mut clocks = match CPU_CLOCKS.get_ptr(0) {
        // SAFETY: this CPU's own entry.
        Some(cpu) => unsafe { (*cpu).clocks },
        None => Clocks::ZERO,
    };
    clocks.steal_ns = steal_ns();
    clocks
}

/// What the hypervisor has taken of this CPU since boot, ns; 0: not known.
///
/// `steal_time` is a variable of each CPU (`arch/x86/kernel/kvm.c`) that the hypervisor writes. Its address follows from that of
/// another one, the CPU's run queue, to which its threads point.
#[inline(always)]
fn steal_ns() -> u64 {
    if CPU_STEAL.load() == NOT_IN_THIS_KERNEL {
        return 0;
    }
    // SAFETY: loads of fields from BTF pointers; a fault yields 0.
    let queue: u64 = unsafe {
        let task = bpf_get_current_task_btf() as Object;
        let cfs: Object = field(task, &TASK_CFS);
        field(cfs, &CFS_RUN_QUEUE)
    };
    let base = queue.wrapping_sub(u64::from(CPU_RUN_QUEUE.load()));
    read(base.wrapping_add(u64::from(CPU_STEAL.load())) as Object).unwrap_or(0)
}
