//! Report: a [`Report`] and a stream of [`RequestRow`]s in, files and a table out.
//!
//! One file per format; each implements [`Exporter`].

pub mod blame_csv;
mod chunks;
pub mod csv;
pub mod flamegraph;
pub mod folded;
pub mod html;
pub mod json;
mod labels;
pub mod outputs;
pub mod perfetto;
pub mod pprof;
pub mod table;

pub use reqtrace_analysis::report::*;
