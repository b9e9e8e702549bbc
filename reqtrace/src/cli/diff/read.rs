//! One recording of a side: its files in, its requests and sums added to the side.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use reqtrace_analysis::aggregate::{Aggregator, Options};
use reqtrace_analysis::classify::columns::Columns;
use reqtrace_analysis::fingerprint::fingerprint_of;
use reqtrace_analysis::report::{Exporter, Grouping, Report, RequestRow};
use reqtrace_base::error::{Error, Result};
use reqtrace_base::plain::Plain;
use reqtrace_common::limits::MAX_LABEL;
use reqtrace_compare::{Facts, ItemKind, One, Side};
use reqtrace_output::compare::stack_names;
use reqtrace_profile::{Profiles, RequestSpec};
use reqtrace_recording::{Ending, Event, Header};
use rustc_hash::FxHashMap;

use super::select::Selected;
use crate::cli::report::{files, say};

/// Stretches of time for which sums of items are known apart, at most; then neighbours become one.
const STRETCHES: u64 = 80;
/// The shortest of them.
const STRETCH_NS: u64 = 1_000_000_000;
/// Labels whose fingerprints are kept at hand.
const KEPT_LABELS: usize = 1 << 16;

/// What to read of each recording of a side.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) selected: Selected,
    /// What requests are grouped by.
    pub(super) group_by: Grouping,
}

/// A side that is being read.
struct Reading {
    side: Side,
    selected: Selected,
    start_unix_ns: u64,
    group_by: Grouping,
    has_labels: bool,
    /// Column of the attribute that requests are grouped by.
    attribute: Option<usize>,
    /// Of types whose label is an attribute its column.
    labels: FxHashMap<String, usize>,
    fingerprints: FxHashMap<String, String>,
    complete: u64,
    incomplete: u64,
    most_weight: u64,
}

/// Takes rows.
struct Rows(Rc<RefCell<Reading>>);

