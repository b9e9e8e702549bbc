//! MariaDB under sysbench: the number of requests is the server's own number of commands.
//!
//! The formula, measured on MariaDB 10.11 with bpftrace counting `dispatch_command` by its first
//! argument, and explained in `tests/README.md`:
//!
//! ```text
//! requests = Δ(Questions + Com_stmt_prepare + Com_stmt_close) − 2
//! ```
//!
//! Δ is between two readings that both lie outside of the trace; the 2 are the QUIT of the client
//! that made the first reading and the SHOW of the client that made the second.
//!
//! Needs root, a kernel with BPF, mariadb-server and sysbench.

use std::path::Path;

use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::reqtrace::{Trace, remembered};
use reqtrace_tests::sysbench::Sysbench;
use reqtrace_tests::{ledger, rows, xml};

const THREADS: u32 = 4;
const EVENTS: u64 = 500;

/// Where MariaDB's threads wait while they do nothing: a connection for its next command, the main
/// thread for a connection, background threads for their timers and for finished reads and writes.
const IDLE: [&str; 9] = [
    "unix_stream_recvmsg",
    "unix_stream_read",
    "do_sys_poll",
    "do_poll",
    "inet_csk_accept",
    "unix_accept",
    "io_getevents",
    "io_cqring_wait",
    "do_sigtimedwait",
];

#[test]
fn requests_are_the_servers_own_count_of_commands() {
    let server = MariaDb::open().unwrap();
    let sysbench = Sysbench::prepare(&server, 4, 10_000).unwrap();

    let before = server.counters().unwrap();
    let trace = Trace::start(Path::new("mysql.toml"), server.pid(), &["-v"]).unwrap();
    let run = sysbench.run(THREADS, EVENTS).unwrap();
    // All QUITs are through: the trace ends after the load, with no request open.
    server.wait_until_alone().unwrap();
    let outcome = trace.finish().unwrap();
    let after = server.counters().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());

    // What the server says, in two ways, and what sysbench says.
    let commands = after.commands_since(&before);
    assert_eq!(commands, after.queries_since(&before));
    assert_eq!(run.transactions, EVENTS);
    let executes = after.executes - before.executes;
    assert!(executes >= EVENTS, "{executes}");
    if run.ignored_errors == 0 {
        assert_eq!(executes, run.queries);
    }

    // What the trace says.
    let summary = outcome.summary().unwrap();
    let command = summary.request("command").unwrap();
    assert_eq!(command.count, commands);
    assert_eq!((command.begins, command.ends), (commands, commands));
    assert_eq!(command.rows, commands);
    assert_eq!(summary.lost(), 0, "{:?}", summary.losses);
    // All walked again, and none was another one: that would be a loss.
    let remembered = remembered(&outcome.stderr).unwrap();
    assert!(
        remembered.user > 500 && remembered.kernel > 500,
        "{remembered:?}"
    );
    outcome.has_whole_stacks().unwrap();
    let rows = outcome.rows().unwrap();
    assert_eq!(rows.len() as u64, commands);
    assert!(
        rows.iter()
            .all(|row| row.complete && row.pid == server.pid())
    );
    let csv = outcome.csv().unwrap();
    assert_eq!(ledger::check(&csv).unwrap() as u64, commands);

    // Requests are on the threads of the connections only.
    let mut threads: Vec<u32> = rows.iter().map(|row| row.tid).collect();
    threads.sort_unstable();
    threads.dedup();
    assert!(threads.len() <= THREADS as usize, "{threads:?}");

    rows::check_other(&rows).unwrap();
    assert!(rows::sum(&rows, "redo_log") > 0, "no wait for the redo log");
    assert_eq!(outcome.stack_with(&IDLE).unwrap(), None, "idle time");
    xml::check(&outcome.flamegraph().unwrap()).unwrap();
    server.close().unwrap();
}
