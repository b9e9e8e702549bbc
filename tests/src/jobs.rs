//! Examples that do jobs and measure them by themselves: `tasks` and `goroutines`.
//!
//! In: a command, and its log; or the files of a trace that a guest of the VM tier made. Out: what was traced, and which
//! jobs are not as they were measured. There is no tolerance: each moment of a log lies between two readings of the clock that the kernel programs use too.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::blamed::{self, Blamed};
use crate::ledger;
use crate::process::{Child, Stream, until};
use crate::reqtrace::{Outcome, Trace};
use crate::rows::{self, Row};
use crate::summary::{Request, Summary};
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
    pub fn server(command: Command, line: &str) -> Result<(Self, String)> {
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
        let trace = Trace::start(profile, self.process.pid(), more)?;
        self.carry_out()?;
        let outcome = trace.finish()?;
        ensure!(outcome.code == Some(0), "{}", outcome.printed());
        let log = fs::read_to_string(self.folder.path().join("log"))?;
        self.process.tell("end")?;
        Ok((outcome, log))
    }

    /// Lets it do its jobs.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn begin(&mut self) -> Result<()> {
        self.process.tell("go")
    }

    /// Lets it do its jobs, and waits until they are done.
    ///
    /// # Errors
    ///
    /// When it ends before, or they take too long.
    pub fn carry_out(&mut self) -> Result<()> {
        self.begin()?;
        let process = &mut self.process;
        until(LIMIT, "the jobs", || {
            let output = process.output(Stream::Out);
            if output.lines().any(|line| line.ends_with(" jobs")) {
                return Ok(Some(()));
            }
            match process.status()? {
                None => Ok(None),
                Some(status) => bail!("{status}: {}", process.output(Stream::Err)),
            }
        })
    }
}

/// How much of a time has to have its reason, its stack and its culprit.
pub(crate) const SHARE: f64 = 0.95;

/// How much of the time at sockets has to have its culprit.
pub const SOCKETS: f64 = 0.8;

/// How much of a wait may be blamed on another request than the one that has what it waits for.
pub(crate) const INNOCENT: f64 = 0.005;

/// What a trace left that lost nothing, and whose ledgers all close.
#[derive(Clone, Debug)]
pub struct Traced {
    /// `summary.json`.
    pub summary: Summary,
    /// `requests.csv`.
    pub rows: Vec<Row>,
    /// `stacks.folded`.
    pub folded: String,
    /// How much of what requests were queued behind has to be known: [`SHARE`], or less of an emulated machine.
    pub behind_known: f64,
}

impl Traced {
    /// Reads its files, which `of` gives by their names.
    ///
    /// # Errors
    ///
    /// When one is missing, something was lost, or a ledger does not close.
    pub fn read(of: impl Fn(&str) -> Result<String>) -> Result<Self> {
        let summary = Summary::read(&of("summary.json")?)?;
        // A thread that closes what another one waits for hides its name, and nothing else.
        let mut losses = summary.losses.iter();
        let nameless = losses.find(|loss| loss.name == "file_unknown");
        let lost = summary.lost() - nameless.map_or(0, |loss| loss.count);
        ensure!(lost == 0, "lost: {:?}", summary.losses);
        let csv = of("requests.csv")?;
        ledger::check(&csv)?;
        let rows = rows::read(&csv)?;
        let folded = of("stacks.folded")?;
        Ok(Self {
            summary,
            rows,
            folded,
            behind_known: SHARE,
        })
    }

    /// The same of a trace that was made here.
    ///
    /// # Errors
    ///
    /// As [`Traced::read`], and when the tracer did not end with 0.
    pub fn of(outcome: &Outcome) -> Result<Self> {
        ensure!(outcome.code == Some(0), "{}", outcome.printed());
        let of = |name: &str| {
            let path = outcome.path(name);
            fs::read_to_string(&path).with_context(|| path.display().to_string())
        };
        Self::read(of).with_context(|| outcome.printed())
    }

    /// Of the requests that fit, what `ns` of them sums up to.
    pub fn sum(&self, fits: impl Fn(&Row) -> bool, ns: impl Fn(&Row) -> u64) -> u64 {
        self.rows.iter().filter(|row| fits(row)).map(ns).sum()
    }

    /// Microseconds of the stacks that fit.
    ///
    /// # Errors
    ///
    /// When a line is not `frames N`.
    pub fn micros(&self, fits: impl Fn(&str) -> bool) -> Result<u64> {
        let mut sum = 0;
        for line in self.folded.lines().filter(|line| fits(line)) {
            let (_, us) = line.rsplit_once(' ').context("a line without a number")?;
            sum += us.parse::<u64>().with_context(|| line.to_owned())?;
        }
        Ok(sum)
    }

    /// Checks that waits of requests of a type in a class came down to the holder, and hardly to any other request.
    pub(crate) fn held_up(
        &self,
        blamed: &[Blamed],
        (waiter, class): (&str, &str),
        holder: &str,
    ) -> Result<()> {
        let waits =
            |row: &Blamed| row.victim_request == waiter && row.wait_class.starts_with(class);
        let all = blamed::sum(blamed, waits);
        let right = blamed::sum(blamed, |row| waits(row) && row.culprit_request == holder);
        let nobody = blamed::sum(blamed, |row| waits(row) && row.culprit_request.is_empty());
        let innocent = all - right - nobody;
        check_share(waiter, right, all).with_context(|| format!("{blamed:#?}"))?;
        ensure!(
            innocent as f64 <= INNOCENT * all as f64,
            "{waiter}: {innocent} ns of {all} because of others: {blamed:#?}"
        );
        Ok(())
    }

