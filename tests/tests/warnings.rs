//! Warning signs in the report, each provoked on MariaDB by a profile or a server that is set up wrong.
//!
//! Needs root, a kernel with BPF, mariadb-server and sysbench.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::sysbench::Sysbench;
use reqtrace_tests::{ledger, workspace};
use serde_json::Value;

/// All hints, each without its line breaks.
fn hints(outcome: &Outcome) -> Vec<String> {
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let summary: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let hints = summary["hints"].as_array().unwrap().iter();
    hints
        .map(|hint| hint.as_str().unwrap().to_owned())
        .collect()
}

#[track_caller]
fn hint_with(hints: &[String], words: &str) -> String {
    let found = hints.iter().find(|hint| hint.contains(words));
    found
        .unwrap_or_else(|| panic!("no hint with {words:?}: {hints:#?}"))
        .clone()
}

/// Traces a server with a request of its own definition.
fn trace(server: &MariaDb, request: &str) -> (Trace, tempfile::TempDir) {
    let folder = workspace::scratch().unwrap();
    let profile = folder.path().join("naive.toml");
    let text = format!("[profile]\nname = \"naive\"\n\n[[request]]\nname = \"command\"\n{request}");
    std::fs::write(&profile, text).unwrap();
    let trace = Trace::start(&profile, server.pid(), &[]).unwrap();
    (trace, folder)
}

