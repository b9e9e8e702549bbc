//! Parked and queued time: the places of each request type in, their numbers in every ledger out; sums for
//! stacks of complete requests.

use reqtrace_base::plain::Plain;
use reqtrace_common::cookie::Reentry;
use reqtrace_recording::{QUEUED, Request};

use super::samples::SEVERAL;
use crate::classify::columns::{self, is_queue};
use crate::profile::Profiles;
use crate::report::{Ledger, Places, StackKind, StackLine};

/// A place by its number in a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    /// In [`Places::parked`].
    Parked(usize),
    /// In [`Places::queued`].
    Queued(usize),
}

/// The places of all request types.
#[derive(Clone, Debug, Default)]
pub(super) struct Spots {
    pub(super) names: Places,
    /// Of each request type, by the place's number there.
    types: Vec<Vec<Spot>>,
    /// Which types have a key.
    pub(super) keyed: Vec<bool>,
    /// Which types leave begins inside of a request out.
    ignoring: Vec<bool>,
}

impl Spots {
    pub(super) fn new(profiles: &Profiles) -> Self {
        let names = columns::places(profiles);
        let number = |list: &[String], name: &String| {
            let known = list.iter().position(|known| known == name);
            known.unwrap_or(list.len().saturating_sub(1))
        };
        let types = profiles.requests().map(|request| {
            let spots = request.places.iter().enumerate().map(|(place, name)| {
                match is_queue(request, place) {
                    true => Spot::Queued(number(&names.queued, name)),
                    false => Spot::Parked(number(&names.parked, name)),
                }
            });
            spots.collect()
        });
        Self {
            types: types.collect(),
            keyed: profiles
                .requests()
                .map(|request| request.is_keyed)
                .collect(),
            ignoring: profiles
                .requests()
                .map(|request| request.reentry == Reentry::Ignore)
                .collect(),
            names,
        }
    }

    pub(super) fn is_keyed(&self, request_type: u32) -> bool {
        self.keyed.get(request_type as usize) == Some(&true)
    }

    pub(super) fn ignores_inner(&self, request_type: u32) -> bool {
        self.ignoring.get(request_type as usize) == Some(&true)
    }

    /// The number of a place in a ledger. One that the profile has no name for is the last.
    pub(super) fn spot(&self, request_type: u32, place: u32) -> Spot {
        let of_type = self.types.get(request_type as usize);
        let named = of_type.and_then(|spots| spots.get(place as usize));
        named.copied().unwrap_or(match place {
            QUEUED => Spot::Queued(self.names.queued.len().saturating_sub(1)),
            _ => Spot::Parked(self.names.parked.len().saturating_sub(1)),
        })
    }

    /// In words: `parked: upstream`.
    pub(super) fn words(&self, spot: Spot) -> String {
        match spot {
            Spot::Parked(place) => self.names.parked_words(place),
            Spot::Queued(place) => self.names.queued_words(place),
        }
    }

    /// Adds a request's parked and queued time to its ledger.
    pub(super) fn fill(&self, ledger: &mut Ledger, request: &Request<'_>) {
        for away in request.away {
            let sum = match self.spot(request.request_type, away.place) {
                Spot::Parked(place) => ledger.parked.get_mut(place),
                Spot::Queued(place) => ledger.queued.get_mut(place),
            };
            match sum {
                Some(sum) => *sum += away.ns,
                // No type of the profile has a key.
                None => ledger.unattributed_ns += away.ns,
            }
        }
    }
}

/// Parked and queued time of complete requests whose stacks are shown.
#[derive(Debug)]
pub(super) struct AwaySums {
    types: Vec<OfType>,
}

#[derive(Clone, Debug, Default)]
struct OfType {
    ledger: Ledger,
    requests: u64,
    /// The process that served the last one, and the name of all that did.
    process: Option<(u32, Plain)>,
}

impl AwaySums {
    pub(super) fn new(types: usize) -> Self {
        Self {
            types: vec![OfType::default(); types],
        }
    }

    /// Takes a complete request.
    pub(super) fn add(
        &mut self,
        request: &Request<'_>,
        ledger: &Ledger,
        comm: impl FnOnce() -> Plain,
    ) {
        let of_type = self.types.get_mut(request.request_type as usize);
        let Some(of_type) = of_type.filter(|_| !request.away.is_empty()) else {
            return;
        };
        of_type.ledger.add_times(ledger, u64::from(request.weight));
        of_type.requests += u64::from(request.weight);
        match &mut of_type.process {
            Some((pid, _)) if *pid == request.space.tgid => {}
            Some((pid, name)) => {
                *pid = request.space.tgid;
                if *name != comm() {
                    *name = Plain::of(SEVERAL);
                }
            }
            none => *none = Some((request.space.tgid, comm())),
        }
    }

    /// The lines of a report, by request type. `ledgers` are those of the types; `None` where a part of the
    /// requests is shown, by their records.
    pub(super) fn lines(
        &self,
        spots: &Spots,
        names: &[String],
        ledgers: Option<&[Ledger]>,
    ) -> Vec<StackLine> {
        let mut lines = Vec::new();
        for (index, (of_type, name)) in self.types.iter().zip(names).enumerate() {
            let whole = ledgers.and_then(|ledgers| ledgers.get(index));
            let ledger = whole.unwrap_or(&of_type.ledger);
            let parked = ledger.parked.iter().enumerate();
            let parked =
                parked.map(|(place, ns)| (Spot::Parked(place), StackKind::Parked, place, *ns));
            let queued = ledger.queued.iter().enumerate();
            let queued =
                queued.map(|(place, ns)| (Spot::Queued(place), StackKind::Queued, place, *ns));
            for (spot, kind, place, ns) in parked.chain(queued).filter(|(.., ns)| *ns > 0) {
                let process = of_type.process.as_ref();
                lines.push(StackLine {
                    comm: process.map_or_else(|| Plain::of(SEVERAL), |(_, name)| name.clone()),
                    request: name.clone(),
                    user: vec![format!("[{}]", spots.words(spot))],
                    kernel: Vec::new(),
                    kind,
                    class: Some(place),
                    ns,
                    count: of_type.requests,
                    longest_ns: 0,
                });
            }
        }
        lines
    }
}
