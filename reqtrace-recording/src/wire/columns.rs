//! Requests of one block, column by column. What repeats is in a table, and columns hold its index.

use reqtrace_common::record::{BlockSite, LongBlock, Slot};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::Malformed;
use crate::event::{AddressSpace, Comm, Incomplete, Request};

/// Requests of one block.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Columns {
    /// Id of the first request; the others follow without a gap.
    first_id: u64,
    /// End of the request before the first.
    base_ns: u64,
    threads: Vec<Thread>,
    sites: Vec<BlockSite>,
    /// Thread and process that woke.
    wakers: Vec<(u32, u32)>,
    labels: Vec<Vec<u8>>,
    // One value for each request.
    thread: Vec<u32>,
    request_type: Vec<u32>,
    reason: Vec<u32>,
    /// End, since the end of the request before.
    end: Vec<i64>,
    latency: Vec<u64>,
    run_queue: Vec<u64>,
    preempted: Vec<u64>,
    unattributed: Vec<u64>,
    /// Blocks more than slots.
    more_blocks: Vec<i32>,
    preemptions: Vec<u32>,
    max_depth: Vec<u32>,
    slots: Vec<u32>,
    longest: Vec<u32>,
    /// Index of the label and 1; 0 for none.
    label: Vec<u32>,
    // One value for each slot.
    slot_site: Vec<u32>,
    slot_blocked: Vec<u64>,
    // One value for each long block.
    /// Index of its slot in the request and 1; 0 for a site that has no slot.
    long_slot: Vec<u32>,
    /// Its site, when it has no slot.
    long_site: Vec<u32>,
    /// Switch-out, since the begin of the request.
    long_start: Vec<i64>,
    /// What it is shorter than its slot; its length, when it has none.
    long_blocked: Vec<i64>,
    long_run_queue: Vec<u64>,
    /// Index of the waker and 1; 0 for none.
    long_waker: Vec<u32>,
    /// For each request, its weight less 1; empty when all weights are 1.
    more_weight: Vec<u32>,
}

#[derive(Debug, PartialEq, Eq, Hash, Clone, Copy, Serialize, Deserialize)]
struct Thread {
    space: AddressSpace,
    tid: u32,
    comm: [u8; 16],
}

/// Fills columns.
#[derive(Debug, Default)]
pub(super) struct Builder {
    columns: Columns,
    threads: FxHashMap<Thread, u32>,
    sites: FxHashMap<BlockSite, u32>,
    wakers: FxHashMap<(u32, u32), u32>,
    labels: FxHashMap<Vec<u8>, u32>,
    end_ns: u64,
}

/// The index of a value, which is added where it is new.
fn index<T: Clone + Eq + std::hash::Hash>(
    known: &mut FxHashMap<T, u32>,
    table: &mut Vec<T>,
    value: T,
) -> u32 {
    if let Some(&index) = known.get(&value) {
        return index;
    }
    let index = table.len() as u32;
    table.push(value.clone());
    known.insert(value, index);
    index
}

/// `a - b` of times, which are far below the range.
fn less(a: u64, b: u64) -> i64 {
    a.wrapping_sub(b) as i64
}

impl Builder {
    pub(super) fn len(&self) -> usize {
        self.columns.thread.len()
    }

    /// Whether the request has the id that comes next.
    pub(super) fn follows(&self, request: &Request<'_>) -> bool {
        let next = self.columns.first_id.wrapping_add(self.len() as u64);
        self.len() == 0 || next == request.id
    }

    /// Adds a request. Returns about how many bytes it takes.
    pub(super) fn add(&mut self, request: &Request<'_>) -> usize {
        let columns = &mut self.columns;
        if columns.thread.is_empty() {
            columns.first_id = request.id;
            columns.base_ns = request.end_ns;
            self.end_ns = request.end_ns;
        }
        let thread = Thread {
            space: request.space,
            tid: request.tid,
            comm: request.comm.0,
        };
        let thread = index(&mut self.threads, &mut columns.threads, thread);
        columns.thread.push(thread);
        columns.request_type.push(request.request_type);
        columns.reason.push(Incomplete::number(request.incomplete));
        columns.end.push(less(request.end_ns, self.end_ns));
        self.end_ns = request.end_ns;
        columns
            .latency
            .push(request.end_ns.wrapping_sub(request.begin_ns));
        columns.run_queue.push(request.run_queue_ns);
        columns.preempted.push(request.preempted_ns);
        columns.unattributed.push(request.unattributed_ns);
        let slots = request.slots.len() as u32;
        columns
            .more_blocks
            .push(request.blocks.wrapping_sub(slots) as i32);
        columns.preemptions.push(request.preemptions);
        columns.max_depth.push(request.max_depth);
        if request.weight != 1 || !columns.more_weight.is_empty() {
            // The requests before it have the weight 1.
            columns.more_weight.resize(columns.thread.len() - 1, 0);
            columns.more_weight.push(request.weight.wrapping_sub(1));
        }
        columns.slots.push(slots);
        columns.longest.push(request.longest.len() as u32);
        let label = if request.label.is_empty() {
            0
        } else if let Some(&known) = self.labels.get(request.label) {
            known + 1
        } else {
            index(
                &mut self.labels,
                &mut columns.labels,
                request.label.to_vec(),
            ) + 1
        };
        columns.label.push(label);
        for slot in request.slots {
            let site = index(&mut self.sites, &mut columns.sites, slot.site);
            columns.slot_site.push(site);
            columns.slot_blocked.push(slot.blocked_ns);
        }
        for block in request.longest {
            let slot = request
                .slots
                .iter()
                .position(|slot| slot.site == block.site);
            match slot {
                Some(slot) => {
                    let whole = request.slots[slot].blocked_ns;
                    columns.long_slot.push(slot as u32 + 1);
                    columns.long_blocked.push(less(whole, block.blocked_ns));
                }
                None => {
                    let site = index(&mut self.sites, &mut columns.sites, block.site);
                    columns.long_slot.push(0);
                    columns.long_site.push(site);
                    columns.long_blocked.push(block.blocked_ns as i64);
                }
            }
            columns
                .long_start
                .push(less(block.start_ns, request.begin_ns));
            columns.long_run_queue.push(block.run_queue_ns);
            let waker = (block.waker_tid, block.waker_tgid);
            columns.long_waker.push(match waker {
                (0, 0) => 0,
                known => index(&mut self.wakers, &mut columns.wakers, known) + 1,
            });
        }
        24 + request.label.len() + 8 * request.slots.len() + 12 * request.longest.len()
    }

