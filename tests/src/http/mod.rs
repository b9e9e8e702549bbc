//! Requests to the web servers of the tests, over the loopback.
//!
//! In: a port and a path. Out: exactly so many requests, or an error.

pub mod client;
pub mod upstream;

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::process::{run, until};
use crate::workspace;

/// Makes exactly `requests` requests for `path` over `clients` connections at a time.
///
/// # Errors
///
/// When they were not all answered.
pub fn ab(port: u16, path: &str, requests: u64, clients: u32, more: &[&str]) -> Result<()> {
    ab_mean(port, path, requests, clients, more).map(drop)
}

/// The same; how long a request took its client, in the mean.
///
/// # Errors
///
/// When they were not all answered.
pub fn ab_mean(
    port: u16,
    path: &str,
    requests: u64,
    clients: u32,
    more: &[&str],
) -> Result<Duration> {
    let mut command = Command::new(workspace::program("ab")?);
    let (requests, clients) = (requests.to_string(), clients.to_string());
    command.args(["-q", "-n", &requests, "-c", &clients]);
    command.args(more);
    command.arg(format!("http://127.0.0.1:{port}{path}"));
    let printed = run(&mut command)?;
    let complete = value(&printed, "Complete requests:")?;
    ensure!(complete == requests, "ab: {printed}");
    let mean_ms: f64 = value(&printed, "Time per request:")?.parse()?;
    Ok(Duration::from_secs_f64(mean_ms / 1_000.0))
}

/// The first value of this name in what `ab` prints.
fn value<'a>(printed: &'a str, name: &str) -> Result<&'a str> {
    let value = printed.lines().find_map(|line| line.strip_prefix(name));
    let value = value.and_then(|value| value.split_ascii_whitespace().next());
    value.with_context(|| format!("ab says nothing of {name:?}: {printed}"))
}

/// Makes requests for `path` over `clients` kept connections for so many seconds. Returns how many were answered, and in how
/// many seconds.
///
/// # Errors
///
/// When `ab` is not installed or fails.
pub fn ab_seconds(port: u16, path: &str, clients: u32, seconds: u32) -> Result<(u64, f64)> {
    let mut command = Command::new(workspace::program("ab")?);
    let (clients, seconds) = (clients.to_string(), seconds.to_string());
    // A time limit lowers the number of requests, unless that comes after it.
    command.args(["-q", "-k", "-c", &clients, "-t", &seconds, "-n", "1000000"]);
    command.arg(format!("http://127.0.0.1:{port}{path}"));
    let printed = run(&mut command)?;
    let answered = value(&printed, "Complete requests:")?.parse()?;
    Ok((answered, value(&printed, "Time taken for tests:")?.parse()?))
}

/// A port that was free a moment ago.
///
/// # Errors
///
/// When the loopback cannot be bound to.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

/// Waits until somebody listens on a port.
///
/// # Errors
///
/// When `limit` is over.
pub fn listens(port: u16, limit: Duration) -> Result<()> {
    until(limit, "the server to listen", || {
        Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok())
    })?;
    Ok(())
}
