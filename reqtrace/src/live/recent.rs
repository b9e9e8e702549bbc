//! What happened lately: requests in as they end, rates and the slowest of the last seconds out. Times, percentiles and
//! statements are the model's.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use reqtrace_analysis::aggregate::{Aggregator, PlaceNow, TypeNow};
use reqtrace_analysis::report::blame::{Cause, Causes};
use reqtrace_analysis::report::{Ledger, Places};
use reqtrace_base::plain::Plain;
use reqtrace_capture::attach::Running;
use reqtrace_recording::Request;

use super::snapshot::{SlowRequest, StatementLine, TypeLine};

/// Seconds that percentiles, rates and ledgers are of.
const LATELY: u64 = 10;
/// Seconds of the line of rates, and of statements.
const MINUTE: usize = 60;
/// Statements that a screen is given.
const MAX_STATEMENTS: usize = 100;
/// The name of all others.
const OTHERS: &str = "[other statements]";
/// The slowest requests that are kept.
const MAX_SLOWEST: usize = 50;
/// Those of a second.
const MAX_OF_SECOND: usize = 20;
/// How long they are.
const FORGET: Duration = Duration::from_secs(60);

/// All types.
#[derive(Default)]
pub(super) struct Recent {
    /// In profile order.
    types: Vec<OfType>,
    slowest: Vec<(Instant, SlowRequest)>,
    /// The slowest of this second, and of the last one.
    seconds: [Vec<SlowRequest>; 2],
    /// A request that is not slower than this is none of them.
    least_ns: u64,
    /// Names of wait classes.
    classes: Vec<String>,
    /// Where requests are while no thread runs them.
    places: Places,
}

#[derive(Default)]
struct OfType {
    now: TypeNow,
    /// Requests of each second.
    rates: VecDeque<u64>,
}

impl OfType {
    fn turn(&mut self, now: TypeNow) {
        if self.rates.len() == MINUTE {
            self.rates.pop_front();
        }
        self.rates.push_back(now.complete - self.now.complete);
        self.now = now;
    }
}

impl Recent {
    /// Takes a request that has ended.
    pub(super) fn request(&mut self, request: &Request<'_>, model: &Aggregator) {
        // The model has refused types that the profile does not have.
        if request.incomplete.is_some() || model.request_name(request).is_empty() {
            return;
        }
        let latency_ns = request.latency_ns();
        if self.classes.is_empty() {
            self.classes = model.classes();
            self.places = model.places().clone();
        }
        let [second, _] = &self.seconds;
        let is_of_second = second.len() < MAX_OF_SECOND
            || second
                .last()
                .is_some_and(|last| last.latency_ns < latency_ns);
        let is_slow = latency_ns > self.least_ns;
        if is_slow || is_of_second {
            let one = self.named(request, model);
            if is_of_second {
                let [second, _] = &mut self.seconds;
                let at = second.partition_point(|other| other.latency_ns >= latency_ns);
                second.insert(at, one.clone());
                second.truncate(MAX_OF_SECOND);
            }
            if is_slow {
                self.slow(one);
            }
        }
    }

    fn named(&self, request: &Request<'_>, model: &Aggregator) -> SlowRequest {
        let parts = parts(&model.ledger(request), &self.classes, &self.places);
        let mostly = parts.into_iter().next();
        let longest = request
            .longest
            .first()
            .map(|block| model.place_now(request, &block.site));
        let is_there = |place: &PlaceNow| {
            let mostly = mostly.as_ref();
            mostly.is_some_and(|(name, _)| *name == place.class)
        };
        SlowRequest {
            request: model.request_name(request).to_owned(),
            tid: request.tid,
            label: model.label(request),
            latency_ns: request.latency_ns(),
            place: longest
                .filter(is_there)
                .map_or_else(String::new, |place| place.short),
            mostly,
            ago: Duration::ZERO,
        }
    }

