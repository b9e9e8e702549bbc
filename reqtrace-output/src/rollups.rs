//! Roll-ups: what is known of a window, or of a minute, in and out.

#[cfg(feature = "parquet")]
mod minutes;

use reqtrace_analysis::report::Ledger;
use reqtrace_analysis::report::blame::Causes;
use serde::{Deserialize, Serialize};

#[cfg(feature = "parquet")]
pub(crate) use minutes::Minutes;

/// Version of the columns: it grows when one changes its meaning or goes; new ones do not count.
pub const ROLLUPS_VERSION: u32 = 1;
/// The group of requests whose groups are not distinguished.
pub const OTHER: &str = "~other";

/// What a row is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    /// All of the service.
    Service,
    /// A request type.
    Type(String),
    /// A request type and what its requests have in common.
    Group(String, String),
}

/// Figures of a minute, or of a window that ended in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollup {
    /// Begin of the minute in nanoseconds since the Unix epoch.
    pub minute_unix_ns: u64,
    /// What it is of.
    pub level: Level,
    /// Build id of the file in which its requests begin; `None`: not known yet, or it is of none.
    pub build_id: Option<String>,
    /// Figures of a service, or of requests.
    pub figures: Figures,
}

/// Figures that can be added up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Figures {
    /// Of a service.
    Service(OfService),
    /// Of requests.
    Requests(Box<OfRequests>),
}

/// Figures of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfService {
    /// Length of the windows that ended in the minute, as far as a session looked at the service, ns.
    pub covered_ns: u64,
    /// As much of it was traced, ns: less where windows are left out.
    pub traced_ns: u64,
    /// What could not be kept.
    pub lost: u64,
}

/// Figures of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfRequests {
    /// Complete ones that were recorded.
    pub recorded: u64,
    /// How many they stand for: all other figures are of these.
    pub requests: u64,
    /// Incomplete ones, which are in no other figure; `None`: not known.
    pub incomplete: Option<u64>,
    /// Those that are slow; `None`: nothing says what that is.
    pub slow: Option<u64>,
    /// Σ of their times.
    pub ledger: Ledger,
    /// Σ of their root causes; `None`: not known.
    pub causes: Option<Causes>,
    /// How many are up to each edge and above the one before; behind the last edge one number more.
    pub histogram: Vec<u64>,
}

/// What the rows of a file have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RollupsMeta {
    /// [`ROLLUPS_VERSION`].
    pub schema_version: u32,
    /// Version of reqtrace that has traced.
    pub reqtrace: String,
    /// Name of the machine.
    pub host: String,
    /// Name of the service.
    pub service: String,
    /// Name of the profile.
    pub profile: String,
    /// `uname -r`.
    pub kernel: String,
    /// Names of the wait classes.
    pub classes: Vec<String>,
    /// Names of the places where requests are parked, and queued.
    pub parked: Vec<String>,
    /// See [`Self::parked`].
    pub queued: Vec<String>,
    /// The latency above which requests are slow, ns.
    pub slow_above_ns: Option<u64>,
    /// Groups of a type and minute that are distinguished; `None`: there are none.
    pub most_groups: Option<u32>,
    /// Edges of the histogram, ns.
    pub edges_ns: Vec<u64>,
    /// Begin of the first minute in nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// From there to the end of the last one, ns.
    pub duration_ns: u64,
}

impl Level {
    /// Bytes of its texts.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        match self {
            Self::Service => 0,
            Self::Type(request) => request.len(),
            Self::Group(request, group) => request.len() + group.len(),
        }
    }
}
