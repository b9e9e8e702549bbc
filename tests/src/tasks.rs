//! The example `tasks`: started, told to do its jobs, and held against its trace one by one. The form of its log is
//! described in `examples/tasks/src/measured.rs`.
//!
//! In: a kind of runtime. Out: what was traced, the log, and what does not fit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::jobs::{self, Measured, Running};
use crate::process::run;
use crate::reqtrace::Outcome;
use crate::rows::Row;
use crate::truth::log::{Interval, each_line, interval};
use crate::workspace;

/// The kinds of jobs, all of which the profile knows.
pub const KINDS: usize = 15;

/// One job, as it measured itself.
#[derive(Clone, Debug)]
pub struct Line {
    /// What kind of job it is.
    pub kind: String,
    /// Its number among those.
    pub number: u64,
    /// When it was spawned, `CLOCK_MONOTONIC` ns.
    pub begin: Interval,
    /// When it was done.
    pub end: Interval,
    /// How long it waited for an event, ns.
    pub parked: Interval,
    /// How long it waited for a thread.
    pub queued: Interval,
}

/// Path of a profile of the example.
#[must_use]
pub fn profile(name: &str) -> PathBuf {
    workspace::root().join("examples/tasks").join(name)
}

/// Traces so many jobs of each kind, all that there are.
///
/// # Errors
///
/// When something does not run, or the log cannot be read.
pub fn trace(runtime: &str, jobs: u64, more: &[&str]) -> Result<(Outcome, Vec<Line>)> {
    let (outcome, log) = start(runtime, jobs)?.trace(&profile("tasks.toml"), more)?;
    Ok((outcome, read(&log)?))
}

/// Traces so many jobs of each kind that there is where some block their threads.
///
/// # Errors
///
/// As [`trace`].
pub fn trace_blocking(jobs: u64, more: &[&str]) -> Result<(Outcome, Vec<Line>)> {
    let running = start_mode(&workspace::tasks()?, "blocking", "multi", jobs)?;
    let (outcome, log) = running.trace(&profile("tasks.toml"), more)?;
    Ok((outcome, read(&log)?))
}

/// The same of another build of it, by another profile.
///
/// # Errors
///
/// As [`trace`].
pub fn trace_of(
    program: &Path,
    profile: &Path,
    runtime: &str,
    jobs: u64,
    more: &[&str],
) -> Result<(Outcome, Vec<Line>)> {
    let (outcome, log) = start_program(program, runtime, jobs)?.trace(profile, more)?;
    Ok((outcome, read(&log)?))
}

/// The same as [`trace`] with blame, beside so many pairs of tasks that are no jobs and wake each other.
///
/// # Errors
///
/// As [`trace`].
pub fn trace_beside(runtime: &str, jobs: u64, pairs: usize) -> Result<(Outcome, Vec<Line>)> {
    let running = start_beside(runtime, jobs, pairs)?;
    let (outcome, log) = running.trace(&profile("tasks.toml"), &["--blame"])?;
    Ok((outcome, read(&log)?))
}

/// Starts it with jobs, and with such pairs.
///
/// # Errors
///
/// When it does not build or start.
pub fn start_beside(runtime: &str, jobs: u64, pairs: usize) -> Result<Running> {
    let mut command = command(&workspace::tasks()?, "jobs", runtime, jobs);
    command.args(["--beside", &pairs.to_string()]);
    Running::jobs(command, "--")
}

/// Reads a log.
///
/// # Errors
///
/// When a line is not as agreed.
pub fn read(log: &str) -> Result<Vec<Line>> {
    each_line(log, read_line)
}

/// Starts it with jobs that are to be done.
///
/// # Errors
///
/// When it does not build or start.
pub fn start(runtime: &str, jobs: u64) -> Result<Running> {
    start_program(&workspace::tasks()?, runtime, jobs)
}

fn start_program(program: &Path, runtime: &str, jobs: u64) -> Result<Running> {
    start_mode(program, "jobs", runtime, jobs)
}

fn start_mode(program: &Path, mode: &str, runtime: &str, jobs: u64) -> Result<Running> {
    Running::jobs(command(program, mode, runtime, jobs), "--")
}

fn command(program: &Path, mode: &str, runtime: &str, jobs: u64) -> Command {
    let mut command = Command::new(program);
    command.args([mode, "--runtime", runtime, "--jobs", &jobs.to_string()]);
    command
}

/// Releases of tokio that the example is tried with, beside the one that it is built with.
pub const RELEASES: [&str; 6] = ["1.24.2", "1.28.2", "1.32.1", "1.36.0", "1.40.0", "1.44.2"];

