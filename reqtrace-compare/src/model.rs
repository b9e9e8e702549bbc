//! What changed: the model that outputs take. Times are nanoseconds.

use serde::Serialize;

use crate::facts::Unlike;
use crate::items::ItemKind;

/// Two sides, and what changed from the first to the second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// What is compared.
    pub sides: [SideSummary; 2],
    /// What is unlike beside the requests.
    pub unlike: Vec<Unlike>,
    /// Why no interval is known: a side is too short. `None`: they are.
    pub too_short: Option<String>,
    /// What a reader has to know, a sentence each.
    pub notes: Vec<String>,
    /// The objective, if there is one.
    pub slo_ns: Option<u64>,
    /// Request types that either side has.
    pub types: Vec<TypeComparison>,
    /// Culprits, locks, files and stacks.
    pub items: Vec<Rows<ItemRow>>,
    /// All stacks, noise too.
    #[serde(skip)]
    pub stacks: Vec<StackChange>,
}

/// A stack of both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackChange {
    /// Type of the requests.
    pub request: String,
    /// Process and frames with `;` between, the outermost first.
    pub name: String,
    /// Nanoseconds; those of the first side as if it had as many requests of that type as the second.
    pub sides_ns: [u64; 2],
}

/// One side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SideSummary {
    /// Its recordings.
    pub names: Vec<String>,
    /// Which of their requests; empty for all.
    pub which: Vec<String>,
    /// How long, in all.
    pub length_ns: u64,
    /// Complete requests.
    pub requests: u64,
    /// Requests with no end, or a begin before the trace.
    pub incomplete: u64,
    /// Requests that were open at the end.
    pub open: u64,
    /// Length of a block of time.
    pub block_ns: u64,
    /// Blocks.
    pub blocks: u64,
    /// Neighbouring blocks that are drawn together, by the autocorrelation.
    pub drawn_together: u64,
}

/// A value of one side, with its interval of 95 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Value {
    /// The value.
    pub value: f64,
    /// The interval; `None`: not known.
    pub interval: Option<[f64; 2]>,
}

/// A change, with its interval of 95 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// From the first side to the second.
    pub change: f64,
    /// The interval; `None`: not known.
    pub interval: Option<[f64; 2]>,
    /// How probable as much is by chance.
    pub p: Option<f64>,
    /// Whether it is more than noise, among all rows of its kind. `None`: not known.
    pub is_clear: Option<bool>,
}

/// What a metric measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Requests a second.
    Rate,
    /// Arithmetic mean of the latency, ns.
    Mean,
    /// A quantile of the latency, ns.
    P50,
    /// ns.
    P90,
    /// ns.
    P99,
    /// ns.
    P999,
    /// Share of requests slower than the objective, 0 to 1.
    Slow,
}

impl Measure {
    /// All, in the order of tables.
    pub const ALL: [Self; 7] = [
        Self::Rate,
        Self::Mean,
        Self::P50,
        Self::P90,
        Self::P99,
        Self::P999,
        Self::Slow,
    ];

    /// Its name in tables and conditions.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Mean => "mean",
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
            Self::Slow => "slow",
        }
    }

    /// The quantile, 0 to 1.
    #[must_use]
    pub const fn quantile(self) -> Option<f64> {
        match self {
            Self::P50 => Some(0.5),
            Self::P90 => Some(0.9),
            Self::P99 => Some(0.99),
            Self::P999 => Some(0.999),
            Self::Rate | Self::Mean | Self::Slow => None,
        }
    }

    /// Whether it is a time.
    #[must_use]
    pub const fn is_time(self) -> bool {
        !matches!(self, Self::Rate | Self::Slow)
    }
}

/// One number of a request type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metric {
    /// What it measures.
    pub measure: Measure,
    /// On both sides.
    pub sides: [Value; 2],
    /// As a share of the first side, 0.1 for 10 % more; `None` where that is 0.
    pub relative: Option<Estimate>,
    /// In its own unit.
    pub absolute: Estimate,
}

/// Where the mean changed; bars add up to the whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Waterfall {
    /// Mean latency of both sides.
    pub total_ns: [u64; 2],
    /// Its change.
    pub change_ns: i64,
    /// Parts, those that changed most first; their numbers add up.
    pub bars: Vec<Bar>,
}

