//! Kernel programs of their own that only count: how often places in code are hit, and with which
//! arguments and results functions are called.
//!
//! In: hits of uprobes, distinguished by the attach cookie. Out: one counter for each, and what
//! [`call`] notes. It is an object apart, so that counting costs none of the tracer's maps.

#![no_std]
#![no_main]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]

#[allow(
    unused_imports,
    dead_code,
    reason = "the tracer's programs use the rest of it"
)]
mod assembly;
mod call;

use aya_ebpf::Global;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::bpf_get_attach_cookie;
use aya_ebpf::macros::{map, uprobe};
use aya_ebpf::maps::{HashMap, PerCpuArray};
use aya_ebpf::programs::ProbeContext;
use reqtrace_common::limits::{MAX_COUNTED, MAX_PROCESSES};

/// [`reqtrace_common::ABI_VERSION`], compared by the loader with its own.
#[unsafe(no_mangle)]
static ABI_VERSION: Global<u32> = Global::new(reqtrace_common::ABI_VERSION);

/// 1 when the hits of all processes count, not only of those in [`COUNTED_PROCESSES`].
#[unsafe(no_mangle)]
static EVERY_PROCESS: Global<u32> = Global::new(0);

/// Processes whose hits count, by tgid.
#[map]
static COUNTED_PROCESSES: HashMap<u32, u8> = HashMap::with_max_entries(MAX_PROCESSES, 0);

/// Hits by cookie. Per CPU, so that CPUs do not fight for a cache line; a program on a uprobe can
/// be preempted by another on the same CPU, so the addition is atomic all the same.
#[map]
static HITS: PerCpuArray<u64> = PerCpuArray::with_max_entries(MAX_COUNTED, 0);

#[uprobe]
fn count_hit(ctx: ProbeContext) -> u32 {
    assembly::keeps_the_threads_stack(&ctx);
    count(&ctx);
    0
}

/// The same at the entry of a function or its return; the upper half of the cookie says which.
#[uprobe]
fn note_call(ctx: ProbeContext) -> u32 {
    assembly::keeps_the_threads_stack(&ctx);
    if let Some(cookie) = count(&ctx) {
        call::note(ctx.regs, (cookie >> 32) as u32);
    }
    0
}

/// Counts a hit, and returns its cookie if it is one that counts.
#[inline(always)]
fn count(ctx: &ProbeContext) -> Option<u64> {
    if EVERY_PROCESS.load() == 0 {
        let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
        COUNTED_PROCESSES.get_ptr(tgid)?;
    }
    // SAFETY: a uprobe's context has a cookie.
    let cookie = unsafe { bpf_get_attach_cookie(ctx.regs.cast()) };
    if let Some(hits) = HITS.get_ptr_mut(cookie as u32) {
        // SAFETY: points into the map.
        unsafe { assembly::add(hits, 1) }
    }
    Some(cookie)
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