/// The example, built for release with this release of tokio and these flags of the compiler, and with symbols.
///
/// # Errors
///
/// When it does not build.
pub fn built_by_release(release: &str, flags: &str) -> Result<PathBuf> {
    let examples = workspace::root().join("examples");
    let folder = workspace::target()
        .join("builds")
        .join(format!("tokio-{release}{flags}"));
    let package = folder.join("package");
    let _ = fs::remove_dir_all(&package);
    fs::create_dir_all(&package)?;
    let sources = examples.join("tasks/src");
    let clock = examples.join("clock");
    let (sources, clock) = (sources.display(), clock.display());
    let manifest = format!(
        "[workspace]\n[package]\nname = \"tasks\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         [[bin]]\nname = \"tasks\"\npath = \"{sources}/main.rs\"\n\
         [dependencies]\nexample-clock = {{ path = \"{clock}\" }}\nlibc = \"0.2\"\n\
         tokio = {{ version = \"={release}\", features = [\"io-util\", \"net\", \"rt-multi-thread\", \"sync\", \"time\"] }}\n\
         [profile.release]\ndebug = 1\n"
    );
    fs::write(package.join("Cargo.toml"), manifest)?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--quiet", "--release", "--target-dir"])
        .arg(&folder)
        .env("RUSTFLAGS", flags)
        .current_dir(&package);
    run(&mut cargo).with_context(|| format!("tokio {release}"))?;
    Ok(folder.join("release/tasks"))
}

/// A build of the example for release, with settings of its own.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// Of the folder that it is in.
    pub name: &'static str,
    /// Keys of cargo's profile, as variables of the environment have them, and their values.
    pub settings: &'static [(&'static str, &'static str)],
    /// Whether all symbols are taken out of it.
    pub is_stripped: bool,
}

impl Build {
    /// Its program, which is built if it was not.
    ///
    /// # Errors
    ///
    /// When it does not build, or `strip` fails.
    pub fn program(&self) -> Result<PathBuf> {
        let program = workspace::built_as("tasks", self.name, self.settings)?;
        if !self.is_stripped {
            return Ok(program);
        }
        let stripped = program.with_extension("stripped");
        let mut strip = Command::new(workspace::program("strip")?);
        let status = strip.arg("-o").arg(&stripped).arg(&program).status()?;
        ensure!(status.success(), "strip of {}: {status}", program.display());
        Ok(stripped)
    }
}

/// Starts it as a server, and gives its address.
///
/// # Errors
///
/// When it does not build or start.
pub fn server(runtime: &str) -> Result<(Running, String)> {
    let mut command = Command::new(workspace::tasks()?);
    command.args(["http", "--runtime", runtime]);
    let (server, line) = Running::server(command, "listening on ")?;
    let address = line.strip_prefix("listening on ").context("no address")?;
    Ok((server, address.to_owned()))
}

/// Checks that each job of the log is one complete row, within its brackets.
///
/// # Errors
///
/// With the first ten things that do not fit, and their number.
pub fn check(lines: &[Line], rows: &[Row], monotonic_to_unix_ns: i64) -> Result<()> {
    jobs::check(lines, rows, monotonic_to_unix_ns)
}

impl Measured for Line {
    fn job(&self) -> (&str, u64) {
        (&self.kind, self.number)
    }

    fn faults(&self, row: &Row, begin_ns: i128) -> Vec<String> {
        if !row.complete {
            return vec![format!("is incomplete: {}", row.reason)];
        }
        jobs::outside(vec![
            ("begin", self.begin, begin_ns),
            ("end", self.end, begin_ns + i128::from(row.latency_ns)),
            ("parked", self.parked, row.parked_ns.into()),
            ("queued", self.queued, row.queued_ns.into()),
        ])
    }
}

fn read_line(line: &str) -> Result<Line> {
    let words: Vec<_> = line.split(' ').collect();
    let [kind, number, begin, end, parked, queued] = words.as_slice() else {
        bail!("{} words", words.len());
    };
    Ok(Line {
        kind: (*kind).to_owned(),
        number: number.parse()?,
        begin: interval(begin)?,
        end: interval(end)?,
        parked: interval(parked)?,
        queued: interval(queued)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(parked_ns: u64) -> Row {
        let attributes = [("kind", "sleeps"), ("number", "3")];
        Row {
            start_unix_ns: 1105,
            complete: true,
            latency_ns: 100,
            parked_ns,
            queued_ns: 25,
            attributes: attributes
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ..Row::default()
        }
    }

    fn fault(rows: &[Row]) -> String {
        let line = read_line("sleeps 3 100..110 200..210 0..50 20..30").unwrap();
        let checked = check(&[line], rows, 1000);
        checked.map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn one_nanosecond_outside_is_found_and_each_job_is_one_row() {
        assert_eq!(fault(&[row(50)]), "");
        assert!(fault(&[row(51)]).ends_with("sleeps 3: parked 0 ns too small, 1 ns too large"));
        assert!(fault(&[]).ends_with("was not traced"));
        assert!(fault(&[row(50), row(50)]).contains("comes twice"));
        let incomplete = Row {
            complete: false,
            ..row(50)
        };
        assert!(fault(&[incomplete]).contains("incomplete"));
    }
}
