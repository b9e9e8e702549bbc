//! Requests within tasks of tokio, which serve a connection each: every one between the service's own clocks.
//!
//! Needs root and a kernel with BPF.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::rows::Row;
use reqtrace_tests::tasks;

/// One client: so many requests on one connection. Returns the server's clocks of each.
fn ask(address: &str, times: &[u64]) -> Vec<[u64; 4]> {
    let mut stream = BufReader::new(TcpStream::connect(address).unwrap());
    let mut all = Vec::new();
    for ms in times {
        let request = format!("GET /{ms} HTTP/1.1\r\nhost: tasks\r\n\r\n");
        stream.get_mut().write_all(request.as_bytes()).unwrap();
        let mut line = String::new();
        let mut length = 0;
        while stream.read_line(&mut line).unwrap() > 2 {
            if let Some(bytes) = line.strip_prefix("content-length: ") {
                length = bytes.trim().parse().unwrap();
            }
            line.clear();
        }
        // One that is cut off has no answer.
        if length == 0 {
            break;
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        let text = String::from_utf8(body).unwrap();
        let clocks: Vec<u64> = text
            .split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect();
        all.push(clocks.try_into().unwrap());
    }
    all
}

fn requests_within_a_task(runtime: &str, profile: &str) {
    const CLIENTS: u64 = 8;
    const CUT: u64 = 3;
    let (server, address) = tasks::server(runtime).unwrap();
    let trace = Trace::start(&tasks::profile(profile), server.pid(), &[]).unwrap();
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        let address = address.clone();
        let times = (0..50).map(move |number| (number + client) % 4);
        // The last one of some is left without an end.
        let times: Vec<u64> = times.chain((client < CUT).then_some(13)).collect();
        clients.push(thread::spawn(move || ask(&address, &times)));
    }
    let mut clocks: Vec<[u64; 4]> = Vec::new();
    for client in clients {
        clocks.extend(client.join().unwrap());
    }
    // The tasks of those that were cut off end a moment after their connections.
    thread::sleep(Duration::from_millis(200));
    let outcome = trace.finish().unwrap();
    let summary = outcome.checked().unwrap();
    let http = summary.request("http").unwrap();
    assert_eq!(clocks.len() as u64, CLIENTS * 50);
    assert_eq!(
        (http.count, http.begins, http.ends),
        (CLIENTS * 50, CLIENTS * 50 + CUT, CLIENTS * 50),
        "{}",
        outcome.printed()
    );
    assert_eq!(http.incomplete, [("no end".to_owned(), CUT)].into());
    assert_eq!(
        (http.unknown_keys, http.running_elsewhere),
        (Some(0), Some(0))
    );
    let offset = summary.trace.monotonic_to_unix_ns;
    let rows = outcome.rows().unwrap();
    let mut traced: Vec<(u64, &Row)> = Vec::new();
    for row in rows.iter().filter(|row| row.complete) {
        traced.push((row.start_unix_ns.checked_add_signed(-offset).unwrap(), row));
    }
    // By its begin each is one of the service's own.
    for [outer_begin, inner_begin, inner_end, outer_end] in clocks {
        let mut own = traced.iter().filter(|(begin, row)| {
            (outer_begin..=inner_begin).contains(begin)
                && (inner_end..=outer_end).contains(&(begin + row.latency_ns))
        });
        let (_, row) = own.next().unwrap();
        let ms: u64 = row.attributes["ms"].parse().unwrap();
        assert!(
            row.parked_ns + row.queued_ns >= ms.saturating_sub(1) * 1_000_000,
            "{row:?}"
        );
    }
}

#[test]
fn requests_within_a_task_are_told_apart_on_many_threads() {
    requests_within_a_task("multi", "http.toml");
}

#[test]
fn requests_within_a_task_are_told_apart_on_one_thread() {
    requests_within_a_task("current", "http.toml");
}

#[test]
fn fewer_probes_tell_the_same_requests() {
    for runtime in ["multi", "current"] {
        requests_within_a_task(runtime, "http.toml:cheap");
    }
}
