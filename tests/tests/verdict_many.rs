//! Verdicts of which no single thread is the culprit: many writers of one row, and an upstream of many threads.
//!
//! Needs root, a kernel with BPF, mariadb-server, nginx and apache2-utils.

use std::path::Path;
use std::time::Duration;

use reqtrace_tests::http::upstream::Upstream;
use reqtrace_tests::nginx::Nginx;
use reqtrace_tests::noise;
use reqtrace_tests::reqtrace::Trace;

use crate::verdict::{CLIENTS, LIMIT, client_of, only, server};

/// Connections that write one row.
const WRITERS: u32 = 8;
/// A healthy client runs so many statements.
const STATEMENTS: usize = 250;

/// Connections that run this again and again, beside healthy ones: they are the culprits, for this object and with this statement.
fn contended(name: &str, script: &str, object: &str, statement: &str) {
    let server = server();
    let options = ["--blame", "--labels"];
    let trace = Trace::start(Path::new("mysql.toml"), server.pid(), &options).unwrap();
    let update = "update d.t set n = n + 1 where id = ID";
    let mut clients: Vec<_> = (2..=CLIENTS)
        .map(|id| client_of(&server, id, update, STATEMENTS))
        .collect();
    let several = (0..WRITERS).map(|number| {
        let name = format!("{name}{number}");
        server.start_sql(&name, &script.repeat(100)).unwrap()
    });
    clients.extend(several);
    for client in &mut clients {
        assert!(client.wait(LIMIT).unwrap().success());
    }
    let verdict = only(&trace.finish().unwrap(), "contended");
    assert_eq!(verdict["object"], object, "{verdict:#}");
    let culprit = &verdict["culprit"];
    assert_eq!(culprit["kind"], "threads", "{verdict:#}");
    assert_eq!(culprit["threads"], WRITERS, "{verdict:#}");
    assert_eq!(culprit["pid"], server.pid(), "{verdict:#}");
    let statements = culprit["statements"].to_string();
    assert!(statements.contains(statement), "{verdict:#}");
}

#[test]
fn a_row_with_many_writers() {
    let script =
        "begin; update d.t set n = n + 1 where id = 1;\n\\! sleep 0.005\ncommit;\n\\! sleep 0.02\n";
    let statement = "update d.t set n = n + ? where id = ?";
    contended("writer", script, "row lock", statement);
}

/// A convoy: each holds the lock for a moment, and all take it in turn.
#[test]
fn a_lock_that_many_take_in_turn() {
    let script =
        "do get_lock('convoy', 60);\n\\! sleep 0.005\ndo release_lock('convoy');\n\\! sleep 0.02\n";
    contended("taker", script, "metadata lock", "do get_lock(?");
}

/// Each connection of the upstream is a thread of its own.
#[test]
fn an_upstream_that_is_slow_now_and_then() {
    let late = Duration::from_millis(250);
    noise::once_in(2, "verdict", || {
        let upstream = Upstream::start(|path| match path.ends_with("slow") {
            true => Duration::from_millis(250),
            false => Duration::from_millis(1),
        })
        .unwrap();
        let proxied = format!(
            "location /up/ {{ proxy_pass http://127.0.0.1:{}/; }}",
            upstream.port()
        );
        let nginx = Nginx::start_with(1, "", &proxied).unwrap();
        let trace = Trace::start(Path::new("nginx"), nginx.pid(), &["--blame"]).unwrap();
        std::thread::scope(|threads| {
            threads.spawn(|| nginx.ab("/up/fast", 3_000, 4, &[]).unwrap());
            for _ in 0..10 {
                nginx.ab("/up/slow", 4, 4, &[]).unwrap();
                std::thread::sleep(late);
            }
        });
        let outcome = trace.finish().unwrap();
        let verdicts = crate::verdict::verdicts(&outcome);
        let [verdict] = verdicts.as_slice() else {
            return Err(format!("{verdicts:#?} {}", outcome.said()));
        };
        let is_right =
            verdict["culprit"]["pid"] == std::process::id() && verdict["class"] == "held_by_thread";
        match is_right {
            true => Ok(()),
            false => Err(format!("{verdict:#}")),
        }
    });
}
