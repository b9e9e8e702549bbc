//! The verdict at the end of a trace: what was collected and a report in, its findings out.

use reqtrace_base::plain::Plain;

use super::Aggregator;
use crate::blame::{Naming, ThreadId};
use crate::report::Report;
use crate::report::verdict::Finding;
use crate::verdict::{Facts, OfName, findings};

/// What the wait class of a lost stack is called.
const UNATTRIBUTED: &str = "unattributed";

impl Aggregator {
    /// Why slow requests were slow.
    pub(super) fn findings(&self, report: &Report) -> Vec<Finding> {
        let named = Named {
            analysis: self,
            report,
            places: (0..self.spots.names.parked.len())
                .map(|place| self.spots.names.parked_words(place))
                .collect(),
        };
        let collector = self.verdict.as_ref();
        collector.map_or_else(Vec::new, |collector| findings(collector, &named))
    }
}

struct Named<'a> {
    analysis: &'a Aggregator,
    report: &'a Report,
    /// Where requests are parked, in words.
    places: Vec<String>,
}

impl Facts for Named<'_> {
    fn of_type(&self, index: usize) -> OfName<'_> {
        let of_type = self.report.requests.get(index);
        OfName {
            name: of_type.map_or("", |of_type| &of_type.name),
            recorded: of_type.map_or(0, |of_type| of_type.recorded),
            rows: of_type.map_or(0, |of_type| of_type.rows),
        }
    }

    fn class(&self, class: Option<u16>) -> &str {
        let names = self.report.classes.iter().chain(&self.places);
        let name = class.and_then(|class| names.into_iter().nth(usize::from(class)));
        name.map_or(UNATTRIBUTED, String::as_str)
    }

    fn comm(&self, thread: ThreadId) -> Plain {
        self.analysis.sites.borrow().comm(thread)
    }

    fn attributes(&self) -> &[String] {
        &self.report.attributes
    }

    fn unix_ns(&self, at_ns: u64) -> u64 {
        self.analysis.trace.unix_ns(at_ns)
    }
}
