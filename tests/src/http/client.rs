//! A client that reads the clock before it asks and after it has the answer.
//!
//! In: a port and paths. Out: an [`Exchange`] each. The clock is `CLOCK_MONOTONIC`, that of the kernel programs: a
//! server's request cannot begin before the first reading.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use example_clock as clock;

/// A request and its answer, as the client saw them.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// What was asked for.
    pub path: String,
    /// Clock before the first byte was sent, ns.
    pub before_ns: u64,
    /// Clock before what the client held back on purpose: the end of its request, or reading the answer. The
    /// same as `before_ns` when it did not.
    pub held_back_ns: u64,
    /// Clock after the answer: that the server has closed the connection, if it was asked to.
    pub after_ns: u64,
    /// Status of the answer.
    pub status: u16,
}

/// Asks for `path` over a connection of its own, which the server closes after the answer.
///
/// # Errors
///
/// When there is no answer.
pub fn get(port: u16, path: &str) -> Result<Exchange> {
    let stream = connect(port)?;
    let before_ns = clock::now_ns();
    (&stream).write_all(head("GET", path, "Connection: close\r\n").as_bytes())?;
    read_to_end(stream, path, [before_ns; 2])
}

/// Sends `body` in two halves, the second one after `pause`.
///
/// # Errors
///
/// When there is no answer.
pub fn post_slowly(port: u16, path: &str, body: &str, pause: Duration) -> Result<Exchange> {
    let stream = connect(port)?;
    let more = format!("Connection: close\r\nContent-Length: {}\r\n", body.len());
    let (first, second) = body.split_at(body.len() / 2);
    let before_ns = clock::now_ns();
    (&stream).write_all(format!("{}{first}", head("POST", path, &more)).as_bytes())?;
    std::thread::sleep(pause);
    let held_back_ns = clock::now_ns();
    (&stream).write_all(second.as_bytes())?;
    read_to_end(stream, path, [before_ns, held_back_ns])
}

/// Reads the answer only after `pause`: it must not fit into the buffers between.
///
/// # Errors
///
/// When there is no answer.
pub fn get_slowly(port: u16, path: &str, pause: Duration) -> Result<Exchange> {
    let stream = connect(port)?;
    let before_ns = clock::now_ns();
    (&stream).write_all(head("GET", path, "Connection: close\r\n").as_bytes())?;
    std::thread::sleep(pause);
    let held_back_ns = clock::now_ns();
    read_to_end(stream, path, [before_ns, held_back_ns])
}

/// Asks for all paths over one connection, before it reads any answer. Returns the status of each answer.
///
/// # Errors
///
/// When they are not as many as paths.
pub fn pipeline(port: u16, paths: &[String]) -> Result<Vec<u16>> {
    let stream = connect(port)?;
    let mut text = String::new();
    for (number, path) in paths.iter().enumerate() {
        let is_last = number + 1 == paths.len();
        let more = if is_last { "Connection: close\r\n" } else { "" };
        text += &head("GET", path, more);
    }
    (&stream).write_all(text.as_bytes())?;
    let mut answers = Vec::new();
    (&stream).read_to_end(&mut answers)?;
    let answers = String::from_utf8_lossy(&answers);
    let statuses = answers.match_indices("HTTP/1.1 ");
    let statuses = statuses.map(|(at, _)| status(&answers[at..]));
    let statuses = statuses.collect::<Result<Vec<_>>>()?;
    ensure!(statuses.len() == paths.len(), "{answers}");
    Ok(statuses)
}

/// Asks for one path after the other over one connection, with a pause between. The answers must be short, and
/// have their length in the head.
///
/// # Errors
///
/// When one has no answer.
pub fn keep_alive(port: u16, paths: &[String], pause: Duration) -> Result<Vec<Exchange>> {
    let stream = connect(port)?;
    let mut exchanges = Vec::new();
    for path in paths {
        let before_ns = clock::now_ns();
        (&stream).write_all(head("GET", path, "").as_bytes())?;
        let status = read_one(&stream)?;
        exchanges.push(Exchange {
            path: path.clone(),
            before_ns,
            held_back_ns: before_ns,
            after_ns: clock::now_ns(),
            status,
        });
        std::thread::sleep(pause);
    }
    Ok(exchanges)
}

fn connect(port: u16) -> Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    Ok(stream)
}

fn head(method: &str, path: &str, more: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: test\r\n{more}\r\n")
}

fn read_to_end(
    mut stream: TcpStream,
    path: &str,
    [before_ns, held_back_ns]: [u64; 2],
) -> Result<Exchange> {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let after_ns = clock::now_ns();
    let start = String::from_utf8_lossy(&answer[..answer.len().min(64)]);
    Ok(Exchange {
        path: path.to_owned(),
        before_ns,
        held_back_ns,
        after_ns,
        status: status(&start)?,
    })
}

/// One answer, whose end its length tells.
fn read_one(mut stream: &TcpStream) -> Result<u16> {
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    loop {
        let count = stream.read(&mut part)?;
        ensure!(count > 0, "the server has closed the connection");
        answer.extend_from_slice(&part[..count]);
        let text = String::from_utf8_lossy(&answer);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "));
        let length: usize = length.context("no length")?.parse()?;
        if body.len() >= length {
            return status(head);
        }
    }
}

fn status(answer: &str) -> Result<u16> {
    let status = answer.split(' ').nth(1);
    let status = status.with_context(|| format!("no status in {answer:?}"))?;
    Ok(status.parse()?)
}
