//! Programs of `tests/fixtures/names`: compiled, traced from their first to their last request.
//!
//! In: a source. Out: what the trace wrote, and how long which frames were blocked in. All of it
//! panics where something is missing: it is for tests only.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::fixtures::write_profile;
use crate::process::{Child, Stream, run};
use crate::reqtrace::{Outcome, Trace};
use crate::rows::Row;
use crate::workspace;

/// How long a program may take.
pub const LIMIT: Duration = Duration::from_secs(20);
/// Requests that a program serves.
pub const REQUESTS: u64 = 5;
/// What one request blocks for at least, µs: 20 ms, of which some pass before the thread leaves
/// its CPU.
pub const BLOCK: u64 = 19_000;

/// Runs a program to its end, which must be good, and gives its output.
///
/// # Panics
///
/// When that fails.
pub fn execute(folder: &Path, program: &str, args: &[&str]) -> String {
    run(Command::new(program).current_dir(folder).args(args)).unwrap()
}

/// Compiles `tests/fixtures/names/SOURCE` as distributions do; `more` are further flags.
///
/// # Panics
///
/// When that fails.
pub fn compile(folder: &Path, source: &str, program: &str, more: &[&str]) {
    let fixtures = workspace::root().join("tests/fixtures");
    let include = format!("-I{}", fixtures.join("stacks").display());
    let source = fixtures.join("names").join(source);
    let flags = [
        "-O2",
        "-fomit-frame-pointer",
        "-Wall",
        "-Wextra",
        "-rdynamic",
    ];
    let own = [&include, source.to_str().unwrap(), "-o", program];
    execute(folder, "cc", &[&flags, &own[..], more].concat());
}

/// Writes a profile with the one request type `request` that begins at `function`; `more` is added
/// to the request.
///
/// # Panics
///
/// When that fails.
pub fn profile(folder: &Path, function: &str, more: &str) -> PathBuf {
    let path = folder.join(format!("{function}{}.toml", more.len()));
    write_profile(&path, "request", function, more).unwrap();
    path
}

/// Lets a program that waits for a line serve its requests while it is traced, to its end.
///
/// # Panics
///
/// When that fails.
pub fn trace(child: &mut Child, pid: u32, profile: &Path, more: &[&str]) -> Outcome {
    let options = [&["-d", "--blocked-only"], more].concat();
    let trace = Trace::start(profile, pid, &options).unwrap();
    child.tell("go").unwrap();
    let status = child.wait(LIMIT).unwrap();
    assert!(status.success(), "{status}");
    let outcome = trace.wait().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let begins = outcome
        .summary()
        .unwrap()
        .request("request")
        .unwrap()
        .begins;
    assert_eq!(begins, REQUESTS, "{}", outcome.printed());
    outcome
}

/// Starts a program that `compile` has made; it waits for a line.
///
/// # Panics
///
/// When that fails.
pub fn start(folder: &Path, program: &str) -> Child {
    let mut command = Command::new(folder.join(program));
    command.arg(REQUESTS.to_string());
    let mut child = Child::start(command, folder, program).unwrap();
    child.wait_for_line(Stream::Out, "chain: ", LIMIT).unwrap();
    child
}

/// Microseconds of the stacks that have these frames next to each other, outermost first.
///
/// # Panics
///
/// When that fails.
pub fn micros(outcome: &Outcome, frames: &str) -> u64 {
    let folded = outcome.folded().unwrap();
    folded
        .lines()
        .filter(|line| format!(";{line}").contains(&format!(";{frames};")))
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
        .sum()
}

/// How many requests were seen to block as long as each does. The kernel of some machines hides a switch now
/// and then; the time of such a block counts as on CPU.
///
/// # Panics
///
/// When the rows cannot be read.
pub fn seen(outcome: &Outcome) -> u64 {
    let rows = outcome.rows().unwrap();
    let blocked = |row: &&Row| row.blocked_ns >= BLOCK * 1000;
    rows.iter().filter(blocked).count() as u64
}

/// The stacks of `requests` of the program's requests have these frames next to each other, but for those that
/// were not [`seen`], which are the fewer.
///
/// # Panics
///
/// When they do not.
pub fn named(outcome: &Outcome, frames: &str, requests: u64) {
    let found = micros(outcome, frames);
    let seen = (seen(outcome) + requests).saturating_sub(REQUESTS);
    assert!(
        seen > requests / 2 && found >= seen * BLOCK,
        "{frames}: {found} us, {seen} seen\n{}\n{}",
        outcome.folded().unwrap(),
        outcome.stderr
    );
}
