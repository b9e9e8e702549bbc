//! What happened lately: requests in as they end, rates and percentiles of the last seconds out.
//!
//! A second of one type is a histogram with buckets of 6 %, and its memory does not grow with the load.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use reqtrace_analysis::aggregate::Aggregator;
use reqtrace_analysis::aggregate::{PlaceNow, TypeNow};
use reqtrace_common::histogram::{BUCKETS, bucket, lower_bound};
use reqtrace_recording::Request;

use super::snapshot::{SlowRequest, StatementLine, TypeLine};
use super::statements::Statements;
use reqtrace_analysis::report::blame::{Cause, Causes};
use reqtrace_analysis::report::{Ledger, Places};
use reqtrace_capture::attach::Running;

/// Seconds that percentiles, rates and ledgers are of.
const LATELY: usize = 10;
/// Seconds of the line of rates.
const MINUTE: usize = 60;
/// The slowest requests that are kept.
const MAX_SLOWEST: usize = 50;
/// How long they are.
const FORGET: Duration = Duration::from_secs(60);

/// All types.
pub(super) struct Recent {
    types: Vec<OfType>,
    /// Ends of the last seconds.
    ends: VecDeque<Instant>,
    statements: Statements,
    slowest: Vec<(Instant, SlowRequest)>,
    /// A request that is not slower than this is none of them.
    least_ns: u64,
    /// Names of wait classes.
    classes: Vec<String>,
    /// Where requests are while no thread runs them.
    places: Places,
}

struct OfType {
    now: Second,
    seconds: VecDeque<Second>,
    /// Requests of each second.
    rates: VecDeque<u64>,
    /// What the model said at the ends of the last seconds.
    said: VecDeque<TypeNow>,
}

struct Second {
    counts: Box<[u32; BUCKETS]>,
    requests: u64,
    max_ns: u64,
}

impl Second {
    fn new() -> Self {
        Self {
            counts: Box::new([0; BUCKETS]),
            requests: 0,
            max_ns: 0,
        }
    }

    fn add(&mut self, latency_ns: u64, weight: u32) {
        let count = &mut self.counts[bucket(latency_ns)];
        *count = count.saturating_add(weight);
        self.requests += u64::from(weight);
        self.max_ns = self.max_ns.max(latency_ns);
    }
}

impl OfType {
    fn new() -> Self {
        Self {
            now: Second::new(),
            seconds: VecDeque::new(),
            rates: VecDeque::new(),
            said: VecDeque::from([TypeNow::default()]),
        }
    }

    fn turn(&mut self, said: TypeNow) {
        let second = std::mem::replace(&mut self.now, Second::new());
        push(&mut self.rates, second.requests, MINUTE);
        push(&mut self.seconds, second, LATELY);
        push(&mut self.said, said, LATELY + 1);
    }

    /// Median, 99th percentile and maximum.
    fn latency(&self) -> Option<[u64; 3]> {
        let all: u64 = self.seconds.iter().map(|second| second.requests).sum();
        let max_ns = self.seconds.iter().map(|second| second.max_ns).max()?;
        if all == 0 {
            return None;
        }
        let at = |percent: u64| {
            let wanted = (all * percent).div_ceil(100).max(1);
            let mut seen = 0;
            for index in 0..BUCKETS {
                let counts = self.seconds.iter().map(|second| second.counts[index]);
                seen += counts.map(u64::from).sum::<u64>();
                if seen >= wanted && index + 1 < BUCKETS {
                    return (lower_bound(index + 1) - 1).min(max_ns);
                }
            }
            max_ns
        };
        Some([at(50), at(99), max_ns])
    }

    /// What was added since the first of the last seconds.
    fn lately(&self) -> (u64, Ledger, Option<Causes>) {
        let (Some(first), Some(last)) = (self.said.front(), self.said.back()) else {
            return (0, Ledger::default(), None);
        };
        let causes = last.causes.as_ref().map(|causes| {
            let mut new = Causes::default();
            let before = first.causes.unwrap_or_default();
            for cause in Cause::ALL {
                new.add(cause, causes.get(cause).saturating_sub(before.get(cause)));
            }
            new
        });
        let ledger = less(&last.ledger, &first.ledger);
        (last.complete, ledger, causes)
    }
}

fn push<T>(queue: &mut VecDeque<T>, value: T, most: usize) {
    if queue.len() == most {
        queue.pop_front();
    }
    queue.push_back(value);
}

fn less(all: &Ledger, before: &Ledger) -> Ledger {
    // Before the first second there were none.
    let less = |all: &[u64], before: &[u64]| -> Vec<u64> {
        let before = before.iter().copied().chain(std::iter::repeat(0));
        let both = all.iter().zip(before);
        both.map(|(ns, before)| ns.saturating_sub(before)).collect()
    };
    Ledger {
        latency_ns: all.latency_ns.saturating_sub(before.latency_ns),
        on_cpu_ns: all.on_cpu_ns.saturating_sub(before.on_cpu_ns),
        run_queue_ns: all.run_queue_ns.saturating_sub(before.run_queue_ns),
        preempted_ns: all.preempted_ns.saturating_sub(before.preempted_ns),
        unattributed_ns: all.unattributed_ns.saturating_sub(before.unattributed_ns),
        classes: less(&all.classes, &before.classes),
        parked: less(&all.parked, &before.parked),
        queued: less(&all.queued, &before.queued),
    }
}

