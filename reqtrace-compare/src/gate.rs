//! Conditions: words such as `order p99 > +10%` in, whether a comparison meets them out.

use std::fmt;

use reqtrace_base::error::{Error, Result};

use crate::bootstrap::LEAST_BLOCKS;
use crate::metrics::BEYOND;
use crate::model::{Comparison, Measure, Metric, TypeComparison};

/// When a comparison fails.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    words: String,
    /// Of this request type; `None`: of each.
    request: Option<String>,
    measure: Measure,
    is_above: bool,
    bound: Bound,
}

/// What is held against the bound.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    /// The change as a share of the first side.
    Relative(f64),
    /// The change in the metric's own unit.
    Absolute(f64),
    /// The second side's value.
    Value(f64),
}

/// What a condition comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The change is not beyond the bound: the whole interval is on the right side.
    Passes(String),
    /// It is: the whole interval is beyond the bound.
    Fails(String),
    /// The bound is within the interval, or there is none; with the seconds of each side that would be needed, where that is
    /// known.
    CannotTell(String, Option<u64>),
}

const EXAMPLES: &str = "write a metric, > or <, and a bound: 'order p99 > +10%', 'mean > +2ms', 'p99.9 > 50ms', 'rate < -5%', \
                        'slow > 1%'; metrics are rate, mean, p50, p90, p99, p99.9 and, with --slo, slow";

impl Condition {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// Usage errors, with the word that is wrong.
    pub fn parse(words: &str) -> Result<Self> {
        let wrong =
            |what: String| Error::usage(format!("--fail-if '{words}': {what}")).next(EXAMPLES);
        let Some(at) = words.find(['<', '>']) else {
            return Err(wrong("there is neither > nor <".to_owned()));
        };
        let (left, right) = words.split_at(at);
        let is_above = right.starts_with('>');
        let (left, right) = (left.trim(), right[1..].trim());
        let (request, name) = match left.rsplit_once(char::is_whitespace) {
            Some((request, name)) => (Some(request.trim().to_owned()), name),
            None => (None, left),
        };
        let measure = Measure::ALL
            .into_iter()
            .find(|measure| measure.name() == name);
        let measure = measure.ok_or_else(|| wrong(format!("`{name}` is no metric")))?;
        let bound = bound(measure, right).map_err(wrong)?;
        Ok(Self {
            words: words.to_owned(),
            request,
            measure,
            is_above,
            bound,
        })
    }

    /// What the comparison says, for each request type that it is about.
    ///
    /// # Errors
    ///
    /// Usage errors: a request type that neither side has, and `slow` without an objective.
    pub fn of(&self, comparison: &Comparison) -> Result<Vec<Answer>> {
        let wrong = |what: String| Error::usage(format!("--fail-if '{self}': {what}"));
        if self.measure == Measure::Slow && comparison.slo_ns.is_none() {
            return Err(
                wrong("no objective tells which requests are slow".to_owned())
                    .next("give --slo, such as --slo 20ms"),
            );
        }
        let types: Vec<&TypeComparison> = comparison
            .types
            .iter()
            .filter(|of| self.request.as_ref().is_none_or(|name| *name == of.name))
            .collect();
        if types.is_empty() {
            let names: Vec<&str> = comparison.types.iter().map(|of| of.name.as_str()).collect();
            let what = match &self.request {
                Some(name) => format!("no request is of type `{name}`"),
                None => "there is no request".to_owned(),
            };
            return Err(wrong(what).next(format!("request types are {}", names.join(", "))));
        }
        Ok(types
            .into_iter()
            .map(|of| self.of_type(comparison, of))
            .collect())
    }

