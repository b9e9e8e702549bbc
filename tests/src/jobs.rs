//! Examples that do jobs and measure them by themselves: `tasks` and `goroutines`.
//!
//! In: a command, and its log. Out: what was traced, and which jobs are not as they were measured. There is no
//! tolerance: each moment of a log lies between two readings of the clock that the kernel programs use too.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use tempfile::TempDir;

use crate::process::{Child, Stream, until};
use crate::reqtrace::{Outcome, Trace};
use crate::rows::Row;
use crate::truth::log::Interval;
use crate::workspace;

/// How long all jobs may take.
const LIMIT: Duration = Duration::from_secs(120);

/// An example that runs.
#[derive(Debug)]
pub struct Running {
    process: Child,
    folder: TempDir,
}

impl Running {
    /// Starts it with jobs that are to be done. `dashes` are before the names of its options.
    pub(crate) fn jobs(mut command: Command, dashes: &str) -> Result<Self> {
        let folder = workspace::scratch()?;
        for file in ["log", "data"] {
            let path = folder.path().join(file);
            command.arg(format!("{dashes}{file}")).arg(path);
        }
        let mut process = Child::start(command, folder.path(), "jobs")?;
        process.wait_for_line(Stream::Out, "ready", LIMIT)?;
        Ok(Self { process, folder })
    }

    /// Starts it as a server, and gives the line that has this in it.
    pub(crate) fn server(command: Command, line: &str) -> Result<(Self, String)> {
        let folder = workspace::scratch()?;
        let mut process = Child::start(command, folder.path(), "server")?;
        let line = process.wait_for_line(Stream::Out, line, LIMIT)?;
        Ok((Self { process, folder }, line))
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Traces all its jobs; what was traced, and its log.
    pub(crate) fn trace(mut self, profile: &Path, more: &[&str]) -> Result<(Outcome, String)> {
        let process = &mut self.process;
        let trace = Trace::start(profile, process.pid(), more)?;
        process.tell("go")?;
        until(LIMIT, "the jobs", || {
            let output = process.output(Stream::Out);
            if output.lines().any(|line| line.ends_with(" jobs")) {
                return Ok(Some(()));
            }
            match process.status()? {
                None => Ok(None),
                Some(status) => bail!("{status}: {}", process.output(Stream::Err)),
            }
        })?;
        let outcome = trace.finish()?;
        ensure!(outcome.code == Some(0), "{}", outcome.said());
        let log = fs::read_to_string(self.folder.path().join("log"))?;
        process.tell("end")?;
        Ok((outcome, log))
    }
}

/// A job that measured itself.
pub(crate) trait Measured {
    /// What kind of job it is, and its number among those.
    fn job(&self) -> (&str, u64);

    /// What of its row is not as it was; `begin_ns` is when that began, `CLOCK_MONOTONIC`.
    fn faults(&self, row: &Row, begin_ns: i128) -> Vec<String>;
}

/// Checks that each job of the log is one row, and that this is right.
///
/// # Errors
///
/// With the first ten things that do not fit, and their number.
pub(crate) fn check(
    lines: &[impl Measured],
    rows: &[Row],
    monotonic_to_unix_ns: i64,
) -> Result<()> {
    let mut by_job = BTreeMap::new();
    let mut wrong = Vec::new();
    for row in rows {
        let of = |name: &str| row.attributes.get(name).cloned().unwrap_or_default();
        let job = (of("kind"), of("number"));
        if by_job.insert(job.clone(), row).is_some() {
            wrong.push(format!("{job:?} comes twice"));
        }
    }
    for line in lines {
        let (kind, number) = line.job();
        let name = format!("{kind} {number}");
        let Some(row) = by_job.remove(&(kind.to_owned(), number.to_string())) else {
            wrong.push(format!("{name} was not traced"));
            continue;
        };
        let begin_ns = i128::from(row.start_unix_ns) - i128::from(monotonic_to_unix_ns);
        let faults = line.faults(row, begin_ns).into_iter();
        wrong.extend(faults.map(|fault| format!("{name}: {fault}")));
    }
    wrong.extend(by_job.keys().map(|job| format!("{job:?} is in no log")));
    let first = &wrong[..wrong.len().min(10)];
    ensure!(
        wrong.is_empty(),
        "{} faults in {} jobs:\n{}",
        wrong.len(),
        lines.len(),
        first.join("\n")
    );
    Ok(())
}

/// Times that are not within their brackets: their names, what was measured, and what was traced.
pub(crate) fn outside(checked: Vec<(&str, Interval, i128)>) -> Vec<String> {
    let wrong = checked
        .into_iter()
        .filter(|(_, measured, traced)| *traced < measured.least || *traced > measured.most);
    wrong
        .map(|(what, measured, traced)| {
            let below = (measured.least - traced).max(0);
            let above = (traced - measured.most).max(0);
            format!("{what} {below} ns too small, {above} ns too large")
        })
        .collect()
}
