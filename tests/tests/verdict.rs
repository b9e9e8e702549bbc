//! The verdict of incidents that are made on purpose: its class, its culprit by the server's own list of threads, and
//! its object; and none of a healthy service.
//!
//! Needs root, a kernel with BPF, mariadb-server, nginx and apache2-utils.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::nginx::Nginx;
use reqtrace_tests::process::{Child, until};
use reqtrace_tests::reqtrace::{Outcome, Trace};
use serde_json::Value;

/// For a client to end.
pub(super) const LIMIT: Duration = Duration::from_secs(120);
/// Connections that are held up, and what each runs.
pub(super) const CLIENTS: u32 = 6;
const STATEMENTS: usize = 250;
/// How often the culprit holds something.
const HOLDS: usize = 10;
/// The user that the culprit connects as.
const HOLDER: &str = "holder";

/// A server with a row for each client.
pub(super) fn server() -> MariaDb {
    server_that_flushes("0")
}

/// The same, and what it does about the log when a transaction ends: `--innodb-flush-log-at-trx-commit`.
pub(super) fn server_that_flushes(when: &str) -> MariaDb {
    let option = format!("--innodb-flush-log-at-trx-commit={when}");
    let server = MariaDb::open_with(&[&option]).unwrap();
    let rows: Vec<_> = (1..=CLIENTS).map(|id| format!("({id}, 0)")).collect();
    let sql = format!(
        "create database d; create table d.t (id int primary key, n int) engine=innodb; \
         insert into d.t values {}; create user {HOLDER}@localhost; \
         grant all privileges on *.* to {HOLDER}@localhost",
        rows.join(", ")
    );
    server.sql(&sql).unwrap();
    server
}

/// A connection that runs a statement now and then.
fn client(server: &MariaDb, id: u32, statement: &str) -> Child {
    client_of(server, id, statement, STATEMENTS)
}

/// The same with so many.
pub(super) fn client_of(server: &MariaDb, id: u32, statement: &str, statements: usize) -> Child {
    let one = format!("{statement};\n\\! sleep 0.03\n").replace("ID", &id.to_string());
    let script = one.repeat(statements);
    server.start_sql(&format!("client{id}"), &script).unwrap()
}

/// The culprit's connection, and its thread as the server has it.
pub(super) fn holder(server: &MariaDb, script: &str) -> (Child, u64) {
    let mut command = server.client(&script.repeat(HOLDS)).unwrap();
    command.arg(format!("--user={HOLDER}"));
    let socket = server.socket();
    let holder = Child::start(command, socket.parent().unwrap(), HOLDER).unwrap();
    let sql = format!("select tid from information_schema.processlist where user = '{HOLDER}'");
    let tid = until(LIMIT, "the holder's thread", || {
        Ok(server.sql(&sql)?.trim().parse().ok())
    });
    (holder, tid.unwrap())
}

/// What the trace finds while clients are held up.
fn held_up(statement: &str, script: &str, beside: &[&str]) -> (Outcome, u64) {
    let server = server();
    let options = ["--blame", "--labels"];
    let trace = Trace::start(Path::new("mysql.toml"), server.pid(), &options).unwrap();
    let mut all: Vec<_> = (1..=CLIENTS)
        .map(|id| client(&server, id, statement))
        .collect();
    let others = beside.iter().zip(0..);
    all.extend(others.map(|(sql, number)| {
        let name = format!("other{number}");
        server.start_sql(&name, &sql.repeat(HOLDS)).unwrap()
    }));
    let (holder, tid) = holder(&server, script);
    all.push(holder);
    for client in &mut all {
        assert!(client.wait(LIMIT).unwrap().success());
    }
    (trace.finish().unwrap(), tid)
}

pub(super) fn verdicts(outcome: &Outcome) -> Vec<Value> {
    assert_eq!(outcome.code, Some(0), "{}", outcome.said());
    let summary: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let verdicts = summary["verdict"].as_array().unwrap().clone();
    for verdict in &verdicts {
        let text = verdict["text"].as_str().unwrap();
        // The terminal has the same sentence, in lines.
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&outcome.said()).contains(&words(text)), "{text}");
    }
    verdicts
}

/// The only verdict, of this class.
pub(super) fn only(outcome: &Outcome, class: &str) -> Value {
    let verdicts = verdicts(outcome);
    let [verdict] = verdicts.as_slice() else {
        panic!("{verdicts:#?} {}", outcome.said());
    };
    assert_eq!(verdict["class"], class, "{verdict:#} {}", outcome.said());
    verdict.clone()
}

