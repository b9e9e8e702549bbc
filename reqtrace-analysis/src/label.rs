//! Labels: bytes of a traced program in, one line of text out.

use std::borrow::Cow;
use std::hash::Hasher as _;

use reqtrace_base::plain::Plain;
use reqtrace_common::limits::MAX_LABEL;
use rustc_hash::{FxHashMap, FxHasher};

/// The last character of a text that was cut.
pub(crate) const GOES_ON: char = '…';

/// A label as it came; of one that fills its record the end was not read, and it gets [`GOES_ON`], once.
pub(crate) fn marked(label: &[u8]) -> Cow<'_, [u8]> {
    let is_whole = label.len() < MAX_LABEL;
    match is_whole || label.ends_with(GOES_ON.encode_utf8(&mut [0; 4]).as_bytes()) {
        true => Cow::Borrowed(label),
        false => Cow::Owned(mark(label)),
    }
}

/// The text of a label that was [`marked`]: UTF-8, what is not replaced by U+FFFD, control characters as `\n`, `\t`, `\r`, `\0`
/// or `\u{7f}`, so that it stays one line and does nothing to a terminal.
pub(crate) fn label_text(bytes: &[u8]) -> Plain {
    Plain::of_bytes(bytes)
}

/// Texts that came lately: users, databases and names of threads come again and again, and are made once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts {
    known: Vec<Plain>,
    empty: Plain,
}

/// How many; a power of two.
const TEXTS: usize = 256;

impl Texts {
    /// The text of these bytes, see [`text_of`].
    pub(crate) fn text(&mut self, bytes: &[u8]) -> &Plain {
        if bytes.is_empty() {
            return &self.empty;
        }
        if self.known.is_empty() {
            self.known.resize(TEXTS, Plain::default());
        }
        let mut hasher = FxHasher::default();
        hasher.write(bytes);
        let known = &mut self.known[hasher.finish() as usize % TEXTS];
        // Text that was cleaned stays what it is if it is cleaned once more.
        if known.as_bytes() != bytes {
            *known = text_of(bytes, false);
        }
        known
    }
}

/// Labels whose numbers are remembered.
const MAX_NUMBERS: usize = 1 << 13;

/// Numbers of labels that came lately: what a label's number depends on is computed once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers(FxHashMap<Box<[u8]>, u32>);

impl Numbers {
    /// The number of a label; 0 of an empty one. `number` makes it.
    pub(crate) fn of(&mut self, label: &[u8], number: impl FnOnce() -> u32) -> u32 {
        if label.is_empty() {
            return 0;
        }
        if let Some(known) = self.0.get(label) {
            return *known;
        }
        let number = number();
        if self.0.len() >= MAX_NUMBERS {
            self.0.clear();
        }
        self.0.insert(label.into(), number);
        number
    }
}

/// The text of an attribute, marked if it `is_cut`.
pub(crate) fn text_of(bytes: &[u8], is_cut: bool) -> Plain {
    match is_cut {
        true => Plain::of_bytes(&mark(bytes)),
        false => Plain::of_bytes(bytes),
    }
}

/// With [`GOES_ON`] in place of a character that was cut in two.
fn mark(bytes: &[u8]) -> Vec<u8> {
    let mut marked = whole_characters(bytes).to_vec();
    marked.extend_from_slice(GOES_ON.encode_utf8(&mut [0; 4]).as_bytes());
    marked
}

/// All but the beginning of a character at the end of a text that was cut.
fn whole_characters(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_break_a_line_or_a_terminal_is_escaped() {
        assert_eq!(label_text(b"select\n\t1;\r\0"), "select\\n\\t1;\\r\\0");
        assert_eq!(label_text(b"\x1b[2J\x7f"), "\\u{1b}[2J\\u{7f}");
        assert_eq!(
            label_text("a\u{202e}b\u{9b}c".as_bytes()),
            "a\\u{202e}b\\u{9b}c"
        );
        assert_eq!(label_text("größe, \"x\"".as_bytes()), "größe, \"x\"");
        assert_eq!(label_text(b"a\xffb"), "a\u{fffd}b");
    }

    #[test]
    fn a_text_that_was_cut_ends_in_its_mark_without_half_a_character() {
        let text = |bytes: &[u8]| label_text(&marked(bytes));
        let mut bytes = vec![b'a'; MAX_LABEL - 1];
        bytes.push(0xc3);
        assert_eq!(text(&bytes), *("a".repeat(MAX_LABEL - 1) + "…"));
        // A shorter label was not cut: there it is the program's own bytes.
        assert_eq!(text(b"a\xc3"), "a\u{fffd}");
        let full = vec![b'a'; MAX_LABEL];
        assert_eq!(text(&full), *("a".repeat(MAX_LABEL) + "…"));
        assert_eq!(text(&marked(&full)), text(&full));
        // An attribute of that length is whole.
        assert_eq!(text_of(&full, false), *"a".repeat(MAX_LABEL));
        assert_eq!(text_of(b"gr\xc3", true), "gr…");
    }
}
