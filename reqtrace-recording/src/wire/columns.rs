//! Requests of one block, column by column. What repeats is in a table, and columns hold its index.

mod rows;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::event::{AddressSpace, Attribute, BlockSite, Incomplete, Request, Value};
pub(super) use rows::Rows;

/// Requests of one block.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Columns {
    /// Id of the first request; the others follow without a gap.
    pub(super) first_id: u64,
    /// End of the request before the first.
    pub(super) base_ns: u64,
    pub(super) threads: Vec<Thread>,
    pub(super) sites: Vec<BlockSite>,
    /// Thread and process that woke.
    pub(super) wakers: Vec<WokenBy>,
    #[serde(deserialize_with = "super::bounded")]
    pub(super) labels: Vec<Vec<u8>>,
    // One value for each request.
    pub(super) thread: Vec<u32>,
    pub(super) request_type: Vec<u32>,
    pub(super) reason: Vec<u32>,
    /// End, since the end of the request before.
    pub(super) end: Vec<i64>,
    pub(super) latency: Vec<u64>,
    pub(super) run_queue: Vec<u64>,
    pub(super) preempted: Vec<u64>,
    pub(super) unattributed: Vec<u64>,
    /// Blocks more than slots.
    pub(super) more_blocks: Vec<i32>,
    pub(super) preemptions: Vec<u32>,
    pub(super) max_depth: Vec<u32>,
    pub(super) slots: Vec<u32>,
    pub(super) longest: Vec<u32>,
    /// Index of the label and 1; 0 for none.
    pub(super) label: Vec<u32>,
    // One value for each slot.
    pub(super) slot_site: Vec<u32>,
    pub(super) slot_blocked: Vec<u64>,
    // One value for each long block.
    /// Index of its slot in the request and 1; 0 for a site that has no slot.
    pub(super) long_slot: Vec<u32>,
    /// Its site, when it has no slot.
    pub(super) long_site: Vec<u32>,
    /// Switch-out, since the begin of the request.
    pub(super) long_start: Vec<i64>,
    /// What it is shorter than its slot; its length, when it has none.
    pub(super) long_blocked: Vec<i64>,
    pub(super) long_run_queue: Vec<u64>,
    /// Index of the waker and 1; 0 for none.
    pub(super) long_waker: Vec<u32>,
    /// For each request, its weight less 1; empty when all weights are 1.
    pub(super) more_weight: Vec<u32>,
    /// For each request, in how many places it was parked or queued; empty when none was in any.
    pub(super) aways: Vec<u32>,
    // One value for each of these places.
    pub(super) away_place: Vec<u32>,
    pub(super) away_count: Vec<u32>,
    pub(super) away_ns: Vec<u64>,
    /// For each request, how often it came to another thread; empty when none did.
    pub(super) moves: Vec<u32>,
    /// For each request, how many attributes it has; empty when none has any.
    pub(super) attributes: Vec<u32>,
    // One value for each attribute.
    /// Its index times 4, and bits of [`attribute_bit`].
    pub(super) attribute: Vec<u64>,
    /// A number, or the index of a text.
    pub(super) attribute_value: Vec<u64>,
    #[serde(deserialize_with = "super::bounded")]
    pub(super) texts: Vec<Vec<u8>>,
    /// For each request, how long its data had waited before it, and 1; 0: not known. Empty when none is known.
    pub(super) waited_before: Vec<u64>,
    /// For each request, at how many stacks it was parked; empty when none is known.
    pub(super) parks: Vec<u32>,
    // One value for each of these stacks.
    pub(super) park_stack: Vec<u64>,
    pub(super) park_place: Vec<u32>,
    pub(super) park_count: Vec<u32>,
    pub(super) park_ns: Vec<u64>,
    // For each request, what took its CPU; empty when nothing did, or it is not known.
    pub(super) interrupts: Vec<u64>,
    pub(super) softirqs: Vec<u64>,
    pub(super) steal: Vec<u64>,
}

/// What is known of an attribute beside its value.
mod attribute_bit {
    /// It is a text.
    pub(super) const TEXT: u64 = 1;
    /// It is a text that goes on.
    pub(super) const CUT: u64 = 2;
}

/// A thread of requests.
#[derive(Debug, Default, PartialEq, Eq, Hash, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Thread {
    pub(super) space: AddressSpace,
    pub(super) tid: u32,
    pub(super) comm: [u8; 16],
}

