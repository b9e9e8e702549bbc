//! `--before` on a service that knows how long it let data lie at its sockets: every request between the
//! service's own clocks, and none with a time that nobody can know. Apache against what `ab` measures.
//!
//! Needs root, a kernel with BPF, g++, apache2-bin and apache2-utils.

use std::fs;
use std::path::Path;
use std::process::Command;

use reqtrace_tests::apache::Apache;
use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::process::run;
use reqtrace_tests::reqtrace::{self, Outcome, Trace};
use reqtrace_tests::rows::Row;
use reqtrace_tests::workspace;

const ROUNDS: usize = 20;

/// Traces the service; gives what it printed of each request, too.
fn trace(more: &[&str]) -> (Outcome, String) {
    let fixture = Fixture::start("waited", &[&ROUNDS.to_string()]).unwrap();
    let profile = fixture.profile("handle", "nest").unwrap();
    let traced = fixture.traced(&profile, more).unwrap();
    traced.0.checked().unwrap();
    traced
}

fn in_order(outcome: &Outcome) -> Vec<Row> {
    let mut rows = outcome.rows().unwrap();
    rows.sort_by_key(|row| row.start_unix_ns);
    rows
}

#[test]
fn the_time_before_each_begin_is_within_the_services_own_clocks() {
    let (outcome, printed) = trace(&["--before"]);
    let requests: Vec<&str> = printed.split(' ').skip(1).collect();
    let rows = in_order(&outcome);
    assert_eq!(requests.len(), rows.len());
    let mut wrong = Vec::new();
    for (index, (request, row)) in requests.iter().zip(&rows).enumerate() {
        let is = row.waited_before_ns;
        let fits = match request.split(':').collect::<Vec<_>>()[..] {
            [_, "-"] => is.is_none(),
            [_, least, most] => {
                let bounds = least.parse::<u64>().unwrap()..=most.parse().unwrap();
                is.is_some_and(|ns| bounds.contains(&ns))
            }
            _ => panic!("{request}"),
        };
        if !fits {
            wrong.push(format!("{index}, {request}, is {is:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}: {wrong:#?}",
        wrong.len(),
        rows.len()
    );

    // The report has the same, and the ledger nothing of it.
    let known: Vec<u64> = rows.iter().filter_map(|row| row.waited_before_ns).collect();
    let summary: serde_json::Value =
        serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let waited = &summary["requests"][0]["waited_before"];
    assert_eq!(waited["requests"], rows.len());
    assert_eq!(waited["known"], known.len());
    assert_eq!(waited["max_ns"], *known.iter().max().unwrap());
    assert_eq!(
        waited["mean_ns"],
        known.iter().sum::<u64>() / known.len() as u64
    );
    let line = format!(
        "Before the begin: the data of {} of {} requests",
        known.len(),
        rows.len()
    );
    assert!(outcome.stdout.contains(&line), "{}", outcome.stdout);
}

#[test]
fn a_recording_has_it_and_a_trace_without_the_option_does_not() {
    let folder = workspace::scratch().unwrap();
    let file = folder.path().join("recording").display().to_string();
    let (outcome, _) = trace(&["--before", "--record", &file]);
    let csv = folder.path().join("again.csv");
    let again = reqtrace::command(["report", &file, "--csv", &csv.display().to_string()]);
    let again = reqtrace::run(again.unwrap()).unwrap();
    assert_eq!(again.code, Some(0), "{}", again.printed());
    assert_eq!(fs::read_to_string(csv).unwrap(), outcome.csv().unwrap());
    assert!(
        again.stdout.contains("Before the begin: "),
        "{}",
        again.stdout
    );

    let (outcome, _) = trace(&[]);
    assert!(!outcome.csv().unwrap().contains("waited_before_ns"));
    assert!(!outcome.summary_text().unwrap().contains("waited_before"));
    assert!(!outcome.stdout.contains("Before the begin"));
}

/// Milliseconds of a line of `ab`, as nanoseconds.
fn mean_ns(printed: &str) -> f64 {
    let line = printed
        .lines()
        .find(|line| line.starts_with("Time per request:"));
    let words = line.unwrap().split_whitespace().nth(3).unwrap();
    words.parse::<f64>().unwrap() * 1e6
}

#[test]
fn apache_under_load_has_most_of_its_clients_time_before_the_begin() {
    const REQUESTS: u64 = 2_000;
    let apache = Apache::start("prefork").unwrap();
    fs::write(apache.documents().join("page"), [b'x'; 4096]).unwrap();
    let trace = Trace::start(Path::new("apache"), apache.pid(), &["--before"]).unwrap();
    let mut ab = Command::new(workspace::program("ab").unwrap());
    ab.args(["-q", "-n", &REQUESTS.to_string(), "-c", "48"]);
    ab.arg(format!("http://127.0.0.1:{}/page", apache.port()));
    let client_ns = mean_ns(&run(&mut ab).unwrap());
    let outcome = trace.finish().unwrap();
    outcome.checked().unwrap();
    let rows = outcome.rows().unwrap();
    assert_eq!(rows.len() as u64, REQUESTS);
    // Each of these connections has one request, and it is the first that its worker reads.
    let known: Vec<u64> = rows.iter().filter_map(|row| row.waited_before_ns).collect();
    assert_eq!(known.len(), rows.len());
    let of_all = |sum: u64| sum as f64 / REQUESTS as f64;
    let before_ns = of_all(known.iter().sum());
    let latency_ns = of_all(rows.iter().map(|row| row.latency_ns).sum());
    println!("client {client_ns} ns, before {before_ns} ns, latency {latency_ns} ns");
    assert!(
        before_ns + latency_ns <= client_ns,
        "{before_ns} {latency_ns} {client_ns}"
    );
    assert!(
        before_ns + latency_ns >= client_ns / 2.0,
        "{before_ns} {latency_ns} {client_ns}"
    );
}

#[test]
fn why_it_is_known_of_no_request_is_printed() {
    let folder = workspace::scratch().unwrap();
    let profile = folder.path().join("unread.toml");
    for (mode, begin, reason) in [
        (
            "udp",
            "function = \"served\"",
            "of none of 400 requests: the sockets of the processes are UDP, of which it is not recorded",
        ),
        (
            "accept",
            "function = \"accept\", object = \"libc.so*\", at = \"return\"",
            "of none of 400 requests: they begin where a connection is accepted (accept at return)",
        ),
    ] {
        let end = match mode {
            "udp" => "function = \"served\", at = \"return\"",
            _ => "function = \"served\"",
        };
        let text = format!(
            "[profile]\nname = \"unread\"\n\n[[request]]\nname = \"answer\"\n\
             begin = {{ {begin} }}\nend = {{ {end} }}\n"
        );
        fs::write(&profile, text).unwrap();
        let fixture = Fixture::start("unread", &[mode, "400"]).unwrap();
        let options = ["--before", "--yes"];
        let outcome = fixture.traced(&profile, &options).unwrap().0;
        assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
        let words: Vec<&str> = outcome.stdout.split_whitespace().collect();
        assert!(
            words.join(" ").contains(reason),
            "{mode}: {}",
            outcome.printed()
        );
    }
}
