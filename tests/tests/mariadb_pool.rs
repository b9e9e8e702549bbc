//! MariaDB with a thread pool: a command that leaves its thread is one request. And what commands were about.
//!
//! Needs root, a kernel with BPF, mariadb-server and sysbench.

use std::path::Path;

use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::rows::{self, Row};
use reqtrace_tests::sysbench::Sysbench;

const THREADS: u32 = 16;
const EVENTS: u64 = 1000;

#[test]
fn a_commit_that_leaves_its_thread_is_one_request() {
    let server = MariaDb::open_with(&["--thread-handling=pool-of-threads"]).unwrap();
    let sysbench = Sysbench::prepare(&server, 4, 10_000).unwrap();
    let before = server.counters().unwrap();
    let trace = Trace::start(Path::new("mysql"), server.pid(), &[]).unwrap();
    let run = sysbench
        .run_test("oltp_write_only", THREADS, EVENTS)
        .unwrap();
    server.wait_until_alone().unwrap();
    let outcome = trace.finish().unwrap();
    let after = server.counters().unwrap();
    assert_eq!(run.transactions, EVENTS);

    let summary = outcome.checked().unwrap();
    let command = summary.request("command").unwrap();
    let commands = after.commands_since(&before);
    assert_eq!(command.count, commands, "{}", outcome.printed());
    assert_eq!((command.begins, command.ends), (commands, commands));
    assert_eq!(
        (command.unknown_keys, command.running_elsewhere),
        (Some(0), Some(0))
    );

    let rows = outcome.rows().unwrap();
    assert_eq!(rows.len() as u64, commands);
    let parked: Vec<_> = rows
        .iter()
        .filter(|row| row.places["group_commit"] > 0)
        .collect();
    assert!(!parked.is_empty(), "no commit left its thread");
    // What waits for the log is a commit; each is ready before it goes on.
    assert!(
        parked
            .iter()
            .all(|row| ["query", "execute"].contains(&row.attributes["command"].as_str()))
    );
    assert!(
        parked
            .iter()
            .all(|row| row.parked_ns == row.places["group_commit"])
    );
    assert!(rows::sum(&rows, "redo_log") > 0, "no wait for the redo log");
    server.close().unwrap();
}

#[test]
fn commands_say_what_they_were_about() {
    let server = MariaDb::open().unwrap();
    server
        .sql("create user alice; grant all on *.* to alice")
        .unwrap();
    let sysbench = Sysbench::prepare(&server, 1, 1000).unwrap();
    let trace = Trace::start(Path::new("mysql"), server.pid(), &["--labels"]).unwrap();
    let run = sysbench.run(2, 50).unwrap();
    server.sql_as("alice", "select 'a text of hers'").unwrap();
    server.wait_until_alone().unwrap();
    let outcome = trace.finish().unwrap();
    outcome.checked().unwrap();
    let rows = outcome.rows().unwrap();
    let of = |command: &str| -> Vec<&Row> {
        rows.iter()
            .filter(|row| row.attributes["command"] == command)
            .collect()
    };
    // An execute has the text of its prepare.
    let (executes, prepares) = (of("execute"), of("prepare"));
    assert!(executes.len() as u64 >= run.queries && !prepares.is_empty());
    let texts: Vec<_> = prepares.iter().map(|row| &row.attributes["sql"]).collect();
    for row in &executes {
        assert!(texts.contains(&&row.attributes["sql"]), "{row:?} {texts:?}");
        assert_eq!(row.attributes["user"], "root");
        assert_eq!(row.attributes["database"], "sbtest");
    }
    let selects = executes
        .iter()
        .filter(|row| row.attributes["sql"] == "SELECT c FROM sbtest1 WHERE id=?");
    assert_eq!(
        selects.count() as u64,
        10 * (run.transactions + run.ignored_errors)
    );
    let hers = rows.iter().filter(|row| row.attributes["user"] == "alice");
    let hers: Vec<_> = hers
        .map(|row| {
            (
                row.attributes["command"].as_str(),
                row.attributes["sql"].as_str(),
            )
        })
        .collect();
    assert!(
        hers.contains(&("query", "select 'a text of hers'")),
        "{hers:?}"
    );
    assert!(hers.contains(&("quit", "")), "{hers:?}");
    server.close().unwrap();
}

/// Its profile once had another name, which still leads to it.
#[test]
fn without_labels_only_numbers_are_read() {
    let server = MariaDb::open().unwrap();
    let trace = Trace::start(Path::new("mariadb"), server.pid(), &[]).unwrap();
    server.sql("select 'a secret'").unwrap();
    server.wait_until_alone().unwrap();
    let outcome = trace.finish().unwrap();
    outcome.checked().unwrap();
    assert!(!outcome.csv().unwrap().contains("secret"));
    let rows = outcome.rows().unwrap();
    let commands: Vec<_> = rows
        .iter()
        .map(|row| row.attributes["command"].as_str())
        .collect();
    assert_eq!(commands.last(), Some(&"quit"), "{commands:?}");
    assert!(commands.contains(&"query"), "{commands:?}");
}
