//! The one error that reaches the user: what was wrong, the value seen, what to do next.
//!
//! In: failures of every stage. Out: a message and an exit code.

use std::error::Error as StdError;
use std::fmt;

/// Result of every fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of a failure decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It failed while running. Exit code 1.
    Failed,
    /// Bad usage or a bad profile. Exit code 2.
    Usage,
    /// Not permitted, or the kernel or machine lacks something. Exit code 3.
    Unsupported,
    /// What was asked cannot be answered from what there is. Exit code 3.
    Undecided,
}

/// A failure.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    what: String,
    next: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of the given kind. `what` is a sentence without a full stop that names the value
    /// seen.
    pub fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
            next: None,
            source: None,
        }
    }

    /// [`Kind::Failed`].
    pub fn failed(what: impl Into<String>) -> Self {
        Self::new(Kind::Failed, what)
    }

    /// [`Kind::Usage`].
    pub fn usage(what: impl Into<String>) -> Self {
        Self::new(Kind::Usage, what)
    }

    /// [`Kind::Unsupported`].
    pub fn unsupported(what: impl Into<String>) -> Self {
        Self::new(Kind::Unsupported, what)
    }

    /// Adds the command or option that mends it.
    #[must_use]
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Says where it happened, in front of what was wrong.
    #[must_use]
    pub fn within(mut self, place: impl fmt::Display) -> Self {
        self.what = format!("{place}: {}", self.what);
        self
    }

    /// What kind of failure it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What to do next, where that is known.
    #[must_use]
    pub fn advice(&self) -> Option<&str> {
        self.next.as_deref()
    }

    /// 1, 2 or 3; see [`Kind`].
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            Kind::Failed => 1,
            Kind::Usage => 2,
            Kind::Unsupported | Kind::Undecided => 3,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn StdError + 'static))
    }
}
