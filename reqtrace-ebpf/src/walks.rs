//! What walking user stacks takes, counted when that is asked for: two clocks a walk.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use reqtrace_common::histogram::{BUCKETS, bucket};

use crate::globals::MEASURE_WALKS;
use crate::maps::WALKS;

/// When a walk began; 0 when nothing is counted.
#[inline(always)]
pub(crate) fn begin() -> u64 {
    if MEASURE_WALKS.load() == 0 {
        return 0;
    }
    // SAFETY: no precondition.
    unsafe { bpf_ktime_get_ns() }
}

/// Counts the walk that began then.
#[inline(always)]
pub(crate) fn end(begun: u64, frames: usize) {
    if MEASURE_WALKS.load() == 0 {
        return;
    }
    let Some(walks) = WALKS.get_ptr_mut(0) else {
        return;
    };
    // SAFETY: this CPU's own entry, interrupts are off, and the bucket is checked.
    unsafe {
        let took = bpf_ktime_get_ns().wrapping_sub(begun);
        (*walks).count += 1;
        (*walks).frames += frames as u64;
        (*walks).ns += took;
        if took > (*walks).max_ns {
            (*walks).max_ns = took;
        }
        let index = bucket(took);
        if index < BUCKETS {
            *(&raw mut (*walks).histogram).cast::<u64>().add(index) += 1;
        }
    }
}
