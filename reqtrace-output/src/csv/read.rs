//! `requests.csv`, read again: the file and what `summary.json` says of the trace in, rows out.

use std::fs::File;
use std::path::Path;

use csv::{Reader, ReaderBuilder, StringRecord};
use reqtrace_analysis::classify::columns::{causes, column};
use reqtrace_analysis::report::Ledger;
use reqtrace_analysis::report::blame::{Cause, Causes};
use reqtrace_base::error::{Error, Result};
use reqtrace_base::plain::of_csv_field;

use super::named;
use crate::rows::{Meta, ReadRow, Texts};

/// A file of rows.
pub struct CsvFile {
    reader: Reader<File>,
    header: StringRecord,
    meta: Meta,
    name: String,
}

impl CsvFile {
    /// Opens it. `meta` is of the summary of the same trace; the order of places is taken from the file.
    ///
    /// # Errors
    ///
    /// Usage errors: a file that cannot be read.
    pub fn open(path: &Path, meta: Meta) -> Result<Self> {
        let name = path.display().to_string();
        let mut reader = ReaderBuilder::new()
            .buffer_capacity(1 << 18)
            .from_path(path)
            .map_err(|error| Error::usage(format!("{name} cannot be read")).because(error))?;
        let header = reader
            .headers()
            .map_err(|error| Error::usage(format!("{name} cannot be read")).because(error))?
            .clone();
        let mut meta = meta;
        let at = |place: &String| header.iter().position(|name| *name == column(place));
        for places in [&mut meta.parked, &mut meta.queued] {
            // The last stands for time without a name.
            places.sort_by_key(|place| (place.is_empty(), at(place)));
        }
        meta.has_causes = header
            .iter()
            .any(|name| causes().any(|cause| cause == name));
        Ok(Self {
            reader,
            header,
            meta,
            name,
        })
    }

    /// What is known of the trace.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Reads all rows, in order.
    ///
    /// # Errors
    ///
    /// Usage errors: a missing column, a row that is cut off or has a text in place of a number. What `each` returns.
    pub fn read(
        mut self,
        texts: &Texts,
        mut each: impl FnMut(&ReadRow<'_>) -> Result<()>,
    ) -> Result<()> {
        let (name, meta) = (&self.name, &self.meta);
        let columns = Wanted::of(&self.header, meta, texts).map_err(|missing| {
            Error::usage(format!("{name} has no column `{missing}`"))
                .next("give the requests.csv and the summary.json of one --out")
        })?;
        let damaged = |row: u64, why: &dyn std::fmt::Display| {
            Error::usage(format!("{name}: row {row} cannot be read"))
                .because(why.to_string())
                .next("write it again: reqtrace report RECORDING --out FOLDER")
        };
        let mut ledger = Ledger::of(meta.classes.len(), &meta.places());
        let mut record = StringRecord::new();
        let mut at = 0;
        loop {
            at += 1;
            match self.reader.read_record(&mut record) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => return Err(damaged(at, &error)),
            }
            let row = Row(&record);
            columns
                .ledger(&row, &mut ledger)
                .map_err(|why| damaged(at, &why))?;
            let number = |column| row.number(column).map_err(|why| damaged(at, &why));
            let mut causes = None;
            for (cause, column) in Cause::ALL.into_iter().zip(&columns.causes) {
                let ns = number(*column)?;
                causes.get_or_insert_with(Causes::default).add(cause, ns);
            }
            let label = columns.label.map(|column| of_csv_field(row.text(column)));
            let asked = columns.attributes.iter();
            let asked = asked.map(|(number, column)| (*number, of_csv_field(row.text(*column))));
            let mut attributes = vec![""; meta.attributes.len()];
            for (number, text) in asked {
                attributes[number] = text;
            }
            let start_unix_ns = number(columns.start)?;
            each(&ReadRow {
                request: of_csv_field(row.text(columns.request)),
                since_start_ns: start_unix_ns
                    .checked_signed_diff(meta.start_unix_ns)
                    .unwrap_or(i64::MAX),
                ledger: &ledger,
                causes: causes.as_ref(),
                weight: u32::try_from(number(columns.weight)?).unwrap_or(u32::MAX),
                incomplete: (row.text(columns.complete) != "true")
                    .then(|| row.text(columns.reason)),
                label: label.unwrap_or_default(),
                fingerprint: None,
                attributes: &attributes,
            })?;
        }
    }
}

