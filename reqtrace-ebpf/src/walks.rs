//! What walking user stacks takes, counted when that is asked for: two clocks a walk. Then stacks that
//! are remembered are walked too, and compared.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use reqtrace_common::histogram::{BUCKETS, bucket};
use reqtrace_common::loss::Loss;
use reqtrace_common::record::{STACK_LOST, StackId};

use crate::assembly::add;
use crate::globals::MEASURE_WALKS;
use crate::known::user::AtMarker;
use crate::maps::{WALKS, lose};

/// Whether a stack that is remembered has to be walked too.
#[inline(always)]
pub(crate) fn check() -> bool {
    MEASURE_WALKS.load() != 0
}

/// Compares a stack that was remembered with what a walk found.
#[inline(always)]
pub(crate) fn checked(known: Option<StackId>, walked: StackId, of_kernel: bool) {
    let Some(known) = known else { return };
    if walked == STACK_LOST {
        return;
    }
    if known != walked {
        lose(Loss::KnownStackWrong);
    }
    if let Some(walks) = WALKS.get_ptr_mut(0) {
        // SAFETY: this CPU's own entry, and interrupts are off.
        unsafe {
            if of_kernel {
                (*walks).known_kernel += 1;
            } else {
                (*walks).known_user += 1;
            }
        }
    }
}

/// The same of a stack at a marker. Programs there can be preempted.
#[inline(always)]
pub(crate) fn checked_at_marker(known: AtMarker, walked: AtMarker) {
    if walked.stack != STACK_LOST && known != walked {
        lose(Loss::KnownStackWrong);
    }
    if let Some(walks) = WALKS.get_ptr_mut(0) {
        // SAFETY: points into the map.
        unsafe { add(&raw mut (*walks).known_at_markers, 1) }
    }
}

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
