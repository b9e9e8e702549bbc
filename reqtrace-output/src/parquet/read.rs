//! A file that was written: its metadata and its rows out, as far as they are wanted.

use std::fs::File;
use std::path::Path;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{Array as _, BooleanArray, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};
use reqtrace_analysis::classify::columns::{Columns, causes};
use reqtrace_analysis::report::Ledger;
use reqtrace_analysis::report::blame::{Cause, Causes};
use reqtrace_base::error::{Error, Result};

use super::META_KEY;
use super::columns::{FIRST, FIXED_TIMES, FileColumn, columns, described};
use crate::csv::named;
use crate::rows::{Meta, ReadRow, SCHEMA_VERSION, Texts};

/// Rows that are decoded at a time.
const BATCH: usize = 4096;

/// A file of rows.
pub struct ParquetFile {
    file: File,
    metadata: ArrowReaderMetadata,
    meta: Meta,
    name: String,
}

impl ParquetFile {
    /// Opens it.
    ///
    /// # Errors
    ///
    /// Usage errors: it cannot be read, has no footer, is of another program or of a newer version.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let file = File::open(path)
            .map_err(|error| Error::usage(format!("{name} cannot be read")).because(error))?;
        Self::of(file, &name)
    }

    /// The same of an open file; `name` is what errors call it.
    ///
    /// # Errors
    ///
    /// As [`ParquetFile::open`].
    pub fn of(file: File, name: &str) -> Result<Self> {
        let name = name.to_owned();
        let metadata = ArrowReaderMetadata::load(&file, Default::default()).map_err(|error| {
            Error::usage(format!("{name} is no whole Parquet file"))
                .because(error)
                .next(
                    "a file gets its footer when the trace ends; write it again: reqtrace report RECORDING --parquet FILE",
                )
        })?;
        let key_values = metadata.metadata().file_metadata().key_value_metadata();
        let mut key_values = key_values.into_iter().flatten();
        let text = key_values
            .find(|one| one.key == META_KEY)
            .and_then(|one| one.value.as_deref());
        let Some(text) = text else {
            return Err(Error::usage(format!(
                "{name}: its metadata has no key `{META_KEY}`: reqtrace has not written it"
            ))
            .next("give a file of --parquet; a program that rewrites such files has to keep their metadata"));
        };
        let malformed = |error: serde_json::Error| {
            Error::usage(format!(
                "{name}: what its metadata says of the trace cannot be read"
            ))
            .because(error)
            .next("write it again: reqtrace report RECORDING --parquet FILE")
        };
        let value: serde_json::Value = serde_json::from_str(text).map_err(malformed)?;
        let version = value["schema_version"].as_u64().unwrap_or(0);
        if version != u64::from(SCHEMA_VERSION) {
            return Err(Error::usage(format!(
                "{name} has version {version} of the columns; this reqtrace reads version {SCHEMA_VERSION}"
            ))
            .next("use the reqtrace that has written it"));
        }
        let meta: Meta = serde_json::from_value(value).map_err(malformed)?;
        Ok(Self {
            file,
            metadata,
            meta,
            name,
        })
    }

    /// What is known of the trace.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Rows in it.
    #[must_use]
    pub fn rows(&self) -> u64 {
        let rows = self.metadata.metadata().file_metadata().num_rows();
        u64::try_from(rows).unwrap_or(0)
    }

    /// Names of the columns as the file has them.
    #[cfg(test)]
    pub(super) fn schema_names(&self) -> Vec<String> {
        let fields = self.metadata.schema().fields().iter();
        fields.map(|field| field.name().clone()).collect()
    }

    /// Its columns, in order.
    #[must_use]
    pub fn columns(&self) -> Vec<FileColumn> {
        described(&self.meta)
    }

    /// Reads all rows, in order.
    ///
    /// # Errors
    ///
    /// Usage errors: a damaged file, or one without a column. What `each` returns.
    pub fn read(
        self,
        texts: &Texts,
        mut each: impl FnMut(&ReadRow<'_>) -> Result<()>,
    ) -> Result<()> {
        let name = self.name;
        let meta = self.meta;
        let damaged = |why: &dyn std::fmt::Display| {
            Error::usage(format!("{name} cannot be read"))
                .because(why.to_string())
                .next("write it again: reqtrace report RECORDING --parquet FILE")
        };
        let wanted = Wanted::of(&meta, texts);
        let mask = ProjectionMask::columns(
            self.metadata.parquet_schema(),
            wanted.names().map(String::as_str),
        );
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(self.file, self.metadata)
            .with_projection(mask)
            .with_batch_size(BATCH)
            .build()
            .map_err(|error| damaged(&error))?;
        let places = meta.places();
        let mut ledger = Ledger::of(meta.classes.len(), &places);
        for batch in reader {
            let batch = batch.map_err(|error| damaged(&error))?;
            let batch = Decoded::of(&batch, &wanted).map_err(|why| damaged(&why))?;
            let mut attributes = vec![""; meta.attributes.len()];
            for at in 0..batch.rows {
                for (number, column) in &batch.attributes {
                    if let Some(attribute) = attributes.get_mut(*number) {
                        *attribute = text(column, at);
                    }
                }
                batch.ledger(&mut ledger, at);
                let causes = batch.causes(at);
                let is_complete = batch.complete.is_valid(at) && batch.complete.value(at);
                each(&ReadRow {
                    request: text(batch.request, at),
                    since_start_ns: batch.since_start.value(at),
                    ledger: &ledger,
                    causes: causes.as_ref(),
                    weight: u32::try_from(batch.weight.value(at)).unwrap_or(1),
                    incomplete: (!is_complete).then(|| text(batch.reason, at)),
                    label: batch.label.map_or("", |column| text(column, at)),
                    fingerprint: batch.fingerprint.map(|column| text(column, at)),
                    attributes: &attributes,
                })?;
            }
        }
        Ok(())
    }
}

