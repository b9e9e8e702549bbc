//! Differential folded stacks, and their picture: the stacks of both sides in, one line each with both times out.

use std::io::{self, Write};

use inferno::flamegraph::{Options, TextTruncateDirection, from_lines};
use reqtrace_compare::{Comparison, StackChange};

use super::DELIMITER;
use crate::folded::micros;

/// The frames of a stack, outermost first, with the request type before them where there are several.
pub(super) fn frames<'a>(
    comparison: &'a Comparison,
    stack: &'a StackChange,
) -> impl Iterator<Item = &'a str> {
    let with_request = comparison.types.len() > 1;
    let mut frames = stack.name.split(';').filter(|frame| *frame != DELIMITER);
    let process = frames.next();
    process
        .into_iter()
        .chain(with_request.then_some(stack.request.as_str()))
        .chain(frames)
}

fn lines(comparison: &Comparison) -> Vec<String> {
    let line = |stack: &StackChange| {
        let frames: Vec<&str> = frames(comparison, stack).collect();
        let [a, b] = stack
            .sides_ns
            .map(|ns| if ns == 0 { 0 } else { micros(ns) });
        format!("{} {a} {b}", frames.join(";"))
    };
    let mut lines: Vec<String> = comparison.stacks.iter().map(line).collect();
    lines.sort_unstable();
    lines
}

/// Writes differential folded stacks, as `inferno-diff-folded` does.
pub(super) fn write(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    let lines = lines(comparison).into_iter().map(|line| line + "\n");
    out.write_all(lines.collect::<String>().as_bytes())?;
    out.flush()
}

/// Draws the picture.
pub(super) fn draw(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    let lines = lines(comparison);
    let gone: u64 = comparison
        .stacks
        .iter()
        .filter(|stack| stack.sides_ns[1] == 0)
        .count() as u64;
    let mut drawing = Options::default();
    drawing.title = "What changed from A to B".to_owned();
    drawing.subtitle = Some(format!(
        "as wide as B; red: more time a request than in A, blue: less; {gone} stacks of A are gone, and not here"
    ));
    drawing.count_name = "µs".to_owned();
    drawing.text_truncate_direction = TextTruncateDirection::Right;
    drawing.deterministic = true;
    drawing.no_sort = true;
    let mut svg = Vec::new();
    let drawn = from_lines(&mut drawing, lines.iter().map(String::as_str), &mut svg);
    // A picture of nothing says so, and is an error of inferno's.
    let is_empty = comparison.stacks.iter().all(|stack| stack.sides_ns[1] == 0);
    drawn.or_else(|error| {
        if is_empty {
            Ok(())
        } else {
            Err(io::Error::other(error.to_string()))
        }
    })?;
    out.write_all(&svg)?;
    out.flush()
}
