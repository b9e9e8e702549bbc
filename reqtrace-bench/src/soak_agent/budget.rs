//! The run with a budget that is not enough: fixed work, traced and not traced in turns; what the servers take for a request in
//! both out.

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use reqtrace_tests::workspace;

use super::report::{Claim, Measured};
use super::service::KINDS;
use super::usage::cpu;
use super::watch::{Kept, Seen, Watch, configuration, of};
use super::{Args, Running, claims_of_agents, start};

/// `reqtrace_ladder` of a service that is not traced any more.
const GIVEN_UP: f64 = 10.0;

/// What one service took in a turn.
#[derive(Clone, Copy, Debug, Default)]
struct Took {
    requests: u64,
    cpu: Duration,
    /// Complete requests by the agent's figures, and how many of them were recorded.
    estimated: Option<[u64; 2]>,
    /// The higher one of those at its begin and at its end.
    rung: f64,
}

impl Took {
    /// µs a request.
    fn micros(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.requests.max(1) as f64
    }
}

pub(super) fn run(args: &Args) -> Result<Measured> {
    let folder = workspace::scratch()?;
    let running = start(args, folder.path())?;
    let rules: Vec<String> = running
        .iter()
        .map(|one| one.kind.rule(&one.program))
        .collect();
    let rows = format!("one-in = {}\nroll = {{ every = \"10s\" }}", args.one_in);
    let text = configuration(&rules, &args.agent(), &rows, &folder.path().join("rows"));
    let begun = Instant::now();
    let all = Duration::from_secs(60 * u64::from(args.minutes));
    let mut turns: Vec<(bool, Vec<Took>)> = Vec::new();
    let mut seen = Seen::default();
    // Both kinds of turn as often, and each three times at least.
    while begun.elapsed() < all || turns.len() < 6 || !turns.len().is_multiple_of(2) {
        let is_traced = !turns.len().is_multiple_of(2);
        let watch = Watch::new(begun);
        let kept = Kept {
            folder: folder.path().to_owned(),
            text: text.clone(),
            kill_every: None,
            kill_after: Duration::ZERO,
            seed: 1,
            is_shown: true,
        };
        let took = thread::scope(|scope| {
            let keeper = is_traced.then(|| scope.spawn(|| watch.keep(&kept)));
            let took = turn(args, &running, is_traced.then_some(&watch));
            watch.end();
            if let Some(keeper) = keeper {
                keeper
                    .join()
                    .unwrap_or_else(|_| bail!("the keeper of the agent panicked"))?;
            }
            took
        })?;
        let line = took.iter().zip(KINDS).map(|(took, kind)| {
            format!("{} {:.1} µs (rung {})", kind.name, took.micros(), took.rung)
        });
        eprintln!(
            "turn {}, {}: {}",
            turns.len(),
            if is_traced { "traced" } else { "not traced" },
            line.collect::<Vec<_>>().join(", ")
        );
        turns.push((is_traced, took));
        add(&mut seen, watch.into_seen());
    }
    let mut claims = claims_of_cost(args, &turns);
    claims.extend(claims_of_agents(args, &seen));
    Ok(Measured {
        args: args.clone(),
        claims,
        tables: tables(&turns, &seen),
    })
}

fn add(all: &mut Seen, mut more: Seen) {
    let lives = all.lives.len();
    more.samples
        .iter_mut()
        .for_each(|sample| sample.life += lives);
    all.lives.append(&mut more.lives);
    all.samples.append(&mut more.samples);
    all.took.append(&mut more.took);
    all.rungs.append(&mut more.rungs);
    all.wrong.append(&mut more.wrong);
}

/// Each service is restarted under load, works for a while, and then does its work.
fn turn(args: &Args, running: &[Running], watch: Option<&Watch>) -> Result<Vec<Took>> {
    let (seconds, before) = (args.turn[0], args.turn[1]);
    thread::scope(|scope| {
        let threads: Vec<_> = running
            .iter()
            .map(|one| scope.spawn(move || of_service(args, one, watch, seconds, before)))
            .collect();
        let results = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| bail!("a load panicked")));
        results.collect::<Vec<_>>().into_iter().collect()
    })
}

fn of_service(
    args: &Args,
    one: &Running,
    watch: Option<&Watch>,
    seconds: u64,
    before: u64,
) -> Result<Took> {
    let kind = one.kind;
    let requests = |seconds: u64| (u64::from(args.rate) * seconds).next_multiple_of(4);
    let settling = requests(before);
    one.with(move |service| {
        service.restart()?;
        service.steady(settling)
    })?;
    let values = || {
        watch.map(|watch| {
            let last = watch.last();
            let value = |name: &str| of(&last, name, &kind);
            let counts = [
                "reqtrace_request_duration_seconds_count",
                "reqtrace_recorded_requests_total",
            ];
            (
                counts.map(|name| value(name) as u64),
                value("reqtrace_ladder"),
            )
        })
    };
    // Windows of what was before are closed by then, and its session has begun, unless it was given up.
    let closed = || -> Result<()> {
        let is_given_up = || values().is_some_and(|(_, rung)| rung >= GIVEN_UP);
        match watch {
            Some(watch) if !is_given_up() => watch.mark(&kind).map(drop),
            _ => Ok(()),
        }
    };
    closed()?;
    let first = values();
    let work = requests(seconds);
    let (round, took) = one.with(move |service| {
        let before = cpu(service.pid())?;
        let round = service.steady(work)?;
        Ok((round, cpu(service.pid())?.saturating_sub(before)))
    })?;
    let rungs = [first, values()].map(|of| of.map_or(0.0, |(_, rung)| rung));
    let rung = rungs[0].max(rungs[1]);
    closed()?;
    let last = values();
    let estimated = first
        .zip(last)
        .map(|((first, _), (last, _))| [0, 1].map(|at| last[at].saturating_sub(first[at])));
    Ok(Took {
        requests: round.least,
        cpu: took,
        estimated,
        rung,
    })
}