/// A part of the latency.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Bar {
    /// Its name.
    pub name: String,
    /// Its mean on both sides.
    pub sides_ns: [u64; 2],
    /// Its change.
    pub change_ns: i64,
    /// The same, with an interval.
    pub estimate: Estimate,
}

/// The slowest requests of one side against as large a share of the other's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tail {
    /// The share, 0.01 for the slowest 1 %.
    pub share: f64,
    /// By part, wait class and place.
    pub parts: Waterfall,
    /// By root cause.
    pub causes: Option<Waterfall>,
}

/// What of a change is because other requests came, and what because the same ones got slower.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mix {
    /// Other requests.
    pub mix: Estimate,
    /// The same ones, slower or faster. Both add up to the change of the mean.
    pub inside: Estimate,
}

/// One request type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TypeComparison {
    /// Its name.
    pub name: String,
    /// Requests on both sides; with samples those that they stand for.
    pub count: [u64; 2],
    /// Those that were recorded.
    pub records: [u64; 2],
    /// Numbers of both sides; those that neither can have are missing.
    pub metrics: Vec<Metric>,
    /// By part, wait class and place; `None` where a side has no request.
    pub parts: Option<Waterfall>,
    /// By root cause; `None` unless both sides have blame.
    pub causes: Option<Waterfall>,
    /// The same of the slowest.
    pub tail: Option<Tail>,
    /// Other requests, or slower ones; `None` without labels.
    pub mix: Option<Mix>,
    /// Fingerprints of labels.
    pub groups: Rows<GroupRow>,
    /// Requests of both sides by time and latency.
    #[serde(skip)]
    pub heat: [Heat; 2],
}

/// Buckets of a power of two in [`Heat`]: a row is 12 % wide.
pub const HEAT_BITS: u32 = 3;

/// Requests of a side by time and latency.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Heat {
    /// Length of a block.
    pub block_ns: u64,
    /// Blocks.
    pub blocks: usize,
    /// Block, bucket of [`HEAT_BITS`] bits, requests.
    pub cells: Vec<(u32, u16, u64)>,
}

/// Rows that are more than noise, or that cannot be judged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rows<T> {
    /// What they are, of many.
    pub what: String,
    /// Those that changed most first.
    pub rows: Vec<T>,
    /// How many are left out because they are noise.
    pub noise: u64,
    /// How many are left out because they are small.
    pub small: u64,
}

/// A fingerprint of labels.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupRow {
    /// The fingerprint.
    pub name: String,
    /// Its requests.
    pub count: [u64; 2],
    /// Their mean latency.
    pub mean_ns: [f64; 2],
    /// Their part of the mean latency of all requests of the type.
    pub part: Estimate,
    /// What of this is because more or fewer of them came, against the mean of all.
    pub mix_ns: f64,
    /// What of it is because they got slower or faster.
    pub inside_ns: f64,
    /// The part of the ledger that changed most.
    pub most: Option<String>,
}

/// A culprit, a lock, a file or a stack.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ItemRow {
    /// What it is.
    pub kind: ItemKind,
    /// Type of the requests.
    pub request: String,
    /// Its name.
    pub name: String,
    /// Nanoseconds on both sides, in all.
    pub total_ns: [u64; 2],
    /// Nanoseconds a request of that type.
    pub each_ns: [f64; 2],
    /// Their change.
    pub estimate: Estimate,
}

/// What a row can be without numbers of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// More than before.
    Grown,
    /// Less than before.
    Shrunk,
    /// Only on the second side.
    New,
    /// Only on the first side.
    Gone,
}

impl Fate {
    /// Of what there is so much of.
    #[must_use]
    pub fn of(sides: [u64; 2], change: f64) -> Self {
        match sides {
            [0, _] => Self::New,
            [_, 0] => Self::Gone,
            _ if change >= 0.0 => Self::Grown,
            _ => Self::Shrunk,
        }
    }

    /// In a word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Grown => "grown",
            Self::Shrunk => "shrunk",
            Self::New => "new",
            Self::Gone => "gone",
        }
    }
}
