//! Metrics: closed windows and what is known of sessions in; one snapshot for each reader out.
//!
//! Nothing that counts ever decreases while the agent lives, also when a service is taken out and comes back. What a
//! service has is shown while it is traced, and a minute longer, so that its last windows are read.

mod durations;
mod encode;
mod encoder;
mod groups;
mod latencies;
mod native;
mod of_profiles;
mod of_records;
mod of_rows;
mod of_spans;
mod of_type;
mod protobuf;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use encode::Format;
#[cfg(feature = "ship")]
pub(crate) use encoder::{Encoder, Label, text_of};
pub(crate) use groups::label;
pub(crate) use latencies::{durations, grid};
pub(crate) use of_records::OfRecords;
pub(crate) use of_type::{Closed, Exemplar, Shown, parts};
use reqtrace_capture::attach::guard::Shed;
use serde::{Deserialize, Serialize};

use of_profiles::OfProfiles;
use of_rows::OfRows;
use of_spans::OfSpans;
use of_type::OfType;

use crate::memory::Held;

/// Request types of all services; what comes later is [`OTHER`] of its service.
const MAX_TYPES: usize = 200;
/// Groups of all services that are distinguished; later ones are [`OTHER`] of their type.
const MAX_GROUPS: usize = 2_000;
/// The request type, and the group, of those beyond that.
pub(crate) use reqtrace_output::rollups::OTHER;
/// A service is shown for so long when none of its processes is traced any more.
const SHOWN: Duration = Duration::from_secs(60);

/// Causes of losses by which figures lack requests: the alert on losses is about these.
const LOSES_REQUESTS: [&str; 7] = [
    "ring_full",
    "thread_table_full",
    "thread_insert",
    "process_table_full",
    "key_table_full",
    "parked_table_full",
    reqtrace_recording::losses::MALFORMED,
];

/// What becomes of a process that a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    Traced,
    /// It is too young, or its session begins.
    Waiting,
    /// It, or its session, was refused.
    Refused,
}

impl Target {
    const ALL: [Self; 3] = [Self::Traced, Self::Waiting, Self::Refused];

    const fn name(self) -> &'static str {
        match self {
            Self::Traced => "traced",
            Self::Waiting => "waiting",
            Self::Refused => "refused",
        }
    }
}

/// All metrics.
#[derive(Debug, Default)]
pub(crate) struct Metrics(Mutex<State>);

/// All figures at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    services: BTreeMap<String, Service>,
    targets: BTreeMap<Target, u64>,
    /// Whether the last reload of the configuration was accepted.
    reload_failed: bool,
    /// Reloads that were accepted, and refused.
    reloads: [u64; 2],
    /// Memory, and its bound.
    held: Option<(Held, u64)>,
    /// Connections that found no room.
    turned_away: u64,
    /// `None`: no rows are kept.
    rows: Option<OfRows>,
    /// `None`: there are no roll-ups.
    rollups: Option<OfRecords>,
    /// `None`: no spans are sent.
    spans: Option<OfSpans>,
    /// `None`: no profiles are made.
    profiles: Option<OfProfiles>,
    /// Processes of the agent; none are shown where there is one that traces nothing.
    processes: Vec<Process>,
}

/// A process of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    /// The label `process`.
    pub(crate) name: String,
    /// The number of its user.
    pub(crate) user: u32,
    /// Names of its effective capabilities.
    pub(crate) capabilities: Vec<String>,
    /// It can get no others.
    pub(crate) no_new_privileges: bool,
    pub(crate) resident_bytes: u64,
}

/// What the worker has counted of the ways that end in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OfWorker {
    process: Process,
    turned_away: u64,
    rows: Option<OfRows>,
    rollups: Option<OfRecords>,
    spans: Option<OfSpans>,
    profiles: Option<OfProfiles>,
}

/// One service.
#[derive(Clone, Debug, Default)]
struct Service {
    /// A rule of the configuration traces it.
    is_wanted: bool,
    /// Processes that are traced.
    traced: u64,
    /// When there was one at last.
    seen: Option<Instant>,
    slo_ns: Option<u64>,
    types: BTreeMap<String, OfType>,
    lost: BTreeMap<String, u64>,
    open: u64,
    oldest_ns: u64,
    /// Share of its CPU time that tracing takes, at most.
    cost: Option<f64>,
    /// What is left out because of that.
    shed: Shed,
    /// Begin of the first window that is not in the figures, ns since the Unix epoch.
    until_unix_ns: u64,
    failures: u64,
}

