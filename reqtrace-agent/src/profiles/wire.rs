//! The messages of Pyroscope's push API that a profile of ours needs, as github.com/grafana/pyroscope publishes them
//! (`push/v1/push.proto`, `types/v1/types.proto`): numbers and types of fields are its.

use prost::Message;

/// Where it is sent to.
pub(super) const PATH: &str = "/push.v1.PusherService/Push";
/// A message as it is: a call that is one request and one answer.
pub(super) const CONTENT_TYPE: &str = "application/proto";

/// `PushRequest`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PushRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) series: Vec<RawProfileSeries>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RawProfileSeries {
    #[prost(message, repeated, tag = "1")]
    pub(super) labels: Vec<LabelPair>,
    #[prost(message, repeated, tag = "2")]
    pub(super) samples: Vec<RawSample>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LabelPair {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RawSample {
    /// A gzipped profile.
    #[prost(bytes = "vec", tag = "1")]
    pub(super) raw_profile: Vec<u8>,
    /// A UUID.
    #[prost(string, tag = "2")]
    pub(super) id: String,
}

impl PushRequest {
    /// One profile.
    pub(super) fn of(labels: &[(&str, &str)], profile: Vec<u8>, id: String) -> Self {
        let labels = labels.iter().map(|(name, value)| LabelPair {
            name: (*name).to_owned(),
            value: (*value).to_owned(),
        });
        Self {
            series: vec![RawProfileSeries {
                labels: labels.collect(),
                samples: vec![RawSample {
                    raw_profile: profile,
                    id,
                }],
            }],
        }
    }
}
