//! The metrics in Prometheus's older form, for readers who ask for it, since only that has native histograms: the text of all
//! metrics in, messages behind their lengths out.
//!
//! Everything that the text has is in it under the same names. Durations are there once more, as a family of their own with
//! native buckets, so that rules about the classic ones hold whichever form is read.

mod text;
pub(super) mod wire;

use std::collections::BTreeMap;

use prost::Message as _;

use super::encoder::Label;
use text::{Sample, number, unescaped};
use wire::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, Untyped};

/// The family of native histograms.
const NATIVE: &str = "reqtrace_request_duration_native_seconds";
const NATIVE_HELP: &str = "Durations of complete requests in native buckets";

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

#[cfg(test)]
mod tests {
    use super::*;

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
