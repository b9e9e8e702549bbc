//! Off-CPU time by stack and period: complete requests in; of each period that is over, the stacks of each request type out.
//!
//! A request belongs to the second of its end, as in the cells, and that to the period in which it begins by the wall clock.
//! What is added up are the parts of its ledger: so a period's stacks have the time that its cells have, to the nanosecond.
//! Stacks are kept by id while they may change their names, and by name from then on. There is room for so many of a period:
//! beyond it those with the least time lose their frames, never their time.

use std::collections::BTreeMap;
use std::sync::Arc;

use reqtrace_common::record::{STACK_LOST, STACK_NONE, StackId};
use reqtrace_recording::{AddressSpace, Request};
use rustc_hash::FxHashMap;

use super::Aggregator;
use super::places::{Spot, Spots};
use super::sites::Sites;
use super::stacks::{LineKey, LineSum, Lines};
use crate::error::Result;
use crate::report::{Exporter, Ledger, STACK_NOT_TAKEN, StackKind, StacksRow};

/// Stacks of a period that are distinguished, and the bytes of their text.
const MAX_LINES: usize = 4096;
const MAX_BYTES: usize = 16 << 20;
/// Stacks that are kept by id, of all seconds that are not over.
const MAX_UNNAMED: usize = 8192;
/// Periods that nobody has taken; later ones are added to the last.
const MAX_PERIODS: usize = 4;

/// Periods that have not been taken.
#[derive(Debug)]
pub(super) struct StacksByPeriod {
    every_ns: u64,
    types: usize,
    /// Seconds whose cells are not sealed, by their begin.
    seconds: BTreeMap<u64, Stretch>,
    /// Stacks in them that have no names yet.
    unnamed: usize,
    /// By their begin, ns since the Unix epoch.
    periods: BTreeMap<u64, Stretch>,
}

/// A stretch of time.
#[derive(Debug)]
struct Stretch {
    by_id: FxHashMap<Key, LineSum>,
    lines: Lines,
    totals: Vec<Totals>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    recorded: u64,
    requests: u64,
    incomplete: u64,
    latency_ns: u64,
    on_cpu_ns: u64,
}

/// What time is distinguished by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    request_type: u32,
    space: AddressSpace,
    user: StackId,
    kernel: StackId,
    kind: StackKind,
    class: Option<usize>,
}

impl Stretch {
    fn new(types: usize) -> Self {
        Self {
            by_id: FxHashMap::default(),
            lines: Lines::bounded(MAX_LINES, MAX_BYTES),
            totals: vec![Totals::default(); types],
        }
    }

    fn merge(&mut self, mut other: Self, sites: &mut Sites, spots: &Spots) {
        other.name(sites, spots);
        self.lines.merge(sites, &other.lines);
        for (sum, more) in self.totals.iter_mut().zip(&other.totals) {
            sum.recorded += more.recorded;
            sum.requests += more.requests;
            sum.incomplete += more.incomplete;
            sum.latency_ns += more.latency_ns;
            sum.on_cpu_ns += more.on_cpu_ns;
        }
    }

    /// Gives what is kept by id its names.
    fn name(&mut self, sites: &mut Sites, spots: &Spots) {
        let mut sums: Vec<_> = std::mem::take(&mut self.by_id).into_iter().collect();
        // Which lose their frames, where there are too many, does not depend on a hash.
        sums.sort_unstable_by_key(|(key, _)| {
            let stacks = (key.kernel, key.user, key.class, key.kind);
            let space = (key.space.tgid, key.space.exec_generation);
            (key.request_type, space, stacks)
        });
        for (key, sum) in sums {
            let comm = sites.processes.comm(key.space.tgid);
            let mut user = sites.texts(Some(key.space), key.user);
            let kernel = sites.texts(None, key.kernel);
            // A thread that is blocked has a stack in the kernel, if anybody looks.
            let has_stack = (key.user, key.kernel) != (STACK_NONE, STACK_NONE);
            let place = match key.kind {
                StackKind::Blocked if !has_stack => Some(STACK_NOT_TAKEN.to_owned()),
                StackKind::Parked => key.class.map(|place| in_words(spots, Spot::Parked(place))),
                StackKind::Queued => key.class.map(|place| in_words(spots, Spot::Queued(place))),
                _ => None,
            };
            user.extend(place.map(|place| sites.number(&place)));
            let line = LineKey {
                comm: sites.number(&comm),
                request_type: key.request_type,
                user: user.into(),
                kernel: kernel.into(),
                kind: key.kind,
                class: key.class,
            };
            self.lines.add_one(sites, line, sum);
        }
    }
}

fn in_words(spots: &Spots, spot: Spot) -> String {
    format!("[{}]", spots.words(spot))
}

impl StacksByPeriod {
    pub(super) fn new(every_ns: u64, types: usize) -> Self {
        Self {
            every_ns: every_ns.max(1),
            types,
            seconds: BTreeMap::new(),
            unnamed: 0,
            periods: BTreeMap::new(),
        }
    }

