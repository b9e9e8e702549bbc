//! Places in the text of a profile: a byte range in, an error with `file:line:column` out.

use std::ops::Range;

use reqtrace_base::error::Error;
use reqtrace_base::text::nearest;

/// The text of a profile and what to call it in messages.
pub(super) struct Source<'a> {
    pub(super) name: String,
    pub(super) text: &'a str,
}

impl Source<'_> {
    /// A usage error at a byte range of the text.
    pub(super) fn error(&self, span: Range<usize>, what: impl std::fmt::Display) -> Error {
        let (line, column) = line_and_column(self.text, span.start);
        Error::usage(format!("{}:{line}:{column}: {what}", self.name))
    }

    /// The error of toml or serde, with a suggestion where a key or a value is close to a known one.
    pub(super) fn parse_error(&self, error: &toml::de::Error) -> Error {
        let message = error.message().trim_end().replace('\n', "; ");
        let failure = match error.span() {
            Some(span) => self.error(span, &message),
            None => Error::usage(format!("{}: {message}", self.name)),
        };
        match advice(&message) {
            Some(advice) => failure.next(advice),
            None => failure.next(
                "`reqtrace profiles redis` prints a small profile to compare with; all keys are in \
                 docs/profiles.md",
            ),
        }
    }
}

/// Line and column, both from 1, the column in characters.
fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let offset = (0..=offset.min(text.len()))
        .rev()
        .find(|&offset| text.is_char_boundary(offset))
        .unwrap_or(0);
    let before = &text[..offset];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}

/// Serde's "unknown field `x`, expected one of `a`, `b`" has everything a suggestion needs.
fn advice(message: &str) -> Option<String> {
    if !message.starts_with("unknown field") && !message.starts_with("unknown variant") {
        return None;
    }
    let mut words = message.split('`').skip(1).step_by(2);
    let seen = words.next()?;
    let known: Vec<&str> = words.collect();
    match nearest(seen, known.iter().copied(), 1).first() {
        Some(best) => Some(format!("did you mean `{best}`?")),
        None if known.is_empty() => None,
        None => Some(format!("known here: {}", known.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters() {
        assert_eq!(line_and_column("ab\nüx", 5), (2, 2));
        assert_eq!(line_and_column("", 0), (1, 1));
        assert_eq!(line_and_column("a", 99), (1, 2));
    }
}
