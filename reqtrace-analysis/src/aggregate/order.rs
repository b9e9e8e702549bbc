//! The order of rows: requests as they arrive in, requests by their end out.

use std::collections::VecDeque;

use reqtrace_base::plain::Plain;
use reqtrace_recording::{Comm, Incomplete, LostCpu, Request};

use crate::cells::GroupKey;
use crate::page::OwnStacks;
use crate::report::Ledger;

/// How long a row waits for others that ended before it, ns. Records of different CPUs arrive a
/// little out of order; a reader that looks every 100 ms sees them well within this.
pub const WINDOW_NS: u64 = 200_000_000;
/// Bytes of rows that wait: more than a machine makes in that time.
const MAX_BYTES: usize = 96 << 20;
/// Rows whose memory is kept. For each that comes about one is written; the one that was written first is used first, so that
/// rows follow one another in memory, which a CPU reads ahead.
const SPARE: usize = 4096;
/// Bytes of a label whose memory is kept.
const SHORT_LABEL: usize = 64;

/// Where a request is counted.
#[derive(Debug, Default)]
pub(super) struct Home {
    /// The begin of its window.
    pub(super) window: u64,
    /// The same of its group, and its key there.
    pub(super) group: Option<(u64, GroupKey)>,
}

/// A request that waits to be written.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) id: u64,
    pub(super) request_type: usize,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) comm: Comm,
    /// As the program had it.
    pub(super) label: Vec<u8>,
    /// What it was about.
    pub(super) attributes: Vec<Plain>,
    /// What stands for it in groups, where that is not its label.
    pub(super) group: Option<Vec<u8>>,
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
    /// Where it is counted.
    pub(super) home: Home,
    pub(super) ledger: Ledger,
    pub(super) blocks: u32,
    pub(super) preemptions: u32,
    pub(super) incomplete: Option<Incomplete>,
    pub(super) weight: u32,
    pub(super) waited_before_ns: Option<u64>,
    pub(super) lost: LostCpu,
    /// Its stacks, for the page.
    pub(super) stacks: OwnStacks,
}

impl Row {
    /// Makes it that of a request; its lists keep their memory.
    fn fill(&mut self, request: &Request<'_>, ledger: &Ledger) {
        self.id = request.id;
        self.request_type = request.request_type as usize;
        self.pid = request.space.tgid;
        self.tid = request.tid;
        self.comm = request.comm;
        self.label.clear();
        // What is counted is the length.
        self.label.shrink_to(request.label.len().max(SHORT_LABEL));
        self.label.extend_from_slice(request.label);
        self.group = None;
        self.begin_ns = request.begin_ns;
        self.end_ns = request.end_ns;
        self.home = Home::default();
        self.ledger.copy(ledger);
        self.blocks = request.blocks;
        self.preemptions = request.preemptions;
        self.incomplete = request.incomplete;
        self.weight = request.weight;
        self.waited_before_ns = request.waited_before_ns;
        self.lost = request.lost;
        self.stacks = OwnStacks::default();
    }

    /// The memory that it takes.
    fn bytes(&self) -> usize {
        let texts = self
            .attributes
            .iter()
            .map(|text| text.len() + size_of::<Plain>());
        let group = self.group.as_ref().map_or(0, Vec::len);
        let ledger = &self.ledger;
        let times = ledger.classes.len() + ledger.parked.len() + ledger.queued.len();
        let stacks = self.stacks.blocked.len() + self.stacks.samples.len();
        let lists = 8 * times + 16 * stacks;
        size_of::<Self>() + self.label.len() + group + texts.sum::<usize>() + lists
    }

    /// What stands for it in groups.
    pub(super) fn group(&self) -> &[u8] {
        self.group.as_deref().unwrap_or(&self.label)
    }
}

/// A row that waits.
#[derive(Debug)]
struct Waiting {
    /// Its end and its id.
    key: (u64, u64),
    bytes: usize,
    row: Box<Row>,
}

/// Rows that wait. How far time has come is known from the events, never from a clock.
#[derive(Debug, Default)]
pub(super) struct RowOrder {
    /// By their end, then their id, then as they came. Nearly all come in that order.
    waiting: VecDeque<Waiting>,
    /// Rows that were written, to be used again.
    spare: VecDeque<Box<Row>>,
    bytes: usize,
    /// The latest time of an event.
    seen_ns: u64,
    /// Requests that came after the window of their end had passed.
    pub(super) late: u64,
}

impl RowOrder {
    /// Time has come so far.
    pub(super) fn advance(&mut self, now_ns: u64) {
        self.seen_ns = self.seen_ns.max(now_ns);
    }

    /// A request has ended. Counts it when it is too late for the order.
    pub(super) fn ended(&mut self, end_ns: u64) {
        self.advance(end_ns);
        self.late += u64::from(self.is_due(end_ns));
    }

    /// A row of a request, for [`Self::push`].
    pub(super) fn row(&mut self, request: &Request<'_>, ledger: &Ledger) -> Box<Row> {
        let mut row = self.spare.pop_front().unwrap_or_default();
        row.fill(request, ledger);
        row
    }

    /// Takes a row.
    pub(super) fn push(&mut self, row: Box<Row>) {
        let key = (row.end_ns, row.id);
        let bytes = row.bytes();
        self.bytes += bytes;
        let mut at = self.waiting.len();
        if self.waiting.back().is_some_and(|last| last.key > key) {
            at = self.waiting.partition_point(|other| other.key <= key);
        }
        self.waiting.insert(at, Waiting { key, bytes, row });
    }

    /// The next row whose window has passed, or for which there is no room any more.
    pub(super) fn pop_due(&mut self) -> Option<Box<Row>> {
        let (end_ns, _) = self.waiting.front()?.key;
        if !self.is_due(end_ns) && self.bytes <= MAX_BYTES {
            return None;
        }
        self.pop()
    }

    /// The next row, whether its window has passed or not.
    pub(super) fn pop(&mut self) -> Option<Box<Row>> {
        let next = self.waiting.pop_front()?;
        self.bytes -= next.bytes;
        Some(next.row)
    }

    /// Takes back a row that was written.
    pub(super) fn written(&mut self, row: Box<Row>) {
        if self.spare.len() < SPARE {
            self.spare.push_back(row);
        }
    }

    /// All requests that ended before this have come, and all that came are written.
    pub(super) fn watermark_ns(&self) -> u64 {
        self.seen_ns.saturating_sub(WINDOW_NS)
    }

    fn is_due(&self, end_ns: u64) -> bool {
        end_ns.saturating_add(WINDOW_NS) <= self.seen_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(end_ns: u64, tid: u32) -> Box<Row> {
        Box::new(Row {
            tid,
            end_ns,
            ..Row::default()
        })
    }

    #[test]
    fn rows_come_out_by_their_end_and_late_ones_are_counted() {
        let mut order = RowOrder::default();
        for (end, tid) in [(30, 3), (10, 1), (20, 2)] {
            order.ended(end);
            order.push(row(end, tid));
        }
        assert!(order.pop_due().is_none());
        order.advance(20 + WINDOW_NS);
        let mut due = Vec::new();
        while let Some(row) = order.pop_due() {
            due.push(row.tid);
        }
        assert_eq!((due, order.late), (vec![1, 2], 0));
        order.ended(15);
        order.push(row(15, 9));
        assert_eq!(order.late, 1);
        assert_eq!(order.pop_due().map(|row| row.tid), Some(9));
        assert!(order.pop_due().is_none());
        assert_eq!(order.pop().map(|row| row.tid), Some(3));
        assert!(order.pop().is_none());
    }
}