/// A client that thinks between its queries, all on one connection.
fn thoughtful_client(server: &MariaDb) {
    let mut command = Command::new(workspace::program("mariadb").unwrap());
    command
        .arg("--no-defaults")
        .arg("--unbuffered")
        .arg(format!("--socket={}", server.socket().display()))
        .arg("--user=root")
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    let mut client = command.spawn().unwrap();
    let mut input = client.stdin.take().unwrap();
    for _ in 0..20 {
        writeln!(input, "select 1;").unwrap();
        input.flush().unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(input);
    assert!(client.wait().unwrap().success());
}

/// `do_command` reads the next command inside itself.
#[test]
fn idle_time_that_counts_as_latency_is_named() {
    let server = MariaDb::open().unwrap();
    let (naive, _folder) = trace(&server, "begin = { function = \"do_command\" }\n");
    thoughtful_client(&server);
    server.wait_until_alone().unwrap();
    let outcome = naive.finish().unwrap();
    let hint = hint_with(&hints(&outcome), "docs/measured/do-command.md");
    assert!(
        hint.contains("waiting for work counts as latency"),
        "{hint}"
    );
    // The table's line breaks are elsewhere.
    assert!(outcome.printed().contains("Hint: `command` waits to read"));

    // The same with the waits of the built-in profile, where that wait has a name of its own.
    let built_in = std::fs::read_to_string(workspace::root().join("profiles/mysql.toml")).unwrap();
    let waits = &built_in[built_in.find("[[wait]]").unwrap()..];
    let named = format!("begin = {{ function = \"do_command\" }}\n\n{waits}");
    let (naive, _folder) = trace(&server, &named);
    thoughtful_client(&server);
    server.wait_until_alone().unwrap();
    hint_with(
        &hints(&naive.finish().unwrap()),
        "docs/measured/do-command.md",
    );

    // What begins after the read has no such sign.
    let right = Trace::start(Path::new("mysql.toml"), server.pid(), &[]).unwrap();
    thoughtful_client(&server);
    server.wait_until_alone().unwrap();
    let hints = hints(&right.finish().unwrap());
    assert!(
        !hints.iter().any(|hint| hint.contains("do-command")),
        "{hints:?}"
    );
    server.close().unwrap();
}

/// With a thread for each connection nothing ever returns from the pool's function.
#[test]
fn begins_whose_end_is_elsewhere_pile_up() {
    let server = MariaDb::open().unwrap();
    let wrong = "begin = { function = \"dispatch_command\" }\n\
                 end = { function = \"tp_callback\", at = \"return\" }\n";
    let (trace, _folder) = trace(&server, wrong);
    thoughtful_client(&server);
    let holder = server.start_sql("holder", "select 1; select 2; select sleep(60)");
    server.wait_for_statement("select sleep", "sleep").unwrap();
    let outcome = trace.finish().unwrap();
    let printed = hints(&outcome);
    hint_with(&printed, "its end (tp_callback");
    drop(holder);
    server.close().unwrap();
}

/// One connection stays: the depth of its request grows and never falls.
#[test]
fn a_depth_that_only_grows_is_named() {
    let server = MariaDb::open().unwrap();
    let wrong = "begin = { function = \"dispatch_command\" }\n\
                 end = { function = \"tp_callback\", at = \"return\" }\n";
    let (trace, _folder) = trace(&server, wrong);
    let mut statements = "select 1; ".repeat(30);
    statements.push_str("select sleep(60)");
    let client = server.start_sql("client", &statements).unwrap();
    server.wait_for_statement("select sleep", "sleep").unwrap();
    let outcome = trace.finish().unwrap();
    let hint = hint_with(&hints(&outcome), "the depth only grew");
    assert!(hint.contains("begins of `command`"), "{hint}");
    ledger::check(&outcome.csv().unwrap()).unwrap();
    drop(client);
    server.close().unwrap();
}

#[test]
fn a_thread_that_never_leaves_its_request_is_named() {
    let server = MariaDb::open().unwrap();
    let trace = Trace::start(Path::new("mysql.toml"), server.pid(), &[]).unwrap();
    // It says that it traces right after it has begun to.
    let started = Instant::now();
    let hung = server.start_sql("hung", "select sleep(600)").unwrap();
    server.wait_for_statement("select sleep", "sleep").unwrap();
    // What it was not there for is then less than a tenth.
    let late = started.elapsed();
    let hangs = Instant::now();
    while hangs.elapsed() < late * 20 {
        server.sql("select 1").unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    let outcome = trace.finish().unwrap();
    let hint = hint_with(&hints(&outcome), "for nearly the whole trace, while");
    assert!(
        hint.contains("others came and went: a hung request"),
        "{hint}"
    );
    drop(hung);
    server.close().unwrap();
}

/// MariaDB's pool of threads: commands that were parked are dispatched twice.
#[test]
fn a_thread_pool_that_parks_requests_is_named() {
    let server = MariaDb::open_with(&["--thread-handling=pool-of-threads"]).unwrap();
    let sysbench = Sysbench::prepare(&server, 4, 10_000).unwrap();
    let before = server.counters().unwrap();
    let (trace, _folder) = trace(&server, "begin = { function = \"dispatch_command\" }\n");
    sysbench.run_test("oltp_write_only", 8, 1000).unwrap();
    server.wait_until_alone().unwrap();
    let outcome = trace.finish().unwrap();
    let after = server.counters().unwrap();
    let hint = hint_with(&hints(&outcome), "tp_callback is on its stacks");
    assert!(hint.contains("counts as two requests"), "{hint}");
    assert!(hint.contains("profile mysql takes it as one"), "{hint}");
    // That is true: there are more requests than commands.
    let commands = after.commands_since(&before);
    let requests = outcome.summary().unwrap().request("command").unwrap().count;
    println!("{requests} requests, {commands} commands");
    assert!(
        requests > commands,
        "{requests} requests, {commands} commands"
    );
    server.close().unwrap();

    let server = MariaDb::open().unwrap();
    let sysbench = Sysbench::prepare(&server, 1, 1_000).unwrap();
    let (trace, _folder) = self::trace(&server, "begin = { function = \"dispatch_command\" }\n");
    sysbench.run(2, 50).unwrap();
    let hints = hints(&trace.finish().unwrap());
    assert!(
        !hints.iter().any(|hint| hint.contains("thread pool")),
        "{hints:?}"
    );
    server.close().unwrap();
}
