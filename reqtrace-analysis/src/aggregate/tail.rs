//! Where typical and slow requests spend their time: cells in, two bands of latency out; and the longest blocks of
//! requests.
//!
//! A cell is 1.6 % wide and goes into a band as a whole.

use reqtrace_recording::{AddressSpace, BlockSite, Comm, LongBlock, Request};

use super::sites::Sites;
use super::trace::Trace;
use crate::cells::Cell;
use crate::report::slow::{Band, SlowBlock, Waker};

/// Requests that are slower than all but this part of all, in percent.
const SLOWEST: u64 = 1;
/// Typical requests are those between these percentiles.
const TYPICAL: (u64, u64) = (40, 60);
/// Fewer requests than this have no tail worth a table.
const FEWEST: u64 = 10;
/// Longest blocks that are kept, each of another place.
const KEPT: usize = 16;

/// One of the longest blocks, and the request it was in.
#[derive(Clone, Debug)]
struct Kept {
    block: LongBlock,
    space: AddressSpace,
    tid: u32,
    comm: Comm,
    latency_ns: u64,
}

impl Kept {
    /// The request, as far as it is shown.
    fn request(&self) -> Request<'static> {
        Request {
            space: self.space,
            tid: self.tid,
            comm: self.comm,
            end_ns: self.latency_ns,
            ..Request::default()
        }
    }

    fn length_ns(&self) -> u64 {
        length(&self.block)
    }
}

/// The longest blocks of complete requests of one type, the longest first.
#[derive(Debug, Default)]
pub(super) struct Longest(Vec<Kept>);

impl Longest {
    /// Takes a complete request.
    pub(super) fn add(&mut self, request: &Request<'_>) {
        for block in request.longest {
            if !self.keep(request, block) {
                // The others are shorter.
                break;
            }
        }
    }

    /// Keeps a block if it is one of the longest; false when it is shorter than all that are kept.
    fn keep(&mut self, request: &Request<'_>, block: &LongBlock) -> bool {
        let shortest = self.0.last().map_or(0, Kept::length_ns);
        if length(block) == 0 || (self.0.len() == KEPT && length(block) <= shortest) {
            return false;
        }
        let space = request.space;
        let same_place = |kept: &Kept| kept.space == space && kept.block.site == block.site;
        if let Some(known) = self.0.iter().position(same_place) {
            let known_as = (self.0[known].length_ns(), self.0[known].latency_ns);
            if known_as >= (length(block), request.latency_ns()) {
                return true;
            }
            self.0.remove(known);
        }
        self.0.truncate(KEPT - 1);
        let kept = Kept {
            block: *block,
            space,
            tid: request.tid,
            comm: request.comm,
            latency_ns: request.latency_ns(),
        };
        let at = self
            .0
            .partition_point(|longer| longer.length_ns() >= length(block));
        self.0.insert(at, kept);
        true
    }

    /// Places whose stacks a report shows.
    pub(super) fn places(&self) -> impl Iterator<Item = (AddressSpace, BlockSite)> {
        self.0.iter().map(|kept| (kept.space, kept.block.site))
    }

    /// Processes that a report shows with the longest blocks: those that blocked, and those that woke them.
    pub(super) fn processes(&self) -> impl Iterator<Item = u32> {
        self.0
            .iter()
            .flat_map(|kept| [kept.space.tgid, kept.block.waker_tgid])
    }

    /// Those of requests that were slower than this, with their names.
    pub(super) fn slower_than(
        &self,
        latency_ns: u64,
        sites: &mut Sites,
        trace: &Trace,
    ) -> Vec<SlowBlock> {
        let slow = self.0.iter().filter(|kept| kept.latency_ns > latency_ns);
        slow.map(|kept| slow_block(&kept.request(), &kept.block, sites, trace))
            .collect()
    }
}

/// Typical and slowest requests of cells in the order of their latency; `None` when there are few requests, or none that
/// is slower than the typical ones.
pub(super) fn bands(cells: &[&Cell]) -> Option<(Band, Band)> {
    let all: u64 = cells.iter().map(|cell| cell.sum.weight).sum();
    if all < FEWEST {
        return None;
    }
    let slow_count = (all * SLOWEST).div_ceil(100);
    let mut slowest = Band::default();
    for cell in cells.iter().rev() {
        if slowest.count >= slow_count {
            break;
        }
        add(&mut slowest, cell);
    }
    let (low, high) = (all * TYPICAL.0 / 100 + 1, (all * TYPICAL.1).div_ceil(100));
    let mut typical = Band::default();
    let mut before = 0;
    for cell in cells {
        // Ranks, from 1, of its requests.
        let (first, last) = (before + 1, before + cell.sum.weight);
        if last >= low && first <= high {
            add(&mut typical, cell);
        }
        before = last;
    }
    (slowest.from_ns > typical.to_ns).then_some((typical, slowest))
}

fn add(band: &mut Band, cell: &Cell) {
    if band.count == 0 {
        (band.from_ns, band.to_ns) = (cell.min_ns, cell.max_ns);
    }
    band.count += cell.sum.weight;
    band.from_ns = band.from_ns.min(cell.min_ns);
    band.to_ns = band.to_ns.max(cell.max_ns);
    band.ledger.add(&cell.sum.ledger);
}

/// A block with its names.
pub(super) fn slow_block(
    request: &Request<'_>,
    block: &LongBlock,
    sites: &mut Sites,
    trace: &Trace,
) -> SlowBlock {
    let place = sites.place(request.request_type, request.space, &block.site);
    SlowBlock {
        pid: request.space.tgid,
        // Of a request that several threads ran nobody has noted which of them was blocked.
        tid: (request.moves == 0).then_some(request.tid),
        comm: request.comm.text(),
        latency_ns: request.latency_ns(),
        start_unix_ns: trace.unix_ns(block.start_ns),
        blocked_ns: block.blocked_ns,
        run_queue_ns: block.run_queue_ns,
        class: place.class,
        waker: (block.waker_tid != 0).then(|| Waker {
            pid: block.waker_tgid,
            tid: block.waker_tid,
            comm: sites.thread_comm(block.waker_tgid, block.waker_tid),
        }),
        user: place.user,
        kernel: place.kernel,
    }
}

fn length(block: &LongBlock) -> u64 {
    block.blocked_ns.saturating_add(block.run_queue_ns)
}

#[cfg(test)]
#[path = "tail/tests.rs"]
mod tests;
