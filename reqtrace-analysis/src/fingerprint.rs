//! Fingerprints: a label in, the same with `?` for its numbers and strings out.
//!
//! Statements that differ only by their values are one. What is a value is seen without knowing the
//! language: a number that is no part of a name, and text between single quotes. Double quotes stand
//! around names in some dialects, and stay.

use reqtrace_base::plain::Plain;
use rustc_hash::FxHashMap;

use crate::label::{GOES_ON, label_text};
use crate::report::OfText;

/// Characters kept of the fingerprint of a label that was cut: where it was cut depends on how long
/// its values are, so its last characters would tell apart what is one.
const KEPT_OF_CUT: usize = 96;

/// What requests with this label are added up by: without numbers and strings, if nothing else is asked for.
pub(crate) fn statement(label: &[u8], grouping: Option<OfText>) -> Plain {
    match grouping {
        Some(OfText::Whole) => label_text(label),
        Some(OfText::Fingerprint) | None => Plain::of(&fingerprint(label)),
    }
}

fn fingerprint(label: &[u8]) -> String {
    fingerprint_of(&label_text(label))
}

/// Texts whose fingerprints are kept at hand.
const KEPT: usize = 1 << 16;

/// Fingerprints of texts that come again and again.
#[derive(Clone, Debug, Default)]
pub struct Fingerprints(FxHashMap<String, String>);

impl Fingerprints {
    /// That of a label or an attribute, as [`fingerprint_of`] makes it.
    pub fn of(&mut self, text: &str) -> &str {
        if !self.0.contains_key(text) {
            if self.0.len() >= KEPT {
                self.0.clear();
            }
            self.0.insert(text.to_owned(), fingerprint_of(text));
        }
        self.0.get(text).map_or("", String::as_str)
    }
}

/// The text with `?` for each number and each string, and `?, …` for a list of them. One that ends in
/// [`GOES_ON`] was cut.
#[must_use]
pub fn fingerprint_of(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let after_name = at > 0 && is_name(chars[at - 1]);
        match chars[at] {
            '\'' => {
                at = after_string(&chars, at);
                value(&mut out);
            }
            digit if digit.is_ascii_digit() && !after_name => {
                // Also 0x1f, 1.5 and 2e9.
                while at < chars.len() && (is_name(chars[at]) || chars[at] == '.') {
                    at += 1;
                }
                without_sign(&mut out);
                value(&mut out);
            }
            other => {
                out.push(other);
                at += 1;
            }
        }
    }
    if text.ends_with(GOES_ON) {
        cut(&mut out);
    }
    out
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Behind the string that begins here; doubled and escaped quotes are part of it. One that has no
/// end was cut with the label.
fn after_string(chars: &[char], quote: usize) -> usize {
    let mut at = quote + 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '\'' if chars.get(at + 1) == Some(&'\'') => at += 2,
            '\'' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// A sign belongs to the number where no operand stands before it.
fn without_sign(out: &mut String) {
    let Some(before) = out.strip_suffix('-') else {
        return;
    };
    let before = before.trim_end();
    if before.ends_with(['(', ',', '=', '<', '>', '+', '-', '*', '/']) {
        out.pop();
    }
}

/// Writes a value, or makes the one before it a list.
fn value(out: &mut String) {
    let before = out.trim_end();
    let Some(list) = before.strip_suffix(',').map(str::trim_end) else {
        return out.push('?');
    };
    if list.ends_with('?') {
        let end = list.len();
        out.truncate(end);
        out.push_str(", …");
    } else if list.ends_with("?, …") {
        let end = list.len();
        out.truncate(end);
    } else {
        out.push('?');
    }
}

/// Ends a fingerprint where labels that differ by the lengths of their values have the same text.
fn cut(out: &mut String) {
    let end = match out.char_indices().nth(KEPT_OF_CUT) {
        Some((end, _)) => Some(end),
        None => out.rfind('?').map(|last| last + 1),
    };
    if let Some(end) = end {
        out.truncate(end);
    }
    if !out.ends_with(GOES_ON) {
        out.push(GOES_ON);
    }
}

#[cfg(test)]
mod tests {
    use reqtrace_common::limits::MAX_LABEL;

    use super::*;
    use crate::label::marked;

    #[test]
    fn values_go_and_names_stay() {
        for (label, wanted) in [
            (
                "SELECT c FROM sbtest1 WHERE id=4711",
                "SELECT c FROM sbtest1 WHERE id=?",
            ),
            (
                "SET a = -5, b = a -5, c = (-1.5e3)",
                "SET a = ?, b = a -?, c = (?)",
            ),
            ("SET a = a + -1234", "SET a = a + ?"),
            ("x = 0x1f AND t2.c3 > 7", "x = ? AND t2.c3 > ?"),
            ("name = 'O''Neil' AND n = 'it\\'s'", "name = ? AND n = ?"),
            ("name = 'cut he", "name = ?"),
            ("name = 'ends in \\", "name = ?"),
            ("id IN (1,2, 3) LIMIT 5", "id IN (?, …) LIMIT ?"),
            ("VALUES ('a', 1, f(2))", "VALUES (?, …, f(?))"),
            ("FROM \"Order2\"", "FROM \"Order2\""),
            ("/user/123/cart", "/user/?/cart"),
            ("config|get", "config|get"),
            ("größe2 = 3", "größe2 = ?"),
            ("", ""),
        ] {
            assert_eq!(fingerprint(label.as_bytes()), wanted, "{label}");
        }
    }

    #[test]
    fn labels_that_were_cut_at_different_places_are_one() {
        let text = |id: &str| {
            let whole = format!(
                "SELECT a FROM t WHERE id = {id} {}",
                "AND b = c ".repeat(20)
            );
            whole[..MAX_LABEL].to_owned()
        };
        let fingerprint = |text: &str| fingerprint(&marked(text.as_bytes()));
        let short = fingerprint(&text("7"));
        assert_eq!(short, fingerprint(&text("123456789")));
        assert!(short.starts_with("SELECT a FROM t WHERE id = ? AND b = c"));
        assert!(short.ends_with('…'), "{short}");
        // Values that take nearly all of it.
        let list = |id: &str| {
            let whole = format!(
                "DELETE FROM t WHERE id IN ({}",
                format!("{id}, ").repeat(99)
            );
            whole[..MAX_LABEL].to_owned()
        };
        assert_eq!(fingerprint(&list("7")), fingerprint(&list("1234567")));
        // A value at the beginning is not all that is left.
        let comment = format!("/* 7 */ SELECT {}", "x".repeat(200));
        assert!(fingerprint(&comment[..MAX_LABEL]).contains("SELECT xxx"));
    }
}
