//! A service: the processes that its rule wants, in; a session that has them, begun again when it fails, out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use log::{debug, info, warn};
use reqtrace_base::error::Error;
use reqtrace_capture::tracer::Answer;

use crate::memory::Held;
use crate::metrics::Target;
use crate::processes::{File, Id, Seen};
use crate::session::{Ended, Session, Spec};
use crate::sink::Outputs;

/// A session that has failed is tried again after this, then after twice as long, and so on.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(3_600);
/// One that took too much is tried again after this, then after twice as long, and so on.
const FIRST_REST: Duration = Duration::from_secs(3_600);
const LONGEST_REST: Duration = Duration::from_secs(24 * 3_600);

/// One service.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) spec: Spec,
    session: Option<Session>,
    /// Processes that the session was given, and what they run.
    members: BTreeMap<Id, File>,
    /// Processes that it refused.
    refused: BTreeSet<Id>,
    /// Processes that run its program, about which another rule decides.
    foreign: BTreeSet<Id>,
    pause: Duration,
    not_before: Option<Instant>,
    /// When its session began.
    begun: Instant,
    /// How long it is left alone when tracing it took too much.
    rest: Duration,
    /// It ends for the bound of `memory`: why, for people.
    gives_way: Option<String>,
}

impl Service {
    pub(crate) fn new(spec: Spec) -> Self {
        Self {
            spec,
            session: None,
            members: BTreeMap::new(),
            refused: BTreeSet::new(),
            foreign: BTreeSet::new(),
            pause: FIRST_PAUSE,
            not_before: None,
            begun: Instant::now(),
            rest: FIRST_REST,
            gives_way: None,
        }
    }

