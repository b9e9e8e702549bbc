//! `rollups.parquet`: figures of minutes in, added up by what they are of; a row of each out.
//!
//! A row is of a service, of one of its request types and builds or of a group of these, as `level` says. Rows of one level can be added up;
//! columns that say nothing at a level are null there. Times have the columns that they have in files of rows.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use reqtrace_analysis::classify::columns::{Columns, causes};
use reqtrace_analysis::report::blame::Cause;
use reqtrace_analysis::report::{Ledger, Places};
use reqtrace_base::error::{Error, Result};

use super::batch::Batch;
use super::columns::{About, FileColumn, Kind, named_apart, properties, schema};
use super::write::{GROUP_BYTES, GROUP_ROWS, failed, writer_bytes};
use crate::csv::named;
use crate::rollups::{Figures, Level, Minutes, OfRequests, ROLLUPS_VERSION, Rollup, RollupsMeta};

/// The key of the metadata.
const META_KEY: &str = "reqtrace.rollups";
/// Columns before those of times.
const FIRST: [(&str, Kind); 15] = [
    ("host", Kind::Text),
    ("service", Kind::Text),
    ("level", Kind::Text),
    ("request", Kind::Text),
    ("request_group", Kind::Text),
    ("build_id", Kind::Text),
    ("minute", Kind::Time),
    ("covered_ns", Kind::Length),
    ("traced_ns", Kind::Length),
    ("lost", Kind::Number),
    ("recorded", Kind::Number),
    ("requests", Kind::Number),
    ("incomplete", Kind::Number),
    ("slow", Kind::Number),
    ("slow_above_ns", Kind::Number),
];
/// Columns behind those of times.
const LAST: [(&str, Kind); 2] = [("edges_ns", Kind::Numbers), ("histogram", Kind::Numbers)];
/// Bytes of a row's keys, of one of its numbers, and of the rest of the file, at most.
const OF_SIZE: [usize; 3] = [64, 10, 32 << 10];

/// Names and kinds of all columns.
fn all_columns(columns: &Columns) -> Vec<(String, Kind)> {
    let own = FIRST.into_iter().chain(LAST).map(|(name, _)| name);
    let times = columns.times().chain(causes());
    let times = named_apart(own, times.map(|name| (name, Kind::Length)));
    let named = |(name, kind): (&str, Kind)| (name.to_owned(), kind);
    let first = FIRST.map(named).into_iter();
    first.chain(times).chain(LAST.map(named)).collect()
}

/// Writes a file of roll-ups. All are in memory until it is finished.
pub struct RollupsExporter {
    out: Box<dyn Write + Send>,
    name: String,
    columns: Columns,
    meta: RollupsMeta,
    minutes: Minutes,
}

impl RollupsExporter {
    /// `name` is what errors call the output; `meta` says what it is about, but for its time and version.
    #[must_use]
    pub fn new(
        out: Box<dyn Write + Send>,
        name: &str,
        columns: &Columns,
        meta: RollupsMeta,
    ) -> Self {
        Self {
            out,
            name: name.to_owned(),
            columns: columns.clone(),
            meta,
            minutes: Minutes::default(),
        }
    }

    /// Adds figures to those of the same minute, level and build. Where the build of a request type is not known yet, it is the
    /// first one that will be.
    pub fn add(&mut self, rollup: &Rollup) {
        self.minutes.add(rollup);
    }

