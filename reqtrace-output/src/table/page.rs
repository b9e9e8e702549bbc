//! What the parts of the report are drawn with: lines of bounded width, bars, frames.

use std::fmt::Write as _;

use super::{BAR, NARROW};
use reqtrace_base::figures::cut;
use reqtrace_base::names::telling;

/// Text whose lines never get too long.
pub(super) struct Page {
    pub(super) text: String,
    /// Longest line, characters.
    pub(super) width: usize,
}

impl Page {
    pub(super) fn new(width: usize) -> Self {
        Self {
            text: String::new(),
            width,
        }
    }

    /// Whether tables have to leave something out.
    pub(super) fn is_narrow(&self) -> bool {
        self.width < NARROW
    }

    /// One line, cut where it is too long.
    pub(super) fn line(&mut self, line: &str) {
        self.text.push_str(cut(line, self.width).trim_end());
        self.text.push('\n');
    }

    /// A paragraph, wrapped; `first` stands before it, and as many blanks before its other lines.
    pub(super) fn wrapped(&mut self, first: &str, text: &str) {
        let indent = first.chars().count();
        let mut line = first.to_owned();
        let mut empty = true;
        for word in text.split_whitespace() {
            let longer = line.chars().count() + usize::from(!empty) + word.chars().count();
            if longer > self.width && !empty {
                self.line(&line);
                line = " ".repeat(indent);
                empty = true;
            }
            if !empty {
                line.push(' ');
            }
            line.push_str(word);
            empty = false;
        }
        self.line(&line);
    }
}

/// Up to three frames that fit into `width`: the program's, where they have names, or else the
/// kernel's.
pub(super) fn frames<'a>(
    user: impl Iterator<Item = &'a str>,
    kernel: impl Iterator<Item = &'a str>,
    width: usize,
) -> String {
    let mut text = String::new();
    for name in telling(user, kernel) {
        let frame = format!("← {name}");
        let room = width.saturating_sub(text.chars().count());
        if !text.is_empty() && frame.chars().count() > room {
            break;
        }
        let _ = write!(text, "{frame} ");
    }
    text
}

pub(super) fn bar(part: u64, whole: u64) -> String {
    let part = part.min(whole);
    let cells = (u128::from(part) * u128::from(BAR) * 2 / u128::from(whole.max(1))) as usize;
    let mut bar = "█".repeat(cells / 2);
    if cells % 2 == 1 {
        bar.push('▌');
    }
    bar
}
