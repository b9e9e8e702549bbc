//! The profiles of docs/cookbook.md for requests that are coroutines or tasks, as they stand there: counts, and begin,
//! end and parked time of every request against what the server itself knows of it.
//!
//! Needs root, a kernel with BPF, g++, apache2-utils, and Debian 12's python3.

use std::fs;
use std::process::Command;

use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::http::ab;
use reqtrace_tests::reqtrace::Outcome;
use reqtrace_tests::rows::Row;
use reqtrace_tests::workspace;

use crate::cookbook::{ALL, REQUESTS, Server, in_the_cookbook, of_debian, scratch};

/// What a server knows of a request, ns: `OUTER_BEGIN INNER_BEGIN INNER_END OUTER_END SLEPT`.
type Known = [i64; 5];

fn known(line: &str) -> Known {
    let numbers: Vec<i64> = line
        .split(' ')
        .map(|number| number.parse().unwrap())
        .collect();
    numbers.try_into().unwrap()
}

/// All rows of the only request type, which are as many as this; each is complete, and nothing else was counted.
#[track_caller]
fn traced(outcome: &Outcome, count: usize) -> Vec<Row> {
    let summary = outcome.checked().unwrap();
    let [request] = &summary.requests[..] else {
        panic!("{:?}", summary.requests);
    };
    assert_eq!(request.count, count as u64, "{}", outcome.printed());
    assert_eq!([request.begins, request.ends], [request.count; 2]);
    assert!(request.incomplete.is_empty(), "{request:?}");
    assert_eq!(request.unknown_keys, Some(0));
    assert_eq!(request.running_elsewhere, Some(0));
    let rows = outcome.rows().unwrap();
    assert_eq!(rows.len(), count);
    rows
}

/// Every request that the server knows has its row between the server's clock readings, and was parked for as long as
/// it slept.
#[track_caller]
fn compare(outcome: &Outcome, mut rows: Vec<Row>, mut all: Vec<Known>) {
    let to_unix_ns = outcome.summary().unwrap().trace.monotonic_to_unix_ns;
    rows.sort_by_key(|row| row.start_unix_ns);
    all.sort_unstable();
    assert_eq!(rows.len(), all.len());
    for (row, known) in rows.iter().zip(all) {
        let [outer_begin, inner_begin, inner_end, outer_end, slept] = known;
        let begin = row.start_unix_ns.cast_signed() - to_unix_ns;
        let end = begin + row.latency_ns.cast_signed();
        let is_inside = outer_begin <= begin && begin <= inner_begin;
        assert!(is_inside && inner_end <= end, "{known:?} {row:?}");
        assert!(end <= outer_end, "{known:?} {row:?}");
        assert!(
            row.parked_ns.cast_signed() >= slept,
            "{slept} ns asleep: {row:?}"
        );
    }
}

#[test]
fn coroutines_by_their_frames() {
    const COROUTINES: u64 = 2_000;
    let folder = scratch();
    let profile = folder.path().join("coroutines.toml");
    fs::write(&profile, in_the_cookbook("coroutines")).unwrap();
    let fixture = Fixture::start("coroutines", &[&COROUTINES.to_string()]).unwrap();
    let (outcome, results) = fixture.traced(&profile, &ALL).unwrap();
    let mut results = results.split(';');
    let moved = results.next().unwrap().trim_start_matches("done ");
    // Each time another thread has gone on with a frame before `resume` has returned.
    assert!(moved.parse::<u64>().unwrap() > COROUTINES / 10, "{moved}");
    let all: Vec<Known> = results.map(known).collect();
    assert_eq!(all.len() as u64, COROUTINES);
    let rows = traced(&outcome, all.len());
    for row in &rows {
        assert!(row.places["backend"] > 0, "{row:?}");
        assert_eq!(row.attributes["coroutine"], "serve");
        assert_eq!(row.places["timer"] + row.places["backend"], row.parked_ns);
        assert_eq!(row.places["executor"], row.queued_ns);
    }
    compare(&outcome, rows, all);
}

#[test]
fn tasks_of_asyncio_by_what_a_library_resumes() {
    let script = workspace::root().join("tests/fixtures/served.py");
    let source = fs::read_to_string(&script).unwrap();
    let is_handler = |line: &str| line.starts_with("async def handle");
    let line = source.lines().position(is_handler).unwrap() + 1;
    let mut command = Command::new(of_debian("usr/bin/python3"));
    command.arg(script);
    let mut server = Server::start("asyncio", scratch(), command);
    let port = server.port();
    let outcome = server.trace(|| ab(port, "/", REQUESTS, 4, &[]).unwrap());
    let output = server.output();
    let lines = output.lines();
    let requests = lines.filter_map(|line| line.strip_prefix("request "));
    let all: Vec<Known> = requests.map(known).collect();
    // ab opens one more now and then, and sends nothing on it.
    assert!((REQUESTS..REQUESTS + 4).contains(&(all.len() as u64)));
    let slept = all.iter().filter(|[.., slept]| *slept > 0).count();
    assert_eq!(slept as u64, REQUESTS);
    // A connection is accepted by a task, too, and each request has another one look up.
    let mut rows = traced(&outcome, 2 * all.len() + slept);
    rows.retain(|row| row.attributes["line"] == line.to_string());
    compare(&outcome, rows, all);
}
