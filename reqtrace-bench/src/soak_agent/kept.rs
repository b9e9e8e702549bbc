//! Rows that were handed over: a folder of Parquet files in, read by a reader that is not ours; sums of their weights, and
//! whether one is there twice, out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int64Type, TimestampNanosecondType};
use arrow_array::{Array as _, RecordBatch};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

/// A row.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) service: String,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) tid: u64,
    pub(super) id: u64,
    pub(super) weight: f64,
    pub(super) is_complete: bool,
    pub(super) is_slow: bool,
    /// Columns of times, ns; those that are 0 are left out.
    pub(super) parts: Vec<(usize, u64)>,
    pub(super) latency_ns: u64,
}

/// All rows, and the names of their parts as metrics have them.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) rows: Vec<Row>,
    pub(super) parts: Vec<String>,
    pub(super) files: usize,
    pub(super) bytes: u64,
}

/// Σ of weights, of weight × time, and the variance of each.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sum {
    pub(super) sum: f64,
    pub(super) variance: f64,
    /// Rows with a value above 0 that stand for others, too.
    drawn: u32,
}

/// Fewer drawn rows than these say nothing of the variance.
const ENOUGH: u32 = 10;

impl Sum {
    pub(super) fn add(&mut self, weight: f64, value: f64) {
        self.sum += weight * value;
        self.drawn += u32::from(weight > 1.0 && value > 0.0);
        self.variance += weight * (weight - 1.0) * value * value;
    }

    /// How far it is from the truth, in standard deviations. Its variance is that of its own rows, or of those of all agents, `all`,
    /// of whose requests this one has a `share`, if that is more: a few long waits may all be among those that were not drawn. `None`:
    /// what it sums up is so rare that its variance is not known, and it is not the truth to a millionth.
    pub(super) fn sigmas(&self, truth: f64, all: &Self, share: f64) -> Option<f64> {
        let error = self.sum - truth;
        let variance = self.variance.max(all.variance * share);
        match error.abs() <= 1e-6 * truth.abs() {
            true => Some(0.0),
            false => (self.drawn >= ENOUGH).then(|| error / variance.sqrt()),
        }
    }
}

/// Files with rows below a folder, not those that are being made.
pub(super) fn files(dir: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut all = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            // The agent takes folders away that are empty.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| folder.display().to_string()),
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if path.is_dir() && !name.starts_with('.') {
                folders.push(path);
            } else if name.starts_with("rows-") && name.ends_with(".parquet") {
                all.insert(name, path);
            }
        }
    }
    Ok(all)
}

/// How many rows the files have.
pub(super) fn count(dir: &Path) -> Result<u64> {
    let mut all = 0;
    for path in files(dir)?.into_values() {
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path)?)?;
        all += reader.metadata().file_metadata().num_rows();
    }
    Ok(u64::try_from(all)?)
}

/// Reads all.
pub(super) fn read(dir: &Path) -> Result<Rows> {
    let mut all = Rows::default();
    for (name, path) in files(dir)? {
        all.bytes += path.metadata()?.len();
        all.files += 1;
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path)?)?;
        for batch in reader.build()? {
            all.take(&batch?).with_context(|| name.clone())?;
        }
    }
    Ok(all)
}

/// Columns of times that are no part.
const NO_PARTS: [&str; 6] = [
    "since_start_ns",
    "latency_ns",
    "blocked_ns",
    "parked_ns",
    "queued_ns",
    "waited_before_ns",
];

impl Rows {
    fn take(&mut self, batch: &RecordBatch) -> Result<()> {
        let column = |name: &str| {
            batch
                .column_by_name(name)
                .with_context(|| format!("no column {name}"))
        };
        let numbers = |name: &str| -> Result<Vec<u64>> {
            let column = column(name)?.as_primitive::<Int64Type>();
            let values = column.iter().map(|value| u64::try_from(value.unwrap_or(0)));
            Ok(values.collect::<Result<_, _>>()?)
        };
        let schema = batch.schema();
        let names = schema.fields().iter().map(|field| field.name().as_str());
        let mut parts = Vec::new();
        for name in names.filter(|name| {
            name.ends_with("_ns") && !name.starts_with("cause_") && !NO_PARTS.contains(name)
        }) {
            let part = name.trim_end_matches("_ns");
            let at = self.parts.iter().position(|known| known == part);
            let at = at.unwrap_or_else(|| {
                self.parts.push(part.to_owned());
                self.parts.len() - 1
            });
            parts.push((at, numbers(name)?));
        }
        let service = column("service")?.as_string::<i32>();
        let start = column("start")?.as_primitive::<TimestampNanosecondType>();
        let (tid, id, weight) = (numbers("tid")?, numbers("id")?, numbers("weight")?);
        let latency = numbers("latency_ns")?;
        let (complete, slow) = (
            column("complete")?.as_boolean(),
            column("slow")?.as_boolean(),
        );
        for at in 0..batch.num_rows() {
            let start_ns = u64::try_from(start.value(at))?;
            let values = parts.iter().map(|(part, values)| (*part, values[at]));
            self.rows.push(Row {
                service: service.value(at).to_owned(),
                start_ns,
                end_ns: start_ns + latency[at],
                tid: tid[at],
                id: id[at],
                weight: weight[at] as f64,
                is_complete: complete.value(at),
                is_slow: slow.is_valid(at) && slow.value(at),
                parts: values.filter(|(_, ns)| *ns > 0).collect(),
                latency_ns: latency[at],
            });
        }
        Ok(())
    }

    /// Rows that are there more than once: of one thread two requests cannot begin at one moment.
    pub(super) fn twice(&self) -> usize {
        let keys: BTreeSet<_> = self
            .rows
            .iter()
            .map(|row| (&row.service, row.start_ns, row.tid, row.id))
            .collect();
        self.rows.len() - keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_in_their_standard_deviations() {
        let mut sum = Sum::default();
        (0..100).for_each(|_| sum.add(1.0, 2.0));
        assert_eq!(sum.sigmas(200.0, &sum, 1.0), Some(0.0));
        assert_eq!(sum.sigmas(202.0, &sum, 1.0), None);
        (0..100).for_each(|_| sum.add(10.0, 1.0));
        // 100 × 90 = 9,000: a deviation of 94.9.
        let sigmas = sum.sigmas(1_295.0, &sum, 1.0).unwrap();
        assert!((sigmas + 1.0).abs() < 0.01, "{sigmas}");
    }
}
