//! A server of gRPC in Go: as many requests as its client has made calls, unary ones and streams, whether they return, fail
//! or panic, in goroutines of their own and in those of workers.
//!
//! Needs root, a kernel with BPF, Go and golang-google-grpc-dev.

use std::process::Command;
use std::time::Duration;

use reqtrace_tests::go;
use reqtrace_tests::process::{Child, Stream, run};
use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::workspace;

/// Calls on a connection.
const CALLS: u64 = 200;

/// Of 20 calls four are streams, two panic, one of which is a stream, and one fails.
const STREAMS: u64 = CALLS / 5;
const PANICS: u64 = CALLS / 10;
const FAILURES: u64 = CALLS / 20;

fn every_call_is_a_request(workers: u32) {
    let program = go::program("grpc", false).unwrap();
    let folder = workspace::scratch().unwrap();
    let mut command = Command::new(&program);
    command.args(["serve", &workers.to_string()]);
    let mut server = Child::start(command, folder.path(), "grpc").unwrap();
    let limit = Duration::from_secs(30);
    let line = server.wait_for_line(Stream::Out, "127.0.0.1:", limit);
    let address = line.unwrap();
    for connections in [1, 8] {
        let profile = workspace::root().join("profiles/go-grpc.toml");
        let trace = Trace::start(&profile, server.pid(), &["--labels"]).unwrap();
        let mut client = Command::new(&program);
        let numbers = [connections, CALLS].map(|number: u64| number.to_string());
        client.arg("call").arg(address.trim()).args(numbers);
        let printed = run(&mut client).unwrap();
        let outcome = trace.finish().unwrap();
        let of = |number: u64| number * connections;
        let wanted = [CALLS - PANICS - FAILURES, FAILURES, PANICS].map(of);
        let wanted = wanted.map(|number| number.to_string()).join(" ");
        assert_eq!(printed.trim(), wanted);
        let summary = outcome.checked().unwrap();
        let calls = summary.request("call").unwrap();
        assert_eq!(
            [calls.count, calls.begins, calls.ends],
            [of(CALLS); 3],
            "{connections} connections: {}",
            outcome.printed()
        );
        assert!(calls.incomplete.is_empty(), "{}", outcome.printed());
        let rows = outcome.rows().unwrap();
        let of_method = |method: &str| {
            let method = format!("/grpc.health.v1.Health/{method}");
            let rows = rows.iter();
            let of_method = rows.filter(|row| row.attributes["method"] == method);
            of_method.count() as u64
        };
        let both = [of_method("Check"), of_method("Watch")];
        assert_eq!(both, [CALLS - STREAMS, STREAMS].map(of));
    }
}

#[test]
fn every_call_is_a_request_of_its_goroutine() {
    every_call_is_a_request(0);
}

#[test]
fn every_call_is_a_request_of_a_worker() {
    every_call_is_a_request(2);
}
