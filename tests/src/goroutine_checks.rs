//! What has to hold of each trace of the example `goroutines`, on any kernel and any machine, however slow.
//!
//! In: what was traced, and the log of the jobs. Out: what does not hold.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use crate::blamed::{self, Blamed};
use crate::goroutines::{self, KINDS, Line};
use crate::jobs::{Traced, attribute, check_counts, check_share, in_place};
use crate::rows::Row;

/// Of so many jobs of a kind one panics.
const ONE_PANICS_IN: u64 = 20;

/// How long a goroutine that replies sleeps before that, ns.
const SLEEPS_NS: u64 = 3_000_000;

/// What the kinds of jobs wait for, as the columns of the places are called.
const REASONS: [(&str, &[&str]); 12] = [
    ("holds", &["time.Sleep"]),
    // On a slow machine the one that receives may not be there yet.
    ("sends", &["time.Sleep", "chan_send"]),
    // Before 1.20 all locks are semaphores.
    ("locks", &["sync.Mutex.Lock", "semacquire"]),
    ("receives", &["chan_receive"]),
    ("sleeps", &["time.Sleep"]),
    ("asks", &["IO_wait"]),
    ("expires", &["select"]),
    ("deadlines", &["chan_receive"]),
    ("acquires", &["chan_send"]),
    ("reads", &["sync.RWMutex.RLock", "semacquire"]),
    ("awaits", &["sync.Cond.Wait"]),
    // Before 1.25 it waits on a semaphore.
    ("joins", &["sync.WaitGroup.Wait", "semacquire"]),
];

