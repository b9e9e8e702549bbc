//! Rows as a recording of a side: what `--out` or `--parquet` has written in, its requests added to the side.

use std::collections::BTreeMap;
use std::path::Path;
#[cfg(feature = "parquet")]
use std::path::PathBuf;

use reqtrace_analysis::aggregate::RowFilter;
use reqtrace_analysis::report::Grouping;
use reqtrace_base::error::{Error, Result};
#[cfg(feature = "parquet")]
use reqtrace_compare::Known;
use reqtrace_compare::{Facts, Side};
use reqtrace_output::csv::CsvFile;
use reqtrace_output::json::Summary;
#[cfg(feature = "parquet")]
use reqtrace_output::parquet::ParquetFile;
use reqtrace_output::rows::{Meta, ReadRow, Texts};

use super::items::add_items;
use super::recording::column_of;
#[cfg(feature = "parquet")]
use super::what::output_in;
use super::{Reading, Seen, Text, Wanted, no_labels};

/// How far the wall clock may be set while a trace runs before rows that are placed by it are refused.
const CLOCK_NS: i64 = 1_000_000_000;

/// Rows of a side that are being read.
struct Rows {
    reading: Reading,
    filter: RowFilter,
    texts: Texts,
    /// The attribute that requests are grouped by.
    attribute: Option<usize>,
    label_attributes: BTreeMap<String, usize>,
    /// Where the rows of this file begin, after those of the files before.
    from_ns: u64,
    /// Complete requests by type, those that are not selected too.
    complete: BTreeMap<String, u64>,
}

impl Rows {
    /// `fingerprints`: the file has them.
    fn new(
        side: Side,
        wanted: &Wanted,
        meta: &Meta,
        fingerprints: bool,
        name: &str,
    ) -> Result<Self> {
        let filter = &wanted.selected.filter;
        let filter = RowFilter::new(filter, &meta.attributes, meta.has_labels)
            .map_err(|error| error.within(name))?;
        let attribute = wanted.group_by.attribute();
        let attribute = attribute
            .map(|name| column_of(name, &meta.attributes))
            .transpose()
            .map_err(|error| error.within(name))?;
        if wanted.group_by == Grouping::Label && !meta.has_labels {
            return Err(no_labels(name));
        }
        let by_label = attribute.is_none();
        let by_fingerprint = by_label && wanted.group_by == Grouping::Fingerprint;
        let wants_text = by_label && !(by_fingerprint && fingerprints);
        let label = wants_text || filter.wants_labels();
        let in_place = meta.label_attributes.values().copied();
        let asked = filter.attributes().chain(attribute);
        Ok(Self {
            reading: Reading::new(side, wanted),
            texts: Texts {
                label,
                fingerprint: by_fingerprint && fingerprints,
                attributes: asked.chain(in_place.filter(|_| label)).collect(),
            },
            filter,
            attribute,
            label_attributes: meta.label_attributes.clone(),
            from_ns: 0,
            complete: BTreeMap::new(),
        })
    }

    fn row(&mut self, row: &ReadRow<'_>) {
        if row.incomplete.is_none() {
            match self.complete.get_mut(row.request) {
                Some(count) => *count += 1,
                None => {
                    self.complete.insert(row.request.to_owned(), 1);
                }
            }
        }
        let attribute = |number: usize| row.attributes.get(number).copied().unwrap_or_default();
        let label = match self.label_attributes.get(row.request) {
            Some(number) => attribute(*number),
            None => row.label,
        };
        let from_ns = i64::try_from(self.from_ns).unwrap_or(i64::MAX);
        let since_start_ns = row.since_start_ns.saturating_add(from_ns);
        if !self
            .filter
            .keeps(row.request, since_start_ns, label, row.attributes)
        {
            return;
        }
        self.reading.take(&Seen {
            request: row.request,
            since_start_ns,
            ledger: row.ledger,
            causes: row.causes,
            weight: row.weight,
            incomplete: row.incomplete,
            text: match (self.attribute, row.fingerprint) {
                (Some(number), _) => Text::Whole(attribute(number)),
                (None, Some(fingerprint)) => Text::Fingerprint(fingerprint),
                (None, None) => Text::Whole(label),
            },
        });
    }

