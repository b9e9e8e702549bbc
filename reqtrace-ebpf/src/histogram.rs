//! Lengths of off-CPU intervals: closed intervals in, counts by powers of two per stack pair out, exact
//! whatever happens to the records.

use aya_ebpf::bindings::BPF_NOEXIST;

use reqtrace_common::filter::{LengthHistogram, POWERS, power};
use reqtrace_common::loss::Loss;
use reqtrace_common::sums::StackSumKey;

use crate::assembly::add;
use crate::maps::{HISTOGRAMS, lose};

/// What a new entry is copied from: it would take half of the BPF stack.
static EMPTY: LengthHistogram = LengthHistogram::ZERO;

/// Counts one interval, for as many requests as its own stands for.
#[inline(always)]
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "by value it would be copied to the stack, which has 512 bytes"
)]
pub(crate) fn count(key: &StackSumKey, length_ns: u64, weight: u64) {
    if HISTOGRAMS.get_ptr(key).is_none() {
        // Another CPU may insert it first: then it is there as well.
        let _ = HISTOGRAMS.insert(key, &EMPTY, u64::from(BPF_NOEXIST));
    }
    let Some(entry) = HISTOGRAMS.get_ptr_mut(key) else {
        lose(Loss::HistogramFull);
        return;
    };
    let index = power(length_ns);
    if index < POWERS {
        // SAFETY: points into the map; the index is checked.
        unsafe { add((&raw mut (*entry).counts).cast::<u64>().add(index), weight) }
    }
}
