//! The page: each request that is written, with its stacks and who held it up, handed to the collector.

use reqtrace_recording::Request;

use super::Aggregator;
use super::order::Row;
use super::places::{Spot, parked_at};
use super::samples::OfRequest;
use crate::blame::{Causes, Gatherer};
use crate::page::{Collector, One, OwnStacks};
use crate::report::page::Page;
use crate::report::{Exporter, Grouping};

impl Aggregator {
    /// The stacks of a complete request: their ids mean something now.
    pub(super) fn page_stacks(
        &mut self,
        request: &Request<'_>,
        samples: Option<&OfRequest>,
        exporters: &[Box<dyn Exporter>],
    ) -> OwnStacks {
        self.begin_page(exporters);
        let Some(page) = self.page.as_mut().filter(|_| request.incomplete.is_none()) else {
            return OwnStacks::default();
        };
        let sites = self.sites.get_mut();
        page.names_are(sites.decided_anew);
        let slots = request.slots.iter().map(|slot| {
            let class = sites.class(Some(request.request_type), request.space, &slot.site);
            let stack = page.blocked_in(sites, request.space, &slot.site, class);
            (stack, slot.blocked_ns)
        });
        let blocked = slots.collect();
        let spots = &self.spots;
        let parks = request.parks.iter().filter_map(|park| {
            let Spot::Parked(place) = spots.spot(request.request_type, park.place) else {
                return None;
            };
            let stack = page.parked_at(sites, request.space, &parked_at(park.stack), place);
            Some((stack, place, park.ns))
        });
        let parks = parks.collect();
        let samples = samples
            .into_iter()
            .flat_map(|samples| samples.places(request));
        let samples =
            samples.map(|(space, site, count)| (page.sampled_in(sites, space, &site), count));
        OwnStacks {
            blocked,
            parks,
            samples: samples.collect(),
        }
    }

    /// Takes a request whose blocked time has been split.
    pub(super) fn page_row(&mut self, row: &Row, causes: Option<Causes>) {
        let Some(page) = self.page.as_mut().filter(|_| row.incomplete.is_none()) else {
            return;
        };
        let one = One {
            id: row.id,
            request: row.request_type as u32,
            pid: row.pid,
            tid: row.tid,
            comm: row.comm,
            label: row.group(),
            begin_ns: row.begin_ns,
            ledger: &row.ledger,
            weight: row.weight,
            stacks: &row.stacks,
        };
        let held = self.blame.iter().flat_map(Gatherer::last_held);
        page.request(&one, causes, held, self.sites.get_mut());
    }

    /// Begins the page, if an output takes one.
    fn begin_page(&mut self, exporters: &[Box<dyn Exporter>]) {
        if self.page.is_none() && exporters.iter().any(|exporter| exporter.wants_page()) {
            let (types, start_ns) = (self.types.len(), self.trace.start_ns());
            let page = Collector::new(
                types,
                start_ns,
                self.options.group_by.as_ref().map(Grouping::of_text),
            );
            self.page = Some(Box::new(page));
        }
    }

    /// The page, if an output takes one.
    pub(super) fn finish_page(mut self, exporters: &[Box<dyn Exporter>]) -> Option<Box<Page>> {
        self.begin_page(exporters);
        let page = self.page.take()?;
        let length_ns = self.trace.stop_ns().saturating_sub(self.trace.start_ns());
        let blame = self.blame.as_ref();
        let named = |key: &_| blame.map(|blame| blame.holding(key)).unwrap_or_default();
        let page = page.finish(length_ns, named, self.sites.get_mut());
        Some(Box::new(page))
    }
}
