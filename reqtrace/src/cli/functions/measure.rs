//! Counting: findings in, hits of the places of each match, counted while one waits, out.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use reqtrace_common::call::RETURNS;

use super::Search;
use super::find::Findings;
use crate::cli::signals;
use crate::cli::values::length;
use reqtrace_base::error::{Error, Result};
use reqtrace_base::figures::{number, range};
use reqtrace_capture::attach::count::{self, Counter, Place, Whose};
use reqtrace_capture::attach::estimate::{Kind, Rate};
use reqtrace_capture::attach::rate::{self, Watch};
use reqtrace_capture::attach::self_test;
use reqtrace_capture::kernel::{privileges, processes};
use reqtrace_capture::tracer::Stopper;
use reqtrace_resolve::returns;

/// Probes set at once. Each call of what one is on costs the program a trap.
const MAX_PLACES: usize = 512;

/// Places that cannot be probed named before the rest is only counted.
const MAX_NAMED: usize = 10;

/// How often it is looked whether counting costs too much.
const LOOK: Duration = Duration::from_millis(50);

/// One match, with the numbers of its places.
pub(super) struct Counted {
    /// Its index among all matches of the [`Plan`].
    pub(super) number: usize,
    /// Its signature, or the name of the USDT probe.
    pub(super) name: String,
    /// The object that it is in.
    pub(super) object: String,
    /// Indexes of the objects of [`Findings`], and of the functions of that one; `None`: it is a USDT
    /// probe.
    pub(super) function: Option<(usize, usize)>,
    places: Vec<usize>,
}

/// What to count.
pub(super) struct Plan {
    counted: Vec<Counted>,
    places: Vec<Place>,
    kinds: Vec<Kind>,
    /// Of each place the number of its function, and perhaps [`RETURNS`].
    functions: Vec<u32>,
}

/// What was counted.
pub(super) struct Measured {
    /// Matches that could be probed.
    pub(super) counted: Vec<Counted>,
    /// For how long.
    pub(super) elapsed: Duration,
    /// The probes, which are still set.
    pub(super) counter: Counter,
    /// Why it ended early, if counting took too much.
    pub(super) stopped: Option<Error>,
    hits: Vec<u64>,
}

/// For how long to count, and at what cost.
#[derive(Clone, Copy)]
pub(super) struct Limits<'a> {
    /// What was typed.
    pub(super) seconds: &'a str,
    /// Percent of the CPU time; 100: whatever it costs.
    pub(super) allowed: f64,
}

impl Measured {
    /// Hits of a match.
    pub(super) fn hits(&self, counted: &Counted) -> u64 {
        hits_of(counted, &self.hits)
    }
}

impl Plan {
    /// All matches.
    pub(super) fn of(findings: &Findings) -> Self {
        let mut plan = Self {
            counted: Vec::new(),
            places: Vec::new(),
            kinds: Vec::new(),
            functions: Vec::new(),
        };
        for (at, found) in findings.objects.iter().enumerate() {
            let functions = found.functions.iter().enumerate().map(|(index, function)| {
                let entries = function.bodies.iter().map(|body| body.start);
                let offsets = entries.filter_map(|entry| found.object.file_offset(entry));
                let places = offsets.map(|offset| (offset, None));
                let name = function.signature.clone();
                (name, Some((at, index)), places.collect::<BTreeSet<_>>())
            });
            let probes = found.probes.iter().map(|probe| {
                let sites = probe.sites.iter();
                let places = sites.map(|site| (site.file_offset, site.semaphore));
                (probe.full_name(), None, places.collect())
            });
            for (name, function, of_match) in functions.chain(probes) {
                if of_match.is_empty() {
                    continue;
                }
                let first = plan.places.len();
                let offsets = of_match.iter().map(|(offset, _)| *offset);
                plan.kinds
                    .extend(offsets.map(|offset| rate::kind(found.object.instruction_at(offset))));
                plan.places
                    .extend(of_match.into_iter().map(|(file_offset, semaphore)| Place {
                        object: found.file.open.clone(),
                        file_offset,
                        semaphore,
                        on_return: false,
                    }));
                let number = plan.counted.len();
                plan.functions.resize(plan.places.len(), number as u32);
                plan.counted.push(Counted {
                    number,
                    name,
                    object: found.file.shown.clone(),
                    function,
                    places: (first..plan.places.len()).collect(),
                });
            }
        }
        plan
    }

