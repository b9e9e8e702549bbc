//! Totals per request type: exact whatever happens to the records.

use reqtrace_common::histogram::{BUCKETS, bucket};
use reqtrace_common::record::{RequestRecord, reason};
use reqtrace_common::sums::{SECONDS, TypeTotals};

use crate::assembly::{add, compare_exchange};
use crate::maps::{SENT, TOTALS};

const NS_PER_SECOND: u64 = 1_000_000_000;

/// How often a lost race for the maximum is tried again.
const MAX_TRIES: usize = 4;

/// A counter of [`TypeTotals`].
#[derive(Clone, Copy)]
pub(crate) enum Counter {
    Begins,
    Ends,
    Nested,
    OtherType,
    EndsWithoutBegin,
    Unsampled,
    Incomplete,
    Withheld,
}

/// Counts an event of a request type.
#[inline(always)]
pub(crate) fn count(request_type: u32, counter: Counter) {
    let Some(totals) = TOTALS.get_ptr_mut(request_type) else {
        return;
    };
    // SAFETY: points into the map.
    unsafe {
        let field = match counter {
            Counter::Begins => &raw mut (*totals).begins,
            Counter::Ends => &raw mut (*totals).ends,
            Counter::Nested => &raw mut (*totals).nested,
            Counter::OtherType => &raw mut (*totals).other_type,
            Counter::EndsWithoutBegin => &raw mut (*totals).ends_without_begin,
            Counter::Unsampled => &raw mut (*totals).unsampled,
            Counter::Incomplete => &raw mut (*totals).incomplete,
            Counter::Withheld => &raw mut (*totals).withheld,
        };
        add(field, 1);
    }
}

/// Adds a closed request.
#[inline(always)]
pub(crate) fn add_request(record: &RequestRecord) {
    let Some(totals) = TOTALS.get_ptr_mut(record.request_type) else {
        return;
    };
    // SAFETY: points into the map; the bucket is checked.
    unsafe {
        if record.reason != reason::COMPLETE {
            add(&raw mut (*totals).incomplete, 1);
            return;
        }
        let latency = record.latency_ns();
        let weight = u64::from(record.weight);
        add(&raw mut (*totals).count, weight);
        add(&raw mut (*totals).latency_ns, latency * weight);
        // Most requests were never off the CPU.
        add_some(
            &raw mut (*totals).run_queue_ns,
            record.run_queue_ns * weight,
        );
        add_some(
            &raw mut (*totals).preempted_ns,
            record.preempted_ns * weight,
        );
        add_some(&raw mut (*totals).blocked_ns, record.blocked_ns * weight);
        add_some(
            &raw mut (*totals).unattributed_ns,
            record.unattributed_ns * weight,
        );
        add_some(&raw mut (*totals).beyond, weight - 1);
        let index = bucket(latency);
        if index < BUCKETS {
            add(
                (&raw mut (*totals).histogram).cast::<u64>().add(index),
                weight,
            );
        }
        raise_max(totals, latency);
    }
}

/// Adds the time in which no thread ran a closed request. Which places are queued is in `queued_ns`.
#[inline(always)]
pub(crate) fn add_away(record: &RequestRecord, parked_ns: u64, queued_ns: u64) {
    if record.reason != reason::COMPLETE {
        return;
    }
    let Some(totals) = TOTALS.get_ptr_mut(record.request_type) else {
        return;
    };
    let weight = u64::from(record.weight);
    // SAFETY: points into the map.
    unsafe {
        add_some(&raw mut (*totals).parked_ns, parked_ns * weight);
        add_some(&raw mut (*totals).queued_ns, queued_ns * weight);
    }
}

/// Counts a record that was sent, in the second of its end.
#[inline(always)]
pub(crate) fn sent(record: &RequestRecord) {
    let second = (record.end_ns / NS_PER_SECOND) as u32 % SECONDS;
    if let Some(sent) = SENT.get_ptr_mut(second) {
        // SAFETY: points into the map.
        unsafe {
            add(&raw mut (*sent).requests, 1);
            add(&raw mut (*sent).latency_ns, record.latency_ns());
        }
    }
}

#[inline(always)]
unsafe fn add_some(counter: *mut u64, value: u64) {
    if value != 0 {
        // SAFETY: by the caller.
        unsafe { add(counter, value) }
    }
}

#[inline(always)]
unsafe fn raise_max(totals: *mut TypeTotals, latency: u64) {
    // SAFETY: points into the map.
    unsafe {
        let max = &raw mut (*totals).max_ns;
        let mut seen = max.read_volatile();
        let mut tries = 0;
        while tries < MAX_TRIES && latency > seen {
            let found = compare_exchange(max, seen, latency);
            if found == seen {
                return;
            }
            seen = found;
            tries += 1;
        }
    }
}
