//! The example `web`: services of axum and tonic, and loads for them, each request held against its trace.
//!
//! In: a service and a load. Out: what client and handler measured, and what does not fit.

use std::process::Command;

use anyhow::{Context, Result, ensure};

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

/// One answer, by the clock: before the client sent the request, when its handler began and ended, when the client had
/// the answer; `CLOCK_MONOTONIC` ns.
pub type Answer = [u64; 4];

/// Starts a service, and gives its address.
///
/// # Errors
///
/// When it does not build or start.
pub fn serve(service: &str, runtime: &str) -> Result<(Running, String)> {
    let mut command = Command::new(workspace::web()?);
    command.args([service, "--runtime", runtime]);
    let (server, line) = Running::server(command, "listening on ")?;
    let address = line.strip_prefix("listening on ").context("no address")?;
    Ok((server, address.to_owned()))
}

/// Does a load; its answers, and how many handlers panicked.
///
/// # Errors
///
/// When a request fails whose handler was not to panic.
pub fn load(address: &str, load: Load) -> Result<(Vec<Answer>, u64)> {
    let mut command = Command::new(workspace::web()?);
    command.args(["load", load.protocol, "--address", address]);
    for (name, value) in [
        ("--connections", load.connections),
        ("--streams", load.streams),
        ("--requests", load.requests),
    ] {
        command.args([name, &value.to_string()]);
    }
    let output = command.args(load.more).output()?;
    ensure!(
        output.status.success(),
        "{load:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut answers = Vec::new();
    let mut panicked = 0;
    for line in String::from_utf8(output.stdout)?.lines() {
        if line == "panicked" {
            panicked += 1;
            continue;
        }
        let words = line.split(' ').map(str::parse);
        let clocks: Vec<u64> = words.collect::<std::result::Result<_, _>>()?;
        let answer = clocks.try_into();
        answers.push(answer.map_err(|other| anyhow::anyhow!("{other:?} is no answer"))?);
    }
    ensure!(answers.len() as u64 + panicked == load.requests, "{load:?}");
    Ok((answers, panicked))
}

/// Checks that each answer is a row of its own: it begins between client and handler, and ends behind the handler. `is_task`:
/// the task that ends may have handed the answer over a moment before, so that the client has it already; else the row ends before the client has it.
///
/// Returns the latency of each answer's row, ns.
///
/// # Errors
///
/// With the answers that have none.
pub fn check(
    answers: &[Answer],
    rows: &[Row],
    monotonic_to_unix_ns: i64,
    is_task: bool,
) -> Result<Vec<u64>> {
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for row in rows.iter().filter(|row| row.complete) {
        let begin = row.start_unix_ns.checked_add_signed(-monotonic_to_unix_ns);
        let begin = begin.context("a row before the clock began")?;
        spans.push((begin, begin + row.latency_ns));
    }
    let fitting = answers.iter().map(|[before, begun, ended, after]| {
        let fits = |(begin, end): &(u64, u64)| {
            (before..=begun).contains(&begin) && ended <= end && (is_task || end <= after)
        };
        (0..spans.len()).filter(|row| fits(&spans[*row])).collect()
    });
    let fitting: Vec<Vec<usize>> = fitting.collect();
    let mut of_row = vec![None; spans.len()];
    let missing: Vec<&Answer> = (0..answers.len())
        .filter(|answer| {
            !assign(
                *answer,
                &fitting,
                &mut vec![false; spans.len()],
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
    let mut latencies = vec![0; answers.len()];
    for (answer, (begin, end)) in of_row.into_iter().zip(spans) {
        if let Some(answer) = answer {
            latencies[answer] = end - begin;
        }
    }
    Ok(latencies)
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

/// How much of what clients waited for is latency of their requests: of one, 1 is all.
#[must_use]
pub fn covered(answers: &[Answer], latencies: &[u64]) -> f64 {
    let waited = answers.iter().map(|[before, .., after]| after - before);
    latencies.iter().sum::<u64>() as f64 / waited.sum::<u64>() as f64
}
