//! A request that begins where `do_command` has read its command: as many as the server counts, and
//! no wait for the client in it.
//!
//! Needs root, a kernel with BPF, mariadb-server and sysbench.

use std::path::Path;
use std::time::Duration;

use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::sysbench::Sysbench;
use reqtrace_tests::{ledger, rows};

const THREADS: u32 = 2;
const EVENTS: u64 = 100;
/// Transactions in a second: each connection is idle most of the time, also on a slow disk.
const RATE: u32 = 25;

#[test]
fn it_begins_after_the_wait_for_the_client() {
    let server = MariaDb::open().unwrap();
    let sysbench = Sysbench::prepare(&server, 2, 1000).unwrap();
    let naive = std::fs::read_to_string(
        reqtrace_tests::workspace::root().join("profiles/mysql-do-command.toml"),
    )
    .unwrap()
    .lines()
    .filter(|line| !line.starts_with("end = "))
    .map(|line| match line.starts_with("begin = ") {
        true => "begin = { function = \"do_command\" }\n".to_owned(),
        false => format!("{line}\n"),
    })
    .collect::<String>();
    let folder = tempfile::tempdir().unwrap();
    let naive_path = folder.path().join("naive.toml");
    std::fs::write(&naive_path, naive).unwrap();

    let trace_with = |profile: &Path| {
        let before = server.counters().unwrap();
        let trace = Trace::start(profile, server.pid(), &[]).unwrap();
        let run = sysbench
            .run_at_rate("oltp_read_write", THREADS, EVENTS, RATE)
            .unwrap();
        assert_eq!(run.transactions, EVENTS);
        server.wait_until_alone().unwrap();
        let outcome = trace.finish().unwrap();
        let after = server.counters().unwrap();
        assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
        (outcome, after.commands_since(&before))
    };

    let (outcome, commands) = trace_with(Path::new("mysql-do-command.toml"));
    let summary = outcome.summary().unwrap();
    assert_eq!(summary.request("command").unwrap().count, commands);
    assert_eq!(summary.lost(), 0, "{:?}", summary.losses);
    let csv = outcome.csv().unwrap();
    assert_eq!(ledger::check(&csv).unwrap() as u64, commands);
    let good = outcome.rows().unwrap();
    assert!(good.iter().all(|row| row.complete));

    // The obvious profile sees as many requests, and mostly the wait for the client in them.
    let (outcome, commands) = trace_with(&naive_path);
    let complete = outcome.summary().unwrap().request("command").unwrap().count;
    assert_eq!(complete, commands);
    let wrong = outcome.rows().unwrap();
    let latency = |rows: &[rows::Row]| rows.iter().map(|row| row.latency_ns).sum::<u64>();
    let idle = rows::sum(&wrong, "client_network");
    assert!(idle * 2 > latency(&wrong), "{idle} of {}", latency(&wrong));
    let idle = rows::sum(&good, "client_network");
    assert!(idle * 20 < latency(&good), "{idle} of {}", latency(&good));
    // Two connections are idle for nearly as long as the load takes, at this rate.
    let load = Duration::from_secs(EVENTS / u64::from(RATE)).as_nanos() as u64;
    assert!(latency(&wrong) > load, "{}", latency(&wrong));
    server.close().unwrap();
}