    /// All rows are read.
    fn end(self, name: &str, length_ns: u64, metas: &[Meta], facts: Facts) -> Result<Side> {
        for wanted in &self.reading.wanted.selected.filter.requests {
            // A type without a row may be one of the trace.
            if !self.complete.is_empty() && !self.complete.contains_key(wanted) {
                let known: Vec<&str> = self.complete.keys().map(String::as_str).collect();
                return Err(Error::usage(format!(
                    "{name}: no row is of a request type `{wanted}`"
                ))
                .next(format!("it has {}", known.join(", "))));
            }
        }
        let mut alike: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        let mut losses: BTreeMap<String, u64> = BTreeMap::new();
        for meta in metas {
            for (name, value) in &meta.alike {
                let values = alike.entry(name.clone()).or_default();
                if !values.contains(&value.as_str()) {
                    values.push(value);
                }
            }
            let which = match meta.which.as_str() {
                "" => "all",
                which => which,
            };
            let values = alike.entry("rows of".to_owned()).or_default();
            if !values.contains(&which) {
                values.push(which);
            }
            for (name, count) in &meta.losses {
                *losses.entry(name.clone()).or_default() += count;
            }
        }
        let alike = alike.into_iter();
        self.reading.end(Facts {
            name: name.to_owned(),
            length_ns,
            alike: alike
                .map(|(name, values)| (name, values.join(", ")))
                .collect(),
            losses,
            ..facts
        })
    }
}

/// Adds files of `--parquet`, of one machine and one after the other, to a side.
#[cfg(feature = "parquet")]
pub(super) fn of_parquet(
    side: Side,
    path: &Path,
    files: Vec<PathBuf>,
    wanted: &Wanted,
) -> Result<Side> {
    let name = path.display().to_string();
    let mut opened = Vec::new();
    for file in files {
        let rows = ParquetFile::open(&file)?;
        whole(&file.display().to_string(), rows.meta())?;
        opened.push((rows, file));
    }
    opened.sort_by_key(|(rows, _)| rows.meta().start_unix_ns);
    for pair in opened.windows(2) {
        one_series(&pair[0], &pair[1])?;
    }
    let metas: Vec<Meta> = opened.iter().map(|(rows, _)| rows.meta().clone()).collect();
    let Some(first) = metas.first() else {
        return Err(Error::usage(format!("{name} has no rows")));
    };
    let mut rows = Rows::new(side, wanted, first, true, &name)?;
    let mut length_ns = 0;
    let count = opened.len();
    for (file, path) in opened {
        let meta = file.meta().clone();
        if meta.attributes != first.attributes || meta.label_attributes != first.label_attributes {
            return Err(Error::usage(format!(
                "{} has other attributes than the file before: {}",
                path.display(),
                meta.attributes.join(", ")
            ))
            .next("give files of one profile"));
        }
        rows.reading.side.begin(&meta.classes, &meta.places());
        rows.from_ns = length_ns;
        let texts = rows.texts.clone();
        file.read(&texts, |row| {
            rows.row(row);
            Ok(())
        })?;
        length_ns += meta.duration_ns;
    }
    let summary = output_in(path, "json");
    let (items, notes) = match path.is_dir() && count == 1 && summary.is_file() {
        true => add_items(&mut rows.reading, path, &Summary::open(&summary)?, wanted)?,
        false => ([Known::Nothing; 4], Vec::new()),
    };
    let facts = Facts {
        items,
        notes,
        ..Facts::default()
    };
    rows.end(&name, length_ns, &metas, facts)
}

/// Refuses files that are not of one machine, or of the same time.
#[cfg(feature = "parquet")]
fn one_series(one: &(ParquetFile, PathBuf), two: &(ParquetFile, PathBuf)) -> Result<()> {
    let (first, second) = (one.0.meta(), two.0.meta());
    let names = [one.1.display(), two.1.display()];
    let differ = [
        ("machine", &first.host, &second.host),
        ("profile", &first.profile, &second.profile),
    ];
    for (what, one, two) in differ {
        if one != two {
            return Err(Error::usage(format!(
                "{} and {} are not of one {what}: {one} and {two}",
                names[0], names[1]
            ))
            .next("give each as a recording of its own: reqtrace diff A1 A2 -- B1 B2"));
        }
    }
    if second.start_unix_ns < first.end_unix_ns() {
        return Err(Error::usage(format!(
            "{} and {} are of the same time, so requests may be in both",
            names[0], names[1]
        ))
        .next("take one of them out of the folder, or give each as a recording of its own: A1 A2 -- B1 B2"));
    }
    Ok(())
}