impl Service {
    fn is_shown(&self) -> bool {
        self.seen.is_some_and(|seen| seen.elapsed() < SHOWN)
    }
}

impl Metrics {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one addition after the other: a panic between them leaves sums that are still true.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of<T>(&self, service: &str, change: impl FnOnce(&mut Service) -> T) -> T {
        let mut state = self.state();
        change(state.services.entry(service.to_owned()).or_default())
    }

    /// These services are traced from now on, each with the latency beyond which a request is slow.
    pub(crate) fn want(&self, services: &BTreeMap<String, Option<Duration>>) {
        let mut state = self.state();
        for service in state.services.values_mut() {
            service.is_wanted = false;
        }
        for (name, slo) in services {
            let service = state.services.entry(name.clone()).or_default();
            service.is_wanted = true;
            service.slo_ns = slo.map(|slo| u64::try_from(slo.as_nanos()).unwrap_or(u64::MAX));
            if let Some(slo_ns) = service.slo_ns {
                let types = service.types.values_mut();
                types.for_each(|of_type| of_type.add_edge(slo_ns));
            }
        }
    }

    /// A session of a service has these request types. All that is known of them is shown from now on, and that nothing was lost:
    /// readers see nothing of what a counter has when it is shown for the first time.
    pub(crate) fn begin(&self, service: &str, types: &[String], shown: &Shown<'_>) {
        let mut state = self.state();
        let of = state.services.entry(service.to_owned()).or_default();
        for cause in LOSES_REQUESTS {
            of.lost.entry(cause.to_owned()).or_default();
        }
        for name in types {
            let of_type = state.of_type(service, name);
            of_type.begin(shown);
        }
    }

