//! `--count`: findings in, how often each match is hit while one waits out.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::Search;
use super::find::Findings;
use crate::attach::count::{self, Place, Whose};
use crate::attach::estimate::{Kind, Rate};
use crate::attach::rate::{self, Watch};
use crate::attach::self_test;
use crate::cli::options::parse_duration;
use crate::cli::profiles::print;
use crate::cli::signals;
use crate::error::{Error, Result};
use crate::kernel::{privileges, processes};
use crate::report::text::number;
use crate::tracer::Stopper;

/// Probes set at once. Each call of what one is on costs the program a trap.
const MAX_PLACES: usize = 512;

/// Places that cannot be probed named before the rest is only counted.
const MAX_NAMED: usize = 10;

/// How often it is looked whether counting costs too much.
const LOOK: Duration = Duration::from_millis(50);

/// One match, with the numbers of its places.
struct Counted {
    name: String,
    object: String,
    places: Vec<usize>,
}

/// Counts, and prints the result.
pub(super) fn run(
    search: &Search,
    findings: &Findings,
    seconds: &str,
    limit: usize,
    allowed: f64,
) -> Result<()> {
    let duration = parse_duration(seconds).map_err(|_| {
        Error::usage(format!("--count `{seconds}`: not a number of seconds"))
            .next("give seconds, such as --count 5 or --count 0.5")
    })?;
    let (mut counted, places, kinds) = places(findings);
    if places.len() > MAX_PLACES {
        return Err(Error::usage(format!(
            "`{}` fits {} functions and probes with {} places to count at; at most {MAX_PLACES} \
             are counted at once",
            search.pattern,
            number(findings.count() as u64),
            number(places.len() as u64)
        ))
        .next("list them without --count, and give a longer pattern or --object"));
    }
    if places.is_empty() {
        return Err(Error::usage(format!(
            "nothing that `{}` fits can be probed",
            search.pattern
        ))
        .next("list it without --count to see why"));
    }
    privileges::check()?;
    let mut pids = search.pids.clone();
    pids.extend(processes::descendants(&pids));
    let whose = if search.binary.is_some() {
        Whose::Everybody
    } else {
        Whose::Processes(&pids)
    };
    let watched = if search.binary.is_some() {
        &[][..]
    } else {
        &pids
    };
    let cost = self_test::run()?.cost;
    let mut watch = Watch::start(&places, whose, watched, cost)?;
    let started = Instant::now();
    let outcome = wait(duration, counted.len(), || {
        let hits = watch.counter.hits()?;
        let seen = watch.look(&hits, &kinds);
        if !seen.is_harmless() && rate::is_certain(&seen, allowed / 100.0) {
            return Err(refusal(&counted, &hits, &seen, allowed));
        }
        Ok(())
    });
    if outcome.is_err() {
        watch.counter.detach();
    }
    outcome?;
    let counter = &mut watch.counter;
    let hits = counter.hits()?;
    let elapsed = started.elapsed();
    let refused: Vec<_> = counter.refused().collect();
    say_refused(&counted, &refused);
    let refused: BTreeSet<usize> = refused.into_iter().map(|(index, _)| index).collect();
    counted.retain(|one| one.places.iter().any(|index| !refused.contains(index)));
    // Taking probes out may wait for the kernel.
    print(&text(&counted, &hits, elapsed, findings, limit))?;
    counter.detach();
    Ok(())
}

