//! An interval as it is written: times as differences, which are short.

use serde::{Deserialize, Serialize};

use crate::event::{
    AddressSpace, BlockSite, Holder, Interval, IntervalKind, RequestOf, Waker, WokenFrom,
};

/// An interval.
#[derive(Debug, Default, Deserialize)]
pub(super) struct WireInterval {
    pub(super) space: AddressSpace,
    pub(super) tid: u32,
    pub(super) sequence: u32,
    pub(super) request: Option<RequestOf>,
    pub(super) site: BlockSite,
    pub(super) in_ns: u64,
    /// From leaving the CPU to having one again.
    pub(super) off_ns: u64,
    /// Of these, how long until it was woken, and who woke it; `None` for a preemption.
    pub(super) blocked: Option<Blocked>,
    pub(super) futex: u64,
    pub(super) holder: Holder,
    pub(super) woken_from: Option<WokenFrom>,
}

/// How a blocked thread came to a CPU again.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Blocked {
    /// From leaving the CPU to being woken.
    ns: u64,
    waker: Waker,
}

impl From<&Interval> for WireInterval {
    fn from(interval: &Interval) -> Self {
        let since_out = |ns: u64| ns.wrapping_sub(interval.out_ns);
        Self {
            space: interval.space,
            tid: interval.tid,
            sequence: interval.sequence,
            request: interval.request,
            site: interval.site,
            in_ns: interval.in_ns,
            off_ns: since_out(interval.in_ns),
            blocked: match interval.kind {
                IntervalKind::Preempted => None,
                IntervalKind::Blocked { wake_ns, waker } => Some(Blocked {
                    ns: since_out(wake_ns),
                    waker,
                }),
            },
            futex: interval.futex,
            holder: interval.holder,
            woken_from: interval.woken_from,
        }
    }
}

impl From<WireInterval> for Interval {
    fn from(wire: WireInterval) -> Self {
        let out_ns = wire.in_ns.wrapping_sub(wire.off_ns);
        Self {
            space: wire.space,
            tid: wire.tid,
            sequence: wire.sequence,
            request: wire.request,
            site: wire.site,
            out_ns,
            kind: match wire.blocked {
                None => IntervalKind::Preempted,
                Some(Blocked { ns, waker }) => IntervalKind::Blocked {
                    wake_ns: out_ns.wrapping_add(ns),
                    waker,
                },
            },
            in_ns: wire.in_ns,
            futex: wire.futex,
            holder: wire.holder,
            woken_from: wire.woken_from,
        }
    }
}
