//! Spans of slow requests, experimental: requests of all sessions in; spans at a collector that speaks OTLP/HTTP out.
//!
//! ```text
//! session ──► slow ones ──► pace ──► queue (bounded) ══► sender (a thread of the worker) ──► POST …/v1/traces
//! ```
//!
//! A session never waits for the sender: what is too much is dropped and counted. A span and no log record is sent, as
//! programs that store traces show one by its begin and end, and a log record by the time at which it was written.

mod queue;
mod sender;
mod span;
mod wire;

pub(crate) use queue::{Message, Queue, Spans, SpansExporter};
pub(crate) use sender::Sender;
pub(crate) use span::About;
pub(crate) use wire::OfService;

/// Why spans were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// More were slow in a second than `max-rate`.
    Rate,
    /// The sender was behind.
    Queue,
    /// The collector has answered that it does not take them.
    Refused,
    /// It was not there, gave no answer in time, or was too busy, also when asked again.
    Unreachable,
    /// The agent has ended.
    Ended,
}

impl Dropped {
    pub(crate) const ALL: [Self; 5] = [
        Self::Rate,
        Self::Queue,
        Self::Refused,
        Self::Unreachable,
        Self::Ended,
    ];

    /// The label `cause`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Queue => "queue_full",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Ended => "ended",
        }
    }
}