    /// When its session began.
    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }

    /// Whether probes are in what this process runs, so that it is traced at once, however young.
    pub(crate) fn has_probes(&self, seen: &Seen) -> bool {
        let mut files = self.members.values();
        self.session.is_some() && (self.is_of_program(seen) || files.any(|own| *own == seen.file))
    }

    /// Whether it runs the program whose processes the session traces from their first instruction on.
    fn is_of_program(&self, seen: &Seen) -> bool {
        let program = self.spec.program.as_deref();
        seen.is_host && program.is_some_and(|program| program.as_os_str() == seen.exe.as_str())
    }

    /// Traces these processes of all that are there.
    pub(crate) fn follow(
        &mut self,
        wanted: &BTreeMap<Id, &Seen>,
        all: &BTreeMap<Id, Seen>,
        outputs: &Outputs,
    ) {
        self.refused.retain(|id| all.contains_key(id));
        if self.session.as_ref().is_some_and(Session::is_over) {
            self.fail_or_end(outputs);
        }
        if self.session.is_none() {
            self.begin(wanted, outputs);
        } else if self.runs() {
            self.change(wanted, all);
        }
    }

    /// Whether its session has begun, and is not to end.
    pub(crate) fn runs(&mut self) -> bool {
        let session = self.session.as_mut().filter(|_| self.gives_way.is_none());
        session.is_some_and(|session| session.roster().is_some())
    }

    fn begin(&mut self, wanted: &BTreeMap<Id, &Seen>, outputs: &Outputs) {
        let is_due = self.not_before.is_none_or(|at| at <= Instant::now());
        if wanted.is_empty() || !is_due {
            return;
        }
        self.refused.clear();
        self.members = wanted.iter().map(|(id, seen)| (*id, seen.file)).collect();
        info!(
            "{}: a session begins; processes: {}",
            self.spec.service,
            wanted.len()
        );
        // A session finds their children by itself, which may leave meanwhile.
        let all: BTreeSet<u32> = wanted.keys().map(|id| id.pid).collect();
        let first = wanted
            .iter()
            .filter(|(_, seen)| !all.contains(&seen.parent));
        let pids = first.map(|(id, _)| id.pid).collect();
        match Session::begin(&self.spec, pids, outputs) {
            Ok(session) => {
                self.session = Some(session);
                self.begun = Instant::now();
            }
            Err(error) => self.failed(&error),
        }
    }

    /// Tells a session that runs who has come, and who is not to be traced any more.
    fn change(&mut self, wanted: &BTreeMap<Id, &Seen>, all: &BTreeMap<Id, Seen>) {
        // Whoever runs the program is traced before a rule was asked.
        self.foreign
            .retain(|id| all.contains_key(id) && !wanted.contains_key(id));
        let is_foreign = |(id, seen): &(&Id, &Seen)| {
            !wanted.contains_key(id) && !self.foreign.contains(id) && self.is_of_program(seen)
        };
        let foreign: Vec<Id> = all.iter().filter(is_foreign).map(|(id, _)| *id).collect();
        self.foreign.extend(&foreign);
        let service = &self.spec.service;
        let Some(roster) = self.session.as_mut().and_then(Session::roster) else {
            return;
        };
        // It has begun.
        self.pause = FIRST_PAUSE;
        // The session notices by itself who has left.
        self.members.retain(|id, _| all.contains_key(id));
        let gone: Vec<Id> = self
            .members
            .extract_if(.., |id, _| !wanted.contains_key(id))
            .map(|(id, _)| id)
            .collect();
        let outs = gone.iter().chain(&foreign);
        let outs: Vec<(Id, Answer)> = outs.map(|id| (*id, roster.remove(id.pid))).collect();
        let come = wanted
            .iter()
            .filter(|(id, _)| !self.members.contains_key(id) && !self.refused.contains(id));
        let ins: Vec<(Id, File, Answer)> = come
            .map(|(id, seen)| (*id, seen.file, roster.add(id.pid)))
            .collect();
        for (id, answer) in outs {
            match answer.wait() {
                Ok(()) => info!("{service}: process {} is not traced any more", id.pid),
                // It has left, or was never traced.
                Err(error) => debug!("{service}: {error}"),
            }
        }
        for (id, file, answer) in ins {
            match answer.wait() {
                Ok(()) => info!("{service}: process {} is traced", id.pid),
                Err(error) if error.to_string().ends_with("is traced already") => {
                    debug!("{service}: {error}");
                }
                // It has left meanwhile.
                Err(error) if error.to_string().ends_with("is not there") => continue,
                Err(error) => {
                    warn!("{service}: process {} is not traced: {error}", id.pid);
                    self.refused.insert(id);
                    continue;
                }
            }
            self.members.insert(id, file);
        }
    }

    /// What becomes of each process that its rule wants.
    pub(crate) fn states(&mut self, wanted: &BTreeMap<Id, &Seen>) -> Vec<Target> {
        let runs = self.runs();
        let has_failed = self.session.is_none() && self.not_before.is_some();
        let state = |id: &Id| match () {
            () if has_failed || self.refused.contains(id) => Target::Refused,
            () if runs && self.members.contains_key(id) => Target::Traced,
            () => Target::Waiting,
        };
        wanted.keys().map(state).collect()
    }

    /// The session has ended by itself.
    fn fail_or_end(&mut self, outputs: &Outputs) {
        self.members.clear();
        let ended = self.session.take().map(Session::wait);
        match (ended, self.gives_way.take()) {
            (Some(Err(error)), _) => self.failed(&error),
            (Some(Ok(Ended::Dear)), _) => self.leave_alone(
                &format!(
                    "tracing one window in 16 takes more than its max-cost of {} %",
                    self.spec.max_cost.percent()
                ),
                "a profile with fewer probes, or a higher max-cost, lets it be traced",
            ),
            (Some(Ok(Ended::Stopped)), Some(why)) => {
                outputs.metrics.ended(&self.spec.service, false, true);
                self.leave_alone(&why, "a larger memory, or fewer rules, lets it be traced");
            }
            (Some(Ok(Ended::Stopped)) | None, _) => {}
        }
    }

    /// The agent holds more than `memory` allows.
    pub(crate) fn give_way(&mut self, held: Held, bound: u64) {
        let mb = |bytes: u64| bytes.div_ceil(1 << 20);
        self.gives_way = Some(format!(
            "the agent held {} MB, {} MB of them the kernel's tables, and memory allows {} MB",
            mb(held.all()),
            mb(held.tables),
            mb(bound)
        ));
        self.stop();
    }

    /// Whether its session ends now for the bound of `memory`.
    pub(crate) fn gives_way(&self) -> bool {
        self.gives_way.is_some()
    }

    /// There is room for a session now: one that is left alone may begin.
    pub(crate) fn may_begin(&mut self) {
        (self.not_before, self.rest) = (None, FIRST_REST);
    }

    /// It cannot be traced as things are.
    fn leave_alone(&mut self, why: &str, next: &str) {
        if self.begun.elapsed() > self.rest {
            self.rest = FIRST_REST;
        }
        warn!(
            "{}: not traced: {why}; it is tried again in {} h; {next}",
            self.spec.service,
            self.rest.as_secs() / 3_600
        );
        self.not_before = Some(Instant::now() + self.rest);
        self.rest = (self.rest * 2).min(LONGEST_REST);
    }

    fn failed(&mut self, error: &Error) {
        let because = std::error::Error::source(error)
            .map_or_else(String::new, |cause| format!(", because {cause}"));
        let advice = error
            .advice()
            .map_or_else(String::new, |next| format!("; {next}"));
        warn!(
            "{}: not traced: {error}{because}{advice}; it is tried again in {} s",
            self.spec.service,
            self.pause.as_secs()
        );
        self.not_before = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Tells its session to end.
    pub(crate) fn stop(&mut self) {
        if let Some(session) = &mut self.session {
            session.stop();
        }
    }

    /// Waits until its session has ended.
    pub(crate) fn wait(mut self) {
        if let Some(session) = self.session.take()
            && let Err(error) = session.wait()
        {
            warn!("{}: {error}", self.spec.service);
        }
    }
}
