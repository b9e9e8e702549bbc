//! An interval as it is written: times as differences, which are short.

use reqtrace_common::record::BlockSite;
use serde::{Deserialize, Serialize};

use crate::event::{AddressSpace, Holder, Interval, IntervalKind, RequestOf, Waker, WokenFrom};

/// An interval.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WireInterval {
    space: AddressSpace,
    tid: u32,
    sequence: u32,
    request: Option<RequestOf>,
    site: BlockSite,
    in_ns: u64,
    /// From leaving the CPU to having one again.
    off_ns: u64,
    /// Of these, how long until it was woken, and who woke it; `None` for a preemption.
    blocked: Option<(u64, Waker)>,
    futex: u64,
    holder: Holder,
    woken_from: Option<WokenFrom>,
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
                IntervalKind::Blocked { wake_ns, waker } => Some((since_out(wake_ns), waker)),
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
                Some((blocked_ns, waker)) => IntervalKind::Blocked {
                    wake_ns: out_ns.wrapping_add(blocked_ns),
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
