//! The order of rows: requests as they arrive in, requests by their end out.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::decode::{Incomplete, RawRequest};
use crate::report::Ledger;

/// How long a row waits for others that ended before it, ns. Records of different CPUs arrive a
/// little out of order; a reader that looks every 100 ms sees them well within this.
pub const WINDOW_NS: u64 = 200_000_000;

/// A request that waits to be written.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) request_type: usize,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) comm: String,
    pub(super) label: String,
    pub(super) begin_ns: u64,
    pub(super) ledger: Ledger,
    pub(super) blocks: u32,
    pub(super) preemptions: u32,
    pub(super) incomplete: Option<Incomplete>,
}

impl Row {
    pub(super) fn new(request: &RawRequest, ledger: Ledger) -> Self {
        Self {
            request_type: request.request_type,
            pid: request.tgid,
            tid: request.tid,
            comm: request.comm.clone(),
            label: request.label.clone(),
            begin_ns: request.begin_ns,
            ledger,
            blocks: request.blocks,
            preemptions: request.preemptions,
            incomplete: request.incomplete,
        }
    }
}

/// Rows that wait.
#[derive(Debug, Default)]
pub(super) struct RowOrder {
    waiting: BinaryHeap<Waiting>,
    /// End of the last row that was handed out.
    written_ns: u64,
    next: u64,
    /// Rows handed out after one that ended later.
    pub(super) late: u64,
}

impl RowOrder {
    /// Takes a row; gives it back when it is too late for the order.
    pub(super) fn push(&mut self, end_ns: u64, row: Row) -> Option<Row> {
        if end_ns < self.written_ns {
            self.late += 1;
            return Some(row);
        }
        self.waiting.push(Waiting {
            end_ns,
            number: self.next,
            row: Box::new(row),
        });
        self.next += 1;
        None
    }

    /// The next row whose window has passed at `now_ns`.
    pub(super) fn pop_due(&mut self, now_ns: u64) -> Option<Row> {
        let first = self.waiting.peek()?;
        // The end of time flushes everything.
        if now_ns != u64::MAX && first.end_ns.saturating_add(WINDOW_NS) > now_ns {
            return None;
        }
        let first = self.waiting.pop()?;
        self.written_ns = first.end_ns;
        Some(*first.row)
    }
}

/// A row in the heap: the earliest end first, then the first to arrive.
#[derive(Debug)]
struct Waiting {
    end_ns: u64,
    number: u64,
    /// On the heap: the order moves it several times.
    row: Box<Row>,
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.end_ns, other.number).cmp(&(self.end_ns, self.number))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Waiting {}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(tid: u32) -> Row {
        Row {
            request_type: 0,
            pid: 1,
            tid,
            comm: String::new(),
            label: String::new(),
            begin_ns: 0,
            ledger: Ledger::default(),
            blocks: 0,
            preemptions: 0,
            incomplete: None,
        }
    }

    #[test]
    fn rows_come_out_by_their_end_and_late_ones_are_counted() {
        let mut order = RowOrder::default();
        for (end, tid) in [(30, 3), (10, 1), (20, 2)] {
            assert!(order.push(end, row(tid)).is_none());
        }
        assert!(order.pop_due(WINDOW_NS).is_none());
        let mut due = Vec::new();
        while let Some(row) = order.pop_due(20 + WINDOW_NS) {
            due.push(row.tid);
        }
        assert_eq!(due, [1, 2]);
        assert_eq!(order.push(15, row(9)).map(|row| row.tid), Some(9));
        assert_eq!(order.late, 1);
        assert_eq!(order.pop_due(u64::MAX).map(|row| row.tid), Some(3));
        assert!(order.pop_due(u64::MAX).is_none());
    }
}
