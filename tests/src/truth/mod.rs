//! The example `truth`: started, told to do its requests, and compared with its trace.
//!
//! In: nothing but a folder of its own. Out: its process, its log, and by [`compare`] and [`bounds`]
//! how far a trace is from what the service measured itself.

pub mod bounds;
pub mod compare;
pub mod log;
pub mod moving;
pub mod report;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::process::{Child, Stream};
use crate::reqtrace::{Outcome, Trace};
use crate::workspace;

/// How long starting, or all requests, may take.
const LIMIT: Duration = Duration::from_secs(240);

/// The running example.
#[derive(Debug)]
pub struct Truth {
    process: Child,
    folder: TempDir,
}

/// Path of its profile.
#[must_use]
pub fn profile() -> PathBuf {
    workspace::root().join("examples/truth/truth.toml")
}

/// Traces so many requests of each kind, all that there are, and compares.
///
/// # Errors
///
/// When something does not run, or the trace and the log do not belong together.
pub fn trace(requests: u64) -> Result<(Outcome, compare::Comparison)> {
    let mut service = Truth::open(requests)?;
    let trace = Trace::start(&profile(), service.pid(), &[])?;
    service.run()?;
    let outcome = trace.finish()?;
    let log = service.close()?;
    if outcome.code != Some(0) {
        bail!(
            "reqtrace ended with {:?}\n{}",
            outcome.code,
            outcome.printed()
        );
    }
    let comparison = compare::Comparison::of(
        &log,
        &outcome.csv()?,
        outcome.summary()?.trace.monotonic_to_unix_ns,
    )?;
    Ok((outcome, comparison))
}

impl Truth {
    /// Starts it; it does no request yet.
    ///
    /// # Errors
    ///
    /// When it does not build or start.
    pub fn open(requests: u64) -> Result<Self> {
        let folder = workspace::scratch()?;
        let data = folder.path().join("data");
        let more = [
            "--data".as_ref(),
            data.as_os_str(),
            "--wait-ms".as_ref(),
            "2".as_ref(),
        ];
        Self::start(folder, &more, requests)
    }

    /// The same with requests that change threads; see [`moving`].
    ///
    /// # Errors
    ///
    /// When it does not build or start.
    pub fn open_moving(requests: u64) -> Result<Self> {
        Self::start(workspace::scratch()?, &["--moving".as_ref()], requests)
    }

    fn start(folder: TempDir, args: &[&OsStr], requests: u64) -> Result<Self> {
        let mut command = Command::new(workspace::truth()?);
        command.arg("--log").arg(folder.path().join("log"));
        command
            .args(["--requests", &requests.to_string()])
            .args(args);
        let mut process = Child::start(command, folder.path(), "truth")?;
        process.wait_for_line(Stream::Out, "ready", LIMIT)?;
        Ok(Self { process, folder })
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Lets it do its requests, and gives their number.
    ///
    /// # Errors
    ///
    /// When it fails.
    pub fn run(&mut self) -> Result<u64> {
        self.process.tell("go")?;
        crate::process::until(LIMIT, "the requests", || {
            let output = self.process.output(Stream::Out);
            let count = output.lines().find_map(|l| l.strip_suffix(" requests"));
            match (count, self.process.status()?) {
                (Some(count), _) => Ok(Some(count.parse()?)),
                (None, None) => Ok(None),
                (None, Some(status)) => {
                    bail!("{status}: {}", self.process.output(Stream::Err))
                }
            }
        })
    }

    /// Ends it, and gives its log.
    ///
    /// # Errors
    ///
    /// When it does not end well.
    pub fn close(mut self) -> Result<String> {
        self.process.tell("end")?;
        let status = self.process.wait(LIMIT)?;
        if !status.success() {
            bail!("{status}: {}", self.process.output(Stream::Err));
        }
        std::fs::read_to_string(self.folder.path().join("log")).context("the log")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_logs_every_request_and_its_own_numbers_agree() {
        let mut service = Truth::open(3).unwrap();
        let count = service.run().unwrap();
        let lines = log::read(&service.close().unwrap()).unwrap();
        assert_eq!(lines.len() as u64, count);
        for line in &lines {
            assert!(line.clocks.is_sorted(), "{line:?}");
            for wait in &line.waits {
                assert!(line.clocks[1] <= wait.begin_ns, "{line:?}");
                assert!(wait.begin_ns <= wait.end_ns, "{line:?}");
                assert!(wait.end_ns <= line.clocks[2], "{line:?}");
                assert!(wait.earliest_ns <= wait.latest_ns, "{line:?}");
            }
            let measured = line.counters();
            assert!(measured.iter().all(|counter| counter.least <= counter.most));
        }
    }

    #[test]
    fn requests_on_the_move_are_logged_in_order() {
        let mut service = Truth::open_moving(60).unwrap();
        let count = service.run().unwrap();
        let lines = moving::read(&service.close().unwrap()).unwrap();
        assert_eq!(lines.len() as u64, count);
        assert_eq!(count, 3 * 60);
        for line in &lines {
            assert!(line.begin.most <= line.end.least, "{line:?}");
            let away: i128 = line.away.iter().map(|(_, ns)| ns.least).sum();
            assert!(away <= line.end.most - line.begin.least, "{line:?}");
        }
        let moved = |kind: &str| {
            lines
                .iter()
                .filter(|line| line.kind == kind && line.moves > 0)
                .count()
        };
        assert!(moved("pool") == 60 && moved("loop") == 0 && moved("coroutine") > 0);
    }
}
