//! Time before requests began: requests in; how long their data had been waiting out.

use hdrhistogram::Histogram;
use reqtrace_recording::Request;

use crate::report::WaitedBefore;

/// Times up to a day are told apart; longer ones count as a day in percentiles.
const LONGEST_NS: u64 = 86_400_000_000_000;
/// Significant decimal digits of percentiles.
const DIGITS: u8 = 3;

/// The complete requests of one type.
#[derive(Debug)]
pub(super) struct Before {
    of: u64,
    known: u64,
    sum_ns: u128,
    max_ns: u64,
    histogram: Option<Histogram<u64>>,
}

impl Before {
    pub(super) fn new() -> Self {
        Self {
            of: 0,
            known: 0,
            sum_ns: 0,
            max_ns: 0,
            // These bounds are valid ones; without a histogram there are no percentiles.
            histogram: Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).ok(),
        }
    }

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
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record_n(ns, weight);
        }
    }

    pub(super) fn report(&self) -> WaitedBefore {
        let at = |quantile| {
            let histogram = self.histogram.as_ref();
            histogram.map_or(0, |of| of.value_at_quantile(quantile).min(self.max_ns))
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
        let mut before = Before::new();
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
        assert!(Before::new().report().mean_ns == 0);
    }
}
