//! The slowest requests: the parts of each in; trees of who held it up, with names, out.

use std::collections::BTreeMap;

use super::names::{Names, Naming};
use super::{Cause, Culprit, Outcome, Parts, Place, Reason, Timelines};
use reqtrace_recording::{RequestOf, WokenFrom};

use crate::label::label_text;
use crate::report::blame::{After, CulpritName, HeldRequest, Part, What};

/// Requests of one type that are kept.
const MAX_REQUESTS: usize = 3;
/// Parts of one level.
const MAX_PARTS: usize = 4;
/// Parts of less than this share of the blocked time are left out.
const LEAST_SHARE: u64 = 50;

/// The slowest complete requests of one type, the slowest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Slowest {
    pub(super) requests: Vec<HeldRequest>,
}

impl Slowest {
    /// Whether a request of that latency is among them.
    pub(super) fn takes(&self, latency_ns: u64) -> bool {
        let last = self.requests.get(MAX_REQUESTS - 1);
        last.is_none_or(|last| latency_ns > last.latency_ns)
    }

    pub(super) fn add(&mut self, request: HeldRequest) {
        let slower = |other: &HeldRequest| other.latency_ns >= request.latency_ns;
        let at = self.requests.partition_point(slower);
        self.requests.insert(at, request);
        self.requests.truncate(MAX_REQUESTS);
    }
}

/// What is put together: parts that read alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Waited(Culprit, Option<u16>, [u64; 2]),
    Ended(Culprit, Cause, Option<Reason>),
}

#[derive(Debug, Default)]
struct Group {
    ns: u64,
    waits: Vec<u32>,
    place: Option<Place>,
    /// When the last of them was over.
    until_ns: u64,
    /// From where the longest of them was ended, and how long that was.
    woken_from: Option<(WokenFrom, u64)>,
}

/// Draws the tree of a request.
pub(super) struct Tree<'a, N> {
    parts: &'a Parts<'a>,
    timelines: &'a Timelines,
    names: &'a Names,
    /// Nanoseconds of each wait, with those within.
    totals: Vec<u64>,
    within: Vec<Vec<u32>>,
    ended: Vec<Vec<(Outcome, u64)>>,
    least_ns: u64,
    naming: &'a mut N,
}

impl<'a, N: Naming> Tree<'a, N> {
    pub(super) fn new(
        parts: &'a Parts<'a>,
        timelines: &'a Timelines,
        names: &'a Names,
        naming: &'a mut N,
    ) -> Self {
        let count = parts.waits.len();
        let mut totals = vec![0; count];
        let mut within = vec![Vec::new(); count];
        let mut ended = vec![Vec::new(); count];
        for piece in &parts.pieces {
            if let Some(wait) = piece.wait {
                totals[wait as usize] += piece.ns;
                ended[wait as usize].push((piece.outcome, piece.ns));
            }
        }
        for (index, wait) in parts.waits.iter().enumerate().rev() {
            if let Some(outer) = wait.within {
                totals[outer as usize] += totals[index];
                within[outer as usize].push(index as u32);
            }
        }
        let blocked: u64 = parts.pieces.iter().map(|piece| piece.ns).sum();
        Self {
            parts,
            timelines,
            names,
            totals,
            within,
            ended,
            least_ns: blocked / LEAST_SHARE,
            naming,
        }
    }

    /// The parts of the request's blocked time.
    pub(super) fn draw(&mut self) -> Vec<Part> {
        let waits = (0..).zip(&self.parts.waits);
        let own = waits.filter(|(_, wait)| wait.within.is_none());
        let own: Vec<u32> = own.map(|(index, _)| index).collect();
        let mut groups = BTreeMap::new();
        self.group(&own, &mut groups);
        for piece in &self.parts.pieces {
            if piece.wait.is_none() {
                let Outcome { cause, reason, .. } = piece.outcome;
                let key = Key::Ended(piece.outcome.culprit, cause, reason);
                groups.entry(key).or_default().ns += piece.ns;
            }
        }
        self.named(groups)
    }

