//! Verdicts of which no single thread is the culprit: many writers of one row, and an upstream of many threads.
//!
//! Needs root, a kernel with BPF, mariadb-server, sysbench, nginx and apache2-utils.

use std::path::Path;
use std::time::Duration;

use reqtrace_tests::http::upstream::Upstream;
use reqtrace_tests::nginx::Nginx;
use reqtrace_tests::reqtrace::Trace;

use serde_json::Value;

use crate::verdict::{How, LIMIT, Right, is_right, load, one, server};

/// Connections that write one row, and how often.
const WRITERS: u64 = 8;

impl How {
    /// How often each does something.
    const fn rounds(self) -> usize {
        match self {
            Self::Alone | Self::Noisy => 100,
            Self::Sampled => 300,
        }
    }
}

/// Connections that run this again and again, beside healthy ones: they are the culprits, for this object and with this statement.
fn contended(how: How, name: &str, script: &str, object: &str, statement: &str) -> Right {
    let server = server();
    let options = how.options(&["--blame", "--labels"]);
    let trace = Trace::start(Path::new("mysql.toml"), server.pid(), &options).unwrap();
    let mut load = load(&server, how, "update d.t set n = n + 1 where id = ID + 1");
    how.beside(|| {
        let several = (0..WRITERS).map(|number| {
            let name = format!("{name}{number}");
            let script = script.repeat(how.rounds());
            server.start_sql(&name, &script).unwrap()
        });
        let mut several: Vec<_> = several.collect();
        for client in &mut several {
            assert!(client.wait(LIMIT).unwrap().success());
        }
    });
    load.stop().unwrap();
    let least = if how == How::Sampled { 3 } else { WRITERS };
    let threads = |culprit: &Value| culprit["threads"].as_u64().unwrap_or(0);
    one(
        &trace.finish().unwrap(),
        |culprit| {
            culprit["kind"] == "threads"
                && culprit["pid"] == server.pid()
                && threads(culprit) <= WRITERS
        },
        |verdict| {
            let culprit = &verdict["culprit"];
            verdict["class"] == "contended"
                && verdict["object"] == object
                && threads(culprit) >= least
                && culprit["statements"].to_string().contains(statement)
        },
    )
}

pub(super) fn hot_row(how: How) -> Right {
    let script =
        "begin; update d.t set n = n + 1 where id = 1;\n\\! sleep 0.005\ncommit;\n\\! sleep 0.02\n";
    let statement = "update d.t set n = n + ? where id = ?";
    contended(how, "writer", script, "row lock", statement)
}

/// A convoy: each holds the lock for a moment, and all take it in turn.
pub(super) fn convoy(how: How) -> Right {
    let script =
        "do get_lock('convoy', 60);\n\\! sleep 0.005\ndo release_lock('convoy');\n\\! sleep 0.02\n";
    contended(how, "taker", script, "metadata lock", "do get_lock(?")
}

/// Each connection of the upstream is a thread of its own.
pub(super) fn slow_upstream(how: How) -> Right {
    let late = Duration::from_millis(250);
    let (fast, slow) = match how {
        How::Alone | How::Noisy => (3_000, 4),
        How::Sampled => (12_000, 48),
    };
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
    let options = how.options(&["--blame"]);
    let trace = Trace::start(Path::new("nginx"), nginx.pid(), &options).unwrap();
    how.beside(|| {
        std::thread::scope(|threads| {
            threads.spawn(|| nginx.ab("/up/fast", fast, 4, &[]).unwrap());
            for _ in 0..10 {
                nginx.ab("/up/slow", slow, slow as u32, &[]).unwrap();
                std::thread::sleep(late);
            }
        });
    });
    one(
        &trace.finish().unwrap(),
        |culprit| culprit["pid"] == std::process::id(),
        |verdict| verdict["class"] == "held_by_thread" && verdict["culprit"].is_object(),
    )
}

#[test]
fn a_row_with_many_writers() {
    is_right(hot_row);
}

#[test]
fn a_lock_that_many_take_in_turn() {
    is_right(convoy);
}

#[test]
fn an_upstream_that_is_slow_now_and_then() {
    is_right(slow_upstream);
}
