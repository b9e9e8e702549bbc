//! What the tracing process and the worker send each other over the control socket.

use reqtrace_capture::socket::Refusal;
use serde::{Deserialize, Serialize};

use crate::config::{OffCpu, Otlp, Rows};
use crate::ids::Machine;
use crate::metrics::{Format, OfWorker};

/// Bytes of a message of the worker's.
pub(super) const MOST_OF_WORKER: u32 = 16 << 10;
/// Bytes of a message to the worker: the text of all metrics is the longest.
pub(super) const MOST_TO_WORKER: u32 = 256 << 20;

/// The first message to the worker. Before it come, with one byte, the socket that listens, and those of rows, of
/// roll-ups, of spans and of profiles if there are any.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Start {
    pub(super) machine: Machine,
    pub(super) rows: Option<Rows>,
    pub(super) otlp: Option<Otlp>,
    pub(super) off_cpu: Option<OffCpu>,
}

/// What the worker sends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum OfTheWorker {
    /// It listens; the first message.
    Ready,
    /// Or that it cannot begin.
    Refused(Refusal),
    /// It still works.
    Alive,
    /// A reader wants the metrics.
    Asks {
        /// In this form.
        format: Format,
        /// Of the answer.
        number: u64,
        /// What it has counted.
        figures: Box<OfWorker>,
    },
}

/// What it gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ToTheWorker {
    /// The answer of this number; `None`: there is none.
    Metrics { number: u64, bytes: Option<Vec<u8>> },
    /// No more rows and spans come than those that are on their way.
    End,
}