    /// Rows that the file has.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.minutes.len(self.most_groups()) as u64
    }

    fn most_groups(&self) -> usize {
        self.meta.most_groups.map_or(0, |most| most as usize)
    }

    /// Bytes that the file would have at most if it were finished now.
    #[must_use]
    pub fn size(&self) -> u64 {
        let [key, number, rest] = OF_SIZE;
        let times = self.columns.times().count() + Cause::ALL.len();
        let numbers = FIRST.len() + times + 2 * self.meta.edges_ns.len() + 1;
        let rows = self.minutes.rows().len();
        (rows * (key + number * numbers) + self.minutes.text_bytes() + rest) as u64
    }

    /// Writes the file, of this machine.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn finish(&mut self, host: &str) -> Result<()> {
        host.clone_into(&mut self.meta.host);
        self.minutes.fold(self.most_groups());
        let failed = failed(&self.name);
        let bytes = self.bytes().map_err(&failed)?;
        let written = self.out.write_all(&bytes);
        written.map_err(|error| failed(error.into()))
    }

    fn bytes(&self) -> Result<Vec<u8>, ParquetError> {
        const MINUTE_NS: u64 = 60_000_000_000;
        let all = all_columns(&self.columns);
        let mut batch = Batch::of(&all);
        let rows = self.minutes.rows();
        let minutes = || rows.keys().map(|key| key.minute_unix_ns);
        let (first, last) = (
            minutes().next().unwrap_or(0),
            minutes().next_back().unwrap_or(0),
        );
        let meta = RollupsMeta {
            schema_version: ROLLUPS_VERSION,
            classes: self.columns.classes.clone(),
            parked: self.columns.places.parked.clone(),
            queued: self.columns.places.queued.clone(),
            start_unix_ns: first,
            duration_ns: last + MINUTE_NS - first,
            ..self.meta.clone()
        };
        for (key, figures) in rows {
            batch.text(&meta.host);
            batch.text(&meta.service);
            let (level, request, group) = match &key.level {
                Level::Service => ("service", "", ""),
                Level::Type(request) => ("type", request.as_str(), ""),
                Level::Group(request, group) => ("group", request.as_str(), group.as_str()),
            };
            for text in [level, request, group, &key.build_id] {
                batch.text(text);
            }
            batch.time(key.minute_unix_ns);
            let (of, requests) = match figures {
                Figures::Service(of) => (Some(of), None),
                Figures::Requests(requests) => (None, Some(requests)),
            };
            batch.maybe(of.map(|of| of.covered_ns));
            batch.maybe(of.map(|of| of.traced_ns));
            batch.maybe(of.map(|of| of.lost));
            self.requests(&mut batch, requests.map(|requests| &**requests), &meta);
            batch.end();
        }
        let properties = properties(&all, GROUP_ROWS, GROUP_BYTES)?;
        let mut writer = ArrowWriter::try_new(Vec::new(), schema(&all), Some(properties))?;
        writer.write(&batch.take()?)?;
        let meta = serde_json::to_string(&meta)
            .map_err(|error| ParquetError::External(Box::new(error)))?;
        writer.append_key_value_metadata(KeyValue::new(META_KEY.to_owned(), meta));
        writer_bytes(writer)
    }

    fn requests(&self, batch: &mut Batch, of: Option<&OfRequests>, meta: &RollupsMeta) {
        batch.maybe(of.map(|of| of.recorded));
        batch.maybe(of.map(|of| of.requests));
        batch.maybe(of.and_then(|of| of.incomplete));
        batch.maybe(of.and_then(|of| of.slow));
        batch.maybe(of.and(meta.slow_above_ns));
        let ledger = of.map(|of| &of.ledger);
        let fixed: [fn(&Ledger) -> u64; 6] = [
            |ledger| ledger.latency_ns,
            |ledger| ledger.on_cpu_ns,
            |ledger| ledger.run_queue_ns,
            |ledger| ledger.preempted_ns,
            Ledger::blocked_ns,
            |ledger| ledger.unattributed_ns,
        ];
        fixed.iter().for_each(|of| batch.maybe(ledger.map(of)));
        let time = |list: fn(&Ledger) -> &Vec<u64>, at: usize| {
            ledger.map(|ledger| list(ledger).get(at).copied().unwrap_or(0))
        };
        for at in 0..self.columns.classes.len() {
            batch.maybe(time(|ledger| &ledger.classes, at));
        }
        if let Some([parked, queued]) = named(&self.columns.places) {
            batch.maybe(ledger.map(Ledger::parked_ns));
            batch.maybe(ledger.map(Ledger::queued_ns));
            (0..parked).for_each(|at| batch.maybe(time(|ledger| &ledger.parked, at)));
            (0..queued).for_each(|at| batch.maybe(time(|ledger| &ledger.queued, at)));
        }
        let causes = of.and_then(|of| of.causes.as_ref());
        for cause in Cause::ALL {
            batch.maybe(causes.map(|causes| causes.get(cause)));
        }
        batch.numbers(of.map(|_| meta.edges_ns.as_slice()));
        batch.numbers(of.map(|of| of.histogram.as_slice()));
    }
}