fn text(column: &StringArray, at: usize) -> &str {
    match column.is_valid(at) {
        true => column.value(at),
        false => "",
    }
}

/// Names of the columns that are read.
struct Wanted {
    fixed: Vec<String>,
    /// Latency, on CPU, run queue, preempted, unattributed.
    times: Vec<String>,
    classes: Vec<String>,
    /// The sum, and each that has a name.
    parked: Vec<String>,
    queued: Vec<String>,
    causes: Vec<String>,
    label: Option<String>,
    fingerprint: Option<String>,
    attributes: Vec<(usize, String)>,
}

impl Wanted {
    fn of(meta: &Meta, texts: &Texts) -> Self {
        let of_trace = Columns {
            classes: meta.classes.clone(),
            places: meta.places(),
            attributes: meta.attributes.clone(),
            has_lost: meta.has_lost,
            ..Columns::default()
        };
        // Names are made in one place, in which there are two of the same.
        let all: Vec<String> = columns(&of_trace)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        let mut rest = all.iter().skip(FIRST.len()).cloned();
        let attributes: Vec<String> = rest.by_ref().take(meta.attributes.len()).collect();
        let mut times: Vec<String> = rest.by_ref().take(FIXED_TIMES).collect();
        // The sum of the classes.
        times.remove(4);
        let classes = rest.by_ref().take(meta.classes.len()).collect();
        let (mut parked, mut queued) = (Vec::new(), Vec::new());
        if let Some([of_parked, of_queued]) = named(&of_trace.places) {
            parked.extend(rest.next());
            queued.extend(rest.next());
            parked.extend(rest.by_ref().take(of_parked));
            queued.extend(rest.by_ref().take(of_queued));
        }
        let causes = match meta.has_causes {
            true => rest.take(causes().count()).collect(),
            false => Vec::new(),
        };
        let fixed = ["request", "since_start_ns", "weight", "complete", "reason"];
        let asked = texts.attributes.iter();
        Self {
            fixed: fixed.map(str::to_owned).to_vec(),
            times,
            classes,
            parked,
            queued,
            causes,
            label: texts.label.then(|| "label".to_owned()),
            fingerprint: texts.fingerprint.then(|| "fingerprint".to_owned()),
            attributes: asked
                .filter_map(|number| Some((*number, attributes.get(*number)?.clone())))
                .collect(),
        }
    }

    fn names(&self) -> impl Iterator<Item = &String> {
        let times = self.fixed.iter().chain(&self.times).chain(&self.classes);
        let places = self.parked.iter().chain(&self.queued).chain(&self.causes);
        let texts = self.label.iter().chain(&self.fingerprint);
        let attributes = self.attributes.iter().map(|(_, name)| name);
        times.chain(places).chain(texts).chain(attributes)
    }
}

