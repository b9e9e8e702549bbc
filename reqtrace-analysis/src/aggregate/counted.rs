//! What the kernel has counted, and what has come of it: totals and records in, what nobody accounts for out.
//!
//! The kernel counts each complete request before it sends its record. So what it has counted has come, or is counted as
//! lost; and when all records have come, their latencies add up to the nanosecond.

use reqtrace_common::sums::TypeTotals;

use super::types::Arrived;

/// All types.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    /// Complete requests whose records have not come.
    missing: u64,
    /// What the latencies differ in of types whose records have all come.
    ns: u64,
}

impl Counted {
    /// Adds one type.
    pub(super) fn add(&mut self, totals: &TypeTotals, arrived: &Arrived) {
        let recorded = totals.recorded();
        self.missing += recorded.saturating_sub(arrived.rows);
        if recorded == arrived.rows {
            let latency_ns = arrived.complete.ledger.latency_ns;
            self.ns += totals.latency_ns.abs_diff(latency_ns);
        }
    }

    /// Requests that are neither there nor among so many lost ones, and nanoseconds that should not differ.
    pub(super) fn unaccounted(self, lost: u64) -> (u64, u64) {
        (self.missing.saturating_sub(lost), self.ns)
    }
}