    fn slow(&mut self, slow: SlowRequest) {
        self.slowest.push((Instant::now(), slow));
        self.slowest
            .sort_by_key(|(_, slow)| std::cmp::Reverse(slow.latency_ns));
        self.slowest.truncate(MAX_SLOWEST);
        if self.slowest.len() == MAX_SLOWEST {
            let last = self.slowest.last();
            self.least_ns = last.map_or(0, |(_, slow)| slow.latency_ns);
        }
    }

    /// A second is over.
    pub(super) fn turn(&mut self, now: Instant, model: &Aggregator) {
        let types = model.types_now(LATELY);
        self.types.resize_with(types.len(), OfType::default);
        for (of_type, now) in self.types.iter_mut().zip(types) {
            of_type.turn(now);
        }
        let [this, last] = &mut self.seconds;
        *last = std::mem::take(this);
        self.slowest
            .retain(|(ended, _)| now.duration_since(*ended) < FORGET);
        if self.slowest.len() < MAX_SLOWEST {
            self.least_ns = 0;
        }
    }

    /// Each type, in profile order.
    pub(super) fn types(&self, running: &[Running]) -> Vec<TypeLine> {
        let lines = self.types.iter().enumerate();
        lines
            .map(|(index, OfType { now, rates })| {
                let is_this =
                    |running: &&Running| running.open.request.request_type as usize == index;
                let latency = now.latency.as_ref();
                TypeLine {
                    name: now.name.clone(),
                    complete: now.complete,
                    per_second: now.per_second,
                    latency: latency.map(|of| [of.p50_ns, of.p99_ns, of.max_ns]),
                    running: running.iter().filter(is_this).count(),
                    rates: rates.iter().copied().collect(),
                    latency_ns: now.ledger.latency_ns,
                    ledger: parts(&now.ledger, &self.classes, &self.places),
                    causes: now.causes.as_ref().map(roots),
                }
            })
            .collect()
    }

    /// Statements of the last minute, those with the most time first.
    pub(super) fn statements(&self, model: &Aggregator) -> Vec<StatementLine> {
        let statements = model.statements_now(MINUTE as u64).into_iter();
        statements
            .take(MAX_STATEMENTS)
            .map(|now| StatementLine {
                request: now.request,
                statement: now.statement.unwrap_or_else(|| Plain::of(OTHERS)),
                count: now.count,
                latency_ns: now.ledger.latency_ns,
                max_ns: now.max_ns,
                parts: parts(&now.ledger, &self.classes, &self.places),
            })
            .collect()
    }

    /// The slowest requests of the last second.
    pub(super) fn ended(&self) -> Vec<SlowRequest> {
        let [_, last] = &self.seconds;
        last.clone()
    }

    /// The slowest requests of the last minute.
    pub(super) fn slowest(&self, now: Instant) -> Vec<SlowRequest> {
        let slowest = self.slowest.iter().map(|(ended, slow)| SlowRequest {
            ago: now.duration_since(*ended),
            ..slow.clone()
        });
        slowest.collect()
    }
}

/// Parts of a ledger that are not 0, the most time first.
fn parts(ledger: &Ledger, classes: &[String], places: &Places) -> Vec<(String, u64)> {
    let fixed = [
        ("on CPU", ledger.on_cpu_ns),
        ("run queue", ledger.run_queue_ns),
        ("preempted", ledger.preempted_ns),
        ("unattributed", ledger.unattributed_ns),
    ];
    let fixed = fixed.into_iter().map(|(name, ns)| (name.to_owned(), ns));
    let blocked = classes.iter().cloned().zip(ledger.classes.iter().copied());
    most_first(fixed.chain(blocked).chain(places.times(ledger)))
}

fn roots(causes: &Causes) -> Vec<(&'static str, u64)> {
    most_first(
        Cause::ALL
            .into_iter()
            .map(|cause| (cause.words(), causes.get(cause))),
    )
}

fn most_first<T>(all: impl Iterator<Item = (T, u64)>) -> Vec<(T, u64)> {
    let mut there: Vec<_> = all.filter(|(_, ns)| *ns > 0).collect();
    there.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    there
}
