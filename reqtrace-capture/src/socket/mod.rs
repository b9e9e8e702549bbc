//! What the processes of an agent say to each other: frames, open files, errors.

pub mod frame;
pub mod handed;

use reqtrace_base::error::{Error, Kind};
use serde::{Deserialize, Serialize};

/// An error of another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The exit code tells the kind.
    code: u8,
    what: String,
    because: Option<String>,
    next: Option<String>,
}

impl Refusal {
    /// That of an error; of its causes the first.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        let source = std::error::Error::source(error);
        Self {
            code: error.exit_code(),
            what: error.to_string(),
            because: source.map(ToString::to_string),
            next: error.advice().map(str::to_owned),
        }
    }

    /// The same error.
    #[must_use]
    pub fn into_error(self) -> Error {
        let kind = match self.code {
            2 => Kind::Usage,
            3 => Kind::Unsupported,
            _ => Kind::Failed,
        };
        let mut error = Error::new(kind, self.what);
        if let Some(because) = self.because {
            error = error.because(because);
        }
        match self.next {
            Some(next) => error.next(next),
            None => error,
        }
    }

    /// Adds a note to the cause, if there is one.
    #[must_use]
    pub fn noting(mut self, note: &str) -> Self {
        self.because = self.because.map(|because| format!("{because} ({note})"));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_comes_as_it_was() {
        for error in [
            Error::usage("a").because("b").next("c"),
            Error::unsupported("a"),
            Error::failed("a").next("c"),
        ] {
            let came = Refusal::of(&error).into_error();
            assert_eq!(format!("{came:?}"), format!("{error:?}"));
        }
        let noted = Refusal::of(&Error::failed("a").because("b")).noting("of x");
        let came = noted.into_error();
        let cause = std::error::Error::source(&came).map(ToString::to_string);
        assert_eq!(cause.as_deref(), Some("b (of x)"));
    }
}
