//! Lines of an OpenMetrics text of our own: one in; its name, labels, value and exemplar out.

use super::pair;
use super::wire::{Exemplar, Timestamp};

/// A line.
pub(super) struct Sample<'a> {
    pub(super) name: &'a str,
    pub(super) labels: Vec<(String, String)>,
    pub(super) value: f64,
    pub(super) exemplar: Option<Exemplar>,
}

impl<'a> Sample<'a> {
    pub(super) fn parse(line: &'a str) -> Option<Self> {
        let end = line.find(['{', ' '])?;
        let (name, rest) = line.split_at(end);
        let (labels, rest) = labels(rest)?;
        let (value, rest) = match rest.split_once(" # ") {
            Some((value, exemplar)) => (value, Some(exemplar)),
            None => (rest, None),
        };
        Some(Self {
            name,
            labels,
            value: number(value.trim())?,
            exemplar: rest.and_then(exemplar),
        })
    }
}

/// `{id="1",…} value time`.
fn exemplar(text: &str) -> Option<Exemplar> {
    let (labels, rest) = labels(text)?;
    let mut words = rest.split_ascii_whitespace();
    let value = number(words.next()?)?;
    let timestamp = words.next().and_then(|time| {
        let (seconds, fraction) = time.split_once('.').unwrap_or((time, ""));
        let digits: String = fraction
            .chars()
            .chain("000000000".chars())
            .take(9)
            .collect();
        Some(Timestamp {
            seconds: seconds.parse().ok()?,
            nanos: digits.parse().ok()?,
        })
    });
    Some(Exemplar {
        label: labels
            .iter()
            .map(|(name, value)| pair(name, value))
            .collect(),
        value: Some(value),
        timestamp,
    })
}

pub(super) fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        text => text.parse().ok(),
    }
}

/// Labels at the beginning of a text, if there are some, and what is behind them.
fn labels(text: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut all = Vec::new();
    let Some(mut rest) = text.strip_prefix('{') else {
        return Some((all, text));
    };
    loop {
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((all, rest));
        }
        let (name, value) = rest.split_once("=\"")?;
        let end = end_of(value)?;
        all.push((name.to_owned(), unescaped(&value[..end])));
        rest = &value[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

/// Where the value of a label ends.
fn end_of(value: &str) -> Option<usize> {
    let mut is_escaped = false;
    value.bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    })
}

pub(super) fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some('n') => out.push('\n'),
                Some(other) => out.push(other),
                None => out.push(c),
            },
            (c, false) => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_with_all_that_labels_may_have() {
        let line = "a_bucket{s=\"x\\\"},\\\\\\n\",le=\"0.1\"} 3 # {id=\"7\"} 0.05 12.345";
        let Sample {
            name,
            labels,
            value,
            exemplar,
        } = Sample::parse(line).unwrap();
        assert_eq!((name, value), ("a_bucket", 3.0));
        let expected = [("s", "x\"},\\\n"), ("le", "0.1")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(labels, expected);
        let exemplar = exemplar.unwrap();
        assert_eq!(exemplar.label, [pair("id", "7")]);
        let time = exemplar.timestamp.unwrap();
        assert_eq!((time.seconds, time.nanos), (12, 345_000_000));
        assert_eq!(Sample::parse("b 2.5").unwrap().value, 2.5);
        for broken in ["", "c", "d{x=\"1} 2", "e{x} 1", "f 1x"] {
            assert!(Sample::parse(broken).is_none(), "{broken}");
        }
    }
}
