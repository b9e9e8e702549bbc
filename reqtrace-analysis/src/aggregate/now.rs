//! Now: what is cheap to know while a trace runs, for who looks on; sums so far and names out.

use reqtrace_base::plain::Plain;
use reqtrace_recording::{AwayIn, BlockSite, BlockedIn, Open, Request};

use super::sites::Sites;
use super::types::Arrived;
use super::{Aggregator, losses};
use crate::blame::Causes;
use crate::cells::WINDOW_NS;
use crate::label::label_text;
use crate::report::page::Holding;
use crate::report::{Latency, Ledger, OpenBlock, OpenRequest};
use reqtrace_common::loss::Loss;
use reqtrace_recording::losses::MALFORMED;

/// Complete requests of one type, by their records.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TypeNow {
    /// Its name.
    pub name: String,
    /// How many since the start.
    pub complete: u64,
    /// How many a second lately: in the last whole seconds of which all records have come.
    pub per_second: f64,
    /// Latency lately.
    pub latency: Option<Latency>,
    /// Where their time went lately.
    pub ledger: Ledger,
    /// Their blocked time by root cause lately; `None` when the trace has no blame.
    pub causes: Option<Causes>,
}

/// Complete requests of one type and statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementNow {
    /// Name of the type.
    pub request: String,
    /// See [`Aggregator::statement`]; `None` of all others.
    pub statement: Option<Plain>,
    /// How many.
    pub count: u64,
    /// The longest latency, ns.
    pub max_ns: u64,
    /// Where their time went.
    pub ledger: Ledger,
}

/// A place of blocking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaceNow {
    /// Name of the wait class, or `unattributed`.
    pub class: String,
    /// The frames that say most, innermost first.
    pub short: String,
}

impl Aggregator {
    /// All request types, in profile order. *Lately* are so many seconds, or fewer where there was no room for as many.
    #[must_use]
    pub fn types_now(&self, seconds: u64) -> Vec<TypeNow> {
        let cells = &self.cells;
        let passed_ns = cells.closed_ns().saturating_sub(self.trace.start_ns());
        let empty = Ledger::of(self.ledger.classes.len(), &self.spots.names);
        let types = (0..).zip(&self.types);
        types
            .map(|(index, state)| {
                let (last_ns, last) = cells.of_type_last(index, seconds * WINDOW_NS);
                let lately_ns = last_ns.min(passed_ns);
                let arrived = Arrived::new(&last, &empty);
                let requests = arrived.complete.weight as f64;
                TypeNow {
                    name: state.name.clone(),
                    complete: cells.count(index),
                    per_second: requests * WINDOW_NS as f64 / lately_ns.max(1) as f64,
                    latency: arrived.latency(),
                    causes: self.blame.as_ref().map(|_| arrived.complete.causes),
                    ledger: arrived.complete.ledger,
                }
            })
            .collect()
    }

    /// Statements of the last seconds, those with the most time first; none without
    /// [`Aggregator::keep_groups`].
    #[must_use]
    pub fn statements_now(&self, seconds: u64) -> Vec<StatementNow> {
        let groups = self.groups.iter();
        let last = groups.flat_map(|groups| groups.last(seconds * WINDOW_NS));
        let mut all: Vec<_> = last.collect();
        all.sort_unstable_by(|(one_key, (one, _)), (two_key, (two, _))| {
            let most = two.ledger.latency_ns.cmp(&one.ledger.latency_ns);
            most.then_with(|| one_key.cmp(two_key))
        });
        all.into_iter()
            .map(|((request, statement), (sum, max_ns))| StatementNow {
                request: self.types[*request as usize].name.clone(),
                statement: statement.as_ref().map(|text| Plain::of(text)),
                count: sum.weight,
                max_ns,
                ledger: sum.ledger,
            })
            .collect()
    }

    /// Who held requests up most that ended in the last two seconds, and for how long together; `None` without blame,
    /// or when nobody known did.
    #[must_use]
    pub fn held_now(&self, now_ns: u64) -> Option<(Holding, u64)> {
        self.blame.as_ref()?.held_lately(now_ns)
    }

    /// What was lost so far, by events, by the names of `summary.json`; not what a report calls no matter.
    #[must_use]
    pub fn losses_now(&self) -> Vec<(String, u64)> {
        let lost = self
            .losses
            .iter()
            .map(|(name, count)| (name.clone(), *count));
        let malformed = (MALFORMED.to_owned(), self.malformed);
        lost.chain([malformed])
            .filter(|(name, count)| *count > 0 && !self.is_no_matter(name, *count))
            .collect()
    }

    fn is_no_matter(&self, name: &str, count: u64) -> bool {
        name == Loss::SwitchInUnseen.name() && {
            let sums = self.sums.stacks();
            let new: u64 = sums.iter().map(|(_, sum)| sum.count).sum();
            losses::is_few(count, self.settled.lines.switches() + new)
        }
    }

    /// A place at which a request was blocked, in a few words.
    #[must_use]
    pub fn place_now(&self, request: &Request<'_>, site: &BlockSite) -> PlaceNow {
        self.with_sites(|sites| PlaceNow {
            class: sites.place(request.request_type, request.space, site).class,
            short: sites.short(request.space, site).to_string(),
        })
    }

    /// A request that is open at this time, with its names; `None` when the profile has no such type.
    #[must_use]
    pub fn open_now(&self, open: &Open, now_ns: u64) -> Option<OpenRequest> {
        self.with_sites(|sites| self.open_request(sites, open, now_ns))
    }

    /// The same with names that are borrowed already.
    pub(super) fn open_request(
        &self,
        sites: &mut Sites,
        open: &Open,
        now_ns: u64,
    ) -> Option<OpenRequest> {
        let request = open.request();
        let state = self.types.get(request.request_type as usize)?;
        let blocked = open.blocked_in.map(|BlockedIn { site, since_ns }| {
            let place = sites.place(request.request_type, request.space, &site);
            OpenBlock {
                for_ns: now_ns.saturating_sub(since_ns),
                class: place.class,
                user: place.user,
                kernel: place.kernel,
            }
        });
        let attributes = open.attributes();
        let with_attributes = Request {
            attributes: &attributes,
            ..request
        };
        let label = self.attributes.label_of(&with_attributes);
        let place = open.away_in.map(|AwayIn { place, since_ns }| {
            let spot = self.spots.spot(request.request_type, place);
            (self.spots.words(spot), now_ns.saturating_sub(since_ns))
        });
        Some(OpenRequest {
            place,
            request: state.name.clone(),
            pid: request.space.tgid,
            tid: request.tid,
            comm: request.comm.text(),
            label: label_text(&label),
            running_ns: request.latency_ns(),
            blocked,
        })
    }
}
