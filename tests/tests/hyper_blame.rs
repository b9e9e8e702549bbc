//! Who holds requests of services on hyper up: a timer of the runtime, another request that has a lock, an upstream; beside
//! ten times as many requests that have nothing to do with them.
//!
//! Needs root and a kernel with BPF.

use reqtrace_tests::held_up::{self, Service};
use reqtrace_tests::hyper;
use reqtrace_tests::workspace;

fn held_up(profile: &str, service: &str, protocol: &'static str, runtime: &str) {
    let folder = workspace::scratch().unwrap();
    let profile = held_up::with_kinds(profile, folder.path()).unwrap();
    let (_upstream, upstream) = hyper::upstream().unwrap();
    let (server, address) = hyper::serve_before(service, runtime, &upstream).unwrap();
    held_up::check(Service {
        protocol,
        pid: server.pid(),
        address: &address,
        profile: &profile,
        attribute: "kind",
        is_tokio: true,
        has_threads: runtime == "multi",
    })
    .unwrap();
}

#[test]
fn who_held_requests_of_axum_up_over_http_1_is_known_on_many_threads() {
    held_up("axum", "axum", "http1", "multi");
}

#[test]
fn who_held_requests_of_axum_up_over_http_1_is_known_on_one_thread() {
    held_up("axum", "axum", "http1", "current");
}

#[test]
fn who_held_streams_of_axum_up_over_http_2_is_known() {
    held_up("tonic", "axum", "http2", "multi");
}

#[test]
fn who_held_calls_of_tonic_up_is_known() {
    held_up("tonic", "tonic", "grpc", "multi");
}
