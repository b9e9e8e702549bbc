//! Profiles of off-CPU time, experimental: the stacks of all sessions by period in; pprof files in a folder, and profiles at a
//! Pyroscope, out.
//!
//! ```text
//! session ──► queue (bounded) ──► made (a thread) ══► writer (a thread of the worker) ──┬──► spool ──► date=/hour=/service=
//!                                        waiting (bounded) ◄────────────────────────────┘
//!                                              └──► sender (a thread of the worker) ──► POST …/push.v1.PusherService/Push
//! ```
//!
//! A session waits for nobody, and the folder not for the network: what is too much is dropped and counted.
//!
//! Of Pyroscope's two ways in it is the push API, not `/ingest`: its messages and the names of its errors are published and
//! promised to stay, labels stand apart instead of in the name of an application, the types of samples are read from the profile,
//! where `/ingest` asks for a configuration of those that it does not know, and a profile has an id. Collectors take it, too.

mod made;
mod queue;
mod sender;
#[cfg(test)]
mod tests;
mod waiting;
mod wire;
mod writer;

pub(crate) use made::Made;
pub(crate) use queue::{About, Message, Queue, StacksExporter};
pub(crate) use writer::Writer;

/// Why profiles were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// The writer was behind: they are nowhere.
    Queue,
    /// Their file could not be written, or there was no room for one.
    Disk,
    /// They were handed over, and removed to make room.
    Oldest,
    /// Pyroscope was away until there was no room for them to wait.
    Waited,
    /// It has answered that it does not take them.
    Refused,
    /// They were not sent when the agent ended.
    Ended,
}

impl Dropped {
    pub(crate) const ALL: [Self; 6] = [
        Self::Queue,
        Self::Disk,
        Self::Oldest,
        Self::Waited,
        Self::Refused,
        Self::Ended,
    ];

    /// The label `cause`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue_full",
            Self::Disk => "disk",
            Self::Oldest => "oldest",
            Self::Waited => "unreachable",
            Self::Refused => "refused",
            Self::Ended => "ended",
        }
    }
}
