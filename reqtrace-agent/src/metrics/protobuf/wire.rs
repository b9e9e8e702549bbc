//! The messages, as `io/prometheus/client/metrics.proto` of Prometheus's client_model has them.

#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::metrics) struct LabelPair {
    #[prost(string, optional, tag = "1")]
    pub(in crate::metrics) name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(in crate::metrics) value: Option<String>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(in crate::metrics) struct Gauge {
    #[prost(double, optional, tag = "1")]
    pub(in crate::metrics) value: Option<f64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::metrics) struct Counter {
    #[prost(double, optional, tag = "1")]
    pub(in crate::metrics) value: Option<f64>,
    #[prost(message, optional, tag = "2")]
    pub(in crate::metrics) exemplar: Option<Exemplar>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(in crate::metrics) struct Untyped {
    #[prost(double, optional, tag = "1")]
    pub(in crate::metrics) value: Option<f64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::metrics) struct Histogram {
    #[prost(uint64, optional, tag = "1")]
    pub(in crate::metrics) sample_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub(in crate::metrics) sample_sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    pub(in crate::metrics) bucket: Vec<Bucket>,
    #[prost(sint32, optional, tag = "5")]
    pub(in crate::metrics) schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    pub(in crate::metrics) zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    pub(in crate::metrics) zero_count: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    pub(in crate::metrics) positive_span: Vec<BucketSpan>,
    #[prost(sint64, repeated, packed = "false", tag = "13")]
    pub(in crate::metrics) positive_delta: Vec<i64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::metrics) struct Bucket {
    #[prost(uint64, optional, tag = "1")]
    pub(in crate::metrics) cumulative_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub(in crate::metrics) upper_bound: Option<f64>,
    #[prost(message, optional, tag = "3")]
    pub(in crate::metrics) exemplar: Option<Exemplar>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(in crate::metrics) struct BucketSpan {
    #[prost(sint32, optional, tag = "1")]
    pub(in crate::metrics) offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    pub(in crate::metrics) length: Option<u32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::metrics) struct Exemplar {
    #[prost(message, repeated, tag = "1")]
    pub(in crate::metrics) label: Vec<LabelPair>,
    #[prost(double, optional, tag = "2")]
    pub(in crate::metrics) value: Option<f64>,
    #[prost(message, optional, tag = "3")]
    pub(in crate::metrics) timestamp: Option<Timestamp>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(in crate::metrics) struct Timestamp {
    #[prost(int64, tag = "1")]
    pub(in crate::metrics) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(in crate::metrics) nanos: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::metrics) struct Metric {
    #[prost(message, repeated, tag = "1")]
    pub(in crate::metrics) label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    pub(in crate::metrics) gauge: Option<Gauge>,
    #[prost(message, optional, tag = "3")]
    pub(in crate::metrics) counter: Option<Counter>,
    #[prost(message, optional, tag = "5")]
    pub(in crate::metrics) untyped: Option<Untyped>,
    #[prost(message, optional, tag = "7")]
    pub(in crate::metrics) histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::metrics) struct MetricFamily {
    #[prost(string, optional, tag = "1")]
    pub(in crate::metrics) name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(in crate::metrics) help: Option<String>,
    /// One of [`super::kind`].
    #[prost(int32, optional, tag = "3")]
    pub(in crate::metrics) r#type: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    pub(in crate::metrics) metric: Vec<Metric>,
}
