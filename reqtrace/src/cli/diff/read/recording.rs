//! One recording of a side: its files in, its requests and sums added to the side.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use reqtrace_analysis::aggregate::{Aggregator, Options};
use reqtrace_analysis::classify::columns::Columns;
use reqtrace_analysis::report::{Exporter, Grouping, Report, RequestRow};
use reqtrace_base::error::{Error, Result};
use reqtrace_base::plain::Plain;
use reqtrace_compare::{Facts, ItemKind, Known, Side};
use reqtrace_output::compare::stack_names;
use reqtrace_profile::Profiles;
use reqtrace_recording::{Ending, Event, Incomplete};

use super::{Reading, Seen, Text, Wanted, no_labels};
use crate::cli::report::{files, say};

/// Stretches of time for which sums of items are known apart, at most; then neighbours become one.
const STRETCHES: u64 = 80;
/// The shortest of them.
const STRETCH_NS: u64 = 1_000_000_000;

/// A side that is being read, and where texts are.
struct Rows {
    reading: Reading,
    has_labels: bool,
    /// Column of the attribute that requests are grouped by.
    attribute: Option<usize>,
    /// Of types whose label is an attribute its column.
    labels: BTreeMap<String, usize>,
}

/// Takes rows.
struct RowSink(Rc<RefCell<Rows>>);

impl Exporter for RowSink {
    fn request(&mut self, row: &RequestRow<'_>) -> Result<()> {
        self.0.borrow_mut().row(row);
        Ok(())
    }

    fn wants_requests(&self) -> bool {
        true
    }

    fn finish(&mut self, _report: &Report) -> Result<()> {
        Ok(())
    }
}

impl Rows {
    fn row(&mut self, row: &RequestRow<'_>) {
        let attribute = |column: usize| row.attributes.get(column).map_or("", Plain::as_str);
        let text = match self.attribute {
            Some(column) => Text::Whole(attribute(column)),
            None if !self.has_labels => Text::Whole(""),
            None => Text::Whole(match self.labels.get(row.request) {
                Some(column) => attribute(*column),
                None => row.label.as_str(),
            }),
        };
        self.reading.take(&Seen {
            request: row.request,
            since_start_ns: row.since_start_ns,
            ledger: row.ledger,
            causes: row.causes.as_ref(),
            weight: row.weight,
            incomplete: row.incomplete.map(Incomplete::reason),
            text,
        });
    }
}

/// When sums of items are asked for.
struct Cuts {
    next_ns: u64,
    length_ns: u64,
    count: u64,
}

impl Cuts {
    /// Whether a stretch is over.
    fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.next_ns
    }

    fn done(&mut self, is_one: bool, side: &mut Side) {
        self.count += u64::from(is_one);
        if is_one && self.count == STRETCHES {
            side.join_cuts(STRETCHES as usize);
            self.count /= 2;
            self.length_ns *= 2;
        }
        self.next_ns += self.length_ns;
    }
}

/// Adds a recording to a side.
///
/// # Errors
///
/// Files that are no recording, or of a newer version; a selection of what was not recorded.
pub(super) fn add(side: Side, path: &Path, wanted: &Wanted) -> Result<Side> {
    let given = files::open(&[path.to_path_buf()])?;
    let header = given.series.header().clone();
    let profiles = Profiles::parse(
        header.profile_texts(),
        &format!("profile of {}", given.name),
    )?;
    let columns = Columns::of(&profiles)?;
    if wanted.group_by == Grouping::Label && !header.options.labels {
        return Err(no_labels(&given.name));
    }
    let attribute = wanted.group_by.attribute();
    let attribute = attribute
        .map(|name| column_of(name, &columns.attributes))
        .transpose()?;
    let options = Options {
        filter: wanted.selected.filter.clone(),
        ..Options::default()
    };
    let mut analysis =
        Aggregator::new(&profiles, &header, options).map_err(|error| error.within(&given.name))?;
    let mut side = side;
    side.begin(&columns.classes, &columns.places);
    let rows = Rc::new(RefCell::new(Rows {
        reading: Reading::new(side, wanted),
        has_labels: header.options.labels,
        attribute,
        labels: columns.labels,
    }));
    let mut exporters: Vec<Box<dyn Exporter>> = vec![Box::new(RowSink(Rc::clone(&rows)))];
    let mut cuts = Cuts {
        next_ns: header.start_ns + STRETCH_NS,
        length_ns: STRETCH_NS,
        count: 0,
    };
    let is_whole = Ending {
        ended: true,
        ..Ending::default()
    };
    let read = given.series.read(|event| -> Result<()> {
        if let Event::Tick(now_ns) = &event
            && cuts.is_due(*now_ns)
        {
            let side = &mut rows.borrow_mut().reading.side;
            let is_one = sums(&analysis.view(&is_whole), side);
            cuts.done(is_one, side);
        }
        analysis.event(&event, &mut exporters)
    });
    let mut ending = read.map_err(|(path, error)| files::not_reported(&path, error))??;
    ending.missing_files = ending.missing_files.max(given.unreadable);
    say(&given.name, &ending);
    let report = analysis.finish(&ending, &mut exporters)?;
    drop(exporters);
    let rows = Rc::try_unwrap(rows)
        .map_err(|_| Error::failed("the rows of a recording are still in use"))?;
    let mut reading = rows.into_inner().reading;
    sums(&report, &mut reading.side);
    // Culprits and locks are known with blame only.
    let blamed = match header.blame {
        true => Known::Whole,
        false => Known::Nothing,
    };
    reading.end(Facts {
        name: given.name,
        length_ns: report.trace.duration_ns,
        alike: report.alike(),
        losses: report
            .losses
            .iter()
            .map(|loss| (loss.name.clone(), loss.count))
            .collect(),
        items: [blamed, blamed, Known::Whole, Known::Whole],
        ..Facts::default()
    })
}

/// The number of the attribute that requests are grouped by.
pub(super) fn column_of(name: &str, attributes: &[String]) -> Result<usize> {
    let found = attributes.iter().position(|known| known == name);
    found.ok_or_else(|| {
        let known = match attributes {
            [] => "it has none".to_owned(),
            names => format!("it has {}", names.join(", ")),
        };
        Error::usage(format!(
            "--group-by {name}: the recording has no attribute of that name"
        ))
        .next(known)
    })
}

/// Adds the sums until now; whether they are a stretch of their own.
fn sums(report: &Report, side: &mut Side) -> bool {
    let requests = report.requests.iter().map(|of| (of.name.clone(), of.count));
    let files = report.requests.iter().flat_map(|of| {
        let named = of.files.iter().filter(|file| !file.path.is_empty());
        named.map(|file| (ItemKind::File, of.name.clone(), file.path.clone(), file.ns))
    });
    let blamed = || report.blame.iter().flat_map(|blame| &blame.types);
    let holders = blamed().flat_map(|of| {
        of.holders.iter().map(|holder| {
            let name = format!("{}: {}", holder.culprit.words(), holder.cause.words());
            (ItemKind::Culprit, of.request.clone(), name, holder.ns)
        })
    });
    let locks = blamed().flat_map(|of| {
        let named = of.locks.iter().filter(|lock| !lock.object.is_empty());
        named.map(|lock| {
            (
                ItemKind::Lock,
                of.request.clone(),
                lock.object.as_str().to_owned(),
                lock.ns,
            )
        })
    });
    let stacks =
        stack_names(report).map(|(request, name, ns)| (ItemKind::Stack, request, name, ns));
    side.cut(requests, holders.chain(locks).chain(files).chain(stacks))
}
