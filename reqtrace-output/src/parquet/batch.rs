//! Rows that wait to be encoded: fields in, arrays of all columns out.

use std::mem;
use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, BooleanBuilder, Int64Builder, ListBuilder, StringBuilder,
    TimestampNanosecondBuilder,
};
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_schema::SchemaRef;
use parquet::errors::ParquetError;
use reqtrace_analysis::classify::columns::Columns;

use super::columns::{Kind, columns, schema};

/// A column of the rows that wait.
enum Cells {
    Text(StringBuilder),
    Number(Int64Builder),
    Time(TimestampNanosecondBuilder),
    Flag(BooleanBuilder),
    Numbers(ListBuilder<Int64Builder>),
}

impl Cells {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Text => Self::Text(StringBuilder::new()),
            Kind::Number | Kind::Rising | Kind::Length => Self::Number(Int64Builder::new()),
            Kind::Time => Self::Time(TimestampNanosecondBuilder::new().with_timezone("UTC")),
            Kind::Flag => Self::Flag(BooleanBuilder::new()),
            Kind::Numbers => Self::Numbers(ListBuilder::new(Int64Builder::new())),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Text(cells) => ArrayBuilder::finish(cells),
            Self::Number(cells) => ArrayBuilder::finish(cells),
            Self::Time(cells) => ArrayBuilder::finish(cells),
            Self::Flag(cells) => ArrayBuilder::finish(cells),
            Self::Numbers(cells) => ArrayBuilder::finish(cells),
        }
    }
}

/// Rows that wait to be encoded; the fields of one are added in the order of the columns.
pub(super) struct Batch {
    schema: SchemaRef,
    cells: Vec<Cells>,
    next: usize,
    rows: usize,
    /// At most.
    bytes: usize,
    /// Request types with their build ids: one that is not known yet gets known before its rows are encoded, mostly.
    builds: Vec<(String, Option<String>)>,
    build_of: Vec<usize>,
    build_column: usize,
}

impl Batch {
    pub(super) fn new(of: &Columns) -> Self {
        Self::of(&columns(of))
    }

    /// Rows of these columns.
    pub(super) fn of(all: &[(String, Kind)]) -> Self {
        Self {
            schema: schema(all),
            cells: all.iter().map(|(_, kind)| Cells::new(*kind)).collect(),
            next: 0,
            rows: 0,
            bytes: 0,
            builds: Vec::new(),
            build_of: Vec::new(),
            build_column: 0,
        }
    }

    /// Columns of each row.
    pub(super) fn columns(&self) -> usize {
        self.cells.len()
    }

    /// Rows that wait.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes that they take at most.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn cell(&mut self) -> Option<&mut Cells> {
        self.next += 1;
        self.bytes += 9;
        self.cells.get_mut(self.next - 1)
    }

    /// An empty text is none.
    pub(super) fn text(&mut self, text: &str) {
        self.bytes += text.len();
        if let Some(Cells::Text(cells)) = self.cell() {
            cells.append_option(Some(text).filter(|text| !text.is_empty()));
        }
    }

    pub(super) fn build_id(&mut self, request: &str, id: Option<&str>) {
        let mut known = self.builds.iter();
        let known = known.position(|(of, known)| {
            of == request && (known.is_none() || id.is_none() || known.as_deref() == id)
        });
        let known = known.unwrap_or_else(|| {
            self.builds.push((request.to_owned(), None));
            self.builds.len() - 1
        });
        if self.builds[known].1.is_none() {
            self.builds[known].1 = id.map(str::to_owned);
        }
        self.build_of.push(known);
        self.build_column = self.next;
        self.text("");
    }

    pub(super) fn maybe(&mut self, number: Option<u64>) {
        // What is longer than 292 years is that long.
        let number = number.map(|number| i64::try_from(number).unwrap_or(i64::MAX));
        if let Some(Cells::Number(cells)) = self.cell() {
            cells.append_option(number);
        }
    }

    pub(super) fn numbers(&mut self, numbers: Option<&[u64]>) {
        let number = |number: &u64| Some(i64::try_from(*number).unwrap_or(i64::MAX));
        self.bytes += 9 * numbers.map_or(0, <[u64]>::len);
        if let Some(Cells::Numbers(cells)) = self.cell() {
            cells.append_option(numbers.map(|numbers| numbers.iter().map(number)));
        }
    }

    pub(super) fn number(&mut self, number: u64) {
        self.maybe(Some(number));
    }

    pub(super) fn signed(&mut self, number: i64) {
        if let Some(Cells::Number(cells)) = self.cell() {
            cells.append_value(number);
        }
    }

    pub(super) fn time(&mut self, unix_ns: u64) {
        if let Some(Cells::Time(cells)) = self.cell() {
            cells.append_value(i64::try_from(unix_ns).unwrap_or(i64::MAX));
        }
    }

    pub(super) fn flag(&mut self, is: Option<bool>) {
        if let Some(Cells::Flag(cells)) = self.cell() {
            cells.append_option(is);
        }
    }

    pub(super) fn end(&mut self) {
        debug_assert_eq!(self.next, self.cells.len());
        self.next = 0;
        self.rows += 1;
    }

    /// The rows; then there are none.
    pub(super) fn take(&mut self) -> Result<RecordBatch, ParquetError> {
        let mut arrays: Vec<ArrayRef> = self.cells.iter_mut().map(Cells::finish).collect();
        let builds = mem::take(&mut self.build_of).into_iter();
        let builds = builds.map(|build| self.builds[build].1.as_deref());
        if builds.len() > 0 {
            arrays[self.build_column] = Arc::new(builds.collect::<StringArray>());
        }
        (self.rows, self.bytes) = (0, 0);
        Ok(RecordBatch::try_new(self.schema.clone(), arrays)?)
    }
}
