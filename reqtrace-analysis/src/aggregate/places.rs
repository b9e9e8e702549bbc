//! Parked and queued time: the places of each request type in, their numbers in every ledger out; sums for
//! stacks of complete requests.

use reqtrace_base::plain::Plain;
use reqtrace_common::cookie::Reentry;
use reqtrace_common::marker::place_index;
use reqtrace_common::record::{STACK_NONE, StackId};
use reqtrace_recording::{AddressSpace, BlockSite, QUEUED, Request};
use rustc_hash::FxHashMap;

use super::samples::SEVERAL;
use super::sites::Sites;
use crate::classify::columns::{self, is_queue};
use crate::profile::{Profiles, Role, SLEEP_OF_GO};
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
    /// Of which types it is counted what units they make.
    with_children: Vec<bool>,
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
            with_children: profiles
                .requests()
                .map(|request| request.done.iter().any(|one| one.role == Role::Child))
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

    pub(super) fn has_children(&self, request_type: u32) -> bool {
        self.with_children.get(request_type as usize) == Some(&true)
    }

    /// The number of a place in a ledger. One that the profile has no name for is the last.
    pub(super) fn spot(&self, request_type: u32, place: u32) -> Spot {
        let of_type = self.types.get(request_type as usize);
        let named = place_index(place);
        let named = of_type.and_then(|spots| spots.get(named?));
        named.copied().unwrap_or(match place {
            QUEUED => Spot::Queued(self.names.queued.len().saturating_sub(1)),
            _ => Spot::Parked(self.names.parked.len().saturating_sub(1)),
        })
    }

    /// Whether requests that are parked there wait for a time to pass, and for nothing else.
    pub(super) fn is_sleep(&self, parked: usize) -> bool {
        let name = self.names.parked.get(parked);
        name.is_some_and(|name| name == SLEEP_OF_GO)
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
    /// Parked time by stack and number of the place in the ledger.
    parks: FxHashMap<(AddressSpace, StackId, usize), ParkSum>,
}

/// Stacks of one request type at which requests were parked.
const MAX_STACKS: usize = 4096;

/// Parked time at one stack.
#[derive(Clone, Debug, Default)]
struct ParkSum {
    /// Outermost first.
    frames: Vec<String>,
    ns: u64,
    count: u64,
}

/// The place of parked time in the ways that name places.
pub(super) fn parked_at(stack: StackId) -> BlockSite {
    BlockSite {
        user_stack: stack,
        kernel_stack: STACK_NONE,
        ..BlockSite::PREEMPTED
    }
}

impl OfType {
    /// The stacks of a place, each once, those with most time first.
    fn parks_of(&self, place: usize) -> Vec<(Vec<String>, u64, u64)> {
        let mut found: FxHashMap<&[String], (u64, u64)> = FxHashMap::default();
        for ((.., at), sum) in &self.parks {
            if *at == place {
                let all = found.entry(&sum.frames).or_default();
                *all = (all.0 + sum.ns, all.1 + sum.count);
            }
        }
        let found = found.into_iter();
        let mut found: Vec<_> = found
            .map(|(frames, (ns, count))| (frames.to_vec(), ns, count))
            .collect();
        found.sort_by(|one, two| two.1.cmp(&one.1).then_with(|| one.0.cmp(&two.0)));
        found
    }
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
        spots: &Spots,
        sites: &mut Sites,
    ) {
        let of_type = self.types.get_mut(request.request_type as usize);
        let Some(of_type) = of_type.filter(|_| !request.away.is_empty()) else {
            return;
        };
        let comm = sites.processes.comm(request.space.tgid);
        let comm = || comm;
        of_type.ledger.add_times(ledger, u64::from(request.weight));
        of_type.requests += u64::from(request.weight);
        for park in request.parks {
            let Spot::Parked(place) = spots.spot(request.request_type, park.place) else {
                continue;
            };
            let key = (request.space, park.stack, place);
            if of_type.parks.len() >= MAX_STACKS && !of_type.parks.contains_key(&key) {
                continue;
            }
            let sum = of_type.parks.entry(key).or_insert_with(|| {
                let [mut frames, _] = sites.frames_of(request.space, &parked_at(park.stack));
                frames.reverse();
                ParkSum {
                    frames,
                    ..ParkSum::default()
                }
            });
            sum.ns += park.ns * u64::from(request.weight);
            sum.count += u64::from(park.count) * u64::from(request.weight);
        }
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
                let mut push = |mut user: Vec<String>, ns, count| {
                    user.push(format!("[{}]", spots.words(spot)));
                    lines.push(StackLine {
                        comm: process.map_or_else(|| Plain::of(SEVERAL), |(_, name)| name.clone()),
                        request: name.clone(),
                        user,
                        kernel: Vec::new(),
                        kind,
                        class: Some(place),
                        ns,
                        count,
                        longest_ns: 0,
                    });
                };
                let mut left_ns = ns;
                if kind == StackKind::Parked {
                    for (frames, ns, count) in of_type.parks_of(place) {
                        // Sums of the kernel may lack what came after they were read.
                        let ns = ns.min(left_ns);
                        left_ns -= ns;
                        if ns > 0 {
                            push(frames, ns, count);
                        }
                    }
                }
                if left_ns > 0 {
                    push(Vec::new(), left_ns, of_type.requests);
                }
            }
        }
        lines
    }
}
