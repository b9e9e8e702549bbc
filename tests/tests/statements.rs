//! Requests by what was asked: rows of `--group-by fingerprint` against what the load generators count.
//!
//! Needs root, a kernel with BPF, mariadb-server, sysbench, postgresql-15, nginx and apache2-utils.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::nginx::Nginx;
use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::servers::Server;
use reqtrace_tests::sysbench::{Run, Sysbench};
use reqtrace_tests::workspace;

const BY_FINGERPRINT: [&str; 2] = ["--group-by", "fingerprint"];

/// Statements of one transaction of `oltp_read_write`, and how many.
const STATEMENTS: [(&str, u64); 11] = [
    ("BEGIN", 1),
    ("SELECT c FROM sbtest WHERE id=?", 10),
    ("SELECT c FROM sbtest WHERE id BETWEEN ? AND ?", 1),
    ("SELECT SUM(k) FROM sbtest WHERE id BETWEEN ? AND ?", 1),
    (
        "SELECT c FROM sbtest WHERE id BETWEEN ? AND ? ORDER BY c",
        1,
    ),
    (
        "SELECT DISTINCT c FROM sbtest WHERE id BETWEEN ? AND ? ORDER BY c",
        1,
    ),
    ("UPDATE sbtest SET k=k+1 WHERE id=?", 1),
    ("UPDATE sbtest SET c=? WHERE id=?", 1),
    ("DELETE FROM sbtest WHERE id=?", 1),
    ("INSERT INTO sbtest (id, k, c, pad) VALUES (?, ?, ?, ?)", 1),
    ("COMMIT", 1),
];

/// Complete requests by the text of an attribute, of those that `fits`.
fn by_text(outcome: &Outcome, text: &str, fits: impl Fn(&str) -> bool) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for row in outcome.rows().unwrap() {
        let command = row.attributes.get("command").map_or("", String::as_str);
        if row.complete && fits(command) {
            *counts.entry(row.attributes[text].clone()).or_default() += 1;
        }
    }
    counts
}

/// The groups of the one request type in summary.json, with those that found no row of their own; and how many
/// requests have no text.
fn groups(outcome: &Outcome) -> (BTreeMap<String, u64>, u64) {
    let summary: serde_json::Value =
        serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let labels = &summary["requests"][0]["labels"];
    assert_eq!(labels["by"], "fingerprint", "{labels}");
    let shown = labels["shown"].as_array().unwrap().iter();
    let mut groups: BTreeMap<String, u64> = shown
        .map(|group| {
            let label = group["label"].as_str().unwrap().to_owned();
            (label, group["count"].as_u64().unwrap())
        })
        .collect();
    let without = groups.remove("").unwrap_or_default();
    (groups, without)
}

/// A load of one table, so that each statement has one text.
fn prepared(server: &MariaDb, profile: &Path) -> (Outcome, Run) {
    let sysbench = Sysbench::prepare(server, 1, 10_000).unwrap();
    let before = server.counters().unwrap();
    let trace = Trace::start(profile, server.pid(), &BY_FINGERPRINT).unwrap();
    let run = sysbench.run(4, 100).unwrap();
    server.wait_until_alone().unwrap();
    let outcome = trace.finish().unwrap();
    let after = server.counters().unwrap();
    let summary = outcome.checked().unwrap();
    let commands = after.commands_since(&before);
    assert_eq!(summary.request("command").unwrap().count, commands);
    // What is not a statement has no text, and its command says what it is.
    let without: u64 = by_text(&outcome, "sql", |command| {
        !["execute", "prepare", "query"].contains(&command)
    })
    .values()
    .sum();
    assert_eq!(
        without,
        after.closes - before.closes + 4,
        "closes, and a good-bye each"
    );
    let (groups, others) = groups(&outcome);
    assert_eq!(others, without, "{groups:?}");
    (outcome, run)
}

