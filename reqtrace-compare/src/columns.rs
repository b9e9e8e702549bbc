//! Columns: what the time of a request is cut into, in two ways.
//!
//! By root cause, where that is known, and by the parts of the ledger with each wait class and each place apart. Either
//! adds up to the latency.

use std::ops::Range;

use reqtrace_analysis::report::blame::{Cause, Causes};
use reqtrace_analysis::report::{Ledger, Places};

/// Time of the request itself that is of no root cause: on its CPU, on the run queue, preempted, queued.
const OWN: [&str; 4] = ["on CPU", "run queue", "preempted", "queued"];
/// Columns by root cause.
pub(crate) const CAUSES: usize = OWN.len() + Cause::COUNT;
/// The same parts by their own names, and what has no wait class.
const FIXED: [&str; 4] = ["on CPU", "run queue", "preempted", "unattributed"];

/// Names of columns; those of one side or of both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns(Vec<String>);

impl Columns {
    /// Those that every trace has.
    pub(crate) fn new() -> Self {
        let causes = Cause::ALL.map(|cause| format!("blocked: {}", cause.words()));
        let fixed = OWN.into_iter().map(str::to_owned).chain(causes);
        Self(fixed.chain(FIXED.map(str::to_owned)).collect())
    }

    /// Where these names are; new ones come behind the others.
    pub(crate) fn find(&mut self, names: impl IntoIterator<Item = String>) -> Vec<usize> {
        let mut find = |name: String| {
            let known = self.0[CAUSES..].iter().position(|known| *known == name);
            known.map_or_else(
                || {
                    self.0.push(name);
                    self.0.len() - 1
                },
                |at| at + CAUSES,
            )
        };
        names.into_iter().map(&mut find).collect()
    }

    /// The name of a column.
    pub(crate) fn name(&self, column: usize) -> &str {
        &self.0[column]
    }

    /// Columns by root cause.
    pub(crate) fn by_cause(&self) -> Range<usize> {
        0..CAUSES
    }

    /// Columns by part, wait class and place.
    pub(crate) fn by_part(&self) -> Range<usize> {
        CAUSES..self.0.len()
    }

    /// All names by part, in order.
    pub(crate) fn parts(&self) -> impl Iterator<Item = String> + '_ {
        self.0[CAUSES..].iter().cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Where the columns of the ledgers of one recording are.
#[derive(Clone, Debug, Default)]
pub(crate) struct OfLedger {
    fixed: Vec<usize>,
    classes: Vec<usize>,
    parked: Vec<usize>,
    queued: Vec<usize>,
}

impl OfLedger {
    pub(crate) fn new(columns: &mut Columns, classes: &[String], places: &Places) -> Self {
        let parked = (0..places.parked.len()).map(|place| places.parked_words(place));
        let queued = (0..places.queued.len()).map(|place| places.queued_words(place));
        Self {
            fixed: columns.find(FIXED.map(str::to_owned)),
            classes: columns.find(classes.iter().cloned()),
            parked: columns.find(parked),
            queued: columns.find(queued),
        }
    }

    /// The times of a request that are not 0, each with its column.
    pub(crate) fn times(
        &self,
        ledger: &Ledger,
        causes: Option<&Causes>,
        mut each: impl FnMut(usize, u64),
    ) {
        let mut add = |column: usize, ns: u64| {
            if ns > 0 {
                each(column, ns);
            }
        };
        if let Some(causes) = causes {
            let own = [
                ledger.on_cpu_ns,
                ledger.run_queue_ns,
                ledger.preempted_ns,
                ledger.queued_ns(),
            ];
            for (column, ns) in own.into_iter().enumerate() {
                add(column, ns);
            }
            let late_ns = ledger.held_up_ns().saturating_sub(causes.sum());
            for (column, cause) in (OWN.len()..).zip(Cause::ALL) {
                let late_ns = if cause == Cause::Unknown { late_ns } else { 0 };
                add(column, causes.get(cause) + late_ns);
            }
        }
        let fixed = [
            ledger.on_cpu_ns,
            ledger.run_queue_ns,
            ledger.preempted_ns,
            ledger.unattributed_ns,
        ];
        let lists = [
            (&self.fixed, &fixed[..]),
            (&self.classes, &ledger.classes),
            (&self.parked, &ledger.parked),
            (&self.queued, &ledger.queued),
        ];
        for (columns, times) in lists {
            for (column, ns) in columns.iter().zip(times) {
                add(*column, *ns);
            }
        }
    }
}
