//! The writer of one metric after the other: names, helps, labels and values in, the text of OpenMetrics out.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text as open_metrics};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

pub(crate) type Label<'a> = (&'static str, &'a str);

/// Writes one metric after the other.
pub(crate) struct Encoder<'a>(pub(crate) DescriptorEncoder<'a>);

impl Encoder<'_> {
    pub(crate) fn counter<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        all: impl IntoIterator<Item = ([Label<'l>; N], f64)>,
    ) -> fmt::Result {
        let mut to = self
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in all {
            // Without labels there are no braces.
            if N == 0 {
                to.encode_counter::<NoLabelSet, f64, f64>(&value, None)?;
            } else {
                let mut one = to.encode_family(&labels)?;
                one.encode_counter::<NoLabelSet, f64, f64>(&value, None)?;
            }
        }
        Ok(())
    }

    pub(crate) fn gauge<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        all: impl IntoIterator<Item = ([Label<'l>; N], f64)>,
    ) -> fmt::Result {
        let mut to = self
            .0
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in all {
            match N {
                0 => to.encode_gauge(&value)?,
                _ => to.encode_family(&labels)?.encode_gauge(&value)?,
            }
        }
        Ok(())
    }
}

/// The text of these metrics.
///
/// # Errors
///
/// Never: text takes everything.
#[cfg(feature = "ship")]
pub(crate) fn text_of(all: impl Collector) -> Result<String, fmt::Error> {
    behind(String::new(), all)
}

/// The same behind other text.
pub(super) fn behind(mut out: String, all: impl Collector) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("reqtrace");
    registry.register_collector(Box::new(all));
    open_metrics::encode(&mut out, &registry)?;
    Ok(out)
}
