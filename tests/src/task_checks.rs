//! What has to hold of each trace of the example `tasks`, on any kernel and any machine, however slow.
//!
//! In: what was traced, and the log of the jobs. Out: what does not hold.

use anyhow::{Context, Result, ensure};

use crate::blamed::{self, Blamed};
use crate::jobs::{Traced, attribute, check_counts, check_share, in_place};
use crate::rows::Row;
use crate::tasks::{self, KINDS, Line};

/// Who has what others wait for, and who waits for it.
const HELD: [(&str, &str); 3] = [
    ("holder", "locker"),
    ("owner", "acquirer"),
    ("sender", "receiver"),
];

/// What the kinds of jobs wait for, as the columns of the places are called, the function that waits, and what of a job it is
/// called by.
const REASONS: [(&str, &str, &str, &str); 11] = [
    // They look for what is free before: of two places the driver of timers tells the one.
    (
        "holds",
        "timer",
        "tokio::time::sleep::Sleep",
        "tasks::jobs::holders::holds",
    ),
    (
        "owns",
        "timer",
        "tokio::time::sleep::Sleep",
        "tasks::jobs::holders::owns",
    ),
    (
        "sends",
        "timer",
        "tokio::time::sleep::Sleep",
        "tasks::jobs::holders::sends",
    ),
    (
        "sleeps",
        "timer",
        "tokio::time::sleep::Sleep",
        "tasks::jobs::alone::sleeps",
    ),
    (
        "locks",
        "lock",
        "tokio::sync::mutex::Mutex",
        "tasks::jobs::waiters::locks",
    ),
    (
        "acquires",
        "semaphore",
        "tokio::sync::semaphore::Semaphore",
        "tasks::jobs::waiters::acquires",
    ),
    (
        "receives",
        "channel",
        "tokio::sync::mpsc::chan::Rx",
        "tasks::jobs::waiters::receives",
    ),
    (
        "asks",
        "socket",
        "tokio::runtime::io::",
        "tasks::jobs::waiters::asks",
    ),
    // Names of this mangling do not tell a job of the pool from a task; who runs it does.
    (
        "syncs",
        "spawn_blocking",
        "tokio::runtime::task::join::JoinHandle",
        "tasks::jobs::alone::syncs",
    ),
    (
        "queues",
        "spawn_blocking",
        "tokio::runtime::task::join::JoinHandle",
        "tasks::jobs::alone::queues",
    ),
    (
        "has_a_child",
        "join",
        "tokio::runtime::task::join::JoinHandle",
        "tasks::jobs::alone::has_a_child",
    ),
];

/// Where jobs are that wait for a thread of the blocking pool: the column.
const POOL: &str = "waited_for_the_blocking_pool";

/// How long a blocking job of `queues` sleeps, and the one before it, ns.
const SLEEPS_NS: u64 = 3_000_000;

/// How long a job computes that another one is queued behind, ns.
const BUSY_NS: u64 = 2_000_000;

/// Checks that so many jobs of each kind are one request each, within their brackets, and are no others.
///
/// # Errors
///
/// With what does not hold.
pub fn every_job(traced: &Traced, lines: &[Line], of_each: u64) -> Result<()> {
    let summary = &traced.summary;
    let all = of_each * KINDS as u64;
    ensure!(lines.len() as u64 == all, "{} jobs of {all}", lines.len());
    let mut count = 0;
    for request in &summary.requests {
        // Tasks that are no jobs are not counted.
        check_counts(request, request.count, request.count)?;
        count += request.count;
    }
    ensure!(count == all, "{count} requests of {all}");
    // Jobs of one kind have one each.
    let children: u64 = summary.requests.iter().filter_map(|one| one.children).sum();
    ensure!(children == of_each, "{children} children of {of_each} jobs");
    tasks::check(lines, &traced.rows, summary.trace.monotonic_to_unix_ns)?;
    traced.check_queued()
}

/// Checks that parked time has the reason that its kind has, no other one, and its stack.
///
/// # Errors
///
/// With the kind that has not.
pub fn reasons_and_stacks(traced: &Traced) -> Result<()> {
    for (kind, reason, function, job) in REASONS {
        of_kind(traced, (kind, reason), function, job).with_context(|| kind.to_owned())?;
    }
    Ok(())
}

fn of_kind(traced: &Traced, kind: (&str, &str), function: &str, job: &str) -> Result<()> {
    let (kind, reason) = kind;
    let is_kind = |row: &Row| attribute(row, "kind") == kind;
    let parked = traced.sum(is_kind, |row| row.parked_ns);
    let nameless = traced.sum(is_kind, |row| row.parked_ns - parked_with_a_name(row));
    let place = format!("tokio_{reason}");
    let is_blocking = reason == "spawn_blocking";
    let of_pool = |place| match is_blocking {
        true => traced.sum(is_kind, |row| in_place(row, place)),
        false => 0,
    };
    let right = traced.sum(is_kind, |row| in_place(row, &place)) + of_pool(POOL);
    let last = format!("[parked: tokio {reason}]");
    // A job that is done while its task is being left is known by nobody: the task's own thread queues it.
    let wrong = parked - right - nameless - of_pool("tokio_join");
    let all = traced.micros(|line| line.contains(&last) && line.contains(job))?;
    let with_stack = traced.micros(|line| {
        let (at, by) = (line.find(function), line.find(job));
        line.contains(&last) && by.is_some() && by < at
    })?;
    check_share("right reason", right, parked)?;
    ensure!(wrong == 0, "{wrong} ns of {parked} have another reason");
    check_share("whole stack", with_stack, all).with_context(|| traced.folded.clone())
}

