//! Services in Go whose handlers wait, of net/http and of gRPC: who holds their requests up beside ten times as many that
//! have nothing to do with them, a timer of the runtime, another request that has a lock, an upstream; and what of the time
//! of clients is traced.
//!
//! Needs root, a kernel with BPF, Go and golang-google-grpc-dev.

use std::path::PathBuf;
use std::process::Command;

use reqtrace_tests::covered::Covered;
use reqtrace_tests::go;
use reqtrace_tests::held_up::{self, Service};
use reqtrace_tests::hyper::{self, Load};
use reqtrace_tests::jobs::Running;
use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::workspace;

/// Requests of a load.
const REQUESTS: u64 = 200;

/// The service, and its address.
fn serve(service: &str, upstream: &str) -> (Running, String) {
    let mut command = Command::new(go::program("waits", false).unwrap());
    command.args([service, upstream]);
    hyper::listening(command).unwrap()
}

fn profile(name: &str) -> PathBuf {
    workspace::root().join(format!("profiles/{name}.toml"))
}

fn held_up(name: &str, service: &str, protocol: &'static str, attribute: &str) {
    let (_upstream, upstream) = hyper::upstream().unwrap();
    let (server, address) = serve(service, &upstream);
    held_up::check(Service {
        protocol,
        pid: server.pid(),
        address: &address,
        profile: &profile(name),
        attribute,
        is_tokio: false,
        has_threads: true,
    })
    .unwrap();
}

#[test]
fn who_held_requests_of_net_http_up_is_known() {
    held_up("go-http", "http", "http1", "path");
}

#[test]
fn who_held_calls_of_grpc_up_is_known() {
    held_up("go-grpc", "grpc", "grpc", "method");
}

/// `ends_within`: the request ends before its client has the answer.
fn covered(name: &str, service: &str, protocol: &'static str, ends_within: bool) {
    let (server, address) = serve(service, "");
    let trace = Trace::start(&profile(name), server.pid(), &["--before"]).unwrap();
    let loads = [1, 8].map(|connections| Load {
        protocol,
        connections,
        streams: 1,
        requests: REQUESTS,
        more: &[],
    });
    let loaded = loads.map(|load| hyper::load(&address, load).unwrap());
    let outcome = trace.finish().unwrap();
    let summary = outcome.checked().unwrap();
    let rows = outcome.rows().unwrap();
    assert_eq!(rows.len() as u64, REQUESTS * loads.len() as u64);
    let offset = summary.trace.monotonic_to_unix_ns;
    for (load, loaded) in loads.into_iter().zip(loaded) {
        let of_answer = hyper::check(&loaded.answers, &rows, offset, !ends_within).unwrap();
        let covered = Covered::of(&loaded.answers, &of_answer, &loaded.asleep);
        println!("{load:?}: {covered}");
        covered.check(load.is_alone()).unwrap();
    }
}

#[test]
fn what_clients_of_net_http_wait_for_is_traced_or_has_a_name() {
    covered("go-http", "http", "http1", true);
}

#[test]
fn what_clients_of_grpc_wait_for_is_traced_or_has_a_name() {
    covered("go-grpc", "grpc", "grpc", false);
}
