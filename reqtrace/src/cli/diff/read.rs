//! One recording of a side, or what was made of one: its files in, its requests and sums added to the side.

mod items;
mod recording;
mod rows;
mod what;

use std::path::Path;

use reqtrace_analysis::fingerprint::Fingerprints;
use reqtrace_analysis::report::blame::Causes;
use reqtrace_analysis::report::{Grouping, Ledger};
use reqtrace_base::error::{Error, Result};
use reqtrace_compare::{Facts, One, Side};
use reqtrace_recording::Incomplete;

use super::select::Selected;
use what::Given;

/// Reasons of requests that were open when the trace ended.
const OPEN: [Incomplete; 3] = [
    Incomplete::RunningAtStop,
    Incomplete::BlockedAtStop,
    Incomplete::ParkedAtStop,
];

/// What to read of each recording of a side.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) selected: Selected,
    /// What requests are grouped by.
    pub(super) group_by: Grouping,
}

/// A request, of whatever file.
struct Seen<'a> {
    request: &'a str,
    /// Since the start of the recording; below 0 before it.
    since_start_ns: i64,
    ledger: &'a Ledger,
    causes: Option<&'a Causes>,
    weight: u32,
    /// Why it is incomplete, if it is.
    incomplete: Option<&'a str>,
    text: Text<'a>,
}

/// What of a request says which others are the same.
#[derive(Clone, Copy)]
enum Text<'a> {
    /// Its label, the attribute in place of that, or the one that requests are grouped by.
    Whole(&'a str),
    /// The fingerprint of its label.
    Fingerprint(&'a str),
}

/// A side that is being read.
struct Reading {
    side: Side,
    wanted: Wanted,
    fingerprints: Fingerprints,
    complete: u64,
    incomplete: u64,
    open: u64,
    most_weight: u64,
}

impl Reading {
    fn new(side: Side, wanted: &Wanted) -> Self {
        Self {
            side,
            wanted: wanted.clone(),
            fingerprints: Fingerprints::default(),
            complete: 0,
            incomplete: 0,
            open: 0,
            most_weight: 1,
        }
    }

    /// Takes a request that is selected.
    fn take(&mut self, seen: &Seen<'_>) {
        if let Some(why) = seen.incomplete {
            let is_open = OPEN.iter().any(|open| open.reason() == why);
            let count = if is_open {
                &mut self.open
            } else {
                &mut self.incomplete
            };
            *count += 1;
            return;
        }
        let at_ns = u64::try_from(seen.since_start_ns).unwrap_or(0);
        let Some(at_ns) = self.wanted.selected.position_ns(at_ns) else {
            return;
        };
        self.complete += 1;
        self.most_weight = self.most_weight.max(seen.weight.into());
        let is_whole = matches!(
            self.wanted.group_by,
            Grouping::Label | Grouping::Attribute(_)
        );
        let group = match seen.text {
            Text::Whole("") | Text::Fingerprint("") => None,
            Text::Fingerprint(text) => Some(text),
            Text::Whole(text) if is_whole => Some(text),
            Text::Whole(text) => Some(self.fingerprints.of(text)),
        };
        self.side.add(&One {
            request: seen.request,
            at_ns,
            ledger: seen.ledger,
            causes: seen.causes,
            weight: seen.weight,
            group,
        });
    }

    /// The recording is over. `facts` are those that do not come of its requests.
    fn end(self, facts: Facts) -> Result<Side> {
        let selected = &self.wanted.selected;
        let length_ns = selected.length_ns(facts.length_ns);
        if length_ns == 0 {
            return Err(Error::usage(format!(
                "{}: nothing is at the times that were selected; it is {} s long",
                facts.name,
                facts.length_ns as f64 / 1e9
            ))
            .next("give times since the start of the trace"));
        }
        let mut side = self.side;
        side.end(Facts {
            which: selected.which.clone(),
            length_ns,
            complete: self.complete,
            incomplete: self.incomplete,
            open: self.open,
            most_weight: self.most_weight,
            ..facts
        });
        Ok(side)
    }
}

/// Requests of a recording without labels cannot be grouped by them.
fn no_labels(name: &str) -> Error {
    Error::usage(format!(
        "{name}: --group-by label: there are no labels to group by"
    ))
    .next("trace with --labels")
}

/// Adds a recording, or rows, to a side.
///
/// # Errors
///
/// Files that are neither, or of a newer version; a selection of what was not recorded; rows that are not all there.
pub(super) fn add(side: Side, path: &Path, wanted: &Wanted) -> Result<Side> {
    match what::given(path)? {
        Given::Recording => recording::add(side, path, wanted),
        #[cfg(feature = "parquet")]
        Given::Parquet(files) => rows::of_parquet(side, path, files, wanted),
        Given::Csv { rows, summary } => rows::of_csv(side, path, &rows, &summary, wanted),
    }
}
