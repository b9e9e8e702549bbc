//! What the programs take, by their own clock: one run in 64 is timed.
//!
//! The time of the start is kept in the map, not in the program. `sched_switch` has it anyway, and does
//! everything at its end: whatever branches before its body makes the verifier look at that twice.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use reqtrace_common::cost::{LONGEST_NS, ProgramTime, TIMED_ONE_IN};

use crate::maps::{PROCESSES, of_this_cpu};
use crate::task::current_ids;

/// Times by program and CPU: see [`of_this_cpu`]; sized by user space before loading. A program on a uprobe may be preempted by
/// another thread's: then a run is not counted, or timed too long, which matters little for an estimate.
#[map]
static COSTS: Array<ProgramTime> = Array::with_max_entries(1, 0);

/// Counts a run that began then.
#[inline(always)]
pub(crate) fn ended(program: u32, begun: u64) {
    let Some(time) = COSTS.get_ptr_mut(of_this_cpu(program)) else {
        return;
    };
    // SAFETY: this CPU's own entry.
    unsafe {
        let runs = (*time).runs.wrapping_add(1);
        (*time).runs = runs;
        if runs & (TIMED_ONE_IN - 1) == 1 {
            let took = bpf_ktime_get_ns().wrapping_sub(begun);
            (*time).timed += 1;
            (*time).timed_ns += took;
        }
    }
}

/// Runs a program's body and counts it.
#[inline(always)]
pub(crate) fn of(program: u32, body: impl FnOnce() -> u32) -> u32 {
    let Some(time) = start(program) else {
        return 0;
    };
    let result = body();
    stop(time);
    result
}

/// A program's body begins. Without the map's entry, which is always there, the body must not run: the verifier would look at
/// all of it twice.
#[inline(always)]
pub(crate) fn start(program: u32) -> Option<*mut ProgramTime> {
    let time = COSTS.get_ptr_mut(of_this_cpu(program))?;
    // SAFETY: this CPU's own entry.
    unsafe {
        let runs = (*time).runs.wrapping_add(1);
        (*time).runs = runs;
        // The first one too: a short trace has no more.
        if runs & (TIMED_ONE_IN - 1) == 1 {
            (*time).started_ns = bpf_ktime_get_ns();
            let (tgid, _) = current_ids();
            if PROCESSES.get_ptr(tgid).is_none() {
                (*time).foreign += 1;
            }
        }
    }
    Some(time)
}

/// It has ended.
#[inline(always)]
pub(crate) fn stop(time: *mut ProgramTime) {
    // SAFETY: as above; a program does not change its CPU.
    unsafe {
        let started = (*time).started_ns;
        if started == 0 {
            return;
        }
        (*time).started_ns = 0;
        let took = bpf_ktime_get_ns().wrapping_sub(started);
        if took < LONGEST_NS {
            (*time).timed += 1;
            (*time).timed_ns += took;
        }
    }
}