    fn of_type(&self, comparison: &Comparison, of: &TypeComparison) -> Answer {
        let lengths = comparison
            .sides
            .each_ref()
            .map(|side| side.length_ns as f64 / 1e9);
        let seconds = lengths[0].min(lengths[1]);
        let name = format!("{} {}", of.name, self.measure.name());
        let Some(metric) = of
            .metrics
            .iter()
            .find(|metric| metric.measure == self.measure)
        else {
            return Answer::CannotTell(format!("{name}: one side has no request"), None);
        };
        if matches!(self.bound, Bound::Relative(_)) && metric.relative.is_none() {
            return Answer::CannotTell(
                format!("{name}: A has none, so there is no share of it"),
                None,
            );
        }
        let (value, interval, bound) = self.held(metric);
        let Some([low, high]) = interval else {
            let needed = self.needed(of, lengths);
            return Answer::CannotTell(
                format!("{name}: too few requests or seconds for an interval"),
                needed,
            );
        };
        let shown = |value: f64| self.show(value);
        let words = format!(
            "{name} is {} ({} to {})",
            shown(value),
            shown(low),
            shown(high)
        );
        let (is_beyond, is_within) = match self.is_above {
            true => (low > bound, high < bound),
            false => (high < bound, low > bound),
        };
        if is_beyond {
            return Answer::Fails(words);
        }
        if is_within {
            return Answer::Passes(words);
        }
        // An interval is half as wide with four times the seconds.
        let room = (bound - value).abs();
        let half = if bound > value {
            high - value
        } else {
            value - low
        };
        let needed = (seconds * (half / room).powi(2) * 1.1).ceil();
        let is_known = room > 0.0 && needed.is_finite() && needed < 1e7;
        Answer::CannotTell(words, is_known.then_some(needed as u64))
    }

    /// The value, its interval, the bound.
    fn held(&self, metric: &Metric) -> (f64, Option<[f64; 2]>, f64) {
        match self.bound {
            Bound::Relative(bound) => {
                let estimate = metric.relative.unwrap_or_default();
                (estimate.change, estimate.interval, bound)
            }
            Bound::Absolute(bound) => (metric.absolute.change, metric.absolute.interval, bound),
            Bound::Value(bound) => (metric.sides[1].value, metric.sides[1].interval, bound),
        }
    }

    /// Seconds until there is an interval at all: more than are there.
    fn needed(&self, of: &TypeComparison, lengths: [f64; 2]) -> Option<u64> {
        let mut needed = LEAST_BLOCKS as f64;
        if let Some(quantile) = self.measure.quantile() {
            for (count, seconds) in of.records.into_iter().zip(lengths) {
                needed = needed.max(BEYOND / (1.0 - quantile) / (count as f64 / seconds));
            }
        }
        if needed <= lengths[0].min(lengths[1]) {
            needed = 2.0 * lengths[0].max(lengths[1]);
        }
        needed.is_finite().then_some(needed.ceil() as u64)
    }

    fn show(&self, value: f64) -> String {
        let sign = if value < 0.0 { "-" } else { "+" };
        let sign = if matches!(self.bound, Bound::Value(_)) {
            ""
        } else {
            sign
        };
        let size = value.abs();
        match (self.bound, self.measure) {
            (Bound::Relative(_), _) | (_, Measure::Slow) => format!("{sign}{:.2} %", size * 100.0),
            (_, Measure::Rate) => format!("{sign}{size:.1}/s"),
            _ => format!("{sign}{}", reqtrace_base::figures::duration(size as u64)),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

/// A bound: `+10%`, `-2ms`, `20ms`, `1%`.
fn bound(measure: Measure, word: &str) -> Result<Bound, String> {
    let is_change = word.starts_with(['+', '-']);
    let end = word
        .rfind(|c: char| c.is_ascii_digit())
        .map_or(0, |last| last + 1);
    let (number, unit) = word.split_at(end);
    let unit = unit.trim();
    let number: f64 = number
        .parse()
        .ok()
        .filter(|number: &f64| number.is_finite())
        .ok_or_else(|| {
            let shown = if word.is_empty() { "nothing" } else { word };
            format!("the bound is {shown}, and should be a number with its unit")
        })?;
    let scale = match unit {
        "ns" => Some(1.0),
        "us" | "µs" => Some(1e3),
        "ms" => Some(1e6),
        "s" => Some(1e9),
        _ => None,
    };
    match (unit, is_change, measure, scale) {
        ("%", false, Measure::Slow, _) => Ok(Bound::Value(number / 100.0)),
        ("%", true, Measure::Slow, _) => Ok(Bound::Absolute(number / 100.0)),
        ("%", true, ..) => Ok(Bound::Relative(number / 100.0)),
        ("%", false, ..) => Err(format!("{number}% of what? write +{number}% for a change")),
        ("/s", true, Measure::Rate, _) => Ok(Bound::Absolute(number)),
        ("/s", false, Measure::Rate, _) => Ok(Bound::Value(number)),
        (_, true, measure, Some(scale)) if measure.is_time() => Ok(Bound::Absolute(number * scale)),
        (_, false, measure, Some(scale)) if measure.is_time() => Ok(Bound::Value(number * scale)),
        _ => Err(format!("`{unit}` is no unit of {}", measure.name())),
    }
}