    /// The columns so far; what comes next begins anew, with the memory of before.
    pub(super) fn take(&mut self) -> Columns {
        self.threads.clear();
        self.sites.clear();
        self.wakers.clear();
        self.labels.clear();
        std::mem::take(&mut self.columns)
    }
}

/// Takes requests out of columns, one after the other.
#[derive(Debug)]
pub(super) struct Rows<'a> {
    columns: &'a Columns,
    at: usize,
    end_ns: u64,
    slot: usize,
    long: usize,
    long_site: usize,
    slots: Vec<Slot>,
    longest: Vec<LongBlock>,
}

impl Columns {
    pub(super) fn len(&self) -> usize {
        self.thread.len()
    }

    pub(super) fn rows(&self) -> Rows<'_> {
        Rows {
            columns: self,
            at: 0,
            end_ns: self.base_ns,
            slot: 0,
            long: 0,
            long_site: 0,
            slots: Vec::new(),
            longest: Vec::new(),
        }
    }
}

fn at<T: Copy>(column: &[T], index: usize) -> Result<T, Malformed> {
    column.get(index).copied().ok_or(Malformed)
}

impl Rows<'_> {
    /// The next request; there must be one.
    pub(super) fn next(&mut self) -> Result<Request<'_>, Malformed> {
        let columns = self.columns;
        let row = self.at;
        let thread = at(&columns.threads, at(&columns.thread, row)? as usize)?;
        let end_ns = self.end_ns.wrapping_add_signed(at(&columns.end, row)?);
        let begin_ns = end_ns.wrapping_sub(at(&columns.latency, row)?);
        let slots = at(&columns.slots, row)?;
        self.slots.clear();
        let mut blocked_ns = 0_u64;
        for _ in 0..slots {
            let site = at(&columns.sites, at(&columns.slot_site, self.slot)? as usize)?;
            let ns = at(&columns.slot_blocked, self.slot)?;
            blocked_ns = blocked_ns.checked_add(ns).ok_or(Malformed)?;
            self.slots.push(Slot {
                site,
                blocked_ns: ns,
            });
            self.slot += 1;
        }
        self.longest.clear();
        for _ in 0..at(&columns.longest, row)? {
            let block = self.long(begin_ns)?;
            self.longest.push(block);
        }
        let label: &[u8] = match at(&columns.label, row)? {
            0 => &[],
            index => columns.labels.get(index as usize - 1).ok_or(Malformed)?,
        };
        let incomplete = Incomplete::of(at(&columns.reason, row)?).map_err(|_| Malformed)?;
        self.at += 1;
        self.end_ns = end_ns;
        Ok(Request {
            id: columns.first_id.wrapping_add(row as u64),
            request_type: at(&columns.request_type, row)?,
            space: thread.space,
            tid: thread.tid,
            incomplete,
            comm: Comm(thread.comm),
            label,
            begin_ns,
            end_ns,
            run_queue_ns: at(&columns.run_queue, row)?,
            preempted_ns: at(&columns.preempted, row)?,
            blocked_ns,
            unattributed_ns: at(&columns.unattributed, row)?,
            blocks: slots.wrapping_add_signed(at(&columns.more_blocks, row)?),
            preemptions: at(&columns.preemptions, row)?,
            max_depth: at(&columns.max_depth, row)?,
            weight: columns
                .more_weight
                .get(row)
                .map_or(1, |more| more.wrapping_add(1)),
            slots: &self.slots,
            longest: &self.longest,
        })
    }

    fn long(&mut self, begin_ns: u64) -> Result<LongBlock, Malformed> {
        let columns = self.columns;
        let long = self.long;
        self.long += 1;
        let blocked = at(&columns.long_blocked, long)?;
        let (site, blocked_ns) = match at(&columns.long_slot, long)? {
            0 => {
                let site = at(&columns.long_site, self.long_site)?;
                self.long_site += 1;
                (at(&columns.sites, site as usize)?, blocked as u64)
            }
            slot => {
                let slot = at(&self.slots, slot as usize - 1)?;
                (
                    slot.site,
                    slot.blocked_ns.wrapping_sub(blocked.cast_unsigned()),
                )
            }
        };
        let (waker_tid, waker_tgid) = match at(&columns.long_waker, long)? {
            0 => (0, 0),
            index => at(&columns.wakers, index as usize - 1)?,
        };
        Ok(LongBlock {
            site,
            start_ns: begin_ns.wrapping_add_signed(at(&columns.long_start, long)?),
            blocked_ns,
            run_queue_ns: at(&columns.long_run_queue, long)?,
            waker_tid,
            waker_tgid,
        })
    }
}
