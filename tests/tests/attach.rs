//! How probes are set: by which engine, for which processes, and that they are gone again at once.
//!
//! Needs root, a kernel with BPF, and mariadb-server.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::probed::Code;
use reqtrace_tests::process::{Child, Stream};
use reqtrace_tests::reqtrace::{self, Outcome, Trace};
use reqtrace_tests::workspace;

const CALLS: u64 = 5;
const CHILDREN: u64 = 3;

/// A profile whose requests are calls of a function in libc.
fn library_profile(folder: &Path) -> PathBuf {
    let path = folder.join("library.toml");
    let text = "[profile]\nname = \"library\"\n\n[[request]]\nname = \"call\"\n\
                begin = { function = \"getpgid\", object = \"libc.so*\" }\n\
                end = { function = \"getpgid\", at = \"return\", object = \"libc.so*\" }\n";
    std::fs::write(&path, text).unwrap();
    path
}

fn of_call(outcome: &Outcome) -> u64 {
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    outcome.summary().unwrap().request("call").unwrap().count
}

/// A `read` marker in libc once slowed a process that nobody traced 61 times.
#[test]
fn a_marker_in_a_library_is_set_in_the_traced_processes_only() {
    let (children, calls) = (CHILDREN.to_string(), CALLS.to_string());
    let mut server = Fixture::start("library", &[&children, &calls]).unwrap();
    let mut other = Fixture::start("library", &["0", "1000"]).unwrap();
    let folder = workspace::scratch().unwrap();
    let profile = library_profile(folder.path());
    let code = |pid| Code::of_library(pid, "libc.so.6", "getpgid").unwrap();
    let (traced, unrelated) = (code(server.pid()), code(other.pid()));

    let trace = Trace::start(&profile, server.pid(), &["--yes"]).unwrap();
    assert!(traced.is_probed().unwrap());
    assert!(!unrelated.is_probed().unwrap(), "somebody else is hit");
    // One that starts meanwhile is not hit either.
    let later = Fixture::start("library", &["0", "1"]).unwrap();
    assert!(!code(later.pid()).is_probed().unwrap(), "a new one is hit");
    other.work().unwrap();
    server.work().unwrap();
    assert!(!unrelated.is_probed().unwrap(), "somebody else is hit");
    let outcome = trace.finish().unwrap();
    assert!(!traced.is_probed().unwrap(), "a probe was left behind");

    // All of the process itself, and of each child what it did after its probes were set.
    let counted = of_call(&outcome);
    let seen = CALLS * (1 + CHILDREN);
    assert!(
        counted >= seen,
        "{counted} of {seen}: {}",
        outcome.printed()
    );
    assert!(counted <= seen + 100 * CHILDREN, "{}", outcome.printed());
    let printed = format!("{CHILDREN} processes got probes");
    assert!(outcome.stdout.contains(&printed), "{}", outcome.stdout);
    for fixture in [server, other, later] {
        fixture.end().unwrap();
    }
}

/// Perf events set the probes of kernels before 6.6; here they are asked for.
#[test]
fn perf_events_do_what_uprobe_multi_does() {
    let mut counts = Vec::new();
    for (hidden, word) in [
        ("", "uprobe_multi"),
        ("process-filter", "uprobe_multi"),
        ("uprobe_multi", "perf events"),
    ] {
        let mut server = Fixture::start("library", &["1", "7"]).unwrap();
        let folder = workspace::scratch().unwrap();
        let profile = library_profile(folder.path());
        let mut command = reqtrace::command(["--profile"]).unwrap();
        command
            .arg(&profile)
            .args(["-p", &server.pid().to_string()]);
        command.args(["-v", "--yes", "--json", "-"]);
        command.env("REQTRACE_HIDE", hidden);
        let mut child = Child::start(command, folder.path(), "reqtrace").unwrap();
        let limit = Duration::from_secs(60);
        child.wait_for_line(Stream::Err, "tracing ", limit).unwrap();
        server.work().unwrap();
        child.signal(libc::SIGINT).unwrap();
        assert!(child.wait(limit).unwrap().success());
        let printed = child.output(Stream::Err);
        let line = printed.lines().find(|line| line.contains("probes set by "));
        assert!(line.unwrap().contains(word), "{printed}");
        let summary: serde_json::Value = serde_json::from_str(&child.output(Stream::Out)).unwrap();
        let count = summary["requests"][0]["count"].as_u64().unwrap();
        // Both are exact in the process itself, and in the child once they are set.
        assert!((14..=114).contains(&count), "{count}");
        counts.push(count);
        server.end().unwrap();
    }
    assert_eq!(counts.len(), 3);
}

/// One by one each probe waits for a grace period when it is taken out: 15.7 s for 191 of them.
#[test]
fn many_probes_are_set_and_gone_at_once() {
    let server = MariaDb::open().unwrap();
    let pid = server.pid().to_string();
    let mut command =
        reqtrace::command(["functions", "-p", &pid, "handler::ha_*", "--count", "0.1"]).unwrap();
    command.args(["--object", "*mariadbd"]);
    let started = Instant::now();
    let outcome = reqtrace::run(command).unwrap();
    let took = started.elapsed();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let line = outcome.stdout.lines().last().unwrap();
    let all: u64 = line.split(' ').nth(2).unwrap().parse().unwrap();
    assert!(all >= 50, "{line}");
    // Finding the functions takes most of it.
    assert!(took < Duration::from_secs(10), "{took:.1?}");
}
