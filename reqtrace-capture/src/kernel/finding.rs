//! What was found about the machine: a subject and how well it works, with what to do.

use reqtrace_base::error::Error;

/// How well something works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// As it should.
    Ok,
    /// Tracing works, with less.
    Degraded,
    /// Tracing does not work.
    Missing,
}

impl State {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Missing => "missing",
        }
    }
}

/// What was found about one subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is about.
    pub subject: &'static str,
    /// How well it works.
    pub state: State,
    /// The value seen.
    pub seen: String,
    /// What to do, when it is not ok.
    pub next: Option<String>,
}

impl Finding {
    /// It works.
    #[must_use]
    pub fn ok(subject: &'static str, seen: impl Into<String>) -> Self {
        Self {
            subject,
            state: State::Ok,
            seen: seen.into(),
            next: None,
        }
    }

    /// It works with less.
    #[must_use]
    pub fn degraded(
        subject: &'static str,
        seen: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        Self {
            state: State::Degraded,
            next: Some(next.into()),
            ..Self::ok(subject, seen)
        }
    }

    /// It does not work, for this reason.
    #[must_use]
    pub fn missing(subject: &'static str, error: &Error) -> Self {
        Self {
            state: State::Missing,
            next: error.advice().map(str::to_owned),
            ..Self::ok(subject, with_causes(error))
        }
    }

    pub(super) fn of(subject: &'static str, result: Result<String, Error>) -> Self {
        match result {
            Ok(seen) => Self::ok(subject, seen),
            Err(error) => Self::missing(subject, &error),
        }
    }
}

/// An error with its causes, in one line.
fn with_causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let first = cause.to_string();
        text.push_str(": ");
        text.push_str(first.lines().next().unwrap_or_default());
        source = cause.source();
    }
    text
}
