//! What must hold of a [`Comparison`], on any machine, however busy, and why.
//!
//! **Every request.** The latency is within its brackets, and the ledger closes: [`Comparison::of`]
//! has seen to that. Blocks and preemptions are what `getrusage` counted between the inner and the
//! outer readings: the kernel counts just where `sched_switch` fires. A switch-in that the kernel
//! told nobody of ([`crate::summary::Summary::unseen`]) takes one of them away, and nothing else does.
//! Time blocked in a class is at most what passed from the begins of its waits to their latest
//! wakeups: the same clock, read around it by the same thread and by its waker. Of waits for the
//! network one in twenty may be longer: what was sent over the loopback is delivered by a soft
//! interrupt, which the kernel leaves to a thread of its own when it is busy, and then the sender has
//! read its clock already.
//!
//! **Three quarters of each kind, exactly.** Blocked in a class at least until the earliest wakeup;
//! in the run queue at most from there on. A wakeup can come from an interrupt that hits a process
//! whose events the kernel hides, and then there is none to be seen: so not every request.
//!
//! **Half of each kind, nearly.** On-CPU time is within the thread's CPU clock, and run queue plus
//! preempted is the kernel's run delay, give or take a share of the latency. Both come from the
//! scheduler's clock, which is read seldom. When an idle CPU is woken for a thread, the reading at
//! the thread's arrival in the queue serves for the switch to it too: until then reqtrace has it in
//! the run queue, but the CPU clock already runs. At a switch-out the CPU clock stops where the
//! scheduler begins to look for another thread, on-CPU time where it has found one. Each is a few
//! microseconds a switch. Steal and interrupts are on-CPU time, in both clocks or in reqtrace's
//! only: nothing bounds a single request.
//!
//! **All requests of a kind together.** At least 98 % of the blocked time is in the classes of the
//! waits that the service says it made.

use anyhow::{Result, bail};

use super::compare::{Comparison, Kind, Number};
use super::report;

/// How far half of the requests of a kind may be outside the CPU clock and the run delay, in
/// hundredths of their mean latency.
fn nearly(kind: &Kind) -> i128 {
    let disk = |class: &String| ["disk", "page-fault"].contains(&class.as_str());
    match kind.classes.as_slice() {
        // Never blocks: only preemptions are to be timed.
        [] => 3,
        // A wait for a fast disk is not much longer than its switches.
        [class] if disk(class) => 60,
        _ => 10,
    }
}

/// Checks all but the CPU clock and the run delay. `unseen` is the trace's number of switch-ins that
/// were not seen.
///
/// # Errors
///
/// With everything that does not hold, and the tables.
pub fn check(comparison: &Comparison, unseen: u64) -> Result<()> {
    let mut wrong = all(comparison, faults);
    let kinds = comparison.kinds.iter();
    let missing: i128 = kinds.map(|(_, kind)| missing_switches(kind)).sum();
    if missing > i128::from(unseen) {
        wrong.push(format!(
            "{missing} blocks and preemptions are missing, {unseen} switch-ins were not seen"
        ));
    }
    verdict(&wrong, comparison)
}

/// Checks what is measured with the CPU clock and the run delay. They are the scheduler's: on an
/// emulated machine that calibrates its time stamp counter wrongly, they run at another speed than
/// `CLOCK_MONOTONIC`, and this says nothing.
///
/// # Errors
///
/// As [`check`].
pub fn check_scheduler_clocks(comparison: &Comparison) -> Result<()> {
    verdict(&all(comparison, clock_faults), comparison)
}

fn all(comparison: &Comparison, faults: fn(&Kind) -> Vec<String>) -> Vec<String> {
    let of_kind = |(name, kind): &(String, Kind)| {
        let faults = faults(kind).into_iter();
        faults
            .map(|fault| format!("{name}: {fault}"))
            .collect::<Vec<_>>()
    };
    comparison.kinds.iter().flat_map(of_kind).collect()
}

fn verdict(wrong: &[String], comparison: &Comparison) -> Result<()> {
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("{}\n\n{}", wrong.join("\n"), report::tables(comparison))
}

fn missing_switches(kind: &Kind) -> i128 {
    [Number::Blocks, Number::Preemptions]
        .iter()
        .flat_map(|number| kind.distances(*number))
        .map(|distance| (-distance.outside).max(0))
        .sum()
}

fn faults(kind: &Kind) -> Vec<String> {
    let mut faults = Vec::new();
    for number in [Number::Blocks, Number::Preemptions, Number::Class] {
        let distances = kind.distances(number).iter();
        let above = distances.filter(|distance| distance.outside > 0).count();
        if above > may_be_above(kind, number) {
            faults.push(format!("{number:?} is too large in {above} requests"));
        }
    }
    faults.extend(mostly_right(kind, Number::RunQueue));
    if !kind.classes.is_empty() {
        let (in_class, blocked) = (kind.in_class_ns, kind.blocked_ns);
        if u128::from(in_class) * 100 < u128::from(blocked) * 98 {
            faults.push(format!("{in_class} of {blocked} ns are in its class"));
        }
        // A virtual disk may have answered before the thread could leave its CPU; then the service
        // itself counts no switch.
        let may_be_too_fast = |class: &String| class == "disk" || class == "page-fault";
        let wanted = if kind.classes.iter().all(may_be_too_fast) {
            kind.switched
        } else {
            kind.requests
        };
        // A wakeup can be faster than the wait, or not be seen.
        let waited = kind.waited;
        if waited * 4 < wanted * 3 {
            faults.push(format!("only {waited} of {wanted} requests waited"));
        }
        let never = |class: &&String| wanted > 0 && !kind.by_class_ns.contains_key(*class);
        for class in kind.classes.iter().filter(never) {
            faults.push(format!("never blocked in {class}"));
        }
    }
    faults
}

/// Requests of a kind whose number may be too large.
fn may_be_above(kind: &Kind, number: Number) -> usize {
    let is_delivered = kind.classes.iter().any(|class| class == "network");
    match number {
        Number::Class if is_delivered => kind.distances(number).len().div_ceil(20),
        _ => 0,
    }
}

fn clock_faults(kind: &Kind) -> Vec<String> {
    let mut faults = Vec::new();
    // Its lower end needs them too.
    faults.extend(mostly_right(kind, Number::Class));
    let nearly = nearly(kind);
    for number in [Number::OnCpu, Number::RunDelay] {
        let median = kind.median_error(number);
        let latency = i128::from(kind.mean_latency_ns());
        if median * 100 > latency * nearly {
            faults.push(format!(
                "{number:?} is outside by {median} ns in half of the requests, of {latency} ns"
            ));
        }
    }
    faults
}

fn mostly_right(kind: &Kind, number: Number) -> Option<String> {
    let inside = kind.inside(number);
    let of = kind.distances(number).len();
    (inside * 4 < of * 3).then(|| format!("{number:?} is right in {inside} of {of} requests"))
}

/// Checks that the kinds which are to be kept from a CPU were: so that the rest says something.
///
/// # Errors
///
/// When a kind had too little of it.
pub fn check_company(comparison: &Comparison) -> Result<()> {
    let preempted = comparison.kind("preempted")?;
    if preempted.preempted_ns * 5 < preempted.latency_ns {
        bail!("not preempted: {preempted:?}");
    }
    let run_queue = comparison.kind("run-queue")?;
    if run_queue.run_queue_ns * 50 < run_queue.latency_ns {
        bail!("not in the run queue: {run_queue:?}");
    }
    Ok(())
}
