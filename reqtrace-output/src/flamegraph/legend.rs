//! The legend: kinds of time and their sums in, a row of colours with names below the picture out.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::folded::{Hue, Sums};
use reqtrace_base::figures::share;

/// Height of a row, pixels.
const ROW: u64 = 20;
/// Width of the picture, as inferno draws it, and its margin.
const WIDTH: u64 = 1200;
const MARGIN: u64 = 10;
/// Width of a character of the legend, about, and of the square before a name with the gap behind it.
const CHARACTER: u64 = 8;
const SQUARE: u64 = 18;

/// Adds a legend to a picture.
pub(super) fn add(svg: &str, sums: &Sums) -> String {
    let Some((head, rest)) = head(svg) else {
        return svg.to_owned();
    };
    let Some((body, end)) = rest.rsplit_once("</svg>") else {
        return svg.to_owned();
    };
    let Some(height) = number_behind(head, "height=\"") else {
        return svg.to_owned();
    };
    let mut entries: BTreeMap<&Hue, u64> = BTreeMap::new();
    for (hue, ns) in sums.values().flat_map(|sum| &sum.hues) {
        *entries.entry(hue).or_default() += ns;
    }
    let all: u64 = entries.values().sum();
    let mut entries: Vec<_> = entries.into_iter().collect();
    entries.sort_by_key(|(hue, ns)| (std::cmp::Reverse(*ns), *hue));
    let mut legend = String::from("<g id=\"legend\">");
    let (mut x, mut row) = (MARGIN, 0);
    for ((name, colour), ns) in entries {
        let text = format!("{name} {}", share(ns, all));
        let width = SQUARE + text.chars().count() as u64 * CHARACTER;
        if x + width > WIDTH - MARGIN && x > MARGIN {
            (x, row) = (MARGIN, row + 1);
        }
        let y = height + row * ROW;
        // Writing to memory does not fail.
        let _ = write!(
            legend,
            "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{}\"/>\
             <text x=\"{}\" y=\"{}\">{}</text>",
            colour.hex(),
            x + SQUARE - 2,
            y + 10,
            escape(&text)
        );
        x += width;
    }
    legend.push_str("</g>");
    let higher = height + (row + 1) * ROW;
    let head = head
        .replacen(
            &format!("height=\"{height}\""),
            &format!("height=\"{higher}\""),
            1,
        )
        .replacen(
            &format!("viewBox=\"0 0 {WIDTH} {height}\""),
            &format!("viewBox=\"0 0 {WIDTH} {higher}\""),
            1,
        );
    let background = format!(
        "<rect x=\"0\" y=\"0\" width=\"100%\" height=\"{height}\" fill=\"url(#background)\"/>"
    );
    let body = body.replacen(
        &background,
        &background.replace(&format!("\"{height}\""), &format!("\"{higher}\"")),
        1,
    );
    format!("{head}{body}{legend}</svg>{end}")
}

/// The picture's first element, with what comes before it; and the rest.
fn head(svg: &str) -> Option<(&str, &str)> {
    let begin = svg.find("<svg ")?;
    let end = begin + svg[begin..].find('>')? + 1;
    Some(svg.split_at(end))
}

fn number_behind(text: &str, before: &str) -> Option<u64> {
    let at = text.find(before)? + before.len();
    let digits = text[at..].split('"').next()?;
    digits.parse().ok()
}

/// Text between tags.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