/// A thread that woke one.
#[derive(Debug, Default, PartialEq, Eq, Hash, Clone, Copy, Serialize, Deserialize)]
pub(super) struct WokenBy {
    pub(super) tid: u32,
    pub(super) tgid: u32,
}

/// Fills columns.
#[derive(Debug, Default)]
pub(super) struct Builder {
    columns: Columns,
    threads: FxHashMap<Thread, u32>,
    sites: FxHashMap<BlockSite, u32>,
    wakers: FxHashMap<WokenBy, u32>,
    labels: FxHashMap<Vec<u8>, u32>,
    texts: FxHashMap<Vec<u8>, u32>,
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

/// Adds the value of the last of so many requests to a column that is empty while all are 0.
fn push_rare<T: Default + Clone + PartialEq>(column: &mut Vec<T>, requests: usize, value: T) {
    if value != T::default() || !column.is_empty() {
        column.resize(requests - 1, T::default());
        column.push(value);
    }
}

/// A time that may not be known: itself and 1, or 0.
pub(super) fn wire_optional(ns: Option<u64>) -> u64 {
    ns.map_or(0, |ns| ns.saturating_add(1))
}

/// The reverse of [`wire_optional`].
pub(super) fn optional(wire: u64) -> Option<u64> {
    wire.checked_sub(1)
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
        let count = columns.thread.len();
        push_rare(
            &mut columns.more_weight,
            count,
            request.weight.wrapping_sub(1),
        );
        push_rare(&mut columns.moves, count, request.moves);
        push_rare(
            &mut columns.waited_before,
            count,
            wire_optional(request.waited_before_ns),
        );
        let lost = request.lost;
        push_rare(&mut columns.interrupts, count, lost.interrupts_ns);
        push_rare(&mut columns.softirqs, count, lost.softirqs_ns);
        push_rare(&mut columns.steal, count, lost.steal_ns);
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
            let waker = WokenBy {
                tid: block.waker_tid,
                tgid: block.waker_tgid,
            };
            columns.long_waker.push(if waker == WokenBy::default() {
                0
            } else {
                index(&mut self.wakers, &mut columns.wakers, waker) + 1
            });
        }
        let keyed = self.keyed(request);
        24 + request.label.len() + 8 * request.slots.len() + 12 * request.longest.len() + keyed
    }

    /// Adds where it was parked or queued, and its attributes. Returns about how many bytes that takes.
    fn keyed(&mut self, request: &Request<'_>) -> usize {
        let columns = &mut self.columns;
        let count = columns.thread.len();
        push_rare(&mut columns.aways, count, request.away.len() as u32);
        for away in request.away {
            columns.away_place.push(away.place);
            columns.away_count.push(away.count);
            columns.away_ns.push(away.ns);
        }
        push_rare(&mut columns.parks, count, request.parks.len() as u32);
        for park in request.parks {
            columns.park_stack.push(park.stack);
            columns.park_place.push(park.place);
            columns.park_count.push(park.count);
            columns.park_ns.push(park.ns);
        }
        push_rare(
            &mut columns.attributes,
            count,
            request.attributes.len() as u32,
        );
        let mut bytes = 12 * (request.away.len() + request.attributes.len());
        bytes += 16 * request.parks.len();
        for Attribute { index: of, value } in request.attributes {
            let (bits, value) = match *value {
                Value::Number(number) => (0, number),
                Value::Text {
                    bytes: text,
                    is_cut,
                } => {
                    let known = self.texts.get(text).copied();
                    let number = known.unwrap_or_else(|| {
                        bytes += text.len();
                        index(&mut self.texts, &mut columns.texts, text.to_vec())
                    });
                    let cut = if is_cut { attribute_bit::CUT } else { 0 };
                    (attribute_bit::TEXT | cut, u64::from(number))
                }
            };
            columns.attribute.push(u64::from(*of) << 2 | bits);
            columns.attribute_value.push(value);
        }
        bytes
    }

    /// The columns so far; what comes next begins empty, with the memory of before.
    pub(super) fn take(&mut self) -> Columns {
        self.threads.clear();
        self.sites.clear();
        self.wakers.clear();
        self.labels.clear();
        self.texts.clear();
        std::mem::take(&mut self.columns)
    }
}

impl Columns {
    pub(super) fn len(&self) -> usize {
        self.thread.len()
    }

    pub(super) fn rows(&self) -> Rows<'_> {
        Rows::of(self)
    }
}
