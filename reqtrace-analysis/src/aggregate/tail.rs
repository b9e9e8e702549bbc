//! Where typical and slow requests spend their time: requests in, two bands of latency out.
//!
//! The sums of ledgers are kept per bucket of latency, so that which requests are slow can be decided at
//! the end, with memory that does not grow. A bucket is 1.6 % wide and goes into a band as a whole.

use reqtrace_recording::{AddressSpace, BlockSite, Comm, LongBlock, Request};

use super::sites::Sites;
use super::trace::Trace;
use crate::report::Ledger;
use crate::report::slow::{Band, SlowBlock, SlowRequests, Waker};

/// Each power of two is cut into `1 << SUB_BITS` buckets.
const SUB_BITS: u32 = 6;
/// Requests that are slower than all but this part of all, in percent.
const SLOWEST: u64 = 1;
/// Typical requests are those between these percentiles.
const TYPICAL: (u64, u64) = (40, 60);
/// Fewer requests than this have no tail worth a table.
const FEWEST: u64 = 10;
/// Longest blocks that are kept, each of another place.
const KEPT: usize = 16;

/// Complete requests of one latency.
#[derive(Clone, Debug)]
struct Bucket {
    count: u64,
    min_ns: u64,
    max_ns: u64,
    ledger: Ledger,
}

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

/// The latencies of one request type.
#[derive(Debug, Default)]
pub(super) struct Tail {
    buckets: Vec<Option<Box<Bucket>>>,
    /// The longest first.
    longest: Vec<Kept>,
}

impl Tail {
    /// Takes a complete request.
    pub(super) fn add(&mut self, request: &Request<'_>, ledger: &Ledger) {
        let index = bucket(ledger.latency_ns);
        if index >= self.buckets.len() {
            self.buckets.resize(index + 1, None);
        }
        let latency_ns = ledger.latency_ns;
        let weight = u64::from(request.weight);
        match &mut self.buckets[index] {
            Some(bucket) => {
                bucket.count += weight;
                bucket.min_ns = bucket.min_ns.min(latency_ns);
                bucket.max_ns = bucket.max_ns.max(latency_ns);
                bucket.ledger.add_times(ledger, weight);
            }
            empty => {
                let mut sum = Ledger::default();
                sum.add_times(ledger, weight);
                *empty = Some(Box::new(Bucket {
                    count: weight,
                    min_ns: latency_ns,
                    max_ns: latency_ns,
                    ledger: sum,
                }));
            }
        }
        for block in request.longest {
            if !self.keep(request, block) {
                // The others are shorter.
                break;
            }
        }
    }

    /// Keeps a block if it is one of the longest; false when it is shorter than all that are kept.
    fn keep(&mut self, request: &Request<'_>, block: &LongBlock) -> bool {
        let shortest = self.longest.last().map_or(0, Kept::length_ns);
        if length(block) == 0 || (self.longest.len() == KEPT && length(block) <= shortest) {
            return false;
        }
        let space = request.space;
        let same_place = |kept: &Kept| kept.space == space && kept.block.site == block.site;
        if let Some(known) = self.longest.iter().position(same_place) {
            let known_as = (
                self.longest[known].length_ns(),
                self.longest[known].latency_ns,
            );
            if known_as >= (length(block), request.latency_ns()) {
                return true;
            }
            self.longest.remove(known);
        }
        self.longest.truncate(KEPT - 1);
        let kept = Kept {
            block: *block,
            space,
            tid: request.tid,
            comm: request.comm,
            latency_ns: request.latency_ns(),
        };
        let at = self
            .longest
            .partition_point(|longer| longer.length_ns() >= length(block));
        self.longest.insert(at, kept);
        true
    }

    /// Places whose stacks a report shows.
    pub(super) fn places(&self) -> impl Iterator<Item = (AddressSpace, BlockSite)> {
        self.longest
            .iter()
            .map(|kept| (kept.space, kept.block.site))
    }

    /// Processes that a report shows with the longest blocks: those that blocked, and those that woke them.
    pub(super) fn processes(&self) -> impl Iterator<Item = u32> {
        self.longest
            .iter()
            .flat_map(|kept| [kept.space.tgid, kept.block.waker_tgid])
    }

    /// The two bands; `None` when there are few requests, or none that is slower than the typical
    /// ones.
    pub(super) fn slow(&self, sites: &mut Sites, trace: &Trace) -> Option<SlowRequests> {
        let (typical, slowest) = self.bands()?;
        let blocks = self
            .longest
            .iter()
            .filter(|kept| kept.latency_ns > typical.to_ns)
            .map(|kept| slow_block(&kept.request(), &kept.block, sites, trace))
            .collect();
        Some(SlowRequests {
            typical,
            slowest,
            blocks,
        })
    }

    fn bands(&self) -> Option<(Band, Band)> {
        let buckets: Vec<&Bucket> = self.buckets.iter().flatten().map(AsRef::as_ref).collect();
        let all: u64 = buckets.iter().map(|bucket| bucket.count).sum();
        if all < FEWEST {
            return None;
        }
        let slow_count = (all * SLOWEST).div_ceil(100);
        let mut slowest = Band::default();
        for bucket in buckets.iter().rev() {
            if slowest.count >= slow_count {
                break;
            }
            add(&mut slowest, bucket);
        }
        let (low, high) = (all * TYPICAL.0 / 100 + 1, (all * TYPICAL.1).div_ceil(100));
        let mut typical = Band::default();
        let mut before = 0;
        for bucket in &buckets {
            // Ranks, from 1, of its requests.
            let (first, last) = (before + 1, before + bucket.count);
            if last >= low && first <= high {
                add(&mut typical, bucket);
            }
            before = last;
        }
        (slowest.from_ns > typical.to_ns).then_some((typical, slowest))
    }
}

fn add(band: &mut Band, bucket: &Bucket) {
    if band.count == 0 {
        (band.from_ns, band.to_ns) = (bucket.min_ns, bucket.max_ns);
    }
    band.count += bucket.count;
    band.from_ns = band.from_ns.min(bucket.min_ns);
    band.to_ns = band.to_ns.max(bucket.max_ns);
    band.ledger.add(&bucket.ledger);
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
        tid: request.tid,
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

/// The bucket of a latency.
fn bucket(ns: u64) -> usize {
    let top = ns.max(1).ilog2();
    if top < SUB_BITS {
        return ns as usize;
    }
    let shift = top - SUB_BITS;
    (((shift + 1) as usize) << SUB_BITS) + ((ns >> shift) as usize - (1 << SUB_BITS))
}

#[cfg(test)]
#[path = "tail/tests.rs"]
mod tests;
