//! Text from outside: bytes that a traced process, a file or a user's client has chosen in, text that
//! harms neither a terminal nor a line out.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Text that was cleaned: what does not print is written as `\n`, `\t`, `\r`, `\0` or `\u{1b}`. Outputs
/// take names and labels as this type only, so that what was not cleaned does not compile into one. Copies share it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Plain(Arc<str>);

impl Plain {
    /// Cleans text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        if text.is_empty() {
            // Without memory of its own.
            return Self::default();
        }
        Self(escape(text, |_| false).into())
    }

    /// Cleans bytes; what is not UTF-8 is replaced.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self::of(&String::from_utf8_lossy(bytes))
    }

    /// Cleans text of several lines: line breaks and tabs stay.
    #[must_use]
    pub fn lines(text: &str) -> Cow<'_, str> {
        escape(text, |character| matches!(character, '\n' | '\t'))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Text as a field of a CSV file, cleaned. A spreadsheet would take what begins with `=`, `+`, `-` or `@` for
/// a formula and run it: such text gets a `\'` before it, unless it is a number. So does text that
/// begins like that behind some `\'`: to undo it, take one away where such a character follows them.
#[must_use]
pub fn csv_field(text: &str) -> Cow<'_, str> {
    let text = escape(text, |_| false);
    let formula = text
        .trim_start_matches('\'')
        .starts_with(['=', '+', '-', '@']);
    if formula && text.parse::<i128>().is_err() {
        Cow::Owned(format!("'{text}"))
    } else {
        text
    }
}

/// Undoes [`csv_field`], but for the cleaning.
#[must_use]
pub fn of_csv_field(field: &str) -> &str {
    let text = field.trim_start_matches('\'');
    match text.len() < field.len() && text.starts_with(['=', '+', '-', '@']) {
        true => &field[1..],
        false => field,
    }
}

/// What most text is. All bytes are looked at, many at a time.
pub(crate) fn is_printable_ascii(text: &str) -> bool {
    let bytes = text.bytes();
    bytes.fold(true, |all, byte| all & (byte.wrapping_sub(b' ') < 0x5f))
}

/// Whether text needs no cleaning.
#[must_use]
pub fn is_plain(text: &str) -> bool {
    !text.contains(is_unprintable)
}

/// What does not print is written out, unless it `may_stay`.
fn escape(text: &str, may_stay: impl Fn(char) -> bool) -> Cow<'_, str> {
    if is_printable_ascii(text) {
        return Cow::Borrowed(text);
    }
    let harms = |character: char| is_unprintable(character) && !may_stay(character);
    if !text.contains(harms) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            other if !harms(other) => out.push(other),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\0' => out.push_str("\\0"),
            other => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{{{:x}}}", u32::from(other));
            }
        }
    }
    Cow::Owned(out)
}

/// Control characters, line separators, those that change the direction of text (which can make a line look
/// like another one) or are not seen, and those that XML forbids.
pub(crate) fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
        )
}

impl Deref for Plain {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl From<&str> for Plain {
    fn from(text: &str) -> Self {
        Self::of(text)
    }
}

impl From<String> for Plain {
    fn from(text: String) -> Self {
        Self::of(&text)
    }
}

impl From<Plain> for String {
    fn from(text: Plain) -> Self {
        text.as_str().to_owned()
    }
}

impl PartialEq<str> for Plain {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other
    }
}

impl PartialEq<&str> for Plain {
    fn eq(&self, other: &&str) -> bool {
        *self.0 == **other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_that_moves_a_cursor_or_ends_a_line() {
        let hostile = "\u{1b}]0;title\u{7}\u{9b}2J a\r\nb\tc\0\u{202e}d";
        let plain = Plain::of(hostile);
        assert_eq!(
            plain,
            "\\u{1b}]0;title\\u{7}\\u{9b}2J a\\r\\nb\\tc\\0\\u{202e}d"
        );
        assert_eq!(Plain::lines("a\tb\n\u{1b}c"), "a\tb\n\\u{1b}c");
        assert_eq!(Plain::of_bytes(b"a\xff"), "a\u{fffd}");
        assert_eq!(Plain::of("größe ✓"), "größe ✓");
    }

    #[test]
    fn formulas_are_text_and_can_be_had_back() {
        for (text, field) in [
            ("=1+1", "'=1+1"),
            ("+1", "+1"),
            ("-5", "-5"),
            ("-5+cmd|x", "'-5+cmd|x"),
            ("@sum", "'@sum"),
            ("'=x", "''=x"),
            ("'tis", "'tis"),
            ("SELECT '='", "SELECT '='"),
            ("", ""),
        ] {
            assert_eq!(csv_field(text), field);
            assert_eq!(of_csv_field(field), text);
        }
    }
}
