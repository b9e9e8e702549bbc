//! What was seen of a trace so far: events in; the number of requests, and their 99th percentile, out.

use reqtrace_analysis::cells::Histogram;
use reqtrace_recording::Event;

/// A latency is known to 3 %.
const LATENCY_BITS: u32 = 5;

/// Requests of a trace so far.
#[derive(Debug, Default)]
pub struct Seen {
    /// Complete and incomplete ones.
    pub requests: u64,
    /// Of complete ones by type, if they are wanted.
    latencies: Vec<Histogram<LATENCY_BITS>>,
    wants_latencies: bool,
}

impl Seen {
    /// Nothing yet.
    pub(super) fn new(wants_latencies: bool) -> Self {
        Self {
            wants_latencies,
            ..Self::default()
        }
    }

    /// 99th percentile of the latency of complete requests so far, ns: the highest over the request types.
    #[must_use]
    pub fn p99_ns(&self) -> Option<u64> {
        let of = |latencies: &Histogram<LATENCY_BITS>| latencies.quantile(0.99);
        self.latencies.iter().filter_map(of).max()
    }

    /// An event has come.
    pub(super) fn take(&mut self, event: &Event<'_>) {
        let Event::Request(request) = event else {
            return;
        };
        let weight = u64::from(request.weight);
        self.requests += weight;
        if !self.wants_latencies || request.incomplete.is_some() {
            return;
        }
        let index = request.request_type as usize;
        if self.latencies.len() <= index {
            self.latencies.resize_with(index + 1, Histogram::default);
        }
        self.latencies[index].add(request.latency_ns(), weight);
    }
}
