//! The rows of a CSV that is written while a trace runs: fields in, whole rows out.

use std::io::Write;

use csv::{QuoteStyle, Terminator, WriterBuilder};

use crate::chunks::{Chunks, Limits};
use reqtrace_analysis::report::LossLine;
use reqtrace_base::error::Result;
use reqtrace_base::plain::csv_field;

/// Rows that wait to be handed over.
pub(super) struct Tray(Chunks);

impl Tray {
    /// As [`Chunks::new`].
    pub(super) fn new(out: Box<dyn Write + Send>, name: &str, limits: Limits) -> Self {
        Self(Chunks::new(out, name, limits))
    }

    /// Writes the names of the columns.
    pub(super) fn header<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) -> Result<()> {
        for name in names {
            self.text(name);
        }
        end(self.0.bytes());
        self.0.end_frame()
    }

    /// Whether a row of a request of this latency is to be made.
    pub(super) fn takes(&mut self, latency_ns: u64) -> bool {
        self.0.takes(latency_ns)
    }

    /// Adds a field.
    pub(super) fn number(&mut self, value: u64) {
        number(self.0.bytes(), value);
    }

    /// Adds a field, as a spreadsheet takes it for text.
    pub(super) fn text(&mut self, value: &str) {
        match is_simple(value) {
            true => simple(self.0.bytes(), value),
            false => text(self.0.bytes(), &csv_field(value)),
        }
    }

    /// Ends the row, as [`Chunks::end_record`].
    pub(super) fn end(&mut self, unix_ns: u64) -> Result<()> {
        end(self.0.bytes());
        self.0.end_record(unix_ns)
    }

    /// Hands all rows over.
    pub(super) fn hand_over(&mut self) -> Result<()> {
        self.0.hand_over()
    }

    /// As [`Chunks::left_out`].
    pub(super) fn left_out(&self, beyond: [&str; 2], unread: [&str; 2]) -> Vec<LossLine> {
        self.0.left_out(beyond, unread)
    }
}

/// A number and a comma. Most are 0: a request is in few wait classes.
fn number(line: &mut Vec<u8>, value: u64) {
    if value == 0 {
        line.extend_from_slice(b"0,");
    } else {
        line.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
        line.push(b',');
    }
}

/// Whether a text is its own field, as most are: nothing in it is to be cleaned, quoted or taken for a formula.
fn is_simple(text: &str) -> bool {
    let is_simple =
        |byte: u8| byte.is_ascii_alphanumeric() | matches!(byte, b' ' | b'_' | b'/' | b'.' | b':');
    text.bytes().fold(true, |all, byte| all & is_simple(byte))
}

fn simple(line: &mut Vec<u8>, text: &str) {
    if !text.is_empty() {
        line.extend_from_slice(text.as_bytes());
    }
    line.push(b',');
}

/// A text and a comma. What has to stand in quotes is put there by the crate `csv`; for every field it would take
/// four times as long.
fn text(line: &mut Vec<u8>, text: &str) {
    let special = |byte: &u8| matches!(byte, b',' | b'"' | b'\n' | b'\r');
    if !text.as_bytes().iter().any(special) {
        return simple(line, text);
    }
    let mut writer = WriterBuilder::new()
        .quote_style(QuoteStyle::Always)
        .terminator(Terminator::Any(b','))
        .from_writer(line);
    // Writing to memory does not fail, and dropping it writes what is left.
    let _ = writer.write_record([text]);
}

/// The last comma of a row becomes its end.
fn end(line: &mut [u8]) {
    if let Some(last) = line.last_mut() {
        *last = b'\n';
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_simple_text_is_its_own_field(field in "[a9 _/.:=+@'\"\\-,\n\u{9b}é]{0,4}") {
            let (mut short, mut long) = (Vec::new(), Vec::new());
            simple(&mut short, &field);
            text(&mut long, &csv_field(&field));
            prop_assert!(!is_simple(&field) || short == long);
        }

        #[test]
        fn fields_are_those_of_the_crate_csv(
            texts in proptest::collection::vec("[a,\"\\n\\r é]{0,8}", 1..6),
            value: u64,
        ) {
            let mut ours = Vec::new();
            number(&mut ours, value);
            texts.iter().for_each(|field| text(&mut ours, field));
            end(&mut ours);
            let mut theirs = WriterBuilder::new()
                .terminator(Terminator::Any(b'\n'))
                .from_writer(Vec::new());
            theirs.write_field(value.to_string()).unwrap();
            for field in &texts {
                theirs.write_field(field).unwrap();
            }
            theirs.write_record(None::<&[u8]>).unwrap();
            prop_assert_eq!(ours, theirs.into_inner().unwrap());
        }
    }
}
