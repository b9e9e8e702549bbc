//! Requests of services on hyper, by the profiles `axum` and `tonic`: HTTP/1.1, where a task serves a connection, and HTTP/2
//! and gRPC, where a task is a stream. Counts are exact, each request is between its client's and its handler's
//! clocks, and what its client waited for besides has a name.
//!
//! Needs root and a kernel with BPF.

use std::thread;
use std::time::Duration;

use reqtrace_tests::covered::Covered;
use reqtrace_tests::hyper::{self, Load, Loaded};
use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::workspace;

const REQUESTS: u64 = 200;
const PANICS: &[&str] = &["--panics"];
const CLOSES: &[&str] = &["--close"];

const fn load(protocol: &'static str, connections: u64, streams: u64) -> Load {
    Load {
        protocol,
        connections,
        streams,
        requests: REQUESTS,
        more: &[],
    }
}

/// Traces these loads, one after the other. `is_task`: a task is the request itself, so that it is complete
/// if its handler panics.
fn traced(profile: &str, service: &str, runtime: &str, loads: &[Load], is_task: bool) {
    let profile = workspace::root().join(format!("profiles/{profile}.toml"));
    let (server, address) = hyper::serve(service, runtime).unwrap();
    let trace = Trace::start(&profile, server.pid(), &["--before"]).unwrap();
    let mut loaded = Loaded::default();
    let mut of_load = Vec::new();
    for load in loads {
        let one = hyper::load(&address, *load).unwrap();
        let panics = load.more.contains(&"--panics");
        let panicked = if panics { REQUESTS / 20 } else { 0 };
        assert_eq!(one.panicked, panicked);
        let first = loaded.answers.len();
        loaded.answers.extend(one.answers);
        of_load.push(first..loaded.answers.len());
        loaded.panicked += one.panicked;
        loaded.asleep.extend(one.asleep);
    }
    // Tasks end a moment after their connections.
    thread::sleep(Duration::from_millis(200));
    let outcome = trace.finish().unwrap();
    let summary = outcome.checked().unwrap();
    let [request] = summary.requests.as_slice() else {
        panic!("{:?}", summary.requests);
    };
    let all = loaded.answers.len() as u64 + loaded.panicked;
    let complete = if is_task { all } else { all - loaded.panicked };
    assert_eq!(
        (request.count, request.begins, request.ends),
        (complete, all, complete),
        "{}",
        outcome.printed()
    );
    let incomplete = request.incomplete.values().sum::<u64>();
    assert_eq!(incomplete, all - complete, "{}", outcome.printed());
    assert_eq!(
        (request.unknown_keys, request.running_elsewhere),
        (Some(0), Some(0)),
        "{}",
        outcome.printed()
    );
    let rows = outcome.rows().unwrap();
    let offset = summary.trace.monotonic_to_unix_ns;
    let of_answer = hyper::check(&loaded.answers, &rows, offset, is_task).unwrap();
    for (load, these) in loads.iter().zip(of_load) {
        let answers = &loaded.answers[these.clone()];
        let covered = Covered::of(answers, &of_answer[these], &loaded.asleep);
        println!("{load:?}: {covered}");
        covered.check(load.is_alone()).unwrap();
    }
    // Handlers sleep, and hyper looks at its connection meanwhile: who makes them ready tells that it was a timer.
    let places = rows.iter().flat_map(|row| &row.places);
    let parked: u64 = rows.iter().map(|row| row.parked_ns).sum();
    let timer = places.filter(|(place, _)| *place == "tokio_timer");
    let timer: u64 = timer.map(|(_, ns)| *ns).sum();
    println!("{profile:?}: of {parked} ns parked {timer} for a timer");
    assert!(timer * 100 >= parked * 95, "{timer} of {parked} ns");
}

fn http1(runtime: &str) {
    let with = |more, connections| Load {
        more,
        ..load("http1", connections, 1)
    };
    let loads = [
        load("http1", 1, 1),
        load("http1", 8, 1),
        with(CLOSES, 1),
        with(CLOSES, 8),
        with(PANICS, 1),
        with(PANICS, 8),
        with(&["--close", "--panics"], 8),
    ];
    traced("axum", "axum", runtime, &loads, false);
}

#[test]
fn each_request_of_axum_over_http_1_is_one_on_many_threads() {
    http1("multi");
}

#[test]
fn each_request_of_axum_over_http_1_is_one_on_one_thread() {
    http1("current");
}

fn streams(protocol: &'static str, service: &str, runtime: &str) {
    let with = |more, connections, streams| Load {
        more,
        ..load(protocol, connections, streams)
    };
    let loads = [
        load(protocol, 1, 1),
        load(protocol, 1, 8),
        load(protocol, 8, 1),
        with(CLOSES, 1, 1),
        with(CLOSES, 8, 1),
        with(PANICS, 1, 1),
        with(PANICS, 8, 2),
    ];
    traced("tonic", service, runtime, &loads, true);
}

#[test]
fn each_stream_of_axum_over_http_2_is_a_request_on_many_threads() {
    streams("http2", "axum", "multi");
}

#[test]
fn each_stream_of_axum_over_http_2_is_a_request_on_one_thread() {
    streams("http2", "axum", "current");
}

#[test]
fn each_call_of_tonic_is_a_request_on_many_threads() {
    streams("grpc", "tonic", "multi");
}

#[test]
fn each_call_of_tonic_is_a_request_on_one_thread() {
    streams("grpc", "tonic", "current");
}