/// The mean, and how far the values are apart, as a share of it.
fn mean_and_spread(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    let most = values.iter().copied().fold(f64::MIN, f64::max);
    let least = values.iter().copied().fold(f64::MAX, f64::min);
    (mean, (most - least) / mean)
}

fn of_turns(turns: &[(bool, Vec<Took>)], is_traced: bool, at: usize) -> Vec<Took> {
    let own = turns.iter().filter(|(traced, _)| *traced == is_traced);
    own.filter_map(|(_, took)| took.get(at).copied()).collect()
}

fn micros(of: &[Took]) -> Vec<f64> {
    of.iter().map(Took::micros).collect()
}

fn claims_of_cost(args: &Args, turns: &[(bool, Vec<Took>)]) -> Vec<Claim> {
    let budget = f64::from(args.max_cost) / 100.0;
    let of_kind = |(at, kind): (usize, &super::service::Kind)| {
        let (without, spread) = mean_and_spread(&micros(&of_turns(turns, false, at)));
        let (with, _) = mean_and_spread(&micros(&of_turns(turns, true, at)));
        let more = with / without - 1.0;
        Claim::new(
            format!(
                "{}: the server's CPU time a request rises by at most {} % and the spread of the turns without",
                kind.name, args.max_cost
            ),
            more <= budget + spread,
            format!(
                "{:+.1} %: {without:.1} µs, {with:.1} µs traced; spread {:.1} %",
                more * 100.0,
                spread * 100.0
            ),
        )
    };
    let mut claims: Vec<Claim> = KINDS.iter().enumerate().map(of_kind).collect();
    claims.push(claim_of_gaps(turns));
    claims
}

/// Where requests were left out, the figures say so.
fn claim_of_gaps(turns: &[(bool, Vec<Took>)]) -> Claim {
    let mut silent = Vec::new();
    let (mut whole, mut thinned) = (0, 0);
    for (turn, (_, took)) in turns.iter().enumerate() {
        for (took, kind) in took.iter().zip(KINDS) {
            let Some([estimated, recorded]) = took.estimated else {
                continue;
            };
            let is_whole = recorded * 100 >= took.requests * 98;
            let is_marked = took.rung >= 2.0 && (estimated > recorded || recorded == 0);
            whole += u64::from(is_whole);
            thinned += u64::from(!is_whole);
            if !is_whole && !is_marked {
                silent.push(format!("{} in turn {turn}: {took:?}", kind.name));
            }
        }
    }
    Claim::new(
        "where requests are not traced `reqtrace_ladder` and `reqtrace_recorded_requests_total` say so, and those recorded count for them",
        silent.is_empty(),
        match silent.first() {
            None => format!("{whole} turns of a service whole, {thinned} thinned"),
            Some(first) => format!("{} not, first: {first}", silent.len()),
        },
    )
}

fn tables(turns: &[(bool, Vec<Took>)], seen: &Seen) -> String {
    let mut text = String::from(
        "| service | turns each | not traced, µs a request | traced | requests made | by the agent's figures | recorded | rung at the end of each |\n\
         | --- | ---: | --- | --- | ---: | ---: | ---: | --- |\n",
    );
    let list = |of: &[Took]| -> String {
        let all: Vec<String> = of
            .iter()
            .map(|took| format!("{:.1}", took.micros()))
            .collect();
        all.join(", ")
    };
    for (at, kind) in KINDS.iter().enumerate() {
        let (without, with) = (of_turns(turns, false, at), of_turns(turns, true, at));
        let sum = |which: fn(&Took) -> u64| with.iter().map(which).sum::<u64>();
        let rungs: Vec<String> = with.iter().map(|took| took.rung.to_string()).collect();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            kind.name,
            with.len(),
            list(&without),
            list(&with),
            sum(|took| took.requests),
            sum(|took| took.estimated.unwrap_or_default()[0]),
            sum(|took| took.estimated.unwrap_or_default()[1]),
            rungs.join(", ")
        );
    }
    let rungs: Vec<String> = seen
        .rungs
        .iter()
        .map(|(at, name, rung)| format!("{at:.0} s {name} {rung}"))
        .collect();
    let rungs = if rungs.is_empty() {
        "none".to_owned()
    } else {
        rungs.join(", ")
    };
    let _ = writeln!(text, "\nRungs that were taken: {rungs}.");
    text
}
