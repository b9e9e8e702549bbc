//! `requests.parquet`: rows in, columns out; and read again. The same of roll-ups of minutes.
//!
//! The columns are those of `requests.csv` by the same names, and before and behind them what tells one file's rows from
//! another's. What is known of the trace as a whole stands in the file's metadata under the key
//! [`META_KEY`], as JSON: a [`Meta`](crate::rows::Meta). A file has its footer, without which nobody can read it, only when
//! it is finished.

mod batch;
mod columns;
mod read;
mod rollups;
#[cfg(test)]
mod tests;
mod write;

pub use columns::{About, FileColumn, Kind};
pub use read::ParquetFile;
pub use rollups::{RollupsExporter, RollupsFile};
pub use write::ParquetExporter;

/// The key of the metadata.
pub const META_KEY: &str = "reqtrace";
