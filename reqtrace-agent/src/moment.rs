//! A time by both clocks: only one of them can be set, and goes on while the machine is suspended.

/// One moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// `CLOCK_MONOTONIC`, ns.
    pub(crate) monotonic_ns: u64,
    /// By the wall clock, ns since the Unix epoch.
    pub(crate) unix_ns: u64,
}

impl Moment {
    /// So many ns before this one, by the wall clock as it is now.
    pub(crate) fn before(self, ns: u64) -> Self {
        Self {
            monotonic_ns: self.monotonic_ns.saturating_sub(ns),
            unix_ns: self.unix_ns.saturating_sub(ns),
        }
    }
}
