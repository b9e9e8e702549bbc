//! An open request, as it is in a file.

use reqtrace_common::record::{BlockSite, LongBlock, Slot};
use serde::{Deserialize, Serialize};

use super::Malformed;
use crate::event::{AddressSpace, Comm, Incomplete, Open, Request};

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
    slots: Vec<(WireSite, u64)>,
    longest: Vec<WireLong>,
    blocked_in: Option<(WireSite, u64)>,
    more_weight: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct WireSite {
    user_stack: u64,
    kernel_stack: u64,
    syscall: i32,
    file: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct WireLong {
    site: WireSite,
    start_ns: u64,
    blocked_ns: u64,
    run_queue_ns: u64,
    waker_tid: u32,
    waker_tgid: u32,
}

impl From<&BlockSite> for WireSite {
    fn from(site: &BlockSite) -> Self {
        Self {
            user_stack: site.user_stack,
            kernel_stack: site.kernel_stack,
            syscall: site.syscall,
            file: site.file,
        }
    }
}

impl From<&WireSite> for BlockSite {
    fn from(site: &WireSite) -> Self {
        Self {
            user_stack: site.user_stack,
            kernel_stack: site.kernel_stack,
            syscall: site.syscall,
            file: site.file,
        }
    }
}

impl From<&Open> for WireOpen {
    fn from(open: &Open) -> Self {
        let request = open.request();
        let long = |block: &LongBlock| WireLong {
            site: (&block.site).into(),
            start_ns: block.start_ns,
            blocked_ns: block.blocked_ns,
            run_queue_ns: block.run_queue_ns,
            waker_tid: block.waker_tid,
            waker_tgid: block.waker_tgid,
        };
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
            slots: request
                .slots
                .iter()
                .map(|slot| ((&slot.site).into(), slot.blocked_ns))
                .collect(),
            longest: request.longest.iter().map(long).collect(),
            blocked_in: open
                .blocked_in
                .as_ref()
                .map(|(site, since)| (site.into(), *since)),
            more_weight: request.weight.wrapping_sub(1),
        }
    }
}

impl TryFrom<WireOpen> for Open {
    type Error = Malformed;

    fn try_from(wire: WireOpen) -> Result<Self, Malformed> {
        let slots: Vec<Slot> = wire
            .slots
            .iter()
            .map(|(site, blocked_ns)| Slot {
                site: site.into(),
                blocked_ns: *blocked_ns,
            })
            .collect();
        let blocked_ns = slots
            .iter()
            .try_fold(0_u64, |sum, slot| sum.checked_add(slot.blocked_ns))
            .ok_or(Malformed)?;
        let long = |block: &WireLong| LongBlock {
            site: (&block.site).into(),
            start_ns: block.start_ns,
            blocked_ns: block.blocked_ns,
            run_queue_ns: block.run_queue_ns,
            waker_tid: block.waker_tid,
            waker_tgid: block.waker_tgid,
        };
        Ok(Self {
            request: Request {
                id: wire.id,
                request_type: wire.request_type,
                space: wire.space,
                tid: wire.tid,
                incomplete: Incomplete::of(wire.reason).map_err(|_| Malformed)?,
                comm: Comm(wire.comm),
                label: &[],
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
                slots: &[],
                longest: &[],
            },
            label: wire.label,
            slots,
            longest: wire.longest.iter().map(long).collect(),
            blocked_in: wire
                .blocked_in
                .as_ref()
                .map(|(site, since)| (site.into(), *since)),
        })
    }
}
