//! The kernel's structures in, the types of a recording out: the one place where they meet.

use reqtrace_common::filter::LengthHistogram as KernelHistogram;
use reqtrace_common::record::{
    BlockSite as KernelSite, LongBlock as KernelLongBlock, Slot as KernelSlot,
};
use reqtrace_common::sums::{
    StackSum as KernelSum, StackSumKey as KernelKey, TypeTotals as KernelTotals,
};
use reqtrace_recording::{
    BlockSite, LengthHistogram, LongBlock, Slot, StackSum, StackSumKey, TypeTotals,
};

pub(in crate::attach) fn site(site: &KernelSite) -> BlockSite {
    BlockSite {
        user_stack: site.user_stack,
        kernel_stack: site.kernel_stack,
        syscall: site.syscall,
        file: site.file,
    }
}

pub(in crate::attach) fn slot(slot: &KernelSlot) -> Slot {
    Slot {
        site: site(&slot.site),
        blocked_ns: slot.blocked_ns,
    }
}

pub(in crate::attach) fn long_block(block: &KernelLongBlock) -> LongBlock {
    LongBlock {
        site: site(&block.site),
        start_ns: block.start_ns,
        blocked_ns: block.blocked_ns,
        run_queue_ns: block.run_queue_ns,
        waker_tid: block.waker_tid,
        waker_tgid: block.waker_tgid,
    }
}

pub(in crate::attach) fn key(key: &KernelKey) -> StackSumKey {
    StackSumKey {
        user_stack: key.user_stack,
        kernel_stack: key.kernel_stack,
        tgid: key.tgid,
        exec_generation: key.exec_generation,
        request_type: key.request_type,
        off_kind: key.off_kind,
        syscall: key.syscall,
        file: key.file,
    }
}

pub(in crate::attach) fn sum(sum: &KernelSum) -> StackSum {
    StackSum {
        off_ns: sum.off_ns,
        run_queue_ns: sum.run_queue_ns,
        count: sum.count,
        longest_ns: sum.longest_ns,
        bytes: sum.bytes,
        longest_run_queue_ns: sum.longest_run_queue_ns,
    }
}

pub(in crate::attach) fn lengths(histogram: &KernelHistogram) -> LengthHistogram {
    LengthHistogram {
        counts: histogram.counts,
    }
}

pub(in crate::attach) fn totals(totals: &KernelTotals) -> TypeTotals {
    TypeTotals {
        count: totals.count,
        latency_ns: totals.latency_ns,
        run_queue_ns: totals.run_queue_ns,
        preempted_ns: totals.preempted_ns,
        blocked_ns: totals.blocked_ns,
        unattributed_ns: totals.unattributed_ns,
        max_ns: totals.max_ns,
        begins: totals.begins,
        ends: totals.ends,
        incomplete: totals.incomplete,
        nested: totals.nested,
        other_type: totals.other_type,
        ends_without_begin: totals.ends_without_begin,
        unsampled: totals.unsampled,
        beyond: totals.beyond,
        histogram: totals.histogram,
        parked_ns: totals.parked_ns,
        queued_ns: totals.queued_ns,
        unknown_keys: totals.unknown_keys,
        running_elsewhere: totals.running_elsewhere,
        withheld: totals.withheld,
        // Counted by marker.
        children: 0,
    }
}
