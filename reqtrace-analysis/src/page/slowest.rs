//! The slowest requests of each type: requests in, a bounded number of them out.

use std::collections::BTreeMap;

use crate::report::page::SlowRequest;

/// Requests of one type, at least, if there are as many.
const LEAST: usize = 50;

/// The slowest so far.
#[derive(Debug)]
pub(super) struct Slowest {
    /// Of each type.
    most: usize,
    /// By latency and id.
    types: Vec<BTreeMap<(u64, u64), SlowRequest>>,
}

impl Slowest {
    /// So many of so many types.
    pub(super) fn new(types: usize, most: usize) -> Self {
        Self {
            most: (most / types.max(1)).max(LEAST),
            types: (0..types).map(|_| BTreeMap::new()).collect(),
        }
    }

    /// Whether a request of this latency is among them.
    pub(super) fn takes(&self, request: u32, latency_ns: u64) -> bool {
        self.types.get(request as usize).is_some_and(|slowest| {
            let least = slowest.first_key_value();
            slowest.len() < self.most || least.is_some_and(|(least, _)| latency_ns > least.0)
        })
    }

    pub(super) fn add(&mut self, one: SlowRequest) {
        let Some(slowest) = self.types.get_mut(one.request as usize) else {
            return;
        };
        slowest.insert((one.ledger.latency_ns, one.id), one);
        if slowest.len() > self.most {
            slowest.pop_first();
        }
    }

    /// By type, the slowest first.
    pub(super) fn finish(self) -> Vec<SlowRequest> {
        let of_type = |slowest: BTreeMap<_, _>| slowest.into_values().rev();
        self.types.into_iter().flat_map(of_type).collect()
    }
}
