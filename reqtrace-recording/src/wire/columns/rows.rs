//! Columns in, requests out, one after the other.

use super::{Columns, WokenBy, attribute_bit, optional};
use crate::event::{
    Attribute, Away, Comm, Incomplete, LongBlock, LostCpu, Park, Request, Slot, Value,
};
use crate::wire::Malformed;

/// Takes requests out of columns, one after the other.
#[derive(Debug)]
pub(in crate::wire) struct Rows<'a> {
    columns: &'a Columns,
    at: usize,
    end_ns: u64,
    slot: usize,
    long: usize,
    long_site: usize,
    away_at: usize,
    park_at: usize,
    attribute_at: usize,
    slots: Vec<Slot>,
    longest: Vec<LongBlock>,
    away: Vec<Away>,
    parks: Vec<Park>,
    attributes: Vec<Attribute<'a>>,
}

/// The value of a request in a column that is empty while all are 0.
fn rare<T: Default + Copy>(column: &[T], row: usize) -> T {
    column.get(row).copied().unwrap_or_default()
}

fn at<T: Copy>(column: &[T], index: usize) -> Result<T, Malformed> {
    column.get(index).copied().ok_or(Malformed)
}

/// Elements of a list of one request.
const MAX_OF_ONE: u32 = 1024;

/// How many of a list a request has.
fn few(count: u32) -> Result<u32, Malformed> {
    if count > MAX_OF_ONE {
        Err(Malformed)
    } else {
        Ok(count)
    }
}

impl<'a> Rows<'a> {
    /// All requests of these columns.
    pub(super) fn of(columns: &'a Columns) -> Self {
        Self {
            columns,
            at: 0,
            end_ns: columns.base_ns,
            slot: 0,
            long: 0,
            long_site: 0,
            away_at: 0,
            park_at: 0,
            attribute_at: 0,
            slots: Vec::new(),
            longest: Vec::new(),
            away: Vec::new(),
            parks: Vec::new(),
            attributes: Vec::new(),
        }
    }

    /// The next request; there must be one.
    pub(in crate::wire) fn next(&mut self) -> Result<Request<'_>, Malformed> {
        let columns = self.columns;
        let row = self.at;
        let thread = at(&columns.threads, at(&columns.thread, row)? as usize)?;
        let end_ns = self.end_ns.wrapping_add_signed(at(&columns.end, row)?);
        let begin_ns = end_ns.wrapping_sub(at(&columns.latency, row)?);
        let slots = few(at(&columns.slots, row)?)?;
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
        for _ in 0..few(at(&columns.longest, row)?)? {
            let block = self.long(begin_ns)?;
            self.longest.push(block);
        }
        let label: &[u8] = match at(&columns.label, row)? {
            0 => &[],
            index => columns.labels.get(index as usize - 1).ok_or(Malformed)?,
        };
        let incomplete = Incomplete::of(at(&columns.reason, row)?).map_err(|_| Malformed)?;
        self.keyed(row)?;
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
            weight: rare(&columns.more_weight, row).wrapping_add(1),
            slots: &self.slots,
            longest: &self.longest,
            away: &self.away,
            parks: &self.parks,
            moves: rare(&columns.moves, row),
            attributes: &self.attributes,
            waited_before_ns: optional(rare(&columns.waited_before, row)),
            lost: LostCpu {
                interrupts_ns: rare(&columns.interrupts, row),
                softirqs_ns: rare(&columns.softirqs, row),
                steal_ns: rare(&columns.steal, row),
            },
        })
    }

    /// Takes out where the request was parked or queued, and its attributes.
    fn keyed(&mut self, row: usize) -> Result<(), Malformed> {
        let columns = self.columns;
        self.away.clear();
        for _ in 0..few(rare(&columns.aways, row))? {
            self.away.push(Away {
                place: at(&columns.away_place, self.away_at)?,
                count: at(&columns.away_count, self.away_at)?,
                ns: at(&columns.away_ns, self.away_at)?,
            });
            self.away_at += 1;
        }
        self.parks.clear();
        for _ in 0..few(rare(&columns.parks, row))? {
            self.parks.push(Park {
                stack: at(&columns.park_stack, self.park_at)?,
                place: at(&columns.park_place, self.park_at)?,
                count: at(&columns.park_count, self.park_at)?,
                ns: at(&columns.park_ns, self.park_at)?,
            });
            self.park_at += 1;
        }
        self.attributes.clear();
        for _ in 0..few(rare(&columns.attributes, row))? {
            let of = at(&columns.attribute, self.attribute_at)?;
            let value = at(&columns.attribute_value, self.attribute_at)?;
            let value = if of & attribute_bit::TEXT == 0 {
                Value::Number(value)
            } else {
                let text = usize::try_from(value).ok();
                let text = text.and_then(|index| columns.texts.get(index));
                Value::Text {
                    bytes: text.ok_or(Malformed)?,
                    is_cut: of & attribute_bit::CUT != 0,
                }
            };
            let index = u32::try_from(of >> 2).map_err(|_| Malformed)?;
            self.attributes.push(Attribute { index, value });
            self.attribute_at += 1;
        }
        Ok(())
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
        let waker = match at(&columns.long_waker, long)? {
            0 => WokenBy::default(),
            index => at(&columns.wakers, index as usize - 1)?,
        };
        Ok(LongBlock {
            site,
            start_ns: begin_ns.wrapping_add_signed(at(&columns.long_start, long)?),
            blocked_ns,
            run_queue_ns: at(&columns.long_run_queue, long)?,
            waker_tid: waker.tid,
            waker_tgid: waker.tgid,
        })
    }
}