    /// The functions alone: a USDT probe has no arguments that are known. And where they return, if that is not
    /// too much.
    pub(super) fn of_functions(findings: &Findings) -> Self {
        let mut plan = Self::of(findings);
        plan.counted.retain(|one| one.function.is_some());
        let kept: Vec<usize> = plan
            .counted
            .iter()
            .flat_map(|one| one.places.clone())
            .collect();
        plan.places = kept.iter().map(|&at| plan.places[at].clone()).collect();
        plan.kinds = kept.iter().map(|&at| plan.kinds[at]).collect();
        plan.functions.clear();
        let mut first = 0;
        for (number, one) in plan.counted.iter_mut().enumerate() {
            one.number = number;
            let next = first + one.places.len();
            one.places = (first..next).collect();
            plan.functions.resize(next, number as u32);
            first = next;
        }
        plan
    }

    /// Adds the instructions by which the functions return. Whether there was room for them.
    pub(super) fn add_returns(&mut self, findings: &Findings) -> bool {
        let mut returns = BTreeSet::new();
        for one in &self.counted {
            let Some((at, index)) = one.function else {
                continue;
            };
            let found = &findings.objects[at];
            for body in &found.functions[index].bodies {
                let sites = returns::exits(&found.object, body, false).sites;
                let own = sites.into_iter().filter_map(|(address, _)| {
                    let (name, _) = returns::instruction_at(&found.object, address)?;
                    let offset = found.object.file_offset(address)?;
                    (name == "ret").then_some((at, offset, one.number as u32))
                });
                returns.extend(own);
            }
        }
        if self.places.len() + returns.len() > MAX_PLACES {
            return false;
        }
        for (at, file_offset, number) in returns {
            let found = &findings.objects[at];
            self.kinds
                .push(rate::kind(found.object.instruction_at(file_offset)));
            self.functions.push(number | RETURNS);
            self.places.push(Place {
                object: found.file.open.clone(),
                file_offset,
                semaphore: None,
                on_return: false,
            });
        }
        true
    }

    /// Number of matches.
    pub(super) fn matches(&self) -> usize {
        self.counted.len()
    }

    /// Counts the hits.
    ///
    /// # Errors
    ///
    /// Too many places or none, no number of seconds, no permission; counting costs more than is allowed.
    pub(super) fn count(
        self,
        search: &Search,
        findings: &Findings,
        limits: Limits<'_>,
    ) -> Result<Measured> {
        let attach = |plan: &Self, whose: Whose<'_>| Counter::attach(&plan.places, whose);
        self.measure(search, findings, limits, attach)
    }

    /// Counts the hits, and notes arguments and results: the number of a function is
    /// [`Counted::number`].
    ///
    /// # Errors
    ///
    /// The same.
    pub(super) fn note(
        self,
        search: &Search,
        findings: &Findings,
        limits: Limits<'_>,
    ) -> Result<Measured> {
        let attach =
            |plan: &Self, whose: Whose<'_>| Counter::noting(&plan.places, &plan.functions, whose);
        self.measure(search, findings, limits, attach)
    }

