//! Figures of spans: what the sender and its queue have done in, counters that never decrease out.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::encoder::{Encoder, Label};
use crate::otlp::Dropped;

/// What became of spans since the agent's start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct OfSpans {
    /// Those that a collector has taken.
    pub(crate) sent: u64,
    dropped: [u64; Dropped::ALL.len()],
}

impl OfSpans {
    /// So many spans are lost.
    pub(crate) fn dropped(&mut self, cause: Dropped, count: u64) {
        self.dropped[cause as usize] += count;
    }

    /// With those of another process, which have the rest of the way of a span.
    pub(super) fn add(&mut self, other: &Self) {
        self.sent = self.sent.saturating_add(other.sent);
        for (own, more) in self.dropped.iter_mut().zip(other.dropped) {
            *own = own.saturating_add(more);
        }
    }

    pub(super) fn encode(&self, to: &mut Encoder<'_>) -> fmt::Result {
        let none: [Label<'_>; 0] = [];
        to.counter(
            "otlp_spans_sent",
            "Spans of slow requests that a collector has taken",
            [(none, self.sent as f64)],
        )?;
        let causes = Dropped::ALL.into_iter().zip(self.dropped);
        to.counter(
            "otlp_spans_dropped",
            "Spans of slow requests that no collector has, by cause",
            causes.map(|(cause, count)| ([("cause", cause.name())], count as f64)),
        )
    }
}