/// A file of roll-ups that was written.
pub struct RollupsFile {
    meta: RollupsMeta,
    rows: u64,
}

impl RollupsFile {
    /// Opens it.
    ///
    /// # Errors
    ///
    /// As [`RollupsFile::of`], and when it cannot be read.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let file = File::open(path)
            .map_err(|error| Error::usage(format!("{name} cannot be read")).because(error))?;
        Self::of(&file, &name)
    }

    /// The same of an open file; `name` is what errors call it.
    ///
    /// # Errors
    ///
    /// Usage errors: it has no footer, is of another program or of a newer version.
    pub fn of(file: &File, name: &str) -> Result<Self> {
        let metadata = ArrowReaderMetadata::load(file, Default::default()).map_err(|error| {
            Error::usage(format!("{name} is no whole Parquet file")).because(error)
        })?;
        let metadata = metadata.metadata().file_metadata();
        let mut known = metadata.key_value_metadata().into_iter().flatten();
        let text = known.find(|one| one.key == META_KEY);
        let text = text.and_then(|one| one.value.as_deref()).ok_or_else(|| {
            Error::usage(format!(
                "{name}: its metadata has no key `{META_KEY}`: it is no file of roll-ups"
            ))
        })?;
        let meta: RollupsMeta = serde_json::from_str(text).map_err(|error| {
            Error::usage(format!("{name}: its metadata cannot be read")).because(error)
        })?;
        if meta.schema_version != ROLLUPS_VERSION {
            return Err(Error::usage(format!(
                "{name} has version {} of the columns; this reqtrace reads version {ROLLUPS_VERSION}",
                meta.schema_version
            ))
            .next("use the reqtrace that has written it"));
        }
        Ok(Self {
            meta,
            rows: u64::try_from(metadata.num_rows()).unwrap_or(0),
        })
    }

    /// What its rows have in common.
    #[must_use]
    pub fn meta(&self) -> &RollupsMeta {
        &self.meta
    }

    /// Rows in it.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Its columns, in order.
    #[must_use]
    pub fn columns(&self) -> Vec<FileColumn> {
        let columns = Columns {
            classes: self.meta.classes.clone(),
            places: Places {
                parked: self.meta.parked.clone(),
                queued: self.meta.queued.clone(),
            },
            ..Columns::default()
        };
        let all = all_columns(&columns);
        let times = columns.times().count();
        // The sums of parked and queued time are there with a key, behind the classes.
        let fixed = times - columns.classes.len() - columns.places.named().count();
        let sums = if named(&columns.places).is_some() {
            2
        } else {
            0
        };
        let classes = FIRST.len() + fixed - sums;
        let of_sums = classes + columns.classes.len()..classes + columns.classes.len() + sums;
        let of_causes = FIRST.len() + times..all.len() - LAST.len();
        let described = all.into_iter().enumerate().map(|(at, (name, kind))| {
            let about = match at {
                at if at < classes || of_sums.contains(&at) || at >= of_causes.end => About::Fixed,
                at if of_causes.contains(&at) => About::Cause,
                _ => About::Part,
            };
            FileColumn { name, kind, about }
        });
        described.collect()
    }
}

#[cfg(test)]
mod tests;
