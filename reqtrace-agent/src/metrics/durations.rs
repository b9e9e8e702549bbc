//! Durations of requests: types in, the text of their histogram with exemplars out.
//!
//! The crate that writes all other metrics takes only exemplars that it has chosen itself, of requests that it has counted
//! itself.

use std::fmt::{self, Write};

use super::encoder::Label;
use super::latencies::seconds;
use super::of_type::{Bucket, Exemplar, OfType};

const NAME: &str = "reqtrace_request_duration_seconds";
const HELP: &str = "Durations of complete requests";

/// Writes the whole family.
pub(super) fn write<'a>(
    out: &mut String,
    types: impl Iterator<Item = ([Label<'a>; 2], &'a OfType)>,
) -> fmt::Result {
    writeln!(out, "# HELP {NAME} {HELP}\n# TYPE {NAME} histogram")?;
    for (labels, of_type) in types {
        let [service, name] = labels.map(|(key, value)| format!("{key}=\"{}\"", Escaped(value)));
        let labels = format!("{service},{name}");
        let sum = seconds(of_type.duration_ns);
        writeln!(out, "{NAME}_sum{{{labels}}} {sum:?}")?;
        writeln!(out, "{NAME}_count{{{labels}}} {}", of_type.count())?;
        let mut count = 0;
        for bucket in of_type.buckets() {
            count += bucket.count;
            write!(
                out,
                "{NAME}_bucket{{{labels},le=\"{}\"}} {count}",
                Edge(bucket)
            )?;
            if let Some(exemplar) = bucket.exemplar() {
                write_exemplar(out, exemplar)?;
            }
            out.push('\n');
        }
    }
    Ok(())
}

/// `id` and `start_ns` name its row; the time is that of its end.
fn write_exemplar(out: &mut String, exemplar: &Exemplar) -> fmt::Result {
    let Exemplar {
        id,
        start_unix_ns,
        latency_ns,
        trace,
    } = exemplar;
    write!(out, " # {{id=\"{id}\",start_ns=\"{start_unix_ns}\"")?;
    if let Some(trace) = trace {
        let trace = u128::from_be_bytes(*trace);
        write!(out, ",trace_id=\"{trace:032x}\"")?;
    }
    let value = seconds((*latency_ns).into());
    let end_ms = exemplar.end_unix_ns() / 1_000_000;
    write!(out, "}} {value:?} {}.{:03}", end_ms / 1000, end_ms % 1000)
}

/// An upper edge in seconds.
struct Edge<'a>(&'a Bucket);

impl fmt::Display for Edge<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.edge_ns {
            u64::MAX => f.write_str("+Inf"),
            // With a point, as OpenMetrics has it: 1.0.
            ns => write!(f, "{:?}", seconds(ns.into())),
        }
    }
}

/// The value of a label.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}