    /// Checks that waits of requests of this type (none: of all) in this class came down to one of these causes.
    pub(crate) fn known(
        &self,
        blamed: &[Blamed],
        wait: (Option<&str>, &str),
        causes: &[&str],
    ) -> Result<()> {
        let (victim, class) = wait;
        let is = |row: &Blamed| {
            victim.is_none_or(|victim| row.victim_request == victim)
                && row.wait_class.starts_with(class)
        };
        let right = |row: &Blamed| is(row) && causes.contains(&&*row.root_cause);
        let (right, all) = (blamed::sum(blamed, right), blamed::sum(blamed, is));
        check_share(class, right, all).with_context(|| format!("{victim:?}: {blamed:#?}"))
    }

    /// Checks that enough is known of what requests of this type (none: of all) were queued behind, and that the parts add
    /// up; gives what was behind requests of that type.
    ///
    /// # Errors
    ///
    /// With the type of which that does not hold.
    pub(crate) fn queued_behind(&self, victim: Option<&str>, request: &str) -> Result<u64> {
        let mut behind_ns = 0;
        let types = self.summary.blame.iter();
        let types = types.filter(|of| victim.is_none_or(|victim| victim == of.request));
        for (of, queue) in types.filter_map(|of| Some((of, of.queue.as_ref()?))) {
            let sum = queue.behind(|_| true);
            ensure!(
                sum == queue.queued_ns,
                "{sum} ns of what is queued: {of:#?}"
            );
            let known = queue.behind(|behind| behind.kind != "unknown");
            ensure!(
                sum > 0 && known as f64 >= self.behind_known * sum as f64,
                "known: {known} of {sum}: {of:#?}"
            );
            behind_ns += queue.behind(|behind| behind.request.as_deref() == Some(request));
        }
        Ok(behind_ns)
    }

    /// Checks that what a request waited for the runtime is what it was queued, and that each was made ready before it went on.
    pub(crate) fn check_queued(&self) -> Result<()> {
        let mut rows = self.rows.iter();
        let wrong = rows.find(|row| in_place(row, "waited_for_the_runtime") != row.queued_ns);
        ensure!(wrong.is_none(), "queued elsewhere: {wrong:?}");
        let counts = self.summary.trace.markers.iter();
        let counts = counts.filter_map(|marker| marker.counts.as_ref());
        let (resumed, unready) = counts.fold((0, 0), |(resumed, unready), counts| {
            (resumed + counts.resumed, unready + counts.not_ready)
        });
        ensure!(
            resumed > 0 && unready == 0,
            "{unready} of {resumed} went on without a ready"
        );
        Ok(())
    }
}

/// Checks how many requests of a type began and ended; those without an end are incomplete for that, and no marker
/// came without a request.
pub(crate) fn check_counts(request: &Request, begins: u64, ends: u64) -> Result<()> {
    let counts = [request.begins, request.ends, request.count, request.rows];
    ensure!(
        counts == [begins, ends, ends, ends],
        "not {begins} begins and {ends} ends: {request:?}"
    );
    let without_end: BTreeMap<String, u64> = (begins > ends)
        .then(|| ("no end".to_owned(), begins - ends))
        .into_iter()
        .collect();
    ensure!(
        request.incomplete == without_end,
        "incomplete for another reason: {request:?}"
    );
    let misfits = [request.unknown_keys, request.running_elsewhere];
    ensure!(misfits == [Some(0); 2], "{request:?}");
    Ok(())
}

/// Nanoseconds of a request in this place; 0 where no request was in it.
pub(crate) fn in_place(row: &Row, place: &str) -> u64 {
    row.places.get(place).copied().unwrap_or(0)
}

/// An attribute of a request.
pub(crate) fn attribute<'a>(row: &'a Row, name: &str) -> &'a str {
    row.attributes.get(name).map_or("", String::as_str)
}

/// Checks that enough of a whole is as it has to be.
pub(crate) fn check_share(what: &str, part: u64, all: u64) -> Result<()> {
    ensure!(
        all > 0 && part as f64 >= SHARE * all as f64,
        "{what}: {part} of {all}"
    );
    Ok(())
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
        let of = |name| attribute(row, name).to_owned();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn request(begins: u64, ends: u64, unknown_keys: u64) -> Request {
        let text = format!(
            "{{\"name\":\"job\",\"count\":{ends},\"exact_count\":{ends},\"rows\":{ends},\"begins\":{begins},\
             \"ends\":{ends},\"ends_without_begin\":0,\"unknown_keys\":{unknown_keys},\"running_elsewhere\":0}}"
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_request_too_few_and_a_key_that_nobody_knows_are_found() {
        check_counts(&request(30, 30, 0), 30, 30).unwrap();
        assert!(check_counts(&request(30, 29, 0), 30, 30).is_err());
        assert!(check_counts(&request(30, 30, 1), 30, 30).is_err());
        // One that panics is incomplete, and for nothing else.
        let mut panicked = request(30, 29, 0);
        assert!(check_counts(&panicked, 30, 29).is_err());
        panicked.incomplete = [("no end".to_owned(), 1)].into();
        check_counts(&panicked, 30, 29).unwrap();
    }

    #[test]
    fn a_share_of_nothing_is_none() {
        check_share("all", 95, 100).unwrap();
        assert!(check_share("most", 94, 100).is_err());
        assert!(check_share("none", 0, 0).is_err());
    }
}
