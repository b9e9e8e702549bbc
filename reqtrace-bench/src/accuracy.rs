//! `cargo xtask bench accuracy`: how far a trace is from what a service measured itself.
//!
//! In: nothing. Out: the distributions of the differences per kind of request, printed and, with
//! `--write`, put into docs/measured/accuracy.md.

use anyhow::{Result, ensure};
use reqtrace_tests::truth::{self, bounds, report};

use super::Common;
use xtask::kernel;

/// Arguments of `bench accuracy`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Requests of each kind
    #[arg(long, default_value_t = 200)]
    requests: u64,
    #[command(flatten)]
    common: Common,
}

/// Before the tables.
const INTRODUCTION: &str = "\
The example [`truth`](../../examples/truth) makes requests of 25 kinds that wait, each in its way, and measures \
each wait itself: it reads its clock outside and inside the traced call at both ends and around each \
wait; whoever ends a wait reads its clock before and after doing so; and it reads the thread's CPU \
clock, its run delay (`/proc/thread-self/schedstat`) and its counts of context switches (`getrusage`). \
From that follows, for every number in a row of `requests.csv`, an interval in which it must lie. \
*Median width* is how sharp that interval is; *outside* is how far the row's number is from it.

`cargo xtask test` holds the same on every run, on three kernels; what it asserts, and why each bound \
holds on a busy machine too, is in [`tests/src/truth/bounds.rs`](../../tests/src/truth/bounds.rs).
";

/// Between the tables and what they mean.
const MEANING: &str = "\
## Why the last two are not exact

CPU clock and run delay come from the scheduler's clock, which is read seldom. When an idle CPU is woken \
for a thread, the reading at the thread's arrival in its queue serves for the switch to it too: the CPU \
clock runs from there, and the run delay is nothing, while reqtrace has the thread in the run queue from \
the beginning of its wakeup (`sched_waking`) to the switch (`sched_switch`). So on CPU is less than the \
CPU clock, and run queue more than the run delay, by the microseconds that a CPU takes to leave its \
sleep. At a switch-out the CPU clock stops where the scheduler begins to look for another thread, \
reqtrace's on-CPU time where it has found one. A wait for a fast disk is hardly longer than its \
switches, so there the share is largest.

Steal and interrupts are on-CPU time for reqtrace. Where the kernel keeps them out of the CPU clock \
(`CONFIG_PARAVIRT_TIME_ACCOUNTING`, `CONFIG_IRQ_TIME_ACCOUNTING`), they are a difference here.

A block or a preemption is missing where the kernel told nobody that a thread came back to a CPU. Such \
switch-ins are counted, and the report prints them (`switch_in_unseen`).
";

/// Traces, compares, checks the bounds.
pub(super) fn run(args: &Args) -> Result<()> {
    args.common.prepare()?;
    let (outcome, comparison) = truth::trace(args.requests)?;
    let summary = outcome.summary()?;
    ensure!(summary.lost() == 0, "lost: {:?}", summary.losses);
    bounds::check(&comparison, summary.unseen())?;
    bounds::check_scheduler_clocks(&comparison)?;
    let text = format!(
        "# Accuracy\n\n{INTRODUCTION}\n\
         Written by `cargo xtask bench accuracy --write`: {} requests of each kind, kernel {}, {} \
         switch-ins unseen.\n\n{}{MEANING}",
        args.requests,
        kernel::release(),
        summary.unseen(),
        report::tables(&comparison)
    );
    args.common.page("accuracy.md", &text)
}