/// Rows of a file.
struct Decoded<'a> {
    rows: usize,
    request: &'a StringArray,
    since_start: &'a Int64Array,
    weight: &'a Int64Array,
    complete: &'a BooleanArray,
    reason: &'a StringArray,
    times: Vec<&'a Int64Array>,
    classes: Vec<&'a Int64Array>,
    parked: Vec<&'a Int64Array>,
    queued: Vec<&'a Int64Array>,
    causes: Vec<&'a Int64Array>,
    label: Option<&'a StringArray>,
    fingerprint: Option<&'a StringArray>,
    attributes: Vec<(usize, &'a StringArray)>,
}

impl<'a> Decoded<'a> {
    /// # Errors
    ///
    /// What is missing, in words.
    fn of(batch: &'a RecordBatch, wanted: &Wanted) -> Result<Self, String> {
        let column = |name: &str| {
            let found = batch.column_by_name(name);
            found.ok_or_else(|| format!("it has no column `{name}`"))
        };
        let numbers = |name: &str| {
            let found = column(name)?.as_primitive_opt::<Int64Type>();
            found.ok_or_else(|| format!("its column `{name}` has no whole numbers of 64 bits"))
        };
        let texts = |name: &str| {
            let found = column(name)?.as_string_opt::<i32>();
            found.ok_or_else(|| format!("its column `{name}` has no texts"))
        };
        let all = |names: &[String]| -> Result<Vec<&'a Int64Array>, String> {
            names.iter().map(|name| numbers(name)).collect()
        };
        let complete = column("complete")?.as_boolean_opt();
        let attributes = wanted.attributes.iter();
        Ok(Self {
            rows: batch.num_rows(),
            request: texts("request")?,
            since_start: numbers("since_start_ns")?,
            weight: numbers("weight")?,
            complete: complete.ok_or("its column `complete` has no booleans")?,
            reason: texts("reason")?,
            times: all(&wanted.times)?,
            classes: all(&wanted.classes)?,
            parked: all(&wanted.parked)?,
            queued: all(&wanted.queued)?,
            causes: all(&wanted.causes)?,
            label: wanted.label.as_deref().map(texts).transpose()?,
            fingerprint: wanted.fingerprint.as_deref().map(texts).transpose()?,
            attributes: attributes
                .map(|(number, name)| Ok((*number, texts(name)?)))
                .collect::<Result<_, String>>()?,
        })
    }

    fn ledger(&self, ledger: &mut Ledger, at: usize) {
        let times = [
            &mut ledger.latency_ns,
            &mut ledger.on_cpu_ns,
            &mut ledger.run_queue_ns,
            &mut ledger.preempted_ns,
            &mut ledger.unattributed_ns,
        ];
        for (ns, column) in times.into_iter().zip(&self.times) {
            *ns = number(column, at);
        }
        for (ns, column) in ledger.classes.iter_mut().zip(&self.classes) {
            *ns = number(column, at);
        }
        places(&mut ledger.parked, &self.parked, at);
        places(&mut ledger.queued, &self.queued, at);
    }

    fn causes(&self, at: usize) -> Option<Causes> {
        let first = self.causes.first()?;
        if first.is_null(at) {
            return None;
        }
        let mut causes = Causes::default();
        for (cause, column) in Cause::ALL.into_iter().zip(&self.causes) {
            causes.add(cause, number(column, at));
        }
        Some(causes)
    }
}

/// Times by place from their sum and those that have a name: the last place has the rest.
fn places(times: &mut [u64], columns: &[&Int64Array], at: usize) {
    let Some(((sum, named), (last, first))) = columns.split_first().zip(times.split_last_mut())
    else {
        return;
    };
    let mut rest = number(sum, at);
    for (ns, column) in first.iter_mut().zip(named) {
        *ns = number(column, at);
        rest = rest.saturating_sub(*ns);
    }
    *last = rest;
}

/// None and what is below 0 are 0.
fn number(column: &Int64Array, at: usize) -> u64 {
    match column.is_valid(at) {
        true => u64::try_from(column.value(at)).unwrap_or(0),
        false => 0,
    }
}