fn parked_with_a_name(row: &Row) -> u64 {
    let names = row
        .places
        .iter()
        .filter(|(name, _)| name.starts_with("tokio_") || *name == POOL);
    names.map(|(_, ns)| ns).sum()
}

/// Checks that jobs waited for the one that had what they wait for, and for no other job.
///
/// # Errors
///
/// With the type of those of which that does not hold.
pub fn held_up(traced: &Traced, blamed: &[Blamed]) -> Result<()> {
    blamed::check(&traced.rows, blamed)?;
    let mut pairs = HELD.into_iter();
    pairs.try_for_each(|(holder, waiter)| traced.held_up(blamed, (waiter, "parked"), holder))
}

/// The same of jobs that block their threads.
///
/// # Errors
///
/// As [`held_up`].
pub fn threads_held_up(traced: &Traced, blamed: &[Blamed]) -> Result<()> {
    blamed::check(&traced.rows, blamed)?;
    traced.held_up(blamed, ("contender", "lock"), "keeper")
}

/// Checks that a job which waits for a blocking one has the time until a thread took that apart, with its stack.
///
/// # Errors
///
/// With what does not hold.
pub fn blocking_jobs(traced: &Traced, of_each: u64) -> Result<()> {
    let of = |kind: &str, place: &str| {
        let is_kind = |row: &Row| attribute(row, "kind") == kind;
        traced.sum(is_kind, |row| in_place(row, place))
    };
    let queues = traced.rows.iter();
    let queues = queues.filter(|row| attribute(row, "kind") == "queues");
    // Its thread has slept at least so long for each of them, as far as it is known that they waited for that.
    let slept = queues.filter(|row| in_place(row, "tokio_spawn_blocking") >= SLEEPS_NS);
    check_share("slept", slept.count() as u64, of_each)?;
    // The one before slept from a moment before it was parked on.
    let waited = of("queues", POOL);
    ensure!(
        waited * 10 >= of_each * SLEEPS_NS * 8,
        "{waited} ns for the pool"
    );
    ensure!(of("has_a_child", POOL) == 0, "a task waits for the pool");
    let with_stack = traced.micros(|line| {
        line.contains("[parked: waited for the blocking pool]")
            && line.contains("tasks::jobs::alone::queues")
    })?;
    check_share("stack", with_stack, waited / 1000)
}

/// Checks that who has what others wait for waited for a timer, as the driver of timers woke it.
///
/// # Errors
///
/// With the type of requests of which that does not hold.
pub fn timers(traced: &Traced, blamed: &[Blamed]) -> Result<()> {
    let mut all = HELD.iter();
    all.try_for_each(|(holder, _)| traced.known(blamed, (Some(holder), "parked"), &["timer"]))
}

/// Checks that jobs which ask a service waited for its threads as long as those slept for each of them.
///
/// # Errors
///
/// When they did not.
pub fn upstream(blamed: &[Blamed], of_each: u64) -> Result<()> {
    let asks = |row: &Blamed| row.victim_request == "asker" && row.wait_class.starts_with("parked");
    let slept = blamed::sum(blamed, |row| {
        asks(row) && row.culprit_comm == "upstream" && row.root_cause == "timer"
    });
    check_share("upstream", slept, of_each * SLEEPS_NS).with_context(|| format!("{blamed:#?}"))
}

/// Checks that what jobs were queued behind is known, and that on one thread a job was queued behind the one that computed
/// before it.
///
/// # Errors
///
/// With what does not hold.
pub fn queued(traced: &Traced, is_one_thread: bool, of_each: u64) -> Result<()> {
    traced.queued_behind(None, "")?;
    if is_one_thread {
        let behind = traced.queued_behind(Some("starved"), "cruncher")?;
        check_share("starved", behind, of_each * BUSY_NS)?;
    }
    Ok(())
}

/// Checks that what blocking jobs were waited for is what threads of the pool did. A thread of another process, such as one that
/// writes a journal, is watched from its second wake on.
///
/// # Errors
///
/// With the wait of which that does not hold.
pub fn threads_of_the_pool(traced: &Traced, blamed: &[Blamed]) -> Result<()> {
    let did = ["timer", "disk", "on_cpu", "run_queue", "preempted"];
    let pool = "parked: waited for the blocking pool";
    traced.known(blamed, (Some("job"), pool), &did)?;
    traced.known(blamed, (Some("job"), "parked: tokio spawn_blocking"), &did)
}
