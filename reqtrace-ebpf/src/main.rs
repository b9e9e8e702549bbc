//! The kernel programs of reqtrace: entry points only.
//!
//! In: hits of markers (uprobes), events of the scheduler, and the ticks of a sampling clock. Out: sums
//! in maps, and one ring record per finished request and per sample.

#![no_std]
#![no_main]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]

#[allow(
    unused_imports,
    dead_code,
    reason = "the counting programs use the rest of it"
)]
mod assembly;
mod before;
mod blame;
mod cost;
mod cpu;
mod delivery;
mod disk;
mod emit;
mod file;
mod globals;
mod histogram;
mod holder;
mod interrupt;
mod keyed;
mod known;
mod label;
mod maps;
mod origin;
mod passed;
mod plan;
mod process;
mod request;
mod sample;
mod sched;
mod stack;
mod task;
mod totals;
mod units;
mod unwind;
mod uprobes;
mod walks;
mod watch;
mod way;

use core::ffi::c_void;

use aya_ebpf::bindings::task_struct;
use aya_ebpf::macros::{btf_tracepoint, perf_event, uprobe, uretprobe};
use aya_ebpf::programs::{BtfTracePointContext, PerfEventContext, ProbeContext, RetProbeContext};
use reqtrace_common::cost::program;

use crate::assembly::keeps_the_threads_stack;
use crate::interrupt::Kind;

#[uprobe]
fn request_begin(ctx: ProbeContext) -> u32 {
    keeps_the_threads_stack(&ctx);
    cost::of(program::BEGIN, || request::begin(&ctx, ctx.regs))
}

#[uprobe]
fn request_end(ctx: ProbeContext) -> u32 {
    keeps_the_threads_stack(&ctx);
    cost::of(program::END, || request::end(&ctx, ctx.regs))
}

#[uretprobe]
fn request_begin_ret(ctx: RetProbeContext) -> u32 {
    keeps_the_threads_stack(&ctx);
    cost::of(program::BEGIN_RET, || request::begin(&ctx, ctx.regs))
}

#[uretprobe]
fn request_end_ret(ctx: RetProbeContext) -> u32 {
    keeps_the_threads_stack(&ctx);
    cost::of(program::END_RET, || request::end(&ctx, ctx.regs))
}

#[uprobe]
fn marked_begin(ctx: ProbeContext) -> u32 {
    keeps_the_threads_stack(&ctx);
    cost::of(program::MARKED_BEGIN, || {
        request::marked_begin(&ctx, ctx.regs)
    })
}

#[uprobe]
fn marked_end(ctx: ProbeContext) -> u32 {
    keeps_the_threads_stack(&ctx);
    cost::of(program::MARKED_END, || request::marked_end(&ctx, ctx.regs))
}

#[uretprobe]
fn marked_begin_ret(ctx: RetProbeContext) -> u32 {
    keeps_the_threads_stack(&ctx);
    cost::of(program::MARKED_BEGIN_RET, || {
        request::marked_begin(&ctx, ctx.regs)
    })
}

#[uretprobe]
fn marked_end_ret(ctx: RetProbeContext) -> u32 {
    keeps_the_threads_stack(&ctx);
    cost::of(program::MARKED_END_RET, || {
        request::marked_end(&ctx, ctx.regs)
    })
}

// Inlined: a call would take 32 of the 512 bytes of stack that Linux 6.1 gives it and what it calls.
#[uprobe]
#[inline(always)]
fn marker(ctx: ProbeContext) -> u32 {
    keeps_the_threads_stack(&ctx);
    // No closure: the compiler makes a function of a long one, whose frame Linux 6.1 has no room for.
    let Some(time) = cost::start(program::MARKER) else {
        return 0;
    };
    let result = keyed::marker(&ctx, ctx.regs);
    cost::stop(time);
    result
}

// In the program itself, and no function that it calls: kernel stacks that are remembered count on it
// (`known::kernel`).
#[btf_tracepoint(function = "sched_switch")]
#[inline(always)]
fn sched_switch(ctx: BtfTracePointContext) -> i32 {
    sched::switch(&ctx)
}

/// Only with blame, and where the kernel has it.
#[btf_tracepoint(function = "page_fault_user")]
fn page_fault_user(ctx: BtfTracePointContext) -> i32 {
    sched::fault(&ctx)
}

#[btf_tracepoint(function = "sched_waking")]
fn sched_waking(ctx: BtfTracePointContext) -> i32 {
    blame::waking(&ctx)
}

/// Only with blame, and attached before `sched_switch`. What it does has a program of its own because the verifier of 6.1 takes
/// no more in that one.
#[btf_tracepoint(function = "sched_switch")]
fn cpu_switch(ctx: BtfTracePointContext) -> i32 {
    cpu::switch(&ctx)
}

/// Only with blame.
#[btf_tracepoint(function = "sched_migrate_task")]
fn sched_migrate_task(ctx: BtfTracePointContext) -> i32 {
    cpu::moved(&ctx)
}

/// These three only with blame, and where the kernel has them.
#[btf_tracepoint(function = "block_getrq")]
fn block_getrq(ctx: BtfTracePointContext) -> i32 {
    disk::queued(&ctx)
}

#[btf_tracepoint(function = "block_rq_issue")]
fn block_rq_issue(ctx: BtfTracePointContext) -> i32 {
    disk::issued(&ctx)
}

#[btf_tracepoint(function = "block_rq_complete")]
fn block_rq_complete(ctx: BtfTracePointContext) -> i32 {
    disk::complete(&ctx)
}

