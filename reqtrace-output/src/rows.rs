//! Rows that an output has written, read again: what is known of their trace, and one row after the other.

use std::collections::BTreeMap;

use reqtrace_analysis::report::blame::Causes;
use reqtrace_analysis::report::{Ledger, Places};
use serde::{Deserialize, Serialize};

/// Version of the form of [`Meta`] and of the columns. It grows when one changes its meaning or goes; new ones do not count.
pub const SCHEMA_VERSION: u32 = 1;

/// What is known of the trace of a file of rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of reqtrace that has traced.
    pub reqtrace: String,
    /// Name of the machine; empty: not known.
    pub host: String,
    /// Names of the profiles.
    pub profile: String,
    /// `uname -r`.
    pub kernel: String,
    /// Begin of the trace in nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// Length of the trace, ns.
    pub duration_ns: u64,
    /// How it ended.
    pub ended_by: String,
    /// Names of the wait classes, in the order of their columns.
    pub classes: Vec<String>,
    /// Names of the places where requests are parked; the last is empty. Empty when no request type has a key.
    pub parked: Vec<String>,
    /// The same of those where they are queued.
    pub queued: Vec<String>,
    /// Names of the attributes, in the order of their columns.
    pub attributes: Vec<String>,
    /// Of request types whose label is an attribute the number of that.
    pub label_attributes: BTreeMap<String, usize>,
    /// Whether labels were recorded.
    pub has_labels: bool,
    /// Whether root causes are known.
    pub has_causes: bool,
    /// Whether there are columns of what took the CPU from requests.
    #[serde(default)]
    pub has_lost: bool,
    /// Which requests the rows are of, in words; empty for all.
    pub which: String,
    /// Rows are of requests at or above this latency, ns; 0: of all.
    pub slower_than_ns: u64,
    /// Rows that were left out because of `--max-rows` and `--max-bytes`.
    pub beyond_limits: u64,
    /// What was lost, by its name.
    pub losses: BTreeMap<String, u64>,
    /// What ought to be the same of traces that are compared, by its name.
    pub alike: BTreeMap<String, String>,
}

impl Meta {
    /// Names of the places.
    #[must_use]
    pub fn places(&self) -> Places {
        Places {
            parked: self.parked.clone(),
            queued: self.queued.clone(),
        }
    }

    /// When the trace ended, in nanoseconds since the Unix epoch.
    #[must_use]
    pub fn end_unix_ns(&self) -> u64 {
        self.start_unix_ns.saturating_add(self.duration_ns)
    }
}

/// Texts that are wanted of rows; the others are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts {
    /// Labels.
    pub label: bool,
    /// Fingerprints of labels.
    pub fingerprint: bool,
    /// Attributes by their numbers.
    pub attributes: Vec<usize>,
}

/// A row, as it was read.
#[derive(Clone, Copy, Debug)]
pub struct ReadRow<'a> {
    /// Request type.
    pub request: &'a str,
    /// Begin in nanoseconds since that of the trace, below 0 before it.
    pub since_start_ns: i64,
    /// Where its time went.
    pub ledger: &'a Ledger,
    /// Its blocked and parked time by root cause; `None`: not known.
    pub causes: Option<&'a Causes>,
    /// How many requests it stands for.
    pub weight: u32,
    /// Why it is incomplete; `None`: it is complete.
    pub incomplete: Option<&'a str>,
    /// Its label; empty where there is none.
    pub label: &'a str,
    /// The label's fingerprint; `None`: the file has none.
    pub fingerprint: Option<&'a str>,
    /// In the order of [`Meta::attributes`]; empty where there is none.
    pub attributes: &'a [&'a str],
}
