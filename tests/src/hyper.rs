//! The example `web`: services of axum and tonic, and loads for them, each request held against its trace.
//!
//! In: a service and a load. Out: what client and handler measured, and what does not fit.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::covered::{Answer, Traced};
use crate::jobs::Running;
use crate::rows::Row;
use crate::workspace;

/// A load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// `http1`, `http2` or `grpc`.
    pub protocol: &'static str,
    /// Connections.
    pub connections: u64,
    /// Requests at a time on each of them.
    pub streams: u64,
    /// Requests in all.
    pub requests: u64,
    /// What else is on its command line.
    pub more: &'static [&'static str],
}

impl Load {
    /// Whether a client waits for one request at a time, on a connection that is kept.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.connections * self.streams == 1 && !self.more.contains(&"--close")
    }
}

/// What a load left behind.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// One for each answer.
    pub answers: Vec<Answer>,
    /// How many handlers panicked.
    pub panicked: u64,
    /// When the client's one thread slept, one span after the other, `CLOCK_MONOTONIC` ns.
    pub asleep: Vec<[u64; 2]>,
}

/// Starts a service, and gives its address.
///
/// # Errors
///
/// When it does not build or start.
pub fn serve(service: &str, runtime: &str) -> Result<(Running, String)> {
    web(&[service, "--runtime", runtime])
}

/// Starts what handlers ask, a thread `upstream` of a process of its own, and gives its address.
///
/// # Errors
///
/// As [`serve`].
pub fn upstream() -> Result<(Running, String)> {
    web(&["upstream"])
}

/// Starts a service whose handlers ask the upstream at this address.
///
/// # Errors
///
/// As [`serve`].
pub fn serve_before(service: &str, runtime: &str, upstream: &str) -> Result<(Running, String)> {
    web(&[service, "--runtime", runtime, "--upstream", upstream])
}

fn web(args: &[&str]) -> Result<(Running, String)> {
    let mut command = Command::new(workspace::web()?);
    command.args(args);
    listening(command)
}

/// Starts a service that prints `listening on ADDRESS`, and gives its address.
///
/// # Errors
///
/// As [`serve`].
pub fn listening(command: Command) -> Result<(Running, String)> {
    let (server, line) = Running::server(command, "listening on ")?;
    let address = line.strip_prefix("listening on ").context("no address")?;
    Ok((server, address.to_owned()))
}

/// The command that does a load.
///
/// # Errors
///
/// When the example does not build.
pub fn command(address: &str, load: Load) -> Result<Command> {
    let mut command = Command::new(workspace::web()?);
    command.args(["load", load.protocol, "--address", address]);
    for (name, value) in [
        ("--connections", load.connections),
        ("--streams", load.streams),
        ("--requests", load.requests),
    ] {
        command.args([name, &value.to_string()]);
    }
    command.args(load.more);
    Ok(command)
}

/// Does a load.
///
/// # Errors
///
/// When a request fails whose handler was not to panic.
pub fn load(address: &str, load: Load) -> Result<Loaded> {
    let output = command(address, load)?.output()?;
    ensure!(
        output.status.success(),
        "{load:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut loaded = Loaded::default();
    for line in String::from_utf8(output.stdout)?.lines() {
        let (what, words) = line.split_once(' ').unwrap_or((line, ""));
        let clocks = words.split_whitespace().map(str::parse);
        let clocks: Vec<u64> = clocks.collect::<std::result::Result<_, _>>()?;
        match (what, clocks.as_slice()) {
            ("panicked", []) => loaded.panicked += 1,
            ("asleep", &[from, until]) => loaded.asleep.push([from, until]),
            ("answer", &[before, connected, begun, waits, came, ended, after]) => {
                loaded.answers.push(Answer {
                    before,
                    connected,
                    begun,
                    waits,
                    came,
                    ended,
                    after,
                });
            }
            _ => anyhow::bail!("{load:?}: {line:?}"),
        }
    }
    let all = loaded.answers.len() as u64 + loaded.panicked;
    ensure!(all == load.requests, "{load:?}: {all} answers");
    Ok(loaded)
}

/// Checks that each answer is a row of its own: it begins between client and handler, and ends behind the handler. `is_task`:
/// the task that ends may have handed the answer over a moment before, so that the client has it already; else the row ends before the client has it.
///
/// Returns what was traced of each answer.
///
/// # Errors
///
/// With the answers that have none.
pub fn check(
    answers: &[Answer],
    rows: &[Row],
    monotonic_to_unix_ns: i64,
    is_task: bool,
) -> Result<Vec<Traced>> {
    let mut traced: Vec<Traced> = Vec::new();
    for row in rows.iter().filter(|row| row.complete) {
        let begin = row.start_unix_ns.checked_add_signed(-monotonic_to_unix_ns);
        let begin = begin.context("a row before the clock began")?;
        traced.push(Traced {
            begin,
            end: begin + row.latency_ns,
            waited_before: row.waited_before_ns,
        });
    }
    let fitting = answers.iter().map(|answer| {
        let fits = |row: &Traced| {
            (answer.before..=answer.begun).contains(&row.begin)
                && answer.ended <= row.end
                && (is_task || row.end <= answer.after)
        };
        let rows = 0..traced.len();
        rows.filter(|row| fits(&traced[*row])).collect()
    });
    let fitting: Vec<Vec<usize>> = fitting.collect();
    let mut of_row = vec![None; traced.len()];
    let missing: Vec<&Answer> = (0..answers.len())
        .filter(|answer| {
            !assign(
                *answer,
                &fitting,
                &mut vec![false; traced.len()],
                &mut of_row,
            )
        })
        .map(|answer| &answers[answer])
        .collect();
    ensure!(
        missing.is_empty(),
        "{} of {} answers have no row: {:?}",
        missing.len(),
        answers.len(),
        &missing[..missing.len().min(5)]
    );
    let mut of_answer = vec![Traced::default(); answers.len()];
    for (answer, row) in of_row.into_iter().zip(traced) {
        if let Some(answer) = answer {
            of_answer[answer] = row;
        }
    }
    Ok(of_answer)
}

/// Whether an answer gets a row: one that is free, or whose answer gets another one.
fn assign(
    answer: usize,
    fitting: &[Vec<usize>],
    seen: &mut [bool],
    of_row: &mut [Option<usize>],
) -> bool {
    for &row in &fitting[answer] {
        if std::mem::replace(&mut seen[row], true) {
            continue;
        }
        if of_row[row].is_none_or(|other| assign(other, fitting, seen, of_row)) {
            of_row[row] = Some(answer);
            return true;
        }
    }
    false
}