#[btf_tracepoint(function = "sched_process_fork")]
fn sched_process_fork(ctx: BtfTracePointContext) -> i32 {
    process::fork(&ctx)
}

#[btf_tracepoint(function = "sched_process_exec")]
fn sched_process_exec(ctx: BtfTracePointContext) -> i32 {
    process::exec(&ctx)
}

#[btf_tracepoint(function = "sched_process_exit")]
fn sched_process_exit(ctx: BtfTracePointContext) -> i32 {
    process::exit(&ctx)
}

#[btf_tracepoint(function = "task_rename")]
fn task_rename(ctx: BtfTracePointContext) -> i32 {
    process::rename(&ctx)
}

/// These six only with `--before`, or blame of requests with a key, and the last three where the kernel has them.
#[btf_tracepoint(function = "tcp_probe")]
fn tcp_probe(ctx: BtfTracePointContext) -> i32 {
    before::segment(&ctx)
}

#[btf_tracepoint(function = "tcp_rcv_space_adjust")]
fn tcp_rcv_space_adjust(ctx: BtfTracePointContext) -> i32 {
    before::tcp_read(&ctx)
}

#[btf_tracepoint(function = "inet_sock_set_state")]
fn inet_sock_set_state(ctx: BtfTracePointContext) -> i32 {
    before::state(&ctx)
}

#[btf_tracepoint(function = "sk_data_ready")]
fn sk_data_ready(ctx: BtfTracePointContext) -> i32 {
    before::message(&ctx)
}

#[btf_tracepoint(function = "sock_recv_length")]
fn sock_recv_length(ctx: BtfTracePointContext) -> i32 {
    before::unix_read(&ctx)
}

#[btf_tracepoint(function = "sock_send_length")]
fn sock_send_length(ctx: BtfTracePointContext) -> i32 {
    origin::sent(&ctx)
}

/// This and those of interrupts and softirqs only with `--interrupts`.
#[btf_tracepoint(function = "sched_switch")]
fn interrupt_switch(ctx: BtfTracePointContext) -> i32 {
    interrupt::switch(&ctx)
}

#[btf_tracepoint(function = "irq_handler_entry")]
fn irq_handler_entry(_: BtfTracePointContext) -> i32 {
    interrupt::begins(Kind::Interrupt)
}

#[btf_tracepoint(function = "irq_handler_exit")]
fn irq_handler_exit(_: BtfTracePointContext) -> i32 {
    interrupt::ends(Kind::Interrupt)
}

#[btf_tracepoint(function = "local_timer_entry")]
fn local_timer_entry(_: BtfTracePointContext) -> i32 {
    interrupt::begins(Kind::Interrupt)
}

#[btf_tracepoint(function = "local_timer_exit")]
fn local_timer_exit(_: BtfTracePointContext) -> i32 {
    interrupt::ends(Kind::Interrupt)
}

#[btf_tracepoint(function = "reschedule_entry")]
fn reschedule_entry(_: BtfTracePointContext) -> i32 {
    interrupt::begins(Kind::Interrupt)
}

#[btf_tracepoint(function = "reschedule_exit")]
fn reschedule_exit(_: BtfTracePointContext) -> i32 {
    interrupt::ends(Kind::Interrupt)
}

#[btf_tracepoint(function = "call_function_entry")]
fn call_function_entry(_: BtfTracePointContext) -> i32 {
    interrupt::begins(Kind::Interrupt)
}

#[btf_tracepoint(function = "call_function_exit")]
fn call_function_exit(_: BtfTracePointContext) -> i32 {
    interrupt::ends(Kind::Interrupt)
}

#[btf_tracepoint(function = "call_function_single_entry")]
fn call_function_single_entry(_: BtfTracePointContext) -> i32 {
    interrupt::begins(Kind::Interrupt)
}

#[btf_tracepoint(function = "call_function_single_exit")]
fn call_function_single_exit(_: BtfTracePointContext) -> i32 {
    interrupt::ends(Kind::Interrupt)
}

#[btf_tracepoint(function = "irq_work_entry")]
fn irq_work_entry(_: BtfTracePointContext) -> i32 {
    interrupt::begins(Kind::Interrupt)
}

#[btf_tracepoint(function = "irq_work_exit")]
fn irq_work_exit(_: BtfTracePointContext) -> i32 {
    interrupt::ends(Kind::Interrupt)
}

#[btf_tracepoint(function = "softirq_entry")]
fn softirq_entry(_: BtfTracePointContext) -> i32 {
    interrupt::begins(Kind::Softirq)
}

#[btf_tracepoint(function = "softirq_exit")]
fn softirq_exit(_: BtfTracePointContext) -> i32 {
    interrupt::ends(Kind::Softirq)
}

/// The context of an iterator over all threads (`struct bpf_iter__task`).
#[repr(C)]
pub struct EachTask {
    /// Where the iterator is.
    pub meta: *const c_void,
    /// A thread; null behind the last one.
    pub task: *const task_struct,
}

/// Only with blame: run by user space when processes are new.
///
/// # Safety
///
/// The kernel calls it.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
unsafe extern "C" fn watch_threads(each: *const EachTask) -> i32 {
    // SAFETY: the kernel's own.
    let task = unsafe { (&raw const (*each).task).read_volatile() };
    if !task.is_null() {
        watch::watch(task);
    }
    0
}

#[perf_event]
fn sample(ctx: PerfEventContext) -> u32 {
    sample::take(&ctx)
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // Never reached: the verifier refuses a program in which it could be.
    loop {}
}
