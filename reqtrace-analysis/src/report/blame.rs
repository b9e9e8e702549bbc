//! Because of whom requests were blocked: what blame adds to the report.

use reqtrace_base::plain::Plain;

pub use crate::blame::{Cause, Causes, Reason};

/// Blame of complete requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blame {
    /// One entry per request type, in profile order.
    pub types: Vec<TypeBlame>,
    /// Everything, the most time first.
    pub rows: Vec<BlameRow>,
    /// How many rows are in those whose culprit is [`CulpritKind::Others`]: there were too many.
    pub merged_rows: u64,
}

/// Blame of one request type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeBlame {
    /// Its name.
    pub request: String,
    /// Complete requests.
    pub requests: u64,
    /// Blocked time by root cause, ns.
    pub causes: Causes,
    /// Who held them up, the most time first. What is not known is in `unknown`.
    pub holders: Vec<Holder>,
    /// Why the root cause is not known, ns, the most time first.
    pub unknown: Vec<(Reason, u64)>,
}

/// What held requests of one type up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The root cause.
    pub cause: Cause,
    /// Whose. Its label is only told when requests are grouped by label.
    pub culprit: CulpritName,
    /// Nanoseconds of blocked time.
    pub ns: u64,
    /// How many requests waited.
    pub requests: u64,
    /// The wait class that most of the time was spent in, or `unattributed`.
    pub wait_class: String,
}

/// One row of `blame.csv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlameRow {
    /// Type of the requests that waited.
    pub victim_request: String,
    /// Their label, or its fingerprint; empty when none was recorded.
    pub victim_label: Plain,
    /// Wait class of their blocks, or `unattributed`; empty in a merged row.
    pub wait_class: String,
    /// Whose time it was.
    pub culprit: CulpritName,
    /// The root cause.
    pub cause: Cause,
    /// How many threads stand between: 0 for what ended the block itself.
    pub depth: u8,
    /// Nanoseconds of blocked time.
    pub ns: u64,
    /// How many requests waited. In a merged row one request may count more than once.
    pub requests: u64,
}

/// Whose time it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CulpritName {
    /// What it is.
    pub kind: CulpritKind,
    /// Type of the request; empty for others.
    pub request: String,
    /// Label of the request; empty when it is not known.
    pub label: Plain,
    /// Name of a thread in no request; empty for others.
    pub comm: Plain,
}

/// What a culprit is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CulpritKind {
    /// An interrupt that ended the request's own block.
    Interrupt,
    /// The request itself: who held it up had waited for it.
    Itself,
    /// Another request.
    Request,
    /// A thread in no request.
    Thread,
    /// Not known.
    #[default]
    Unknown,
    /// Several, in a merged row.
    Others,
}

impl CulpritKind {
    /// Its name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "interrupt",
            Self::Itself => "itself",
            Self::Request => "request",
            Self::Thread => "thread",
            Self::Unknown => "unknown",
            Self::Others => "others",
        }
    }
}