impl Recent {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            types: Vec::new(),
            ends: VecDeque::from([now]),
            statements: Statements::new(now),
            slowest: Vec::new(),
            least_ns: 0,
            classes: Vec::new(),
            places: Places::default(),
        }
    }

    /// Takes a request that has ended.
    pub(super) fn request(&mut self, request: &Request<'_>, model: &Aggregator) {
        if request.incomplete.is_some() {
            return;
        }
        let index = request.request_type as usize;
        // The model has refused types that the profile does not have.
        if self.types.len() <= index && !model.request_name(request).is_empty() {
            self.types.resize_with(index + 1, OfType::new);
        }
        let Some(of_type) = self.types.get_mut(index) else {
            return;
        };
        let latency_ns = request.latency_ns();
        of_type.now.add(latency_ns, request.weight);
        if self.classes.is_empty() {
            self.classes = model.classes();
            self.places = model.places().clone();
        }
        self.statements.request(request, model);
        if latency_ns > self.least_ns {
            self.slow(request, model);
        }
    }

    fn slow(&mut self, request: &Request<'_>, model: &Aggregator) {
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
        let slow = SlowRequest {
            request: model.request_name(request).to_owned(),
            tid: request.tid,
            label: model.label(request),
            latency_ns: request.latency_ns(),
            place: longest
                .filter(is_there)
                .map_or_else(String::new, |place| place.short),
            mostly,
            ago: Duration::ZERO,
        };
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
        let said = model.types_now();
        self.types.resize_with(said.len(), OfType::new);
        for (of_type, said) in self.types.iter_mut().zip(said) {
            of_type.turn(said);
        }
        push(&mut self.ends, now, LATELY + 1);
        self.statements.turn(now);
        self.slowest
            .retain(|(ended, _)| now.duration_since(*ended) < FORGET);
        if self.slowest.len() < MAX_SLOWEST {
            self.least_ns = 0;
        }
    }

    /// Each type, in profile order.
    pub(super) fn types(&self, now: Instant, running: &[Running]) -> Vec<TypeLine> {
        let seconds = self
            .ends
            .front()
            .map_or(1.0, |first| now.duration_since(*first).as_secs_f64());
        let lines = self.types.iter().enumerate();
        lines
            .map(|(index, of_type)| {
                let (complete, ledger, causes) = of_type.lately();
                let requests: u64 = of_type.seconds.iter().map(|second| second.requests).sum();
                let is_this =
                    |running: &&Running| running.open.request.request_type as usize == index;
                TypeLine {
                    name: of_type
                        .said
                        .back()
                        .map_or_else(String::new, |said| said.name.clone()),
                    complete,
                    per_second: requests as f64 / seconds.max(0.001),
                    latency: of_type.latency(),
                    running: running.iter().filter(is_this).count(),
                    rates: of_type.rates.iter().copied().collect(),
                    latency_ns: ledger.latency_ns,
                    ledger: parts(&ledger, &self.classes, &self.places),
                    causes: causes.map(|causes| roots(&causes)),
                }
            })
            .collect()
    }

    /// Statements of the last minute, those with the most time first.
    pub(super) fn statements(&self) -> Vec<StatementLine> {
        let name = |request_type: u32| {
            let of_type = self.types.get(request_type as usize);
            let said = of_type.and_then(|of_type| of_type.said.back());
            said.map_or_else(String::new, |said| said.name.clone())
        };
        self.statements.lines(name, &self.classes, &self.places)
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
pub(super) fn parts(ledger: &Ledger, classes: &[String], places: &Places) -> Vec<(String, u64)> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn said(complete: u64, on_cpu_ns: u64) -> TypeNow {
        TypeNow {
            complete,
            ledger: Ledger {
                latency_ns: on_cpu_ns,
                on_cpu_ns,
                ..Ledger::default()
            },
            ..TypeNow::default()
        }
    }

    #[test]
    fn percentiles_and_ledgers_are_those_of_the_last_seconds() {
        let mut of_type = OfType::new();
        // Slow ones, long ago.
        (0..100).for_each(|_| of_type.now.add(1_000_000_000, 1));
        of_type.turn(said(100, 100));
        for second in 1..=LATELY as u64 {
            (0..99).for_each(|_| of_type.now.add(10_000, 1));
            of_type.now.add(50_000_000, 1);
            of_type.turn(said(100 + 100 * second, 100 + 7 * second));
        }
        let [p50, p99, max] = of_type.latency().unwrap();
        assert!((10_000..10_700).contains(&p50), "{p50}");
        assert!((10_000..10_700).contains(&p99), "{p99}");
        assert_eq!(max, 50_000_000);
        let (complete, ledger, causes) = of_type.lately();
        assert_eq!((complete, ledger.on_cpu_ns, causes), (1100, 70, None));
        assert_eq!(of_type.rates.len(), LATELY + 1);
    }

    #[test]
    fn nothing_lately_is_no_percentile() {
        let mut of_type = OfType::new();
        of_type.now.add(5, 1);
        (0..=LATELY).for_each(|_| of_type.turn(said(1, 5)));
        assert_eq!(of_type.latency(), None);
        assert_eq!(of_type.lately().1.latency_ns, 0);
    }
}