fn is_by(verdict: &Value, tid: u64, object: &str, least: Duration) {
    let culprit = &verdict["culprit"];
    assert_eq!(culprit["tid"], tid, "{verdict:#}");
    assert_eq!(verdict["object"], object, "{verdict:#}");
    let times = verdict["times"].as_u64().unwrap();
    assert!(
        (HOLDS as u64 - 2..=HOLDS as u64 + 1).contains(&times),
        "{verdict:#}"
    );
    let episode = Duration::from_nanos(verdict["episode_ns"].as_u64().unwrap());
    assert!(episode > least / 2 && episode < least * 3, "{verdict:#}");
    let period = verdict["cadence"]["period_ns"]
        .as_u64()
        .map(Duration::from_nanos);
    assert!(period.is_some_and(|period| period > least), "{verdict:#}");
}

#[test]
fn a_connection_that_idles_in_its_transaction() {
    let idles = Duration::from_millis(350);
    let (outcome, tid) = held_up(
        "update d.t set n = n + 1 where id = ID",
        "begin; select sum(n) from d.t for update;\n\\! sleep 0.35\ncommit;\n\\! sleep 0.6\n",
        &[],
    );
    let verdict = only(&outcome, "held_between_requests");
    is_by(&verdict, tid, "row lock", idles);
    let culprit = &verdict["culprit"];
    assert_eq!(culprit["connection"]["user"], HOLDER, "{verdict:#}");
    let statements = culprit["statements"].as_array().unwrap();
    assert!(
        statements.ends_with(&["select sum(n) from d.t for update".into(), "commit".into()]),
        "{verdict:#}"
    );
}

#[test]
fn a_read_lock_on_everything() {
    let (outcome, tid) = held_up(
        "update d.t set n = n + 1 where id = ID",
        "flush tables with read lock; do sleep(0.3); unlock tables;\n\\! sleep 0.6\n",
        &[],
    );
    let verdict = only(&outcome, "held_by_request");
    is_by(&verdict, tid, "metadata lock", Duration::from_millis(300));
    let statements = &verdict["culprit"]["statements"];
    let mut all = String::new();
    for statement in statements.as_array().unwrap() {
        let _ = write!(all, "{};", statement.as_str().unwrap());
    }
    assert!(
        all.contains("flush tables with read lock;do sleep(?);unlock tables"),
        "{verdict:#}"
    );
}

#[test]
fn a_transaction_that_a_change_of_the_table_waits_for() {
    let (outcome, tid) = held_up(
        "select n from d.t where id = ID",
        "begin; select count(*) from d.t;\n\\! sleep 0.8\ncommit;\n\\! sleep 0.4\n",
        &[&"alter table d.t comment 'x';\n\\! sleep 0.5\n".repeat(2)],
    );
    let verdict = only(&outcome, "held_between_requests");
    assert_eq!(verdict["culprit"]["tid"], tid, "{verdict:#}");
    assert_eq!(verdict["object"], "metadata lock", "{verdict:#}");
}

/// Two services that nothing happens to.
#[test]
fn a_healthy_service_has_no_culprit() {
    let server = server();
    let trace = Trace::start(
        Path::new("mysql.toml"),
        server.pid(),
        &["--blame", "--labels"],
    )
    .unwrap();
    let statement = "update d.t set n = n + 1 where id = ID";
    let mut clients: Vec<_> = (1..=CLIENTS)
        .map(|id| client(&server, id, statement))
        .collect();
    for client in &mut clients {
        assert!(client.wait(LIMIT).unwrap().success());
    }
    let database = trace.finish().unwrap();
    let nginx = Nginx::start(2).unwrap();
    fs::write(nginx.documents().join("page"), [b'x'; 4096]).unwrap();
    let trace = Trace::start(Path::new("nginx"), nginx.pid(), &["--blame"]).unwrap();
    nginx.ab("/page", 5_000, 8, &[]).unwrap();
    let web = trace.finish().unwrap();
    for outcome in [database, web] {
        let named = verdicts(&outcome);
        let named = named
            .iter()
            .filter(|verdict| verdict["culprit"].is_object());
        assert_eq!(named.count(), 0, "{}", outcome.said());
    }
}
