//! Figures of profiles: what the writer and the sender have done in, counters that never decrease out.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::encoder::{Encoder, Label};
use crate::http::Failure;
use crate::profiles::Dropped;

/// What became of profiles since the agent's start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct OfProfiles {
    /// Files that were handed over, and their bytes.
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Bytes of those that are still there.
    pub(crate) kept_bytes: u64,
    /// Profiles that Pyroscope has taken, and those that wait for it.
    pub(crate) sent: u64,
    pub(crate) waiting: u64,
    dropped: [u64; Dropped::ALL.len()],
    failed: [u64; Failure::ALL.len()],
}

impl OfProfiles {
    /// One is lost.
    pub(crate) fn dropped(&mut self, cause: Dropped) {
        self.dropped_many(cause, 1);
    }

    pub(crate) fn dropped_many(&mut self, cause: Dropped, count: u64) {
        self.dropped[cause as usize] += count;
    }

    /// One was not taken, and is tried again.
    pub(crate) fn failed(&mut self, cause: Failure) {
        self.failed[cause as usize] += 1;
    }

    /// With those of another process, which have the rest of the way of a profile.
    pub(super) fn add(&mut self, other: &Self) {
        let own = [
            (&mut self.files, other.files),
            (&mut self.bytes, other.bytes),
            (&mut self.kept_bytes, other.kept_bytes),
            (&mut self.sent, other.sent),
            (&mut self.waiting, other.waiting),
        ];
        let dropped = self.dropped.iter_mut().zip(other.dropped);
        let failed = self.failed.iter_mut().zip(other.failed);
        for (own, more) in own.into_iter().chain(dropped).chain(failed) {
            *own = own.saturating_add(more);
        }
    }

    pub(super) fn encode(&self, to: &mut Encoder<'_>) -> fmt::Result {
        let none: [Label<'_>; 0] = [];
        let counters = [
            (
                "profiles_files",
                "Profiles whose file was handed over",
                self.files,
            ),
            (
                "profiles_bytes",
                "Bytes of files of profiles that were handed over",
                self.bytes,
            ),
            (
                "profiles_sent",
                "Profiles that Pyroscope has taken",
                self.sent,
            ),
        ];
        for (name, help, count) in counters {
            to.counter(name, help, [(none, count as f64)])?;
        }
        let causes = Dropped::ALL.into_iter().zip(self.dropped);
        to.counter(
            "profiles_dropped",
            "Profiles that are in no file (queue_full, disk, oldest), or that Pyroscope has not (queue_full, the others), by cause",
            causes.map(|(cause, count)| ([("cause", cause.name())], count as f64)),
        )?;
        let causes = Failure::ALL.into_iter().zip(self.failed);
        let causes = causes.filter(|(cause, _)| !matches!(cause, Failure::Refused | Failure::File));
        to.counter(
            "profiles_failures",
            "Attempts to send a profile that failed, and are made again, by cause",
            causes.map(|(cause, count)| ([("cause", cause.name())], count as f64)),
        )?;
        to.gauge(
            "profiles_waiting",
            "Profiles that wait for Pyroscope",
            [(none, self.waiting as f64)],
        )?;
        to.gauge(
            "profiles_kept_bytes",
            "Bytes of files of profiles that were handed over and are still there",
            [(none, self.kept_bytes as f64)],
        )
    }
}