    fn group(&self, waits: &[u32], groups: &mut BTreeMap<Key, Group>) {
        for &index in waits {
            let wait = &self.parts.waits[index as usize];
            let site = wait.kept.place.site;
            let stacks = [site.user_stack, site.kernel_stack];
            let key = Key::Waited(wait.whose, wait.kept.class, stacks);
            let group: &mut Group = groups.entry(key).or_default();
            group.ns += self.totals[index as usize];
            group.waits.push(index);
            group.place = Some(wait.kept.place);
        }
    }

    fn named(&mut self, groups: BTreeMap<Key, Group>) -> Vec<Part> {
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.retain(|(_, group)| group.ns > self.least_ns);
        groups.sort_by_key(|(key, group)| (std::cmp::Reverse(group.ns), *key));
        groups.truncate(MAX_PARTS);
        groups
            .into_iter()
            .map(|(key, group)| self.part(key, &group))
            .collect()
    }

    fn part(&mut self, key: Key, group: &Group) -> Part {
        let (whose, what) = match (key, group.place) {
            (Key::Waited(whose, class, _), Some(place)) => {
                let [user, kernel] = self.naming.frames(&place);
                let class = self.names.class(class).to_owned();
                let what = What::Waited {
                    class,
                    user,
                    kernel,
                };
                (whose, what)
            }
            (Key::Waited(whose, ..), None) => (whose, What::Ended(Cause::Unknown, None)),
            (Key::Ended(whose, cause, reason), _) => (whose, What::Ended(cause, reason)),
        };
        let mut inner = BTreeMap::new();
        for &wait in &group.waits {
            self.group(&self.within[wait as usize], &mut inner);
            for (outcome, ns) in &self.ended[wait as usize] {
                let key = Key::Ended(outcome.culprit, outcome.cause, outcome.reason);
                let ended: &mut Group = inner.entry(key).or_default();
                ended.ns += ns;
                let kept = self.parts.waits[wait as usize].kept;
                ended.until_ns = ended.until_ns.max(kept.wake_ns);
                let is_thread =
                    !matches!(outcome.culprit, Culprit::OwnInterrupt | Culprit::Unknown);
                if let Some(from) = kept.woken_from.filter(|_| is_thread)
                    && ended.woken_from.is_none_or(|(_, longest)| *ns > longest)
                {
                    ended.woken_from = Some((from, *ns));
                }
            }
        }
        let after = match (whose, &what) {
            (Culprit::Thread(thread), What::Ended(Cause::BetweenRequests, _)) => {
                self.timelines.ended_before(thread, group.until_ns)
            }
            _ => None,
        };
        let after = after.map(|span| After {
            request_id: span.id,
            request: self.names.request(span.of.request_type),
            label: label_text(&span.label),
        });
        let (whose, tid, request_id) = self.doer(whose);
        let woken_from = match group.woken_from {
            Some((from, _)) => self.naming.user_frames(from.space, from.user_stack),
            None => Vec::new(),
        };
        Part {
            whose,
            tid,
            request_id,
            after,
            what,
            woken_from,
            ns: group.ns,
            parts: self.named(inner),
        }
    }

    /// A culprit by name, its thread and its request.
    fn doer(&self, culprit: Culprit) -> (CulpritName, u32, u64) {
        let mut name = CulpritName {
            kind: culprit.kind(),
            ..CulpritName::default()
        };
        match culprit {
            Culprit::Request(thread, index, begin_ns) => {
                name.request = self.names.request(index);
                let of = RequestOf {
                    begin_ns,
                    request_type: index,
                };
                name.label = label_text(self.timelines.label(thread, of));
                let id = self.timelines.request_id(thread, of);
                (name, thread.tid, id)
            }
            Culprit::Thread(thread) => {
                name.comm = self.naming.comm(thread);
                (name, thread.tid, 0)
            }
            Culprit::Peer(peer) => {
                name.comm = reqtrace_base::plain::Plain::of(&peer.to_string());
                (name, 0, 0)
            }
            Culprit::OwnInterrupt | Culprit::Itself | Culprit::Unknown => (name, 0, 0),
        }
    }
}