    /// Takes a request that is counted in the cells of this second.
    pub(super) fn add(
        &mut self,
        second_ns: u64,
        request: &Request<'_>,
        ledger: &Ledger,
        sites: &mut Sites,
        spots: &Spots,
    ) {
        let types = self.types;
        let second = self.seconds.entry(second_ns);
        let second = second.or_insert_with(|| Stretch::new(types));
        let weight = u64::from(request.weight);
        let Some(totals) = second.totals.get_mut(request.request_type as usize) else {
            return;
        };
        if request.incomplete.is_some() {
            totals.incomplete += weight;
            return;
        }
        totals.recorded += 1;
        totals.requests += weight;
        totals.latency_ns += ledger.latency_ns * weight;
        totals.on_cpu_ns += ledger.on_cpu_ns * weight;
        let before = second.by_id.len();
        let nowhere = Key {
            request_type: request.request_type,
            space: request.space,
            user: STACK_NONE,
            kernel: STACK_NONE,
            kind: StackKind::Blocked,
            class: None,
        };
        let mut add = |key: Key, ns: u64| {
            if ns > 0 {
                let sum = second.by_id.entry(key).or_insert(LineSum::ZERO);
                sum.ns += ns * weight;
                sum.count += weight;
            }
        };
        for (kind, ns) in [
            (StackKind::RunQueue, ledger.run_queue_ns),
            (StackKind::Preempted, ledger.preempted_ns),
        ] {
            add(Key { kind, ..nowhere }, ns);
        }
        let mut unattributed_ns = ledger.unattributed_ns;
        for slot in request.slots {
            let site = slot.site;
            let key = Key {
                user: site.user_stack,
                kernel: site.kernel_stack,
                class: sites.class(Some(request.request_type), request.space, &site),
                ..nowhere
            };
            if key.class.is_none() {
                unattributed_ns = unattributed_ns.saturating_sub(slot.blocked_ns);
            }
            add(key, slot.blocked_ns);
        }
        let lost = Key {
            user: STACK_LOST,
            ..nowhere
        };
        add(lost, unattributed_ns);
        let mut parked = ledger.parked.clone();
        for park in request.parks {
            let Spot::Parked(place) = spots.spot(request.request_type, park.place) else {
                continue;
            };
            let Some(left) = parked.get_mut(place) else {
                continue;
            };
            let ns = park.ns.min(*left);
            *left -= ns;
            let key = Key {
                user: park.stack,
                kind: StackKind::Parked,
                class: Some(place),
                ..nowhere
            };
            add(key, ns);
        }
        for (kind, times) in [
            (StackKind::Parked, &parked),
            (StackKind::Queued, &ledger.queued),
        ] {
            for (place, ns) in times.iter().enumerate() {
                let class = Some(place);
                let key = Key {
                    kind,
                    class,
                    ..nowhere
                };
                add(key, *ns);
            }
        }
        self.unnamed += second.by_id.len() - before;
        if self.unnamed > MAX_UNNAMED {
            self.name(sites, spots);
        }
    }

    /// Gives all stacks their names: their ids do not mean the same any more.
    pub(super) fn name(&mut self, sites: &mut Sites, spots: &Spots) {
        for second in self.seconds.values_mut() {
            second.name(sites, spots);
        }
        self.unnamed = 0;
    }

    /// Nothing in the cells of this second changes any more.
    pub(super) fn seal(&mut self, second_ns: u64, unix_ns: u64, sites: &mut Sites, spots: &Spots) {
        let Some(second) = self.seconds.remove(&second_ns) else {
            return;
        };
        self.unnamed -= second.by_id.len();
        let mut begin_ns = unix_ns - unix_ns % self.every_ns;
        if self.periods.len() >= MAX_PERIODS
            && let Some((last_ns, _)) = self.periods.last_key_value()
            && !self.periods.contains_key(&begin_ns)
        {
            begin_ns = *last_ns;
        }
        let types = self.types;
        let period = self.periods.entry(begin_ns);
        let period = period.or_insert_with(|| Stretch::new(types));
        period.merge(second, sites, spots);
    }

    /// Periods that end until then, in the order of time.
    fn take(&mut self, until_unix_ns: u64) -> Vec<(u64, Stretch)> {
        let every_ns = self.every_ns;
        let is_over = |begin_ns: &u64| begin_ns.saturating_add(every_ns) <= until_unix_ns;
        let over = self.periods.extract_if(.., |begin_ns, _| is_over(begin_ns));
        over.collect()
    }
}

impl Aggregator {
    /// See [`StacksByPeriod::name`].
    pub(super) fn name_stacks(&mut self) {
        if let Some(stacks) = &mut self.stacks {
            stacks.name(self.sites.get_mut(), &self.spots);
        }
    }

    /// Hands over the stacks of periods that end until then, ns since the Unix epoch; see [`super::Options::stacks_every_ns`].
    /// Nothing that ended before may come any more: [`Aggregator::cells`] says until when windows are sealed.
    ///
    /// # Errors
    ///
    /// When an output cannot take them.
    pub fn close_stacks(
        &mut self,
        until_unix_ns: u64,
        exporters: &mut [Box<dyn Exporter>],
    ) -> Result<()> {
        let Some(stacks) = &mut self.stacks else {
            return Ok(());
        };
        let length_ns = stacks.every_ns;
        let names: Vec<String> = self.types.iter().map(|state| state.name.clone()).collect();
        for (start_unix_ns, period) in stacks.take(until_unix_ns) {
            let sites = self.sites.get_mut();
            let modules = self.modules.of(sites, &period.lines.functions());
            let mut lines = period.lines.stacks(sites, &names);
            for (name, totals) in names.iter().zip(&period.totals) {
                let stacks = lines.extract_if(.., |line| line.request == *name).collect();
                if totals.recorded == 0 {
                    continue;
                }
                let row = Arc::new(StacksRow {
                    start_unix_ns,
                    length_ns,
                    request: name.clone(),
                    recorded: totals.recorded,
                    requests: totals.requests,
                    incomplete: totals.incomplete,
                    latency_ns: totals.latency_ns,
                    on_cpu_ns: totals.on_cpu_ns,
                    stacks,
                    modules: modules.clone(),
                });
                let mut exporters = exporters.iter_mut();
                exporters.try_for_each(|exporter| exporter.stacks(&row))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
