//! `requests.parquet`, decoded by its own schema: the same rows as those of `requests.csv`.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int64Type, TimestampNanosecondType};
use arrow_array::{Array as _, ArrayRef, RecordBatch};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use reqtrace_base::plain::csv_field;

/// Rows, each by the names of its columns; nothing is an empty text.
pub(crate) fn rows(path: &Path) -> Vec<BTreeMap<String, String>> {
    let file = File::open(path).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let batches = reader.build().unwrap();
    batches
        .flat_map(|batch| of_batch(&batch.unwrap()))
        .collect()
}

fn of_batch(batch: &RecordBatch) -> Vec<BTreeMap<String, String>> {
    let schema = batch.schema();
    let row = |at: usize| {
        let fields = schema.fields().iter().zip(batch.columns());
        fields
            .map(|(field, column)| (field.name().clone(), text(column, at)))
            .collect()
    };
    (0..batch.num_rows()).map(row).collect()
}

fn text(column: &ArrayRef, at: usize) -> String {
    if column.is_null(at) {
        return String::new();
    }
    if let Some(numbers) = column.as_primitive_opt::<Int64Type>() {
        return numbers.value(at).to_string();
    }
    if let Some(times) = column.as_primitive_opt::<TimestampNanosecondType>() {
        assert_eq!(times.timezone(), Some("UTC"));
        return times.value(at).to_string();
    }
    match column.as_boolean_opt() {
        Some(flags) => flags.value(at).to_string(),
        None => column.as_string::<i32>().value(at).to_owned(),
    }
}

/// Field by field.
pub(crate) fn check(csv: &str, parquet: &[BTreeMap<String, String>]) {
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let header = reader.headers().unwrap().clone();
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), parquet.len());
    for (wanted, row) in rows.iter().zip(parquet) {
        for (name, wanted) in header.iter().zip(wanted) {
            let name = if name == "start_unix_ns" {
                "start"
            } else {
                name
            };
            let found = row.get(name).unwrap_or_else(|| panic!("no column {name}"));
            assert_eq!(csv_field(found), wanted, "{name} of {row:?}");
        }
        let others = row
            .iter()
            .filter(|(name, _)| !header.iter().any(|own| own == *name));
        for (name, text) in others {
            match name.as_str() {
                "host" | "service" | "build_id" | "start" | "since_start_ns" | "fingerprint" => {}
                // What this trace does not have.
                _ => assert_eq!(text, "", "{name}"),
            }
        }
        assert_ne!(row["service"], "");
    }
}
