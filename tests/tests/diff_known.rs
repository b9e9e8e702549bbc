//! Comparisons: a service with one thing changed, against itself without it. What was changed is the row on top.
//!
//! All variants of a service run and are traced at the same time, under the same light load: what else the machine does
//! is the same for all.
//!
//! Needs root, a kernel with BPF, a controller of CPU time, mariadb-server, sysbench and postgresql-15.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use reqtrace_tests::limited::Limited;
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::noise;
use reqtrace_tests::process::Child;
use reqtrace_tests::servers::Server;
use reqtrace_tests::shop::{self, Load, Shop};
use reqtrace_tests::sysbench::Sysbench;
use reqtrace_tests::workspace;
use serde_json::Value;

use crate::diff::{SECONDS, compared, gate, is_on_top, record, rows};

/// How long loads run: until all have attached, too.
const LOADED: u32 = SECONDS + 30;
/// A noisy machine may need as many to see it.
const TRIES: usize = 3;
/// A throttled thread is one that could run, and may not.
const LIMITED: &str = "preempted";

/// A variant of a service: its name, the part of the request that grows, and what else must be right.
struct Variant {
    name: &'static str,
    part: &'static str,
    also: fn(&Value) -> bool,
}

/// Compares the first recording with each of the others, and notes which of them are right.
fn note_right(
    recordings: &[PathBuf],
    variants: &[Variant],
    right: &mut BTreeSet<&'static str>,
    folder: &Path,
) -> Result<(), String> {
    let (before, others) = recordings.split_first().unwrap();
    assert_eq!(others.len(), variants.len());
    let mut wrong = String::new();
    for (after, variant) in others.iter().zip(variants) {
        let comparison = compared(before, after, folder);
        let parts = &comparison["types"][0]["parts"];
        if is_on_top(parts, variant.part) && (variant.also)(&comparison) {
            right.insert(variant.name);
        } else if !right.contains(variant.name) {
            wrong += &format!("{}: {} {parts:#}\n", variant.name, variant.part);
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// The first name of a kind of rows; empty for none.
fn first<'a>(comparison: &'a Value, what: &str) -> &'a str {
    let first = rows(comparison, what).first();
    first.and_then(|row| row["name"].as_str()).unwrap_or("")
}

/// A step of the shop that is slower, and who is to blame for it.
const STEPS: [Variant; 4] = [
    Variant {
        name: "stock",
        part: "stock lock",
        also: |comparison| first(comparison, "culprits") == "thread shop-janitor: timer",
    },
    Variant {
        name: "payment",
        part: "payment",
        also: |comparison| {
            first(comparison, "culprits") == "thread shop-payment: timer"
                && first(comparison, "stacks").contains("shop::payment::Terminal::pay")
        },
    },
    Variant {
        name: "courier",
        part: "sleep",
        also: |comparison| first(comparison, "culprits") == "own: timer",
    },
    only("journal", "journal"),
];

const fn only(name: &'static str, part: &'static str) -> Variant {
    Variant {
        name,
        part,
        also: |_| true,
    }
}

#[test]
#[ignore = "minutes of light load: cargo xtask test --all"]
fn the_step_of_the_shop_that_got_slower() {
    let mut right = BTreeSet::new();
    noise::once_in(TRIES, "right row on top", || {
        let scratch = workspace::scratch().unwrap();
        let mut shops = vec![Shop::open().unwrap()];
        shops.extend(STEPS.map(|step| Shop::open_slower(step.name).unwrap()));
        let limit = Limited::loose().unwrap();
        shops.push(Shop::open().unwrap());
        limit.take(shops[STEPS.len() + 1].pid()).unwrap();
        let loads: Vec<Load> = shops
            .iter()
            .map(|shop| shop.start_load_for(2, LOADED, 10).unwrap())
            .collect();
        eprintln!("limit: {} µs", limit.tighten().unwrap());
        let pids: Vec<u32> = shops.iter().map(Shop::pid).collect();
        let recordings = record(&shop::profile(), &pids, &["--blame"], scratch.path());
        for load in loads {
            load.finish().unwrap();
        }
        for shop in shops {
            shop.close().unwrap();
        }
        let mut variants: Vec<Variant> = STEPS.into();
        variants.push(only("CPU limit", LIMITED));
        note_right(&recordings, &variants, &mut right, scratch.path())?;
        gate(&recordings[0], &recordings[2]);
        Ok(())
    });
}

/// Stops clients that would go on.
fn stop(clients: Vec<Child>) {
    for mut client in clients {
        client.stop().unwrap();
    }
}

/// A table of 1,000 rows that are updated at random, on a server that does not wait for its disk. One connection locks
/// some table now and then: another one.
fn mariadb(more: &[&str]) -> MariaDb {
    let options = ["--innodb-flush-log-at-trx-commit=0"];
    let server = MariaDb::open_with(&[&options, more].concat()).unwrap();
    Sysbench::prepare(&server, 1, 1_000).unwrap();
    server
        .sql("create table sbtest.other (n int) engine=innodb")
        .unwrap();
    server
}

/// Updates, and the connection that locks.
fn updated(server: &MariaDb, locked: &str) -> [Child; 2] {
    let sysbench = Sysbench::of(server, 1, 1_000);
    let locks = format!(
        "lock tables sbtest.{locked} read; \n\\! sleep 0.02\nunlock tables;\n\\! sleep 0.1\n"
    );
    [
        sysbench
            .start_at_rate("oltp_update_non_index", 2, 100)
            .unwrap(),
        server.start_sql("locks", &locks.repeat(1_000)).unwrap(),
    ]
}

#[test]
#[ignore = "minutes of light load: cargo xtask test --all"]
fn what_changed_in_mariadb() {
    let variants = [
        only("sleep", "user sleep"),
        only("lock", "metadata lock"),
        only("fsync", "redo log"),
        only("CPU limit", LIMITED),
    ];
    let mut right = BTreeSet::new();
    noise::once_in(TRIES, "right row on top", || {
        let scratch = workspace::scratch().unwrap();
        let durable = ["--innodb-flush-log-at-trx-commit=1"];
        let servers = [&[][..], &[], &[], &durable, &[]].map(mariadb);
        let trigger = "create trigger sbtest.slow before update on sbtest.sbtest1 for each row set @x = sleep(0.002)";
        servers[1].sql(trigger).unwrap();
        let limit = Limited::loose().unwrap();
        limit.take(servers[4].pid()).unwrap();
        let locked = ["other", "other", "sbtest1", "other", "other"];
        let clients = servers.iter().zip(locked);
        let clients = clients
            .flat_map(|(server, locked)| updated(server, locked))
            .collect();
        eprintln!("limit: {} µs", limit.tighten().unwrap());
        let pids = servers.each_ref().map(MariaDb::pid);
        let recordings = record(Path::new("mysql.toml"), &pids, &[], scratch.path());
        stop(clients);
        drop(servers);
        note_right(&recordings, &variants, &mut right, scratch.path())
    });
}

/// The same for PostgreSQL.
fn postgresql(setting: &str) -> Server {
    let server = Server::postgresql().unwrap();
    for sql in [
        "create table t (id int primary key, n int)",
        "insert into t select id, 0 from generate_series(1, 1000) id",
        "create table other (n int)",
        &format!("alter system set {setting}"),
        "select pg_reload_conf()",
    ] {
        server.run("psql", &["-qc", sql]).unwrap();
    }
    server
}

fn updated_rows(server: &Server, folder: &Path, locked: &str) -> [Child; 2] {
    let [updates, locks] =
        ["updates", "locks"].map(|name| folder.join(format!("{}.{name}", server.pid())));
    std::fs::write(
        &updates,
        "\\set id random(1, 1000)\nupdate t set n = n + 1 where id = :id;\n",
    )
    .unwrap();
    let lock = format!("begin;\nlock table {locked};\n\\sleep 20 ms\nend;\n\\sleep 100 ms\n");
    std::fs::write(&locks, lock).unwrap();
    let seconds = LOADED.to_string();
    let bench = |name: &str, script: &Path, more: &[&str]| {
        let script = script.display().to_string();
        let args = [&["-n", "-T", &seconds, "-f", &script], more].concat();
        Child::start(server.client("pgbench", &args).unwrap(), folder, name).unwrap()
    };
    [
        bench(
            &format!("{}-updates", server.pid()),
            &updates,
            &["-c", "2", "-R", "100"],
        ),
        bench(&format!("{}-locks", server.pid()), &locks, &[]),
    ]
}

#[test]
fn what_changed_in_postgresql() {
    let variants = [
        only("sleep", "poll"),
        only("lock", "row or table lock"),
        only("fsync", "WAL"),
        only("CPU limit", LIMITED),
    ];
    let mut right = BTreeSet::new();
    noise::once_in(TRIES, "right row on top", || {
        let scratch = workspace::scratch().unwrap();
        let [off, on] = ["synchronous_commit = off", "synchronous_commit = on"];
        let servers = [off, off, off, on, off].map(postgresql);
        let slow = "create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(0.002); return new; end'";
        let trigger = "create trigger slow before update on t for each row execute function slow()";
        servers[1]
            .run("psql", &["-qc", slow, "-c", trigger])
            .unwrap();
        let limit = Limited::loose().unwrap();
        limit.take(servers[4].pid()).unwrap();
        let locked = ["other", "other", "t", "other", "other"];
        let clients = servers.iter().zip(locked);
        let clients = clients
            .flat_map(|(server, locked)| updated_rows(server, scratch.path(), locked))
            .collect();
        eprintln!("limit: {} µs", limit.tighten().unwrap());
        let pids = servers.each_ref().map(Server::pid);
        let recordings = record(Path::new("postgresql.toml"), &pids, &[], scratch.path());
        stop(clients);
        drop(servers);
        note_right(&recordings, &variants, &mut right, scratch.path())
    });
}