/// Each statement was executed as often as sysbench says: a transaction that a deadlock ended begins again.
#[track_caller]
fn has_the_counts_of(outcome: &Outcome, run: &Run) {
    let executed = by_text(outcome, "sql", |command| command == "execute");
    let (shown, _) = groups(outcome);
    let prepared = by_text(outcome, "sql", |command| command == "prepare");
    let mut known = 0;
    for (statement, each) in STATEMENTS {
        let statement = statement.replace("sbtest ", "sbtest1 ");
        let count = executed.get(&statement).copied().unwrap_or_default();
        let (least, most) = (
            each * run.transactions,
            each * (run.transactions + run.ignored_errors),
        );
        assert!(
            (least..=most).contains(&count),
            "{statement}: {count}, {run:?}, {executed:?}"
        );
        known += count;
        // The row of the report has its prepares besides.
        let row = shown.get(&statement.replace("(?, ?, ?, ?)", "(?)"));
        let row = row.or_else(|| shown.get(&statement)).copied();
        if let Some(row) = row {
            assert_eq!(row, count + prepared[&statement], "{statement}: {shown:?}");
        } else {
            assert!(shown.len() >= 10, "{statement}: {shown:?}");
        }
    }
    assert_eq!(known, executed.values().sum::<u64>(), "{executed:?}");
    if run.ignored_errors == 0 {
        assert_eq!(known, run.queries);
    }
}

#[test]
fn mariadbs_prepared_statements_are_named() {
    let server = MariaDb::open().unwrap();
    let (outcome, run) = prepared(&server, Path::new("mysql"));
    has_the_counts_of(&outcome, &run);
    let rows = outcome.rows().unwrap();
    assert!(rows.iter().all(|row| row.places.is_empty()), "it has a key");
    server.close().unwrap();
}

#[test]
fn they_are_with_a_thread_pool_too() {
    let server = MariaDb::open_with(&["--thread-handling=pool-of-threads"]).unwrap();
    let (outcome, run) = prepared(&server, Path::new("mysql"));
    has_the_counts_of(&outcome, &run);
    let rows = outcome.rows().unwrap();
    assert!(
        rows.iter()
            .all(|row| row.places.contains_key("group_commit"))
    );
    server.close().unwrap();
}

/// The built-in profile for a build that has other code, and so maybe other members: nothing is read from there.
fn for_another_build(folder: &Path) -> PathBuf {
    let text = fs::read_to_string(workspace::root().join("profiles/mysql.toml")).unwrap();
    let other = text
        .replace("49 8b 75 68 41 8b 55 70", "49 8b 75 78 41 8b 95 80")
        .replace("48 8b 86 f8 25 00 00", "48 8b 86 08 26 00 00")
        // What would be read there is no text.
        .replace("deref = [0x68]", "deref = [0x78]")
        .replace("deref = [0x25f8, 8]", "deref = [0x2608, 8]");
    assert_ne!(other, text);
    let profile = folder.join("other.toml");
    fs::write(&profile, other).unwrap();
    profile
}

#[test]
fn in_another_build_no_member_is_read_and_statements_are_named_all_the_same() {
    let server = MariaDb::open().unwrap();
    let folder = workspace::scratch().unwrap();
    let profile = for_another_build(folder.path());
    let (outcome, run) = prepared(&server, &profile);
    has_the_counts_of(&outcome, &run);
    for attribute in ["user", "database"] {
        let printed = format!(
            "the attribute `{attribute}` is not read: the code of `LOGGER::general_log_write("
        );
        assert!(
            outcome.printed().contains(&printed),
            "{}",
            outcome.printed()
        );
        let mut rows = outcome.rows().unwrap().into_iter();
        assert!(rows.all(|row| row.attributes[attribute].is_empty()));
    }
    server.close().unwrap();
}

#[test]
fn postgresqls_prepared_statements_are_named() {
    const CLIENTS: u64 = 4;
    const TRANSACTIONS: u64 = 25;
    let server = Server::postgresql().unwrap();
    server.run("pgbench", &["-i", "-q"]).unwrap();
    let profile = Path::new("postgresql");
    let trace = Trace::start(profile, server.pid(), &BY_FINGERPRINT).unwrap();
    let (clients, transactions) = (CLIENTS.to_string(), TRANSACTIONS.to_string());
    let args = ["-n", "-M", "prepared", "-c", &clients, "-t", &transactions];
    server.run("pgbench", &args).unwrap();
    let outcome = trace.finish().unwrap();
    outcome.checked().unwrap();
    let (groups, without) = groups(&outcome);
    // A prepare is a round trip of its own, and has the same text.
    let expected = CLIENTS * TRANSACTIONS + CLIENTS;
    let of_load: Vec<u64> = groups
        .values()
        .copied()
        .filter(|count| *count > 2)
        .collect();
    assert_eq!(of_load, [expected; 7], "{groups:?}");
    assert_eq!(without, 0, "{groups:?}");
}