    fn measure(
        self,
        search: &Search,
        findings: &Findings,
        limits: Limits<'_>,
        attach: impl FnOnce(&Self, Whose<'_>) -> Result<Counter>,
    ) -> Result<Measured> {
        let Limits { seconds, allowed } = limits;
        let duration = length(seconds).ok_or_else(|| {
            Error::usage(format!("--count `{seconds}`: not a number of seconds"))
                .next("give seconds, such as --count 5 or --count 0.5")
        })?;
        self.check(search, findings)?;
        privileges::check()?;
        let mut pids = search.pids.clone();
        pids.extend(processes::descendants(&pids));
        let (whose, watched) = match &search.binary {
            Some(_) => (Whose::Everybody, &[][..]),
            None => (Whose::Processes(&pids), &pids[..]),
        };
        let cost = self_test::run()?.cost;
        let mut watch = Watch::of(attach(&self, whose)?, watched, cost);
        let started = Instant::now();
        let mut stopped = None;
        wait(duration, self.counted.len(), || {
            watch.counter.take_calls();
            let hits = watch.counter.hits()?;
            let seen = watch.look(&hits, &self.kinds);
            if !seen.is_harmless() && rate::is_certain(&seen, allowed / 100.0) {
                stopped = Some(refusal(&self.counted, &hits, &seen, allowed));
            }
            Ok(stopped.is_some())
        })?;
        let mut counter = watch.counter;
        let hits = counter.hits()?;
        let elapsed = started.elapsed();
        counter.take_calls();
        let refused: Vec<_> = counter.refused().collect();
        say_refused(&self.counted, &refused);
        let refused: BTreeSet<usize> = refused.into_iter().map(|(index, _)| index).collect();
        let mut counted = self.counted;
        counted.retain(|one| one.places.iter().any(|index| !refused.contains(index)));
        Ok(Measured {
            counted,
            elapsed,
            counter,
            stopped,
            hits,
        })
    }

    fn check(&self, search: &Search, findings: &Findings) -> Result<()> {
        if self.places.len() > MAX_PLACES {
            return Err(Error::usage(format!(
                "`{}` fits {} functions and probes with {} places to count at; at most {MAX_PLACES} \
                 are counted at once",
                search.pattern,
                number(findings.count() as u64),
                number(self.places.len() as u64)
            ))
            .next("list them without --count, and give a longer pattern or --object"));
        }
        if self.places.is_empty() {
            return Err(Error::usage(format!(
                "nothing that `{}` fits can be probed",
                search.pattern
            ))
            .next("list it without --count to see why"));
        }
        Ok(())
    }
}

fn hits_of(counted: &Counted, hits: &[u64]) -> u64 {
    counted.places.iter().map(|&at| hits[at]).sum()
}

/// Names what could not be probed, on standard error: its hits are not in the table.
fn say_refused(counted: &[Counted], refused: &[(usize, &std::io::Error)]) {
    for (index, error) in refused.iter().take(MAX_NAMED) {
        let name = counted
            .iter()
            .find(|one| one.places.contains(index))
            .map_or("a function", |one| &one.name);
        let reason = count::why_refused(error);
        reqtrace_base::say!("reqtrace: `{name}` cannot be probed and is left out: {reason}");
    }
    if let more @ 1.. = refused.len().saturating_sub(MAX_NAMED) {
        reqtrace_base::say!(
            "reqtrace: {} more places cannot be probed",
            number(more as u64)
        );
    }
}

/// Sleeps, and looks now and then, which may end it; Ctrl-C does too.
fn wait(duration: Duration, matches: usize, mut look: impl FnMut() -> Result<bool>) -> Result<()> {
    let es = if matches == 1 { "" } else { "es" };
    reqtrace_base::say!(
        "counting the hits of {matches} match{es} for {} s; Ctrl-C ends and reports",
        duration.as_secs_f64()
    );
    // Without a handler a signal just ends the program, and the kernel takes the probes out.
    let stopper = Stopper::new()?;
    signals::stop(stopper.clone());
    signals::watch();
    let end = Instant::now() + duration;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || stopper.wait(left.min(LOOK)) {
            return Ok(());
        }
        if look()? {
            return Ok(());
        }
    }
}

/// Counting costs too much: says which function is to blame.
fn refusal(counted: &[Counted], hits: &[u64], seen: &Rate, allowed: f64) -> Error {
    let of = |one: &Counted| hits_of(one, hits);
    let most = counted.iter().max_by_key(|one| of(one));
    let name = most.map_or("?", |one| &one.name);
    let seconds = seen.elapsed.as_secs_f64().max(1e-6);
    let of_it = most.map_or(0.0, |one| of(one) as f64 / seconds);
    Error::usage(format!(
        "counting is stopped: it takes about {} of the processes' CPU time, and --max-probe-rate allows \
         {allowed:.0} %; `{name}` alone is called {} times a second",
        range(seen.shares()),
        number(of_it.round() as u64)
    ))
    .next("give a pattern without that function, or count all the same with --yes")
}
