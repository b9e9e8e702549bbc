//! Now: what is cheap to know while a trace runs, for who looks on; sums so far and names out.

use reqtrace_recording::{AwayIn, BlockSite, BlockedIn, Open, Request};

use super::Aggregator;
use super::sites::Sites;
use crate::blame::Causes;
use crate::label::label_text;
use crate::report::{Ledger, OpenBlock, OpenRequest};
use reqtrace_recording::losses::MALFORMED;

/// Complete requests of one type so far, by their records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeNow {
    /// Its name.
    pub name: String,
    /// How many.
    pub complete: u64,
    /// Their ledgers added up.
    pub ledger: Ledger,
    /// Their blocked time by root cause; `None` when the trace has no blame. It is known some 200 ms later
    /// than the ledger.
    pub causes: Option<Causes>,
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
    /// All request types, in profile order.
    #[must_use]
    pub fn types_now(&self) -> Vec<TypeNow> {
        let causes = |index| self.blame.as_ref().map(|blame| blame.causes(index));
        let types = self.types.iter().enumerate();
        types
            .map(|(index, state)| TypeNow {
                name: state.name.clone(),
                complete: state.complete.weight,
                ledger: state.complete.ledger.clone(),
                causes: causes(index),
            })
            .collect()
    }

    /// What was lost so far, as events have told it, by the names of `summary.json`.
    #[must_use]
    pub fn losses_now(&self) -> Vec<(String, u64)> {
        let told = self
            .losses
            .iter()
            .map(|(name, count)| (name.clone(), *count));
        let malformed = (MALFORMED.to_owned(), self.malformed);
        told.chain([malformed])
            .filter(|(_, count)| *count > 0)
            .collect()
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
        let text = self.attributes.label(&with_attributes);
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
            label: label_text(text.as_deref().unwrap_or(request.label)),
            running_ns: request.latency_ns(),
            blocked,
        })
    }
}