/// Refuses rows that were chosen by their latency or number: their mean is not that of all.
#[cfg(feature = "parquet")]
fn whole(name: &str, meta: &Meta) -> Result<()> {
    let why = match (meta.slower_than_ns, meta.beyond_limits) {
        (0, 0) => return Ok(()),
        (0, beyond) => format!("{beyond} rows were left out because of --max-rows or --max-bytes"),
        (ns, _) => format!(
            "it has only requests of {} or more",
            reqtrace_base::figures::duration(ns)
        ),
    };
    Err(Error::usage(format!(
        "{name} does not have all requests, so nothing is known of their mean: {why}"
    ))
    .next("write it without --slower-than, --max-rows and --max-bytes"))
}

/// Adds what `--out` has written to a side.
pub(super) fn of_csv(
    side: Side,
    path: &Path,
    file: &Path,
    summary: &Path,
    wanted: &Wanted,
) -> Result<Side> {
    let name = path.display().to_string();
    let summary = Summary::open(summary)?;
    let mut meta = summary.meta();
    // It is not written whether labels were recorded: rows tell.
    meta.has_labels = true;
    let file_name = file.display().to_string();
    let file = CsvFile::open(file, meta)?;
    let meta = file.meta().clone();
    let mut rows = Rows::new(side, wanted, &meta, false, &name)?;
    rows.reading.side.begin(&meta.classes, &meta.places());
    let texts = rows.texts.clone();
    let mut has_labels = false;
    let trace_ns = i64::try_from(meta.duration_ns).unwrap_or(i64::MAX);
    let in_trace = -CLOCK_NS..trace_ns.saturating_add(CLOCK_NS);
    file.read(&texts, |row| {
        if !in_trace.contains(&row.since_start_ns) {
            return Err(Error::usage(format!(
                "{file_name}: a request began {} s after the start of a trace of {} s: the wall clock was set meanwhile",
                row.since_start_ns as f64 / 1e9,
                trace_ns as f64 / 1e9
            ))
            .next("give the recording, or a file of --parquet, which do not place requests by that clock"));
        }
        has_labels |= !row.label.is_empty();
        rows.row(row);
        Ok(())
    })?;
    if texts.label && !has_labels && wanted.selected.filter.label.is_some() {
        return Err(Error::usage(format!(
            "{name}: label=: the rows have no labels, so none can be compared"
        ))
        .next("trace with --labels"));
    }
    if wanted.group_by == Grouping::Label && !has_labels {
        let error = no_labels(&name);
        return Err(match meta.attributes.as_slice() {
            [] => error,
            names => error.next(format!(
                "trace with --labels; where an attribute stands for the label, group by that: --group-by {}",
                names.join(", or --group-by ")
            )),
        });
    }
    // Rows that nobody took while the trace ran are a loss as any other.
    let lost = meta.losses.get("rows_not_taken").copied().unwrap_or(0);
    for (request, count) in summary.rows() {
        let found = rows.complete.get(&request).copied().unwrap_or(0);
        if found + lost < count {
            return Err(Error::usage(format!(
                "{file_name} has {found} of the {count} complete requests of `{request}`, so nothing is known of their mean"
            ))
            .next("write it without --slower-than, --max-rows and --max-bytes: reqtrace report RECORDING --out FOLDER"));
        }
    }
    let (items, mut notes) = add_items(&mut rows.reading, path, &summary, wanted)?;
    if texts.label && !has_labels && !meta.attributes.is_empty() {
        notes.push(format!(
            "{name}: requests.csv does not say which attribute is a label; with --group-by ATTRIBUTE its values are compared"
        ));
    }
    let facts = Facts {
        items,
        notes,
        ..Facts::default()
    };
    rows.end(&name, meta.duration_ns, &[meta], facts)
}