/// A row of the file.
struct Row<'a>(&'a StringRecord);

impl<'a> Row<'a> {
    fn text(&self, column: usize) -> &'a str {
        self.0.get(column).unwrap_or_default()
    }

    /// # Errors
    ///
    /// The text, when it is no number.
    fn number(&self, column: usize) -> Result<u64, String> {
        let text = self.text(column);
        text.parse()
            .map_err(|_| format!("`{text}` is no number of nanoseconds"))
    }
}

/// Where the columns are that are read.
struct Wanted {
    request: usize,
    start: usize,
    weight: usize,
    complete: usize,
    reason: usize,
    times: [usize; 5],
    classes: Vec<usize>,
    /// The sum, and each that has a name.
    parked: Vec<usize>,
    queued: Vec<usize>,
    causes: Vec<usize>,
    label: Option<usize>,
    attributes: Vec<(usize, usize)>,
}

impl Wanted {
    /// # Errors
    ///
    /// The name of a column that is missing.
    fn of(header: &StringRecord, meta: &Meta, texts: &Texts) -> Result<Self, String> {
        let find = |name: &str| {
            let found = header.iter().position(|known| known == name);
            found.ok_or_else(|| name.to_owned())
        };
        let times = [
            "latency_ns",
            "on_cpu_ns",
            "run_queue_ns",
            "preempted_ns",
            "unattributed_ns",
        ];
        let mut at = [0; 5];
        for (at, name) in at.iter_mut().zip(times) {
            *at = find(name)?;
        }
        let classes = meta.classes.iter().map(|class| find(&column(class)));
        let places = |sum: &str, names: &[String], count: usize| {
            let names = names.iter().take(count).map(|name| column(name));
            let all = std::iter::once(sum.to_owned()).chain(names);
            all.map(|name| find(&name)).collect::<Result<Vec<_>, _>>()
        };
        let (parked, queued) = match named(&meta.places()) {
            Some([parked, queued]) => (
                places("parked_ns", &meta.parked, parked)?,
                places("queued_ns", &meta.queued, queued)?,
            ),
            None => (Vec::new(), Vec::new()),
        };
        let of_causes = causes().filter(|_| meta.has_causes);
        let asked = texts.attributes.iter();
        let asked = asked.filter_map(|number| Some((*number, find(meta.attributes.get(*number)?))));
        Ok(Self {
            request: find("request")?,
            start: find("start_unix_ns")?,
            weight: find("weight")?,
            complete: find("complete")?,
            reason: find("reason")?,
            times: at,
            classes: classes.collect::<Result<_, _>>()?,
            parked,
            queued,
            causes: of_causes
                .map(|cause| find(&cause))
                .collect::<Result<_, _>>()?,
            label: texts.label.then(|| find("label")).transpose()?,
            attributes: asked
                .map(|(number, column)| Ok((number, column?)))
                .collect::<Result<_, String>>()?,
        })
    }

    fn ledger(&self, row: &Row<'_>, ledger: &mut Ledger) -> Result<(), String> {
        let fixed = [
            &mut ledger.latency_ns,
            &mut ledger.on_cpu_ns,
            &mut ledger.run_queue_ns,
            &mut ledger.preempted_ns,
            &mut ledger.unattributed_ns,
        ];
        for (ns, column) in fixed.into_iter().zip(self.times) {
            *ns = row.number(column)?;
        }
        for (ns, column) in ledger.classes.iter_mut().zip(&self.classes) {
            *ns = row.number(*column)?;
        }
        for (times, columns) in [
            (&mut ledger.parked, &self.parked),
            (&mut ledger.queued, &self.queued),
        ] {
            let Some(((sum, named), (last, first))) =
                columns.split_first().zip(times.split_last_mut())
            else {
                continue;
            };
            // The last place has what no other has.
            let mut rest = row.number(*sum)?;
            for (ns, column) in first.iter_mut().zip(named) {
                *ns = row.number(*column)?;
                rest = rest.saturating_sub(*ns);
            }
            *last = rest;
        }
        Ok(())
    }
}
