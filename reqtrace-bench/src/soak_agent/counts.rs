//! The run in which every request counts: each service in a thread of its own through rounds and restarts, the agent killed at
//! random, the engine away for a while, and at last a disk that is nearly full.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use reqtrace_tests::process::until;
use reqtrace_tests::workspace::{self, SmallDisk};

use super::report::{Claim, Measured};
use super::service::{KINDS, Kind, Round, Running};
use super::shipping::Shipping;
use super::watch::{Kept, ROLL, Watch, configuration};
use super::{Args, claims_of_agents, disk, start, weights};

/// A steady round.
const ROUND: Duration = Duration::from_secs(10);
/// What the last phase takes.
const DISK_PHASE: Duration = Duration::from_secs(45);
const LIMIT: Duration = Duration::from_secs(60);
/// The file system of the rows, and what is left free of it.
const DISK: &str = "96m";
const KEEP_FREE: u64 = 10;

/// A round, and what the agent has counted in it.
#[derive(Clone, Copy, Debug)]
struct Compared {
    kind: Kind,
    is_restart: bool,
    round: Round,
    /// `None`: the agent was killed in it.
    counted: Option<u64>,
    incomplete: u64,
}

pub(super) fn run(args: &Args) -> Result<Measured> {
    let folder = workspace::scratch()?;
    let small = SmallDisk::mount(&folder.path().join("disk"), DISK)?;
    let dir = small.path().join("rows");
    let running = start(args, folder.path())?;
    let rules: Vec<String> = running
        .iter()
        .map(|one| one.kind.rule(&one.program))
        .collect();
    let rows = format!(
        "one-in = {}\nroll = {{ every = \"{}s\", bytes = \"4MB\" }}\nmax = \"64MB\"\nkeep-free = \"{KEEP_FREE}%\"",
        args.one_in,
        ROLL.as_secs()
    );
    let text = configuration(&rules, &args.agent(), &rows, &dir);
    let kept_as = Kept {
        folder: folder.path().to_owned(),
        text,
        kill_every: (args.kill_every > 0).then(|| Duration::from_secs(args.kill_every)),
        kill_after: Duration::from_secs(60 * u64::from(args.kill_after)),
        seed: args.seed,
        is_shown: true,
    };
    let begun = Instant::now();
    let all = Duration::from_secs(60 * u64::from(args.minutes));
    let watch = Watch::new(begun);
    let (compared, away, near_full, printed) = thread::scope(|scope| {
        let keeper = scope.spawn(|| watch.keep(&kept_as));
        let result = main_phase(
            args,
            &watch,
            &running,
            &dir,
            begun + all.saturating_sub(DISK_PHASE),
            all,
        );
        let result = result.and_then(|(compared, shipping)| {
            let near_full = disk::nearly_full(args, &watch, &running, small.path(), &dir)?;
            Ok((compared, shipping, near_full))
        });
        watch.end();
        let printed = keeper
            .join()
            .unwrap_or_else(|_| bail!("the keeper of the agent panicked"));
        let (compared, shipping, near_full) = match (result, &printed) {
            (Err(error), Err(agent)) => return Err(error.context(format!("{agent:#}"))),
            (result, _) => result?,
        };
        Ok((compared, shipping, near_full, printed?))
    })?;
    let _ = printed;
    let seen = watch.into_seen();
    let mut claims = claims_of_rounds(&compared);
    claims.extend(away);
    claims.extend(near_full);
    claims.extend(claims_of_agents(args, &seen));
    Ok(Measured {
        args: args.clone(),
        tables: tables(&compared, &seen),
        claims,
    })
}

type Main = (Vec<Compared>, Vec<Claim>);

/// All until the disk is filled: ends with nothing in flight, and an agent that is not killed any more.
fn main_phase(
    args: &Args,
    watch: &Watch,
    running: &[Running],
    dir: &Path,
    end: Instant,
    all: Duration,
) -> Result<Main> {
    until(LIMIT, "the agent to have a folder", || {
        Ok((dir.exists() || watch.is_over()).then_some(()))
    })?;
    let mut shipping = Shipping::start(dir, all)?;
    let compared = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let threads: Vec<_> = running
            .iter()
            .map(|one| {
                let compared = &compared;
                scope.spawn(move || follow(args, watch, one, end, compared))
            })
            .collect();
        let results = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| bail!("a load panicked")));
        results
            .collect::<Vec<_>>()
            .into_iter()
            .collect::<Result<Vec<()>>>()
    })?;
    watch.spare();
    let compared = compared
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    // All rows of the requests until now are handed over.
    until(LIMIT, "the spool to be empty", || {
        let seen = watch.last();
        Ok((seen.get("reqtrace_rows_spool_bytes") == Some(&0.0)).then_some(()))
    })?;
    thread::sleep(Duration::from_secs(1));
    let mut claims = weights::claims_of_rows(watch, dir)?;
    claims.push(shipping.claim(dir)?);
    Ok((compared, claims))
}

