//! Figures of the shipper: what became of files in; metrics that are served as the agent's are out.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use crate::http::Failure;
use crate::listen::Page;
use crate::metrics::{Encoder, Label, text_of};

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Figures(Mutex<Counts>);

/// What has been done since the start, and what waits.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// Accepted by the other end.
    pub(super) files: u64,
    pub(super) rows: u64,
    pub(super) bytes: u64,
    failures: [u64; Failure::ALL.len()],
    /// Set aside.
    pub(super) refused: u64,
    /// Refused ones that were removed to make room.
    pub(super) refused_removed: u64,
    /// Files that the agent has removed before they were sent.
    pub(super) gone: u64,
    pub(super) waiting: u64,
    pub(super) waiting_bytes: u64,
    pub(super) oldest: Option<SystemTime>,
    pub(super) accepted_at: Option<SystemTime>,
    turned_away: u64,
}

impl Figures {
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Counts) -> T) -> T {
        change(&mut self.counts())
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        // Each change is one addition after the other.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    pub(super) fn failed(&mut self, why: Failure) {
        self.failures[why as usize] += 1;
    }
}

impl Page for Figures {
    fn text(&self) -> Result<String, fmt::Error> {
        let counts = self.counts().clone();
        text_of(counts)
    }

    fn turned_away(&self) {
        self.change(|counts| counts.turned_away += 1);
    }
}

impl Collector for Counts {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let none: [Label<'_>; 0] = [];
        let mut to = Encoder(encoder);
        for (name, help, count) in [
            (
                "ship_files",
                "Files that the other end has accepted",
                self.files,
            ),
            ("ship_rows", "Rows in these files", self.rows),
            ("ship_bytes", "Bytes of these files", self.bytes),
            (
                "ship_refused_files",
                "Files that the other end has refused for ever; they are in the shipper's state",
                self.refused,
            ),
            (
                "ship_refused_removed_files",
                "Refused files that were removed above refused-max, the oldest first",
                self.refused_removed,
            ),
            (
                "ship_gone_files",
                "Files that had gone before they were sent: the agent removes the oldest above its max",
                self.gone,
            ),
            (
                "connections_turned_away",
                "Connections to the metrics that were closed because there were too many",
                self.turned_away,
            ),
        ] {
            to.counter(name, help, [(none, count as f64)])?;
        }
        let failures = Failure::ALL.into_iter().zip(self.failures);
        to.counter(
            "ship_failures",
            "Attempts that failed, by cause",
            failures.map(|(why, count)| ([("cause", why.name())], count as f64)),
        )?;
        let since = |at: Option<SystemTime>| {
            at.map_or(0.0, |at| {
                at.elapsed().map_or(0.0, |since| since.as_secs_f64())
            })
        };
        let accepted = self
            .accepted_at
            .and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
        for (name, help, value) in [
            (
                "ship_waiting_files",
                "Files that wait to be sent",
                self.waiting as f64,
            ),
            (
                "ship_waiting_bytes",
                "Bytes of these files",
                self.waiting_bytes as f64,
            ),
            (
                "ship_oldest_waiting_seconds",
                "How long the oldest of them has waited; 0 when none does",
                since(self.oldest),
            ),
            (
                "ship_last_accepted_timestamp_seconds",
                "When the other end has accepted a file at last; 0: not yet",
                accepted.map_or(0.0, |at| at.as_secs_f64()),
            ),
        ] {
            to.gauge(name, help, [(none, value)])?;
        }
        let mut info =
            to.0.encode_descriptor("build", "This program", None, MetricType::Info)?;
        info.encode_info(&[("version", env!("CARGO_PKG_VERSION"))])
    }
}
