//! The verdict so far, or at the end of a trace: what was collected in, its findings out.

use reqtrace_base::plain::Plain;
use reqtrace_common::loss::Loss;

use super::Aggregator;
use crate::blame::{Naming, ThreadId};
use crate::report::Report;
use crate::report::verdict::Finding;
use crate::verdict::{Facts, OfName, findings};

/// What the wait class of a lost stack is called.
const UNATTRIBUTED: &str = "unattributed";

impl Aggregator {
    /// Why requests were slow so far. Without blame there is none.
    #[must_use]
    pub fn findings_now(&self) -> Vec<Finding> {
        // Of which type a lost one was is not known: each counts for all.
        let lost = self.losses.get(Loss::RingFull.name()).copied();
        let types = (0..).zip(&self.types).map(|(index, of_type)| {
            let rows = self.cells.count(index);
            OfName {
                name: &of_type.name,
                recorded: rows + lost.unwrap_or(0),
                rows,
            }
        });
        self.findings(types.collect(), &self.classes(), &self.attributes.names)
    }

    /// Why slow requests were slow.
    pub(super) fn findings_of(&self, report: &Report) -> Vec<Finding> {
        let types = report.requests.iter().map(|of_type| OfName {
            name: &of_type.name,
            recorded: of_type.recorded,
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
}