/// Who waits for what another job has, in which class, and who has that.
type Held = (&'static str, &'static str, &'static str);

/// By `kinds.toml`, and by `pairs.toml`, of which one blocks its thread.
const KINDS_HELD: [Held; 2] = [
    ("locks", "parked", "holds"),
    ("receives", "parked", "sends"),
];
const PAIRS_HELD: [Held; 5] = [
    ("acquires", "parked", "owns"),
    ("reads", "parked", "writes"),
    ("awaits", "parked", "signals"),
    ("joins", "parked", "works"),
    ("contends", "lock", "keeps"),
];

/// How stacks end in the waits of jobs, and what of a job decides to wait.
const STACKS: [(&[&str], &str); 5] = [
    (&["time.Sleep"], "main.(*service).do"),
    (&["chan receive"], "main.(*service).do"),
    (&["IO wait"], "main.(*service).ask"),
    (&["sync.Mutex.Lock", "semacquire"], "main.(*service).do"),
    (&["sync.Cond.Wait"], "main.(*service).do"),
];

/// Checks that so many calls of each kind are one request each, within their brackets; by `goroutines.toml`.
///
/// # Errors
///
/// With what does not hold.
pub fn every_call(traced: &Traced, lines: &[Line], of_each: u64) -> Result<()> {
    let summary = &traced.summary;
    let all = of_each * KINDS as u64;
    ensure!(lines.len() as u64 == all, "{} jobs of {all}", lines.len());
    let panics = lines.iter().filter(|line| line.panics).count() as u64;
    let wanted = of_each / ONE_PANICS_IN * KINDS as u64;
    ensure!(panics == wanted, "{panics} panics, not {wanted}");
    // Goroutines that are in no job are not counted, and jobs that panic are.
    check_counts(summary.request("job")?, all, all)?;
    goroutines::check(lines, &traced.rows, summary.trace.monotonic_to_unix_ns)?;
    traced.check_queued()
}

/// Checks that parked time has the reason that its kind has, and its stack.
///
/// # Errors
///
/// With the kind or the reason that has not.
pub fn reasons_and_stacks(traced: &Traced) -> Result<()> {
    for (kind, reasons) in REASONS {
        let is_kind = |row: &Row| attribute(row, "kind") == kind;
        let parked = traced.sum(is_kind, |row| row.parked_ns);
        let by_reason = traced.sum(is_kind, |row| {
            let places = reasons.iter().map(|reason| in_place(row, reason));
            places.sum()
        });
        check_share(kind, by_reason, parked)?;
    }
    // All parked time is that of some place with a name.
    for row in &traced.rows {
        let places = row.places.iter();
        let named = places.filter(|(name, _)| *name != "waited_for_the_runtime");
        let named: u64 = named.map(|(_, ns)| ns).sum();
        ensure!(named == row.parked_ns, "{named} ns have a name: {row:?}");
    }
    for (reasons, decides) in STACKS {
        let ends = |line: &str| {
            let end = |reason: &&str| line.find(&format!(";[parked: {reason}] "));
            reasons.iter().find_map(end)
        };
        let all = traced.micros(|line| ends(line).is_some())?;
        let with_stack = traced.micros(|line| {
            let from = line.find(";runtime.goexit");
            let job = line.find(";main.(*service).job;");
            let decides = line.find(&format!(";{decides}"));
            let parks = line.find(";runtime.gopark;[parked: ");
            let is_last = parks.map(|at| at + ";runtime.gopark".len()) == ends(line);
            from.is_some() && from < job && job < decides && decides < parks && is_last
        })?;
        check_share(&reasons.join(", "), with_stack, all).with_context(|| traced.folded.clone())?;
    }
    Ok(())
}

/// Checks that so many goroutines of each kind are one request each, around what their jobs measured; by `units.toml`.
///
/// # Errors
///
/// With what does not hold.
pub fn every_goroutine(traced: &Traced, lines: &[Line], of_each: u64) -> Result<()> {
    let summary = &traced.summary;
    let all = of_each * KINDS as u64;
    ensure!(lines.len() as u64 == all, "{} jobs of {all}", lines.len());
    // One kind asks an upstream, which replies in a goroutine of the same program.
    for (name, wanted) in [("job", all), ("reply", of_each)] {
        check_counts(summary.request(name)?, wanted, wanted)?;
    }
    let mut of_jobs = BTreeMap::new();
    for row in traced.rows.iter().filter(|row| row.request == "job") {
        let job = (attribute(row, "kind"), attribute(row, "number"));
        ensure!(
            of_jobs.insert(job, row).is_none(),
            "a job comes twice: {row:?}"
        );
    }
    for line in lines {
        let number = line.number.to_string();
        let row = of_jobs.get(&(line.kind.as_str(), number.as_str()));
        let row = row.with_context(|| format!("not traced: {line:?}"))?;
        let offset = i128::from(summary.trace.monotonic_to_unix_ns);
        let begin = i128::from(row.start_unix_ns) - offset;
        let end = begin + i128::from(row.latency_ns);
        // Made before its first clock, and in a queue from there on; done behind the last one.
        let is_around = begin < line.begin.least && end > line.end.most;
        let is_queued = row.queued_ns > 0 && row.queued_ns + row.parked_ns <= row.latency_ns;
        ensure!(is_around && is_queued, "{line:?} {row:?}");
    }
    traced.check_queued()
}

/// Checks that jobs were parked because of jobs as long as those were that wait for another job; by `units.toml`.
///
/// # Errors
///
/// When they were not.
pub fn held_up(traced: &Traced, blamed: &[Blamed]) -> Result<()> {
    blamed::check(&traced.rows, blamed)?;
    let waits = |row: &Row| ["locks", "receives"].contains(&attribute(row, "kind"));
    let parked = traced.sum(waits, |row| row.parked_ns);
    let by_jobs = blamed::sum(blamed, |row| {
        row.victim_request == "job"
            && row.wait_class.starts_with("parked")
            && row.culprit_request == "job"
    });
    check_share("because of jobs", by_jobs, parked).with_context(|| format!("{blamed:#?}"))
}

/// Checks that jobs which ask a service waited for the goroutines that reply as long as those slept; by `units.toml`.
///
/// # Errors
///
/// When they did not, or it is not known what jobs were queued behind.
pub fn upstream(traced: &Traced, blamed: &[Blamed], of_each: u64) -> Result<()> {
    let asks = |row: &Blamed| row.victim_request == "job" && row.wait_class == "parked: IO wait";
    let slept = blamed::sum(blamed, |row| {
        asks(row) && row.culprit_request == "reply" && row.root_cause == "timer"
    });
    check_share("replies", slept, of_each * SLEEPS_NS).with_context(|| format!("{blamed:#?}"))?;
    traced.queued_behind(None, "")?;
    Ok(())
}

/// Checks that jobs waited for those that had what they wait for, and for no other jobs; by `kinds.toml`.
///
/// # Errors
///
/// With the kind of which that does not hold.
pub fn held_up_by_kinds(traced: &Traced, blamed: &[Blamed]) -> Result<()> {
    held_up_in(traced, blamed, &KINDS_HELD)?;
    for kind in ["expires", "deadlines"] {
        traced.known(blamed, (Some(kind), "parked"), &["timer"])?;
    }
    traced.known(blamed, (None, "parked: time.Sleep"), &["timer"])
}

/// The same by `pairs.toml`.
///
/// # Errors
///
/// With the kind of which that does not hold.
pub fn held_up_by_pairs(traced: &Traced, blamed: &[Blamed]) -> Result<()> {
    held_up_in(traced, blamed, &PAIRS_HELD)
}

fn held_up_in(traced: &Traced, blamed: &[Blamed], held: &[Held]) -> Result<()> {
    let mut all = held.iter();
    all.try_for_each(|(waiter, class, holder)| traced.held_up(blamed, (waiter, class), holder))
}
