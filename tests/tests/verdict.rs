//! The verdict of incidents that are made on purpose: its class, its culprit by the server's own list of threads, and
//! its object; and none of a healthy service.
//!
//! Needs root, a kernel with BPF, mariadb-server, sysbench, nginx and apache2-utils.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use reqtrace_tests::load::beside;
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::nginx::Nginx;
use reqtrace_tests::noise;
use reqtrace_tests::process::{Child, run, until};
use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::sysbench::Sysbench;
use reqtrace_tests::workspace;
use serde_json::Value;

/// For a client to end.
pub(super) const LIMIT: Duration = Duration::from_secs(120);
/// A row for each connection of a load, and one more.
const ROWS: u32 = How::Sampled.clients() + 1;
/// How often the culprit holds something.
const HOLDS: usize = 10;
/// The user that the culprit connects as.
const HOLDER: &str = "holder";

/// How an incident is traced, and what is beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// All requests, and nothing else goes on.
    Alone,
    /// The same while others compute, read and write.
    Noisy,
    /// One request of 16, of a greater load: fewer than 20 slow ones have no verdict.
    Sampled,
}

impl How {
    pub(super) const ALL: [Self; 3] = [Self::Alone, Self::Noisy, Self::Sampled];

    /// Connections of a load.
    pub(super) const fn clients(self) -> u32 {
        match self {
            Self::Alone | Self::Noisy => 8,
            Self::Sampled => 64,
        }
    }

    /// Their requests a second.
    pub(super) const fn rate(self) -> u32 {
        match self {
            Self::Alone | Self::Noisy => 200,
            Self::Sampled => 1_000,
        }
    }

