//! An open request, as it is in a file.

use serde::Deserialize;

use super::Malformed;
use super::columns::{optional, wire_optional};
use crate::event::{
    AddressSpace, Away, AwayIn, BlockedIn, Comm, Incomplete, LongBlock, LostCpu, NumberOf, Open,
    Park, Request, Slot, TextOf,
};

#[derive(Debug, Default, Deserialize)]
pub(super) struct WireOpen {
    pub(super) id: u64,
    pub(super) request_type: u32,
    pub(super) space: AddressSpace,
    pub(super) tid: u32,
    pub(super) reason: u32,
    pub(super) comm: [u8; 16],
    pub(super) label: Vec<u8>,
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
    pub(super) run_queue_ns: u64,
    pub(super) preempted_ns: u64,
    pub(super) unattributed_ns: u64,
    pub(super) blocks: u32,
    pub(super) preemptions: u32,
    pub(super) max_depth: u32,
    pub(super) slots: Vec<Slot>,
    pub(super) longest: Vec<LongBlock>,
    pub(super) blocked_in: Option<BlockedIn>,
    pub(super) more_weight: u32,
    pub(super) away: Vec<Away>,
    pub(super) away_in: Option<AwayIn>,
    pub(super) moves: u32,
    pub(super) numbers: Vec<NumberOf>,
    pub(super) texts: Vec<TextOf>,
    pub(super) waited_before: u64,
    pub(super) parks: Vec<Park>,
    pub(super) interrupts_ns: u64,
    pub(super) softirqs_ns: u64,
    pub(super) steal_ns: u64,
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
            parks: open.parks.clone(),
            interrupts_ns: request.lost.interrupts_ns,
            softirqs_ns: request.lost.softirqs_ns,
            steal_ns: request.lost.steal_ns,
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
                lost: LostCpu {
                    interrupts_ns: wire.interrupts_ns,
                    softirqs_ns: wire.softirqs_ns,
                    steal_ns: wire.steal_ns,
                },
                ..Request::default()
            },
            label: wire.label,
            slots: wire.slots,
            longest: wire.longest,
            blocked_in: wire.blocked_in,
            away: wire.away,
            parks: wire.parks,
            away_in: wire.away_in,
            numbers: wire.numbers,
            texts: wire.texts,
        })
    }
}
