//! Tasks of tokio as requests: every job once and within its own clocks, what they waited for, and for whom.
//!
//! Needs root and a kernel with BPF.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use reqtrace_tests::jobs::Traced;
use reqtrace_tests::reqtrace::{self, Outcome, Trace};
use reqtrace_tests::rows::Row;
use reqtrace_tests::task_checks;
use reqtrace_tests::tasks::{self, Line};
use reqtrace_tests::workspace;

/// Jobs of each kind, of which one in twenty panics.
const JOBS: u64 = 100;

/// How long a job computes, and at least keeps one that is starved from the only thread, ns.
const BUSY_NS: u64 = 2_000_000;

/// Checks counts and brackets of all jobs.
pub(crate) fn checked(outcome: &Outcome, lines: &[Line], of_each: u64) -> Traced {
    let traced = Traced::of(outcome).unwrap();
    task_checks::every_job(&traced, lines, of_each).unwrap();
    traced
}

/// What the jobs of a kind sum up to.
fn sum(rows: &[Row], kind: &str, of: impl Fn(&Row) -> u64) -> u64 {
    let of_kind = rows.iter().filter(|row| row.attributes["kind"] == kind);
    of_kind.map(of).sum()
}

fn every_job_is_a_request(runtime: &str) {
    let (outcome, lines) = tasks::trace(runtime, JOBS, &[]).unwrap();
    let traced = checked(&outcome, &lines, JOBS);
    let rows = &traced.rows;
    let mut parked_at_most: BTreeMap<&str, i128> = BTreeMap::new();
    for line in &lines {
        *parked_at_most.entry(&line.kind).or_default() += line.parked.most;
    }
    for kind in [
        "sleeps",
        "locks",
        "receives",
        "acquires",
        "asks",
        "syncs",
        "has_a_child",
    ] {
        let parked = i128::from(sum(rows, kind, |row| row.parked_ns));
        // The rest lies between clocks and markers.
        assert!(
            parked * 10 > parked_at_most[kind] * 8,
            "{kind}: {parked} of {parked_at_most:?}"
        );
        let on_thread = sum(rows, kind, |row| {
            row.latency_ns - row.parked_ns - row.queued_ns
        });
        let latency = sum(rows, kind, |row| row.latency_ns);
        assert!(on_thread * 2 < latency, "{kind}: {on_thread} of {latency}");
    }
    for row in rows
        .iter()
        .filter(|row| row.attributes["kind"] == "computes")
    {
        let on_thread = row.latency_ns - row.parked_ns - row.queued_ns;
        assert!(on_thread >= BUSY_NS && row.parked_ns == 0, "{row:?}");
    }
    if runtime == "current" {
        // The only thread was busy behind the spawn.
        let starved = rows
            .iter()
            .filter(|row| row.attributes["kind"] == "starves");
        for row in starved {
            assert!(row.queued_ns >= BUSY_NS && row.parked_ns == 0, "{row:?}");
        }
    }
    let said = outcome.said();
    assert!(said.contains("     waited for the runtime "), "{said}");
    task_checks::reasons_and_stacks(&traced).unwrap();
}

#[test]
fn every_job_is_a_request_on_many_threads() {
    every_job_is_a_request("multi");
}

#[test]
fn every_job_is_a_request_on_one_thread() {
    every_job_is_a_request("current");
}

/// One client: so many requests on one connection. Returns what the server's clocks said of each.
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

fn requests_within_a_task(runtime: &str) {
    const CLIENTS: u64 = 8;
    const CUT: u64 = 3;
    let (server, address) = tasks::server(runtime).unwrap();
    let trace = Trace::start(&tasks::profile("http.toml"), server.pid(), &[]).unwrap();
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
        outcome.said()
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
    requests_within_a_task("multi");
}

#[test]
fn requests_within_a_task_are_told_apart_on_one_thread() {
    requests_within_a_task("current");
}

/// What `check` says of a profile with this `[[request]]` and a program.
fn refused(requests: &str, program: &Path) -> String {
    let folder = workspace::scratch().unwrap();
    let profile = folder.path().join("p.toml");
    let head = "[profile]\nname = \"p\"\n[runtime]\nkind = \"tokio\"\n";
    fs::write(&profile, format!("{head}{requests}")).unwrap();
    let mut command = reqtrace::command(["check", "--profile"]).unwrap();
    let output = command.arg(&profile).arg(program).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{requests}");
    String::from_utf8(output.stderr).unwrap()
}

fn unit(name: &str, pattern: &str) -> String {
    format!("[[request]]\nname = \"{name}\"\nunit = \"{pattern}\"\n")
}

#[test]
fn what_cannot_be_found_in_a_program_is_said() {
    let program = workspace::tasks().unwrap();
    let said = refused(&unit("a", "*no_such_job*"), &program);
    assert!(
        said.contains("no type of task of ") && said.contains("tasks::http::connection"),
        "{said}"
    );
    let both = unit("a", "*jobs::holders*") + &unit("b", "*Measured<*");
    let said = refused(&both, &program);
    assert!(
        said.contains("would be requests of `a` and of `b`"),
        "{said}"
    );
    let said = refused(&(unit("a", "*") + &unit("b", "*sleeps*")), &program);
    assert!(
        said.contains("would be requests of `a` and of `b`"),
        "{said}"
    );
    let said = refused(&unit("a", "*"), &workspace::bakery().unwrap());
    assert!(said.contains("no function of tokio is in it"), "{said}");
    let folder = workspace::scratch().unwrap();
    let stripped = folder.path().join("stripped");
    let mut strip = Command::new(workspace::program("strip").unwrap());
    assert!(
        strip
            .arg("-o")
            .arg(&stripped)
            .arg(&program)
            .status()
            .unwrap()
            .success()
    );
    let said = refused(&unit("a", "*sleeps*"), &stripped);
    assert!(
        said.contains("no name tells the types of its tasks"),
        "{said}"
    );
}

#[test]
fn who_has_what_a_job_waits_for_held_it_up() {
    for runtime in ["multi", "current"] {
        let (outcome, lines) = tasks::trace(runtime, JOBS, &["--blame"]).unwrap();
        let traced = checked(&outcome, &lines, JOBS);
        task_checks::held_up(&traced, &outcome.blame().unwrap()).unwrap();
    }
}
