//! An open request, as it is in a file.

use reqtrace_common::record::{BlockSite, LongBlock, Slot};
use serde::{Deserialize, Serialize};

use super::Malformed;
use super::columns::{optional, wire_optional};
use crate::event::{AddressSpace, Away, Comm, Incomplete, Open, Request};

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WireOpen {
    id: u64,
    request_type: u32,
    space: AddressSpace,
    tid: u32,
    reason: u32,
    comm: [u8; 16],
    label: Vec<u8>,
    begin_ns: u64,
    end_ns: u64,
    run_queue_ns: u64,
    preempted_ns: u64,
    unattributed_ns: u64,
    blocks: u32,
    preemptions: u32,
    max_depth: u32,
    slots: Vec<Slot>,
    longest: Vec<LongBlock>,
    blocked_in: Option<(BlockSite, u64)>,
    more_weight: u32,
    away: Vec<Away>,
    away_in: Option<(u32, u64)>,
    moves: u32,
    numbers: Vec<(u32, u64)>,
    texts: Vec<(u32, Vec<u8>, bool)>,
    waited_before: u64,
}

impl From<&Open> for WireOpen {
    fn from(open: &Open) -> Self {
        let request = open.request();
        Self {
            id: request.id,
            request_type: request.request_type,
            space: request.space,
            tid: request.tid,
            reason: Incomplete::number(request.incomplete),
            comm: request.comm.0,
            label: request.label.to_vec(),
            begin_ns: request.begin_ns,
            end_ns: request.end_ns,
            run_queue_ns: request.run_queue_ns,
            preempted_ns: request.preempted_ns,
            unattributed_ns: request.unattributed_ns,
            blocks: request.blocks,
            preemptions: request.preemptions,
            max_depth: request.max_depth,
            slots: open.slots.clone(),
            longest: open.longest.clone(),
            blocked_in: open.blocked_in,
            more_weight: request.weight.wrapping_sub(1),
            away: open.away.clone(),
            away_in: open.away_in,
            moves: request.moves,
            numbers: open.numbers.clone(),
            texts: open.texts.clone(),
            waited_before: wire_optional(request.waited_before_ns),
        }
    }
}

impl TryFrom<WireOpen> for Open {
    type Error = Malformed;

    fn try_from(wire: WireOpen) -> Result<Self, Malformed> {
        let blocked_ns = wire
            .slots
            .iter()
            .try_fold(0_u64, |sum, slot| sum.checked_add(slot.blocked_ns))
            .ok_or(Malformed)?;
        Ok(Self {
            request: Request {
                id: wire.id,
                request_type: wire.request_type,
                space: wire.space,
                tid: wire.tid,
                incomplete: Incomplete::of(wire.reason).map_err(|_| Malformed)?,
                comm: Comm(wire.comm),
                begin_ns: wire.begin_ns,
                end_ns: wire.end_ns,
                run_queue_ns: wire.run_queue_ns,
                preempted_ns: wire.preempted_ns,
                blocked_ns,
                unattributed_ns: wire.unattributed_ns,
                blocks: wire.blocks,
                preemptions: wire.preemptions,
                max_depth: wire.max_depth,
                weight: wire.more_weight.wrapping_add(1),
                moves: wire.moves,
                waited_before_ns: optional(wire.waited_before),
                ..Request::default()
            },
            label: wire.label,
            slots: wire.slots,
            longest: wire.longest,
            blocked_in: wire.blocked_in,
            away: wire.away,
            away_in: wire.away_in,
            numbers: wire.numbers,
            texts: wire.texts,
        })
    }
}