/// What is counted, at which places, and what the kernel does at each.
fn places(findings: &Findings) -> (Vec<Counted>, Vec<Place>, Vec<Kind>) {
    let mut counted = Vec::new();
    let mut places: Vec<Place> = Vec::new();
    let mut kinds = Vec::new();
    for found in &findings.objects {
        let functions = found.functions.iter().map(|function| {
            let entries = function.bodies.iter().map(|body| body.start);
            let offsets = entries.filter_map(|entry| found.object.file_offset(entry));
            let places = offsets.map(|offset| (offset, None));
            (function.signature.clone(), places.collect::<BTreeSet<_>>())
        });
        let probes = found.probes.iter().map(|probe| {
            let sites = probe.sites.iter();
            let places = sites.map(|site| (site.file_offset, site.semaphore));
            (probe.full_name(), places.collect())
        });
        for (name, of_match) in functions.chain(probes) {
            if of_match.is_empty() {
                continue;
            }
            let first = places.len();
            let offsets = of_match.iter().map(|(offset, _)| *offset);
            kinds.extend(offsets.map(|offset| rate::kind(found.object.instruction_at(offset))));
            places.extend(of_match.into_iter().map(|(file_offset, semaphore)| Place {
                object: found.file.open.clone(),
                file_offset,
                semaphore,
                on_return: false,
            }));
            counted.push(Counted {
                name,
                object: found.file.shown.clone(),
                places: (first..places.len()).collect(),
            });
        }
    }
    (counted, places, kinds)
}

/// Names what could not be probed, on standard error: its hits are not in the table.
fn say_refused(counted: &[Counted], refused: &[(usize, &std::io::Error)]) {
    for (index, error) in refused.iter().take(MAX_NAMED) {
        let name = counted
            .iter()
            .find(|one| one.places.contains(index))
            .map_or("a function", |one| &one.name);
        let reason = count::why_refused(error);
        crate::say!("reqtrace: `{name}` cannot be probed and is left out: {reason}");
    }
    if let more @ 1.. = refused.len().saturating_sub(MAX_NAMED) {
        crate::say!(
            "reqtrace: {} more places cannot be probed",
            number(more as u64)
        );
    }
}

/// Sleeps, and looks now and then; Ctrl-C ends it early.
fn wait(duration: Duration, matches: usize, mut look: impl FnMut() -> Result<()>) -> Result<()> {
    let es = if matches == 1 { "" } else { "es" };
    crate::say!(
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
        look()?;
    }
}

/// Counting costs too much: says which function is to blame.
fn refusal(counted: &[Counted], hits: &[u64], seen: &Rate, allowed: f64) -> Error {
    let of = |one: &Counted| one.places.iter().map(|&at| hits[at]).sum::<u64>();
    let most = counted.iter().max_by_key(|one| of(one));
    let name = most.map_or("?", |one| &one.name);
    let seconds = seen.elapsed.as_secs_f64().max(1e-6);
    let of_it = most.map_or(0.0, |one| of(one) as f64 / seconds);
    Error::usage(format!(
        "counting is stopped: it takes about {:.0} % of the CPU time, and --max-probe-rate allows \
         {allowed:.0} %; `{name}` alone is called {} times a second",
        seen.share() * 100.0,
        number(of_it.round() as u64)
    ))
    .next("give a pattern without that function, or count all the same with --yes")
}

fn text(
    counted: &[Counted],
    hits: &[u64],
    elapsed: Duration,
    findings: &Findings,
    limit: usize,
) -> String {
    let seconds = elapsed.as_secs_f64().max(0.001);
    let mut rows: Vec<(u64, &Counted)> = counted
        .iter()
        .map(|one| (one.places.iter().map(|&at| hits[at]).sum(), one))
        .collect();
    rows.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.name.cmp(&b.1.name)));
    let silent = rows.iter().filter(|(hits, _)| *hits == 0).count();
    let several = findings.objects.len() > 1;
    let mut text = String::from("        HITS        PER S  NAME\n");
    let hit = rows.iter().filter(|(hits, _)| *hits > 0);
    for (hits, one) in hit.take(limit) {
        let object = if several {
            format!("  [{}]", one.object.rsplit('/').next().unwrap_or_default())
        } else {
            String::new()
        };
        text.push_str(&format!(
            "{:>12} {:>12}  {}{object}\n",
            number(*hits),
            number((*hits as f64 / seconds).round() as u64),
            one.name
        ));
    }
    let left_out = (rows.len() - silent).saturating_sub(limit);
    if left_out > 0 {
        text.push_str(&format!(
            "{} more were hit and are not listed: give --limit {}\n",
            number(left_out as u64),
            rows.len() - silent
        ));
    }
    text.push_str(&format!(
        "\n{} of {} were hit in {seconds:.1} s\n",
        rows.len() - silent,
        rows.len()
    ));
    text
}
