//! CPU time that went elsewhere while requests ran: requests in; how much of it, by type, out.

use reqtrace_recording::{Header, Request};

use crate::report::{LostCpu, LostOfType};

/// What of it a trace records.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recorded {
    interrupts: bool,
    steal: bool,
}

impl Recorded {
    pub(super) const fn of(header: &Header) -> Self {
        Self {
            interrupts: header.interrupts,
            steal: header.steal,
        }
    }

    /// What one request lost.
    pub(super) fn row(self, lost: reqtrace_recording::LostCpu) -> Option<LostCpu> {
        self.interrupts.then_some(LostCpu {
            interrupts_ns: lost.interrupts_ns,
            softirqs_ns: lost.softirqs_ns,
            steal_ns: self.steal.then_some(lost.steal_ns),
        })
    }
}

/// The complete requests of one type.
#[derive(Debug)]
pub(super) struct Lost(LostOfType);

impl Lost {
    /// `None` where it is not recorded.
    pub(super) fn of(header: &Header) -> Option<Self> {
        let lost = Recorded::of(header).row(reqtrace_recording::LostCpu::default())?;
        Some(Self(LostOfType { requests: 0, lost }))
    }

    /// Takes a complete request.
    pub(super) fn add(&mut self, request: &Request<'_>) {
        let weight = u64::from(request.weight);
        let add = |sum: &mut u64, ns: u64| *sum = sum.saturating_add(ns.saturating_mul(weight));
        let LostOfType { requests, lost } = &mut self.0;
        *requests += weight;
        add(&mut lost.interrupts_ns, request.lost.interrupts_ns);
        add(&mut lost.softirqs_ns, request.lost.softirqs_ns);
        if let Some(steal_ns) = &mut lost.steal_ns {
            add(steal_ns, request.lost.steal_ns);
        }
    }

    pub(super) const fn report(&self) -> LostOfType {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_recorded_is_not_zero() {
        let mut header = Header::default();
        assert!(Lost::of(&header).is_none());
        header.interrupts = true;
        let lost = reqtrace_recording::LostCpu {
            interrupts_ns: 5,
            softirqs_ns: 7,
            steal_ns: 11,
        };
        let of = |header: &Header| {
            let mut sums = Lost::of(header).unwrap();
            for weight in [1, 2] {
                sums.add(&Request {
                    lost,
                    weight,
                    ..Request::default()
                });
            }
            sums.report()
        };
        let without = of(&header);
        assert_eq!((without.requests, without.lost.softirqs_ns), (3, 21));
        assert_eq!(without.lost.steal_ns, None);
        header.steal = true;
        let with = of(&header);
        assert_eq!(
            (with.lost.interrupts_ns, with.lost.steal_ns),
            (15, Some(33))
        );
    }
}
