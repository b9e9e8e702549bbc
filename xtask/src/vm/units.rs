//! Judges the traces of services whose requests are tasks of tokio, or in goroutines of Go: every job a request, as the job
//! measured itself.
//!
//! In: the guest's files. Out: for each runtime one line that says what was checked, or what is wrong.

use std::path::Path;

use anyhow::{Context as _, Result};
use reqtrace_tests::{blamed, goroutine_checks, goroutines, jobs::Traced, task_checks, tasks};

use super::verdict::{KNOWN_SHARE, of_traced};

/// How many jobs of each kind the guest has done: `UNIT_JOBS` of `guest.sh`.
const JOBS: u64 = 30;

/// What was checked of one runtime.
pub(super) struct Checked {
    /// What requests are.
    pub(super) title: &'static str,
    /// What held.
    pub(super) verdict: String,
}

/// Checks those that the guest has traced: all, or one of each runtime.
pub(super) fn judge(results: &Path, all: bool) -> Result<Vec<Checked>> {
    let mut on_tokio = of_tokio(results, "tasks-multi").context("tasks-multi")?;
    let mut threads = "on many threads";
    let mut goroutines = format!("{} goroutines", whole(results).context("whole goroutines")?);
    let mut kinds = String::new();
    if all {
        on_tokio += of_tokio(results, "tasks-current").context("tasks-current")?;
        threads = "on many threads and on one";
        let calls = calls(results).context("calls in goroutines")?;
        goroutines = format!("{calls} calls and {goroutines}");
        let in_pairs = by_kinds(results, "kinds", goroutine_checks::held_up_by_kinds)?
            + by_kinds(results, "pairs", goroutine_checks::held_up_by_pairs)?;
        kinds = format!(", and {in_pairs} by kinds");
    }
    Ok(vec![
        Checked {
            title: "tasks of tokio",
            verdict: format!(
                "{on_tokio} jobs {threads}, 0 lost, as measured by themselves, with their reasons, their stacks and who held \
                 them up"
            ),
        },
        Checked {
            title: "goroutines",
            verdict: format!(
                "{goroutines}, 0 lost, as measured by themselves, with their reasons and their stacks; who held them up{kinds}"
            ),
        },
    ])
}

/// Jobs on one kind of runtime.
fn of_tokio(results: &Path, name: &str) -> Result<usize> {
    let of = of_traced(results, name)?;
    let traced = read(&of)?;
    task_checks::every_job(&traced, &tasks::read(&of("log")?)?, JOBS)?;
    task_checks::reasons_and_stacks(&traced)?;
    task_checks::blocking_jobs(&traced, JOBS)?;
    let blamed = blamed::read(&of("trace/blame.csv")?)?;
    task_checks::held_up(&traced, &blamed)?;
    task_checks::timers(&traced, &blamed)?;
    task_checks::threads_of_the_pool(&traced, &blamed)?;
    blamed::sockets_known(&blamed, "asker", "parked: tokio socket", KNOWN_SHARE)?;
    task_checks::queued(&traced, name == "tasks-current", JOBS)?;
    Ok(traced.rows.len())
}

/// Jobs as calls of a function, some of which panic.
fn calls(results: &Path) -> Result<usize> {
    let of = of_traced(results, "goroutines")?;
    let traced = read(&of)?;
    goroutine_checks::every_call(&traced, &goroutines::read(&of("log")?)?, JOBS)?;
    goroutine_checks::reasons_and_stacks(&traced)?;
    Ok(traced.rows.len())
}

/// Jobs as goroutines, from their start to their end.
fn whole(results: &Path) -> Result<usize> {
    let of = of_traced(results, "units")?;
    let traced = read(&of)?;
    let lines = goroutines::read(&of("log")?)?;
    goroutine_checks::every_goroutine(&traced, &lines, JOBS)?;
    let blamed = blamed::read(&of("trace/blame.csv")?)?;
    goroutine_checks::held_up(&traced, &blamed)?;
    blamed::sockets_known(&blamed, "job", "parked: IO wait", KNOWN_SHARE)?;
    Ok(traced.rows.len())
}

/// Jobs by kinds: which of them wait for which others.
fn by_kinds(
    results: &Path,
    name: &str,
    check: impl Fn(&Traced, &[blamed::Blamed]) -> Result<()>,
) -> Result<usize> {
    let of = of_traced(results, name)?;
    let traced = read(&of)?;
    check(&traced, &blamed::read(&of("trace/blame.csv")?)?)
        .with_context(|| format!("goroutines by {name}"))?;
    Ok(traced.rows.len())
}

/// The trace of a service.
fn read(of: impl Fn(&str) -> Result<String>) -> Result<Traced> {
    let traced = Traced::read(|name| of(&format!("trace/{name}")))?;
    Ok(Traced {
        behind_known: KNOWN_SHARE,
        ..traced
    })
}
