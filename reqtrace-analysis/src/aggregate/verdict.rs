//! The verdict so far, or at the end of a trace: what was collected in, its findings out.

use reqtrace_base::plain::Plain;
use reqtrace_common::loss::Loss;

use super::Aggregator;
use crate::blame::{Naming, ThreadId};
use crate::fingerprint::statement;
use crate::report::Report;
use crate::report::verdict::{Finding, Meanwhile};
use crate::verdict::{Facts, OfName, findings, mille};

/// What the wait class of a lost stack is called.
const UNATTRIBUTED: &str = "unattributed";

/// Who used disks while requests waited for them is named if it had so much of the bytes, and so many: the little that is
/// written while a disk stalls says nothing.
const MOST_OF_BYTES: f64 = 0.6;
const BYTES_A_SECOND: u64 = 1 << 20;

impl Aggregator {
    /// Why requests were slow so far. Without blame there is none.
    #[must_use]
    pub fn findings_now(&self) -> Vec<Finding> {
        let types = self.types_so_far();
        self.findings(types, &self.classes(), &self.attributes.names)
    }

    /// Each type with its records so far. Of which type a lost one was is not known: each counts for all.
    pub(super) fn types_so_far(&self) -> Vec<OfName<'_>> {
        let lost = self.losses.get(Loss::RingFull.name()).copied();
        let types = (0..).zip(&self.types).map(|(index, of_type)| {
            let rows = self.cells.records(index);
            OfName {
                name: &of_type.name,
                sent: rows + lost.unwrap_or(0),
                rows,
            }
        });
        types.collect()
    }

    /// Why slow requests were slow.
    pub(super) fn findings_of(&self, report: &Report) -> Vec<Finding> {
        let types = report.requests.iter().map(|of_type| OfName {
            name: &of_type.name,
            sent: of_type.sent,
            rows: of_type.rows,
        });
        self.findings(types.collect(), &report.classes, &report.attributes)
    }

    fn findings(
        &self,
        types: Vec<OfName<'_>>,
        classes: &[String],
        attributes: &[String],
    ) -> Vec<Finding> {
        let Some(collector) = &self.verdict else {
            return Vec::new();
        };
        let places = 0..self.spots.names.parked.len();
        let places = places.map(|place| self.spots.names.parked_words(place));
        let named = Named {
            analysis: self,
            types,
            waits: classes.iter().cloned().chain(places).collect(),
            attributes,
        };
        findings(collector, &named)
    }
}

struct Named<'a> {
    analysis: &'a Aggregator,
    types: Vec<OfName<'a>>,
    /// Wait classes, then where requests are parked.
    waits: Vec<String>,
    attributes: &'a [String],
}

impl Facts for Named<'_> {
    fn of_type(&self, index: usize) -> OfName<'_> {
        self.types.get(index).copied().unwrap_or_default()
    }

    fn class(&self, class: Option<u16>) -> &str {
        let name = class.and_then(|class| self.waits.get(usize::from(class)));
        name.map_or(UNATTRIBUTED, String::as_str)
    }

    fn comm(&self, thread: ThreadId) -> Plain {
        self.analysis.sites.borrow().comm(thread)
    }

    fn attributes(&self) -> &[String] {
        self.attributes
    }

    fn unix_ns(&self, at_ns: u64) -> u64 {
        self.analysis.trace.unix_ns(at_ns)
    }

    fn meanwhile(&self, times: &[(u64, u64)]) -> Option<Meanwhile> {
        let timelines = self.analysis.blame.as_ref()?.timelines();
        let used = timelines.disks().most_used(times)?;
        let share = used.bytes() as f64 / used.all_bytes.max(1) as f64;
        let is_much = u128::from(used.bytes()) * 1_000_000_000
            >= u128::from(BYTES_A_SECOND) * u128::from(used.of_ns);
        if share < MOST_OF_BYTES || !is_much {
            return None;
        }
        let label = timelines.label_at(used.thread, used.first_ns);
        Some(Meanwhile {
            pid: used.thread.tgid,
            tid: used.thread.tid,
            comm: match used.comm {
                Some(comm) if used.thread.tid == 0 => comm.text(),
                _ => self.comm(used.thread),
            },
            share: mille(share),
            read_bytes: used.read_bytes,
            written_bytes: used.written_bytes,
            statement: label.map_or_else(Plain::default, |label| statement(label, None)),
        })
    }
}