#[test]
fn nginxs_requests_are_named_by_their_paths() {
    let nginx = Nginx::start(2).unwrap();
    for page in ["one", "two"] {
        fs::write(nginx.documents().join(page), page).unwrap();
    }
    let trace = Trace::start(Path::new("nginx"), nginx.pid(), &BY_FINGERPRINT).unwrap();
    for (page, requests) in [("/one", 300), ("/two", 200), ("/nothing", 1)] {
        nginx.ab(page, requests, 1, &["-k"]).unwrap();
    }
    let outcome = trace.finish().unwrap();
    outcome.checked().unwrap();
    let (groups, without) = groups(&outcome);
    let expected = [("/nothing", 1), ("/one", 300), ("/two", 200)];
    let expected = expected.map(|(path, count)| (path.to_owned(), count));
    assert_eq!(groups, BTreeMap::from(expected));
    assert_eq!(without, 0);
}

/// Whether a pool will run is not known before the program runs: what is traced then is right in both cases.
#[test]
fn a_server_that_reqtrace_starts_is_traced_as_with_a_pool() {
    let mariadbd = workspace::program("mariadbd").unwrap();
    let line = [mariadbd.to_str().unwrap(), "--no-defaults", "--version"];
    let outcome = Trace::of_program(Path::new("mysql"), &[], &line, "")
        .unwrap()
        .wait()
        .unwrap();
    let printed = outcome.printed();
    assert!(
        printed.contains("which may cost more than is needed"),
        "{printed}"
    );
    assert!(
        printed.contains("`thread_handling` is not known: the program has not begun"),
        "{printed}"
    );
}

/// A recording has the profile as it was used: what `report` makes of it is what the trace printed.
#[test]
fn a_recording_has_what_was_chosen() {
    for (options, has_key) in [
        (&["--thread-handling=pool-of-threads"][..], true),
        (&[], false),
    ] {
        let server = MariaDb::open_with(options).unwrap();
        let folder = workspace::scratch().unwrap();
        let recording = folder.path().join("trace.rec");
        let more = ["--record", recording.to_str().unwrap(), "--labels"];
        let trace = Trace::start(Path::new("mysql"), server.pid(), &more).unwrap();
        server
            .sql("create table sbtest.t (n int); insert into sbtest.t values (1)")
            .unwrap();
        server.wait_until_alone().unwrap();
        let outcome = trace.finish().unwrap();
        let traced = outcome.checked().unwrap();
        let csv = folder.path().join("again.csv");
        let mut command = reqtrace_tests::reqtrace::command(["report", "-q", "--csv"]).unwrap();
        command.arg(&csv).arg(&recording);
        let again = reqtrace_tests::reqtrace::run(command).unwrap();
        assert_eq!(again.code, Some(0), "{}", again.printed());
        assert_eq!(fs::read_to_string(csv).unwrap(), outcome.csv().unwrap());
        assert_eq!(
            traced.request("command").unwrap().unknown_keys.is_some(),
            has_key
        );
        assert_eq!(outcome.csv().unwrap().contains("group_commit_ns"), has_key);
        server.close().unwrap();
    }
}

#[test]
fn check_says_what_would_be_taken_and_why() {
    let check = |what: &[&str]| {
        let mut command =
            reqtrace_tests::reqtrace::command(["check", "--profile", "mysql"]).unwrap();
        command.args(what);
        let outcome = reqtrace_tests::reqtrace::run(command).unwrap();
        assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
        outcome.stdout
    };
    let mariadbd = workspace::program("mariadbd").unwrap();
    let text = check(&[mariadbd.to_str().unwrap()]);
    let unknown = "as [[request.instead]] 1 says, unless a process shows that it is not needed: \
                   the variable `thread_handling` is not known: the program does not run";
    assert!(text.contains(unknown), "{text}");
    let each = MariaDb::open().unwrap();
    let text = check(&["-p", &each.pid().to_string()]);
    let plain = "as it stands, not as a [[request.instead]] says: the variable `thread_handling` is 0, and not 2";
    assert!(
        text.contains(plain) && !text.contains("key: argument 1"),
        "{text}"
    );
    each.close().unwrap();
    let pool = MariaDb::open_with(&["--thread-handling=pool-of-threads"]).unwrap();
    let text = check(&["-p", &pool.pid().to_string()]);
    let keyed = "and the variable `thread_handling` is 2";
    assert!(
        text.contains(keyed) && text.contains("key: argument 1"),
        "{text}"
    );
    pool.close().unwrap();
}