impl Exporter for Rows {
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

impl Reading {
    fn row(&mut self, row: &RequestRow<'_>) {
        if row.incomplete.is_some() {
            self.incomplete += 1;
            return;
        }
        let at_ns = row.start_unix_ns.saturating_sub(self.start_unix_ns);
        let Some(at_ns) = self.selected.position_ns(at_ns) else {
            return;
        };
        self.complete += 1;
        self.most_weight = self.most_weight.max(row.weight.into());
        let text = match self.attribute {
            Some(column) => row.attributes.get(column).map(Plain::as_str),
            None => match self.labels.get(row.request) {
                Some(column) => row.attributes.get(*column).map(Plain::as_str),
                None => Some(row.label.as_str()),
            },
        };
        let text = text.filter(|_| self.attribute.is_some() || self.has_labels);
        let text = text.filter(|text| !text.is_empty());
        let is_whole = matches!(self.group_by, Grouping::Label | Grouping::Attribute(_));
        if let Some(text) = text.filter(|_| !is_whole)
            && !self.fingerprints.contains_key(text)
        {
            if self.fingerprints.len() >= KEPT_LABELS {
                self.fingerprints.clear();
            }
            let is_cut = self.attribute.is_none() && text.len() == MAX_LABEL;
            self.fingerprints
                .insert(text.to_owned(), fingerprint_of(text, is_cut));
        }
        let group = match is_whole {
            true => text,
            false => text
                .and_then(|text| self.fingerprints.get(text))
                .map(String::as_str),
        };
        self.side.add(&One {
            request: row.request,
            at_ns,
            ledger: row.ledger,
            causes: row.causes.as_ref(),
            weight: row.weight,
            group,
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
    let attribute = wanted
        .group_by
        .attribute()
        .map(|name| column_of(name, &columns))
        .transpose()?;
    let options = Options {
        filter: wanted.selected.filter.clone(),
        ..Options::default()
    };
    let mut analysis =
        Aggregator::new(&profiles, &header, options).map_err(|error| error.within(&given.name))?;
    let mut side = side;
    side.begin(&columns.classes, &columns.places);
    let start_unix_ns = header
        .start_ns
        .saturating_add_signed(header.monotonic_to_unix_ns);
    let reading = Rc::new(RefCell::new(Reading {
        side,
        selected: wanted.selected.clone(),
        start_unix_ns,
        group_by: wanted.group_by.clone(),
        has_labels: header.options.labels,
        attribute,
        labels: label_columns(&profiles, &columns),
        fingerprints: FxHashMap::default(),
        complete: 0,
        incomplete: 0,
        most_weight: 1,
    }));
    let mut exporters: Vec<Box<dyn Exporter>> = vec![Box::new(Rows(Rc::clone(&reading)))];
    let mut cuts = Cuts {
        next_ns: header.start_ns + STRETCH_NS,
        length_ns: STRETCH_NS,
        count: 0,
    };
    let mut open = 0;
    let is_whole = Ending {
        ended: true,
        ..Ending::default()
    };
    let read = given.series.read(|event| -> Result<()> {
        if let Event::Tick(now_ns) = &event
            && cuts.is_due(*now_ns)
        {
            let side = &mut reading.borrow_mut().side;
            let is_one = sums(&analysis.view(&is_whole), side);
            cuts.done(is_one, side);
        }
        open += u64::from(matches!(event, Event::Open(_)));
        analysis.event(&event, &mut exporters)
    });
    let mut ending = read.map_err(|(path, error)| files::not_reported(&path, error))??;
    ending.missing_files = ending.missing_files.max(given.unreadable);
    say(&given.name, &ending);
    let report = analysis.finish(&ending, &mut exporters)?;
    drop(exporters);
    let reading = Rc::try_unwrap(reading)
        .map_err(|_| Error::failed("the rows of a recording are still in use"))?;
    let mut reading = reading.into_inner();
    sums(&report, &mut reading.side);
    let length_ns = wanted.selected.length_ns(report.trace.duration_ns);
    if length_ns == 0 {
        return Err(Error::usage(format!(
            "{}: nothing is at the times that were selected; it is {} s long",
            given.name,
            report.trace.duration_ns as f64 / 1e9
        ))
        .next("give times since the start of the trace"));
    }
    reading.side.end(Facts {
        name: given.name,
        which: wanted.selected.which.clone(),
        length_ns,
        alike: alike(&header, &report),
        losses: report
            .losses
            .iter()
            .map(|loss| (loss.name.clone(), loss.count))
            .collect(),
        complete: reading.complete,
        incomplete: reading.incomplete.saturating_sub(open),
        open,
        most_weight: reading.most_weight,
    });
    Ok(reading.side)
}

/// The first text of a type without a label is its label.
fn label_columns(profiles: &Profiles, columns: &Columns) -> FxHashMap<String, usize> {
    let without = profiles
        .requests()
        .filter(|request| request.labels.is_empty());
    let column = |request: &RequestSpec| {
        let text = request.attributes.iter().find(|spec| spec.is_text())?;
        let column = columns
            .attributes
            .iter()
            .position(|name| *name == text.name)?;
        Some((request.name.clone(), column))
    };
    without.filter_map(column).collect()
}

fn column_of(name: &str, columns: &Columns) -> Result<usize> {
    let found = columns.attributes.iter().position(|known| known == name);
    found.ok_or_else(|| {
        let known = match columns.attributes.as_slice() {
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

/// What ought to be the same on both sides.
fn alike(header: &Header, report: &Report) -> BTreeMap<String, String> {
    let options = &header.options;
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let texts: Vec<&str> = header.profile_texts().collect();
    let mut facts: BTreeMap<String, String> = [
        ("profile", header.profile.clone()),
        ("profile's text", short_hash(&texts.concat())),
        ("machine", header.host.clone()),
        ("kernel", header.kernel.clone()),
        ("architecture", header.architecture.clone()),
        ("reqtrace", header.version.clone()),
        ("--labels", yes(options.labels)),
        ("--blame", yes(header.blame)),
        ("--before", yes(header.before)),
        ("--cpu-rate", header.cpu_rate.to_string()),
        ("user stacks", yes(!options.no_user_stacks)),
        ("kernel stacks", yes(!options.no_kernel_stacks)),
        ("stacks only of blocks", options.stack_filter.clone()),
        ("stacks of preemptions", yes(options.preempted_stacks)),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    for module in report
        .modules
        .iter()
        .filter(|module| !module.build_id.is_empty())
    {
        let build_id: String = module
            .build_id
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        facts.insert(format!("build id of {}", module.path), build_id);
    }
    facts
}

/// A text is named by its hash (FNV-1a): only whether it is the same counts.
fn short_hash(text: &str) -> String {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, add))
}