/// Rounds and restarts of one service.
fn follow(
    args: &Args,
    watch: &Watch,
    one: &Running,
    end: Instant,
    all: &Mutex<Vec<Compared>>,
) -> Result<()> {
    let kind = one.kind;
    let round = ROUND.min(args.restart_every() / 2);
    let requests = (u64::from(args.rate) * round.as_secs()).next_multiple_of(4);
    let mut before = watch.mark(&kind)?;
    let mut restarted = Instant::now();
    while Instant::now() < end {
        let is_restart = restarted.elapsed() + round > args.restart_every();
        let round = one.with(move |service| match is_restart {
            true => service.restart(),
            false => service.steady(requests),
        })?;
        if is_restart {
            restarted = Instant::now();
        }
        let after = watch.mark(&kind).with_context(|| kind.name)?;
        let is_same = before.life == after.life;
        let compared = Compared {
            kind,
            is_restart,
            round,
            counted: is_same.then(|| after.complete.saturating_sub(before.complete)),
            incomplete: after.incomplete.saturating_sub(before.incomplete),
        };
        if compared.is_wrong() {
            eprintln!("{}: not as counted: {compared:?}", kind.name);
        }
        all.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(compared);
        before = after;
    }
    Ok(())
}

impl Compared {
    fn is_wrong(&self) -> bool {
        let Round {
            least,
            most,
            served,
            cut_off,
        } = self.round;
        let is_outside = |count: u64| !(least..=most).contains(&count);
        let cut_off = self.incomplete.min(cut_off);
        let is_wrong = |count: u64| count > most || count + cut_off < least;
        self.counted.is_some_and(is_wrong)
            || served.is_some_and(|served| !self.is_restart && is_outside(served))
    }
}

fn claims_of_rounds(compared: &[Compared]) -> Vec<Claim> {
    let claim = |is_restart: bool, what: &str| {
        let all: Vec<&Compared> = compared
            .iter()
            .filter(|one| one.is_restart == is_restart)
            .collect();
        let known: Vec<&&Compared> = all.iter().filter(|one| one.counted.is_some()).collect();
        let wrong = known.iter().filter(|one| one.is_wrong()).count();
        let of = |which: fn(&Compared) -> u64| known.iter().map(|one| which(one)).sum::<u64>();
        Claim::new(
            what,
            wrong == 0 && !known.is_empty(),
            format!(
                "{} rounds, {} more in which the agent was killed; {} requests counted, {} to {} made; {wrong} rounds differ",
                known.len(),
                all.len() - known.len(),
                of(|one| one.counted.unwrap_or(0)),
                of(|one| one.round.least),
                of(|one| one.round.most)
            ),
        )
    };
    vec![
        claim(
            false,
            "each request is counted, as who makes and who serves them count",
        ),
        claim(
            true,
            "around a restart under load: not fewer than were answered, not more than were sent",
        ),
    ]
}

fn tables(compared: &[Compared], seen: &super::watch::Seen) -> String {
    let mut text = String::from(
        "| service | counted by | rounds | requests made | counted by the agent | restarts | made around them | counted | incomplete | highest rung |\n\
         | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for kind in KINDS {
        let own = |is_restart: bool| {
            let own = compared
                .iter()
                .filter(move |one| one.kind.name == kind.name && one.is_restart == is_restart);
            own.filter(|one| one.counted.is_some())
        };
        let sum =
            |is_restart: bool, which: fn(&Compared) -> u64| own(is_restart).map(which).sum::<u64>();
        let counted = |one: &Compared| one.counted.unwrap_or(0);
        let rung = seen
            .rungs
            .iter()
            .filter(|(_, name, _)| *name == kind.name)
            .map(|(.., rung)| *rung)
            .fold(0.0, f64::max);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} to {} | {} | {} | {rung} |",
            kind.name,
            kind.counts,
            own(false).count(),
            sum(false, |one| one.round.least),
            sum(false, counted),
            own(true).count(),
            sum(true, |one| one.round.least),
            sum(true, |one| one.round.most),
            sum(true, counted),
            sum(false, |one| one.incomplete) + sum(true, |one| one.incomplete),
        );
    }
    let mut lost: Vec<String> = Vec::new();
    for life in &seen.lives {
        for (name, value) in life
            .last
            .iter()
            .filter(|(name, value)| name.starts_with("reqtrace_lost_total") && **value > 0.0)
        {
            lost.push(format!(
                "{} {value}",
                name.trim_start_matches("reqtrace_lost_total")
            ));
        }
    }
    lost.dedup();
    let lost = if lost.is_empty() {
        "nothing".to_owned()
    } else {
        lost.join(", ")
    };
    let _ = writeln!(text, "\nLost: {lost}.");
    text
}
