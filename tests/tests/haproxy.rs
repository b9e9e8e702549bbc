//! A profile that a user could write from the documentation alone: HAProxy's streams, each on whatever thread
//! and in as many pieces as it takes.
//!
//! Needs root, a kernel with BPF, haproxy and apache2-utils.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use reqtrace_tests::blamed;
use reqtrace_tests::http;
use reqtrace_tests::http::client;
use reqtrace_tests::http::upstream::Upstream;
use reqtrace_tests::process::Child;
use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::workspace;

use crate::eventloop::{ASKED, Innocent, check_waits};

const REQUESTS: u64 = 2000;
const PAUSE: Duration = Duration::from_millis(2);

/// A stream is made for each request, and freed when it is done. In between `process_stream` is called whenever
/// there is something to do for it: the stream is its second argument.
const PROFILE: &str = r#"
[profile]
name = "haproxy"

[[request]]
name = "stream"
key = { arg = 0 }
begin = { function = "stream_new", at = "return", key = { arg = "result" } }
resume = { function = "process_stream", key = { arg = 1 } }
park = { function = "process_stream", at = "return", as = "event" }
end = { function = "stream_free" }
"#;

/// HAProxy with so many threads before an upstream, its port and its profile.
fn start(threads: u32, upstream: &Upstream, folder: &Path) -> (Child, u16, PathBuf) {
    let port = http::free_port().unwrap();
    let config = folder.join("haproxy.cfg");
    let text = format!(
        "global\n nbthread {threads}\ndefaults\n mode http\n timeout connect 5s\n timeout client 5s\n \
         timeout server 5s\nfrontend all\n bind 127.0.0.1:{port}\n \
         http-request return status 200 content-type text/plain string hi if {{ path /here }}\n \
         default_backend one\n\
         backend one\n server up 127.0.0.1:{}\n",
        upstream.port()
    );
    fs::write(&config, text).unwrap();
    let profile = folder.join("haproxy.toml");
    fs::write(&profile, PROFILE).unwrap();
    let mut command = Command::new(workspace::program("haproxy").unwrap());
    command.arg("-db").arg("-f").arg(&config);
    let server = Child::start(command, folder, "haproxy").unwrap();
    http::listens(port, Duration::from_secs(20)).unwrap();
    (server, port, profile)
}

#[test]
fn each_request_is_one_stream() {
    let upstream = Upstream::start(|_| PAUSE).unwrap();
    let folder = workspace::scratch().unwrap();
    let (server, port, profile) = start(2, &upstream, folder.path());
    let trace = Trace::start(&profile, server.pid(), &[]).unwrap();
    for keep in [&["-k"][..], &[]] {
        http::ab(port, "/", REQUESTS, 8, keep).unwrap();
    }
    let outcome = trace.finish().unwrap();
    let summary = outcome.checked().unwrap();
    let stream = summary.request("stream").unwrap();
    assert_eq!(
        (stream.count, stream.rows),
        (2 * REQUESTS, 2 * REQUESTS),
        "{}",
        outcome.printed()
    );
    assert_eq!(
        (stream.unknown_keys, stream.running_elsewhere),
        (Some(0), Some(0))
    );
    let rows = outcome.rows().unwrap();
    assert!(rows.iter().all(|row| row.complete));
    // Each of them waits for the server behind; a thread that is preempted meanwhile still runs it.
    let pause_ns = PAUSE.as_nanos() as u64;
    assert!(rows.iter().all(|row| row.latency_ns > pause_ns));
    let parked = rows
        .iter()
        .filter(|row| row.places["event"] > pause_ns * 9 / 10)
        .count();
    assert!(parked * 10 > rows.len() * 9, "{parked} of {}", rows.len());
    let folded = outcome.folded().unwrap();
    assert!(!folded.contains("ep_poll"), "{folded}");
}

#[test]
fn a_stream_waits_for_its_server_and_not_for_who_wakes_the_loop() {
    const SLOW: Duration = Duration::from_millis(100);
    let upstream = Upstream::start(|_| SLOW).unwrap();
    let folder = workspace::scratch().unwrap();
    let (server, port, profile) = start(1, &upstream, folder.path());
    let trace = Trace::start(&profile, server.pid(), &["--blame"]).unwrap();
    let other = Innocent::start(port, "/here");
    for _ in 0..ASKED {
        client::get(port, "/slow").unwrap();
    }
    assert!(other.end() > 60);
    let outcome = trace.finish().unwrap();
    let (rows, blamed) = blamed::of(&outcome).unwrap();
    check_waits(&rows, &blamed, "parked: event", SLOW);
}