    /// A window of a service is closed, of which so many groups are distinguished.
    pub(crate) fn closed<'a>(
        &self,
        service: &str,
        until_unix_ns: u64,
        most_groups: usize,
        windows: impl IntoIterator<Item = (&'a String, &'a Closed)>,
    ) {
        let mut state = self.state();
        for (name, closed) in windows {
            let slo_ns = state.services.get(service).and_then(|of| of.slo_ns);
            let room = state.room_for_groups(service, most_groups);
            state.of_type(service, name).add(closed, slo_ns, room);
        }
        if let Some(of) = state.services.get_mut(service) {
            // The clock may have been set back.
            of.until_unix_ns = until_unix_ns;
        }
    }

    /// These requests of a service have a row; each with its type.
    pub(crate) fn exemplars<'a>(
        &self,
        service: &str,
        requests: impl IntoIterator<Item = (&'a str, Exemplar)>,
    ) {
        let mut state = self.state();
        for (name, exemplar) in requests {
            state.of_type(service, name).show(exemplar);
        }
    }

    /// Something of a service was lost.
    pub(crate) fn lost(&self, service: &str, cause: &str, count: u64) {
        self.of(service, |of| {
            *of.lost.entry(cause.to_owned()).or_default() += count;
        });
    }

    /// Requests of a service are open now, the first since so long.
    pub(crate) fn open(&self, service: &str, open: u64, oldest_ns: u64) {
        self.of(service, |of| (of.open, of.oldest_ns) = (open, oldest_ns));
    }

    /// Tracing takes so much of a service's CPU time now.
    pub(crate) fn cost(&self, service: &str, share: f64) {
        self.of(service, |of| of.cost = Some(share));
    }

    /// So much is left out of a service now.
    pub(crate) fn shed(&self, service: &str, shed: Shed) {
        self.of(service, |of| of.shed = shed);
    }

    /// The session of a service has ended, because it was too dear or not; nothing of what is now is known.
    pub(crate) fn ended(&self, service: &str, has_failed: bool, is_dear: bool) {
        self.of(service, |of| {
            (of.open, of.oldest_ns, of.cost) = (0, 0, None);
            of.failures += u64::from(has_failed);
            of.shed = if is_dear { Shed::All } else { Shed::Nothing };
        });
    }

    /// So many processes of each service are traced, and so many are in each state.
    pub(crate) fn targets(&self, traced: &BTreeMap<&str, u64>, targets: BTreeMap<Target, u64>) {
        let mut state = self.state();
        for (name, of) in &mut state.services {
            of.traced = traced.get(name.as_str()).copied().unwrap_or(0);
            if of.traced > 0 {
                of.seen = Some(Instant::now());
            }
        }
        state.targets = targets;
    }

    /// So much is held, and so much may be.
    pub(crate) fn holds(&self, held: Held, bound: u64) {
        self.state().held = Some((held, bound));
    }

    /// The configuration was read again.
    pub(crate) fn reloaded(&self, is_accepted: bool) {
        let mut state = self.state();
        state.reload_failed = !is_accepted;
        state.reloads[usize::from(!is_accepted)] += 1;
    }

    /// A connection was closed at once.
    pub(crate) fn turned_away(&self) {
        self.state().turned_away += 1;
    }

    /// Something has happened to rows; they are shown from the first time on.
    pub(crate) fn rows(&self, change: impl FnOnce(&mut OfRows)) {
        change(self.state().rows.get_or_insert_default());
    }

    /// Something has happened to roll-ups; they are shown from the first time on.
    pub(crate) fn rollups(&self, change: impl FnOnce(&mut OfRecords)) {
        change(self.state().rollups.get_or_insert_default());
    }

    /// Something has happened to spans; they are shown from the first time on.
    pub(crate) fn spans(&self, change: impl FnOnce(&mut OfSpans)) {
        change(self.state().spans.get_or_insert_default());
    }

    /// Something has happened to profiles; they are shown from the first time on.
    pub(crate) fn profiles(&self, change: impl FnOnce(&mut OfProfiles)) {
        change(self.state().profiles.get_or_insert_default());
    }

    /// The latency above which a request of this service is slow.
    pub(crate) fn slo_ns(&self, service: &str) -> Option<u64> {
        self.state().services.get(service)?.slo_ns
    }

    fn snapshot(&self) -> State {
        self.state().clone()
    }

    /// What this worker has counted.
    pub(crate) fn of_worker(&self, process: Process) -> OfWorker {
        let state = self.state();
        OfWorker {
            process,
            turned_away: state.turned_away,
            rows: state.rows.clone(),
            rollups: state.rollups.clone(),
            spans: state.spans.clone(),
            profiles: state.profiles.clone(),
        }
    }

    /// All figures, with those of the worker and of the process that traces.
    fn snapshot_with(&self, of: &OfWorker, own: Vec<Process>) -> State {
        let mut all = self.snapshot();
        all.turned_away = all.turned_away.saturating_add(of.turned_away);
        if let Some(rows) = &of.rows {
            all.rows.get_or_insert_default().add(rows);
        }
        if let Some(rollups) = &of.rollups {
            all.rollups.get_or_insert_default().add(rollups);
        }
        if let Some(spans) = &of.spans {
            all.spans.get_or_insert_default().add(spans);
        }
        if let Some(profiles) = &of.profiles {
            all.profiles.get_or_insert_default().add(profiles);
        }
        all.processes = own;
        all.processes.push(of.process.clone());
        all
    }
}

impl State {
    /// How many groups more a service may have that has `most` at most.
    fn room_for_groups(&self, service: &str, most: usize) -> usize {
        let of = |service: &Service| {
            service
                .types
                .values()
                .map(OfType::groups_len)
                .sum::<usize>()
        };
        let all: usize = self.services.values().map(of).sum();
        let own = self.services.get(service).map_or(0, of);
        let room = MAX_GROUPS.saturating_sub(all);
        room.min(most.saturating_sub(own))
    }

    fn of_type(&mut self, service: &str, name: &str) -> &mut OfType {
        let count: usize = self.services.values().map(|of| of.types.len()).sum();
        let of = self.services.entry(service.to_owned()).or_default();
        let has_room = count < MAX_TYPES || of.types.contains_key(name);
        let name = if has_room { name } else { OTHER };
        let slo_ns = of.slo_ns;
        of.types
            .entry(name.to_owned())
            .or_insert_with(|| OfType::new(slo_ns))
    }
}

#[cfg(test)]
mod tests;
