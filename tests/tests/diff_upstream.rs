//! Comparisons: a database whose upstream got slower, against itself with one that did not.
//!
//! MariaDB waits for a replica to acknowledge its commits, PostgreSQL for another database. Both servers of a
//! comparison run at the same time.
//!
//! Needs root, a kernel with BPF, mariadb-server, sysbench and postgresql-15.

use std::path::Path;
use std::time::Duration;

use reqtrace_tests::http::free_port;
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::noise;
use reqtrace_tests::process::{Child, until};
use reqtrace_tests::servers::Server;
use reqtrace_tests::slow_link;
use reqtrace_tests::sysbench::Sysbench;
use reqtrace_tests::workspace;
use serde_json::Value;

use crate::diff::{compared, is_on_top, record, rows};

/// A noisy machine may need as many to see it.
const TRIES: usize = 3;
/// What the slower upstream takes longer.
const LATE: Duration = Duration::from_millis(3);

/// Who holds requests up longer than before, first.
fn culprit(comparison: &Value) -> &str {
    let first = rows(comparison, "culprits").first();
    first.and_then(|row| row["name"].as_str()).unwrap_or("")
}

/// A server, and the replica that it waits for.
struct Replicated {
    primary: MariaDb,
    _replica: MariaDb,
}

/// Each commit waits until the replica has acknowledged it, which takes so much longer.
fn replicated(late: Duration) -> Replicated {
    let port = free_port().unwrap();
    let port_option = format!("--port={port}");
    let primary = MariaDb::open_with(&[
        "--innodb-flush-log-at-trx-commit=0",
        "--server-id=1",
        "--log-bin",
        "--rpl-semi-sync-master-enabled=ON",
        "--rpl-semi-sync-master-timeout=60000",
        "--skip-networking=0",
        "--bind-address=127.0.0.1",
        &port_option,
    ])
    .unwrap();
    let replica = MariaDb::open_with(&[
        "--innodb-flush-log-at-trx-commit=0",
        "--server-id=2",
        "--rpl-semi-sync-slave-enabled=ON",
    ])
    .unwrap();
    primary
        .sql("create user copy@'127.0.0.1'; grant replication slave on *.* to copy@'127.0.0.1'")
        .unwrap();
    let link = slow_link::open(port, late).unwrap();
    replica
        .sql(&format!(
            "change master to master_host='127.0.0.1', master_port={link}, master_user='copy', master_use_gtid=slave_pos; start slave"
        ))
        .unwrap();
    until(
        Duration::from_secs(60),
        "the replica to acknowledge",
        || {
            let clients = primary.sql("show status like 'Rpl_semi_sync_master_clients'")?;
            Ok(clients.trim().ends_with('1').then_some(()))
        },
    )
    .unwrap();
    Sysbench::prepare(&primary, 1, 1_000).unwrap();
    Replicated {
        primary,
        _replica: replica,
    }
}

#[test]
#[ignore = "minutes of light load: cargo xtask test --all"]
fn a_replica_that_acknowledges_later() {
    noise::once_in(TRIES, "right row on top", || {
        let scratch = workspace::scratch().unwrap();
        let servers = [Duration::ZERO, LATE].map(replicated);
        let loads = servers.each_ref().map(|server| {
            let sysbench = Sysbench::of(&server.primary, 1, 1_000);
            sysbench
                .start_at_rate("oltp_update_non_index", 2, 100)
                .unwrap()
        });
        let pids = servers.each_ref().map(|server| server.primary.pid());
        let recordings = record(Path::new("mysql.toml"), &pids, &["--blame"], scratch.path());
        stop(loads);
        drop(servers);
        let comparison = compared(&recordings[0], &recordings[1], scratch.path());
        let parts = &comparison["types"][0]["parts"];
        let is_right = is_on_top(parts, "replica");
        if is_right {
            Ok(())
        } else {
            Err(format!("{parts:#}"))
        }
    });
}

fn stop(loads: [Child; 2]) {
    for mut load in loads {
        load.stop().unwrap();
    }
}

/// Each update asks another server first, which takes so much longer.
fn asking(upstream: &Server, late: Duration) -> Server {
    let server = Server::postgresql().unwrap();
    let socket = upstream.socket();
    let folder = socket.parent().unwrap().display();
    let ask = format!(
        "create function ask() returns trigger language plpgsql as $$ begin \
         perform * from dblink('upstream', 'select pg_sleep({})') as answer(a text); return new; end $$",
        late.as_secs_f64()
    );
    let connect = format!(
        "create function connect() returns text language sql as \
         $$ select dblink_connect('upstream', 'host={folder} user=postgres dbname=postgres') $$"
    );
    for sql in [
        "create extension dblink",
        "create table t (id int primary key, n int)",
        "insert into t select id, 0 from generate_series(1, 1000) id",
        "alter system set synchronous_commit = off",
        "select pg_reload_conf()",
        &connect,
        &ask,
        "create trigger ask before update on t for each row execute function ask()",
    ] {
        server.run("psql", &["-qc", sql]).unwrap();
    }
    server
}

#[test]
fn another_database_that_answers_later() {
    noise::once_in(TRIES, "right row on top", || {
        let scratch = workspace::scratch().unwrap();
        let upstream = Server::postgresql().unwrap();
        let servers = [Duration::ZERO, LATE].map(|late| asking(&upstream, late));
        let script = scratch.path().join("updates");
        // A client connects to the upstream once.
        let text = "\\if :connected = 0\nselect connect();\n\\set connected 1\n\\endif\n\
                    \\set id random(1, 1000)\nupdate t set n = n + 1 where id = :id;\n";
        std::fs::write(&script, text).unwrap();
        let script = script.display().to_string();
        let loads = servers.each_ref().map(|server| {
            let args = [
                "-n",
                "-T",
                "120",
                "-c",
                "2",
                "-R",
                "100",
                "-D",
                "connected=0",
                "-f",
                &script,
            ];
            let command = server.client("pgbench", &args).unwrap();
            Child::start(
                command,
                scratch.path(),
                &format!("{}-updates", server.pid()),
            )
            .unwrap()
        });
        let pids = servers.each_ref().map(Server::pid);
        let recordings = record(
            Path::new("postgresql.toml"),
            &pids,
            &["--blame"],
            scratch.path(),
        );
        stop(loads);
        drop(servers);
        let comparison = compared(&recordings[0], &recordings[1], scratch.path());
        let parts = &comparison["types"][0]["parts"];
        let culprit = culprit(&comparison);
        let is_right = is_on_top(parts, "poll") && culprit == "thread postgres: timer";
        if is_right {
            Ok(())
        } else {
            Err(format!("{culprit} {parts:#}"))
        }
    });
}
