//! The metrics in Prometheus's older form, for readers who ask for it, since only that has native histograms: the text of all
//! metrics in, messages behind their lengths out.
//!
//! Everything that the text has is in it under the same names. Durations are there once more, as a family of their own with
//! native buckets, so that rules about the classic ones hold whichever form is read.

use std::collections::BTreeMap;

use prost::Message as _;

use super::encode::Label;
use wire::{
    Bucket, Counter, Exemplar, Gauge, Histogram, LabelPair, Metric, MetricFamily, Timestamp,
    Untyped,
};

/// What a reader asks for, and gets.
pub(crate) const CONTENT_TYPE: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// The family of native histograms.
const NATIVE: &str = "reqtrace_request_duration_native_seconds";
const NATIVE_HELP: &str = "Durations of complete requests in native buckets";

/// The messages, as `io/prometheus/client/metrics.proto` of Prometheus's client_model has them.
pub(super) mod wire {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct LabelPair {
        #[prost(string, optional, tag = "1")]
        pub(crate) name: Option<String>,
        #[prost(string, optional, tag = "2")]
        pub(crate) value: Option<String>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(crate) struct Gauge {
        #[prost(double, optional, tag = "1")]
        pub(crate) value: Option<f64>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Counter {
        #[prost(double, optional, tag = "1")]
        pub(crate) value: Option<f64>,
        #[prost(message, optional, tag = "2")]
        pub(crate) exemplar: Option<Exemplar>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(crate) struct Untyped {
        #[prost(double, optional, tag = "1")]
        pub(crate) value: Option<f64>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Histogram {
        #[prost(uint64, optional, tag = "1")]
        pub(crate) sample_count: Option<u64>,
        #[prost(double, optional, tag = "2")]
        pub(crate) sample_sum: Option<f64>,
        #[prost(message, repeated, tag = "3")]
        pub(crate) bucket: Vec<Bucket>,
        #[prost(sint32, optional, tag = "5")]
        pub(crate) schema: Option<i32>,
        #[prost(double, optional, tag = "6")]
        pub(crate) zero_threshold: Option<f64>,
        #[prost(uint64, optional, tag = "7")]
        pub(crate) zero_count: Option<u64>,
        #[prost(message, repeated, tag = "12")]
        pub(crate) positive_span: Vec<BucketSpan>,
        #[prost(sint64, repeated, packed = "false", tag = "13")]
        pub(crate) positive_delta: Vec<i64>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Bucket {
        #[prost(uint64, optional, tag = "1")]
        pub(crate) cumulative_count: Option<u64>,
        #[prost(double, optional, tag = "2")]
        pub(crate) upper_bound: Option<f64>,
        #[prost(message, optional, tag = "3")]
        pub(crate) exemplar: Option<Exemplar>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(crate) struct BucketSpan {
        #[prost(sint32, optional, tag = "1")]
        pub(crate) offset: Option<i32>,
        #[prost(uint32, optional, tag = "2")]
        pub(crate) length: Option<u32>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Exemplar {
        #[prost(message, repeated, tag = "1")]
        pub(crate) label: Vec<LabelPair>,
        #[prost(double, optional, tag = "2")]
        pub(crate) value: Option<f64>,
        #[prost(message, optional, tag = "3")]
        pub(crate) timestamp: Option<Timestamp>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(crate) struct Timestamp {
        #[prost(int64, tag = "1")]
        pub(crate) seconds: i64,
        #[prost(int32, tag = "2")]
        pub(crate) nanos: i32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Metric {
        #[prost(message, repeated, tag = "1")]
        pub(crate) label: Vec<LabelPair>,
        #[prost(message, optional, tag = "2")]
        pub(crate) gauge: Option<Gauge>,
        #[prost(message, optional, tag = "3")]
        pub(crate) counter: Option<Counter>,
        #[prost(message, optional, tag = "5")]
        pub(crate) untyped: Option<Untyped>,
        #[prost(message, optional, tag = "7")]
        pub(crate) histogram: Option<Histogram>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct MetricFamily {
        #[prost(string, optional, tag = "1")]
        pub(crate) name: Option<String>,
        #[prost(string, optional, tag = "2")]
        pub(crate) help: Option<String>,
        /// One of [`super::kind`].
        #[prost(int32, optional, tag = "3")]
        pub(crate) r#type: Option<i32>,
        #[prost(message, repeated, tag = "4")]
        pub(crate) metric: Vec<Metric>,
    }
}

/// Numbers of `MetricType`.
mod kind {
    pub(super) const COUNTER: i32 = 0;
    pub(super) const GAUGE: i32 = 1;
    pub(super) const UNTYPED: i32 = 3;
    pub(super) const HISTOGRAM: i32 = 4;
}

/// The family of native histograms.
pub(super) fn native<'a>(all: impl Iterator<Item = ([Label<'a>; 2], Histogram)>) -> MetricFamily {
    let metrics = all.map(|(labels, histogram)| Metric {
        label: labels.map(|(name, value)| pair(name, value)).to_vec(),
        histogram: Some(histogram),
        ..Metric::default()
    });
    MetricFamily {
        name: Some(NATIVE.to_owned()),
        help: Some(NATIVE_HELP.to_owned()),
        r#type: Some(kind::HISTOGRAM),
        metric: metrics.collect(),
    }
}

/// All that the text has, and another family.
pub(super) fn encode(text: &str, more: MetricFamily) -> Vec<u8> {
    let mut families = families(text);
    families.push(more);
    families.retain(|family| !family.metric.is_empty());
    let encoded = families
        .iter()
        .map(MetricFamily::encode_length_delimited_to_vec);
    encoded.flatten().collect()
}

fn pair(name: &str, value: &str) -> LabelPair {
    LabelPair {
        name: Some(name.to_owned()),
        value: Some(value.to_owned()),
    }
}

/// Those of an OpenMetrics text of our own. A line that is not understood is left out.
fn families(text: &str) -> Vec<MetricFamily> {
    let mut families: Vec<Family> = Vec::new();
    for line in text.lines() {
        if let Some(line) = line.strip_prefix("# HELP ") {
            let (name, help) = line.split_once(' ').unwrap_or((line, ""));
            families.push(Family::new(name, help));
        } else if let Some(line) = line.strip_prefix("# TYPE ") {
            let of_type = line.split_once(' ').zip(families.last_mut());
            if let Some(((_, kind), family)) = of_type.filter(|((name, _), of)| *name == of.name) {
                kind.clone_into(&mut family.kind);
            }
        } else if !line.starts_with('#')
            && let Some(family) = families.last_mut()
            && let Some(sample) = Sample::parse(line)
        {
            family.add(sample);
        }
    }
    families.into_iter().map(Family::message).collect()
}

/// A family as it is read.
struct Family {
    name: String,
    help: String,
    kind: String,
    simple: Vec<(Vec<LabelPair>, f64)>,
    /// By their labels but `le`.
    histograms: BTreeMap<Vec<(String, String)>, Histogram>,
}

impl Family {
    fn new(name: &str, help: &str) -> Self {
        Self {
            name: name.to_owned(),
            help: unescaped(help),
            kind: String::new(),
            simple: Vec::new(),
            histograms: BTreeMap::new(),
        }
    }

    fn add(&mut self, sample: Sample<'_>) {
        let Sample {
            name,
            labels,
            value,
            exemplar,
        } = sample;
        if self.kind != "histogram" {
            let labels = labels.iter().map(|(name, value)| pair(name, value));
            self.simple.push((labels.collect(), value));
            return;
        }
        let (edge, labels): (Vec<_>, Vec<_>) =
            labels.into_iter().partition(|(name, _)| name == "le");
        let histogram = self.histograms.entry(labels).or_default();
        match (name.strip_prefix(&self.name), edge.as_slice()) {
            (Some("_sum"), _) => histogram.sample_sum = Some(value),
            (Some("_count"), _) => histogram.sample_count = Some(value as u64),
            (Some("_bucket"), [(_, edge)]) => histogram.bucket.push(Bucket {
                cumulative_count: Some(value as u64),
                upper_bound: Some(number(edge).unwrap_or(f64::INFINITY)),
                exemplar,
            }),
            _ => {}
        }
    }

    fn message(self) -> MetricFamily {
        let (end, kind) = match self.kind.as_str() {
            "counter" => ("_total", kind::COUNTER),
            "gauge" => ("", kind::GAUGE),
            "info" => ("_info", kind::GAUGE),
            "histogram" => ("", kind::HISTOGRAM),
            _ => ("", kind::UNTYPED),
        };
        let simple = self.simple.into_iter().map(|(label, value)| {
            let (value, mut metric) = (
                Some(value),
                Metric {
                    label,
                    ..Metric::default()
                },
            );
            match kind {
                kind::COUNTER => {
                    metric.counter = Some(Counter {
                        value,
                        exemplar: None,
                    });
                }
                kind::GAUGE => metric.gauge = Some(Gauge { value }),
                _ => metric.untyped = Some(Untyped { value }),
            }
            metric
        });
        let histograms = self
            .histograms
            .into_iter()
            .map(|(labels, histogram)| Metric {
                label: labels
                    .iter()
                    .map(|(name, value)| pair(name, value))
                    .collect(),
                histogram: Some(histogram),
                ..Metric::default()
            });
        MetricFamily {
            name: Some(self.name + end),
            help: Some(self.help),
            r#type: Some(kind),
            metric: simple.chain(histograms).collect(),
        }
    }
}

/// A line.
struct Sample<'a> {
    name: &'a str,
    labels: Vec<(String, String)>,
    value: f64,
    exemplar: Option<Exemplar>,
}

impl<'a> Sample<'a> {
    fn parse(line: &'a str) -> Option<Self> {
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

fn number(text: &str) -> Option<f64> {
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

fn unescaped(text: &str) -> String {
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

    #[test]
    fn families_have_the_names_that_prometheus_knows() {
        let text = "# HELP a A\\nB.\n# TYPE a counter\na_total{x=\"1\"} 2.0\n# HELP b B.\n# TYPE b info\nb_info{v=\"2\"} 1\n\
                    # HELP c C.\n# TYPE c gauge\nc 7\n# HELP h H.\n# TYPE h histogram\nh_sum{x=\"1\"} 0.5\nh_count{x=\"1\"} 3\n\
                    h_bucket{x=\"1\",le=\"0.1\"} 2\nh_bucket{x=\"1\",le=\"+Inf\"} 3\n# EOF\n";
        let histogram = Histogram {
            schema: Some(4),
            sample_count: Some(3),
            ..Histogram::default()
        };
        let labels = [("service", "s"), ("type", "t")];
        let bytes = encode(text, native([(labels, histogram)].into_iter()));
        let mut rest = bytes.as_slice();
        let mut families = Vec::new();
        while !rest.is_empty() {
            families.push(MetricFamily::decode_length_delimited(&mut rest).unwrap());
        }
        let named = families
            .iter()
            .map(|family| (family.name.as_deref().unwrap(), family.r#type.unwrap()));
        assert_eq!(
            named.collect::<Vec<_>>(),
            [
                ("a_total", 0),
                ("b_info", 1),
                ("c", 1),
                ("h", 4),
                (NATIVE, 4)
            ]
        );
        assert_eq!(families[0].help.as_deref(), Some("A\nB."));
        let h = families[3].metric[0].histogram.clone().unwrap();
        assert_eq!(
            (h.sample_count, h.sample_sum, h.schema),
            (Some(3), Some(0.5), None)
        );
        let edges: Vec<_> = h
            .bucket
            .iter()
            .map(|bucket| bucket.upper_bound.unwrap())
            .collect();
        assert_eq!(edges, [0.1, f64::INFINITY]);
        let n = families[4].metric[0].histogram.clone().unwrap();
        assert_eq!((n.sample_count, n.schema), (Some(3), Some(4)));
    }
}
