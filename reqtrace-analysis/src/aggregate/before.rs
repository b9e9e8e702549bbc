//! Time before requests began: requests in; how long their data had been waiting out.

use reqtrace_recording::Request;

use crate::cells::Histogram;
use crate::report::WaitedBefore;

/// The complete requests of one type.
#[derive(Debug, Default)]
pub(super) struct Before {
    of: u64,
    known: u64,
    sum_ns: u128,
    max_ns: u64,
    times: Histogram<10>,
}

impl Before {
    /// Takes a complete request.
    pub(super) fn add(&mut self, request: &Request<'_>) {
        let weight = u64::from(request.weight);
        self.of += weight;
        let Some(ns) = request.waited_before_ns else {
            return;
        };
        self.known += weight;
        self.sum_ns += u128::from(ns) * u128::from(weight);
        self.max_ns = self.max_ns.max(ns);
        self.times.add(ns, weight);
    }

    pub(super) fn report(&self) -> WaitedBefore {
        let at = |share| {
            let ns = self.times.quantile(share);
            ns.map_or(0, |ns| ns.min(self.max_ns))
        };
        WaitedBefore {
            requests: self.of,
            known: self.known,
            mean_ns: self
                .sum_ns
                .checked_div(u128::from(self.known))
                .map_or(0, |mean| mean as u64),
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            max_ns: self.max_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_in_no_mean() {
        let mut before = Before::default();
        for (waited_before_ns, weight) in [(Some(1_000), 1), (None, 5), (Some(4_000), 2)] {
            before.add(&Request {
                waited_before_ns,
                weight,
                ..Request::default()
            });
        }
        let report = before.report();
        assert_eq!((report.requests, report.known), (8, 3));
        assert_eq!((report.mean_ns, report.max_ns), (3_000, 4_000));
        assert!(Before::default().report().mean_ns == 0);
    }
}
