//! The columns: those of a trace in, names, types and encodings out.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::Result;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use reqtrace_analysis::classify::columns::{AFTER, BEFORE_BEGIN, Columns, LOST, OF_KEYS, causes};

use crate::csv::named;
use crate::rows::Meta;

/// Latency, on CPU, run queue, preempted, blocked, unattributed: before those of wait classes.
pub(super) const FIXED_TIMES: usize = 6;

/// Columns before those of attributes.
pub(super) const FIRST: [(&str, Kind); 12] = [
    ("host", Kind::Text),
    ("service", Kind::Text),
    ("build_id", Kind::Text),
    ("request", Kind::Text),
    ("id", Kind::Rising),
    ("start", Kind::Time),
    ("since_start_ns", Kind::Rising),
    ("pid", Kind::Number),
    ("tid", Kind::Number),
    ("comm", Kind::Text),
    ("label", Kind::Text),
    ("fingerprint", Kind::Text),
];

/// The last ones, but for those of a trace that has [`LOST`].
pub(super) const LAST: [(&str, Kind); 5] = [
    (BEFORE_BEGIN, Kind::Length),
    ("slow", Kind::Flag),
    ("trace_id", Kind::Text),
    ("span_id", Kind::Text),
    ("kept", Kind::Text),
];

/// A column of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileColumn {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub kind: Kind,
    /// What it is about.
    pub about: About,
}

/// What a column is about: files of different profiles have the same fixed columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// In all files, or in all with a key, or with what took the CPU from requests.
    Fixed,
    /// An attribute of the profile.
    Attribute,
    /// The time of a wait class or a place of the profile, ns.
    Part,
    /// The time of a root cause, ns.
    Cause,
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text; few are different.
    Text,
    /// A number; few are different.
    Number,
    /// A number that is little more than the one before.
    Rising,
    /// Nanoseconds, most of them different, or 0.
    Length,
    /// A point in time; little later than the one before.
    Time,
    /// Yes or no.
    Flag,
    /// A list of numbers.
    Numbers,
}

impl Kind {
    fn data_type(self) -> DataType {
        match self {
            Self::Text => DataType::Utf8,
            Self::Number | Self::Rising | Self::Length => DataType::Int64,
            Self::Time => DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
            Self::Flag => DataType::Boolean,
            Self::Numbers => DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true))),
        }
    }
}

/// These columns, each with a name that no other one has. One that has that of a column before gets a `_` before its own: not all
/// programs that read tables tell upper case from lower.
pub(super) fn named_apart(
    taken: impl Iterator<Item = &'static str>,
    columns: impl Iterator<Item = (String, Kind)>,
) -> Vec<(String, Kind)> {
    let mut taken: Vec<String> = taken.map(str::to_owned).collect();
    let unique = |(name, kind): (String, Kind)| {
        let mut name = name;
        while taken.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
            name.insert(0, '_');
        }
        taken.push(name.clone());
        (name, kind)
    };
    columns.map(unique).collect()
}

/// Names and kinds of all columns. Those of attributes, wait classes and places are [named apart](named_apart).
pub(super) fn columns(columns: &Columns) -> Vec<(String, Kind)> {
    let lost = columns.has_lost.then_some(LOST).into_iter().flatten();
    let last = LAST
        .into_iter()
        .chain(lost.map(|name| (name, Kind::Length)));
    let own = FIRST.into_iter().chain(last.clone());
    let of_after = AFTER.map(|name| match name {
        "complete" => (name, Kind::Flag),
        "reason" => (name, Kind::Text),
        _ => (name, Kind::Number),
    });
    let named = |(name, kind): (&str, Kind)| (name.to_owned(), kind);
    let attributes = columns.attributes.iter();
    let attributes = attributes.map(|name| (name.clone(), Kind::Text));
    let times = columns.times().chain(causes());
    let times = times.map(|name| (name, Kind::Length));
    let rest = attributes.chain(times).chain(of_after.map(named));
    let rest = named_apart(own.map(|(name, _)| name), rest);
    let first = FIRST.map(named).into_iter();
    first.chain(rest).chain(last.map(named)).collect()
}

/// The columns of a file.
pub(super) fn described(meta: &Meta) -> Vec<FileColumn> {
    let places = meta.places();
    // The sums of parked and queued time are there with a key.
    let sums = named(&places).map_or(0, |_| OF_KEYS.len());
    let all = columns(&Columns {
        classes: meta.classes.clone(),
        places,
        attributes: meta.attributes.clone(),
        has_lost: meta.has_lost,
        ..Columns::default()
    });
    let lost = if meta.has_lost { LOST.len() } else { 0 };
    let attributes = FIRST.len()..FIRST.len() + meta.attributes.len();
    let classes = attributes.end + FIXED_TIMES;
    let sums = classes + meta.classes.len()..classes + meta.classes.len() + sums;
    let end = all.len() - lost - LAST.len() - AFTER.len();
    let of_causes = end - causes().count();
    let described = all.into_iter().enumerate().map(|(at, (name, kind))| {
        let about = match at {
            at if attributes.contains(&at) => About::Attribute,
            at if at < classes || at >= end || sums.contains(&at) => About::Fixed,
            at if at >= of_causes => About::Cause,
            _ => About::Part,
        };
        FileColumn { name, kind, about }
    });
    described.collect()
}

/// The schema of a file.
pub(super) fn schema(columns: &[(String, Kind)]) -> SchemaRef {
    let fields = columns
        .iter()
        .map(|(name, kind)| Field::new(name, kind.data_type(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// How a file is written; a row group has so many rows and encoded bytes at most.
pub(super) fn properties(
    columns: &[(String, Kind)],
    rows: usize,
    bytes: usize,
) -> Result<WriterProperties> {
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("reqtrace ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_max_row_group_row_count(Some(rows))
        .set_max_row_group_bytes(Some(bytes));
    for (name, kind) in columns {
        let column = ColumnPath::from(name.clone());
        properties = match kind {
            Kind::Rising | Kind::Time => properties
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED),
            Kind::Length => properties
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, Encoding::BYTE_STREAM_SPLIT),
            Kind::Text | Kind::Number | Kind::Flag | Kind::Numbers => properties,
        };
    }
    Ok(properties.build())
}
