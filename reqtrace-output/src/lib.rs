//! Outputs: a [`Report`] and a stream of [`RequestRow`]s in, files and a table out.
//!
//! One file per format, and one line of [`formats`]: it takes rows as an [`Exporter`], or the report. This crate knows nothing of where the model comes
//! from: no kernel, no process, no recording.
//!
//! [`Exporter`]: reqtrace_analysis::report::Exporter
//! [`Report`]: reqtrace_analysis::report::Report
//! [`RequestRow`]: reqtrace_analysis::report::RequestRow

pub mod blame_csv;
mod chunks;
pub mod compare;
pub mod csv;
pub mod flamegraph;
pub mod folded;
pub mod formats;
pub mod html;
pub mod json;
pub mod outputs;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod perfetto;
pub mod pprof;
pub mod rollups;
pub mod rows;
pub mod table;
pub mod verdict;
mod words;