    /// Options of the trace.
    pub(super) fn options(self, own: &[&'static str]) -> Vec<&'static str> {
        let sample: &[&str] = match self {
            Self::Sampled => &["--sample", "1/16"],
            _ => &[],
        };
        [own, sample].concat()
    }

    /// Whether this may be how often something that happens so often was met.
    pub(super) fn times(self, verdict: &Value, all: usize) -> bool {
        let least = match self {
            Self::Alone | Self::Noisy => all - 2,
            Self::Sampled => all / 2,
        };
        verdict["times"]
            .as_u64()
            .is_some_and(|times| (least as u64..=all as u64 + 1).contains(&times))
    }

    /// Does this, with what goes on beside it.
    pub(super) fn beside<T>(self, work: impl FnOnce() -> T) -> T {
        if self != Self::Noisy {
            return work();
        }
        let folder = workspace::scratch().unwrap();
        let to = format!("of={}", folder.path().join("noise").display());
        let noise = || {
            run(Command::new("cksum").arg(workspace::shop().unwrap())).unwrap();
            sleep(Duration::from_millis(150));
            let direct = ["if=/dev/zero", &to, "bs=64K", "count=8", "oflag=direct"];
            run(Command::new("dd").args(direct)).unwrap();
            sleep(Duration::from_millis(150));
        };
        beside(noise, work)
    }
}

/// What came of an incident: an error is that nothing was sure. Whoever is named without being it panics.
pub(super) type Right = Result<(), String>;

/// It may be missed once on a machine that has more to do.
pub(super) fn is_right(incident: impl Fn(How) -> Right) {
    noise::once_in(2, "verdict", || incident(How::Alone));
}

/// A server with rows for a load.
pub(super) fn server() -> MariaDb {
    server_with(&["--innodb-flush-log-at-trx-commit=0"])
}

/// The same with these options.
pub(super) fn server_with(options: &[&str]) -> MariaDb {
    let server = MariaDb::open_with(options).unwrap();
    let rows: Vec<_> = (1..=ROWS).map(|id| format!("({id}, 0)")).collect();
    let sql = format!(
        "create database d; create table d.t (id int primary key, n int) engine=innodb; \
         insert into d.t values {}; create user {HOLDER}@localhost; \
         grant all privileges on *.* to {HOLDER}@localhost",
        rows.join(", ")
    );
    server.sql(&sql).unwrap();
    server
}

/// Connections that run a statement now and then.
pub(super) fn load(server: &MariaDb, how: How, statement: &str) -> Child {
    Sysbench::start_statement(server, statement, how.clients(), how.rate()).unwrap()
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

/// What the trace of a server finds while a load is held up by this script of a connection, whose thread is returned, too.
pub(super) fn held_up(
    how: How,
    server: &MariaDb,
    [statement, script]: [&str; 2],
    beside: &[&str],
    rate: u32,
) -> (Outcome, u64) {
    let options = how.options(&["--blame", "--labels"]);
    let trace = Trace::start(Path::new("mysql.toml"), server.pid(), &options).unwrap();
    let mut load = Sysbench::start_statement(server, statement, how.clients(), rate).unwrap();
    let tid = how.beside(|| {
        let others = beside.iter().zip(0..);
        let others = others.map(|(sql, number)| {
            let name = format!("other{number}");
            server.start_sql(&name, &sql.repeat(HOLDS)).unwrap()
        });
        let mut all: Vec<_> = others.collect();
        let (holder, tid) = holder(server, script);
        all.push(holder);
        for client in &mut all {
            assert!(client.wait(LIMIT).unwrap().success());
        }
        tid
    });
    load.stop().unwrap();
    (trace.finish().unwrap(), tid)
}

pub(super) fn verdicts(outcome: &Outcome) -> Vec<Value> {
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let summary: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let verdicts = summary["verdict"].as_array().unwrap().clone();
    for verdict in &verdicts {
        let text = verdict["text"].as_str().unwrap();
        // The terminal has the same sentence, in lines.
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&outcome.printed()).contains(&words(text)), "{text}");
    }
    verdicts
}

/// Whether there is one verdict, and it is right. Nobody may be named who is not the culprit.
pub(super) fn one(
    outcome: &Outcome,
    is_culprit: impl Fn(&Value) -> bool,
    is_right: impl Fn(&Value) -> bool,
) -> Right {
    let verdicts = verdicts(outcome);
    for verdict in &verdicts {
        let culprit = &verdict["culprit"];
        assert!(
            culprit.is_null() || is_culprit(culprit),
            "{verdict:#} {}",
            outcome.printed()
        );
    }
    match verdicts.as_slice() {
        [verdict] if is_right(verdict) => Ok(()),
        _ => Err(format!("{verdicts:#?} {}", outcome.printed())),
    }
}

pub(super) fn duration(value: &Value) -> Option<Duration> {
    value.as_u64().map(Duration::from_nanos)
}

/// Whether it was this thread that held something for so long, each time.
fn is_by(how: How, verdict: &Value, object: &str, least: Duration) -> bool {
    let period = duration(&verdict["cadence"]["period_ns"]);
    verdict["culprit"].is_object()
        && verdict["object"] == object
        && how.times(verdict, HOLDS)
        && duration(&verdict["episode_ns"])
            .is_some_and(|episode| episode > least / 2 && episode < least * 3)
        && period.map_or(how == How::Sampled, |period| period > least)
}

/// The culprit's statements.
fn statements(verdict: &Value) -> String {
    let mut all = String::new();
    for statement in verdict["culprit"]["statements"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let _ = write!(all, "{};", statement.as_str().unwrap());
    }
    all
}

pub(super) fn idle_in_transaction(how: How) -> Right {
    let idles = Duration::from_millis(350);
    let (outcome, tid) = held_up(
        how,
        &server(),
        [
            "update d.t set n = n + 1 where id = ID",
            "begin; select sum(n) from d.t for update;\n\\! sleep 0.35\ncommit;\n\\! sleep 0.6\n",
        ],
        &[],
        how.rate(),
    );
    one(
        &outcome,
        |culprit| culprit["tid"] == tid,
        |verdict| {
            verdict["class"] == "held_between_requests"
                && is_by(how, verdict, "row lock", idles)
                && verdict["culprit"]["connection"]["user"] == HOLDER
                && statements(verdict).ends_with("select sum(n) from d.t for update;commit;")
        },
    )
}

pub(super) fn read_lock(how: How) -> Right {
    let (outcome, tid) = held_up(
        how,
        &server(),
        [
            "update d.t set n = n + 1 where id = ID",
            "flush tables with read lock; do sleep(0.3); unlock tables;\n\\! sleep 0.6\n",
        ],
        &[],
        how.rate(),
    );
    one(
        &outcome,
        |culprit| culprit["tid"] == tid,
        |verdict| {
            verdict["class"] == "held_by_request"
                && is_by(how, verdict, "metadata lock", Duration::from_millis(300))
                && statements(verdict)
                    .contains("flush tables with read lock;do sleep(?);unlock tables")
        },
    )
}

pub(super) fn change_of_a_table(how: How) -> Right {
    let (outcome, tid) = held_up(
        how,
        &server(),
        [
            "select n from d.t where id = ID",
            "begin; select count(*) from d.t;\n\\! sleep 0.8\ncommit;\n\\! sleep 0.4\n",
        ],
        &[&"alter table d.t comment 'x';\n\\! sleep 0.5\n".repeat(2)],
        how.rate(),
    );
    one(
        &outcome,
        |culprit| culprit["tid"] == tid,
        |verdict| {
            verdict["class"] == "held_between_requests"
                && verdict["culprit"].is_object()
                && verdict["object"] == "metadata lock"
        },
    )
}

#[test]
fn a_connection_that_idles_in_its_transaction() {
    is_right(idle_in_transaction);
}

#[test]
fn a_read_lock_on_everything() {
    is_right(read_lock);
}

#[test]
fn a_transaction_that_a_change_of_the_table_waits_for() {
    is_right(change_of_a_table);
}

/// One request of 16 is recorded, and all of whoever holds those up.
#[test]
fn a_lock_that_few_of_many_requests_are_seen_to_wait_for() {
    noise::once_in(2, "verdict", || idle_in_transaction(How::Sampled));
}

/// Two services that nothing happens to.
#[test]
fn a_healthy_service_has_no_culprit() {
    let server = server();
    let options = How::Alone.options(&["--blame", "--labels"]);
    let trace = Trace::start(Path::new("mysql.toml"), server.pid(), &options).unwrap();
    let statement = "update d.t set n = n + 1 where id = ID";
    let mut load = load(&server, How::Alone, statement);
    sleep(Duration::from_secs(8));
    load.stop().unwrap();
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
        assert_eq!(named.count(), 0, "{}", outcome.printed());
    }
}
