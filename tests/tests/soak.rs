//! Attaching and detaching for a long time beside servers under load: every result of the load is as it
//! must be, the code of the servers is as before, and nothing of them or of the tracer grows.
//!
//! `cargo xtask soak` runs it for ten minutes; without `SOAK_SECONDS` it is a quarter of a minute.
//!
//! Needs root, a kernel with BPF, MariaDB, PostgreSQL, Redis, nginx and ab.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use reqtrace_tests::load;
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::nginx::Nginx;
use reqtrace_tests::probed::is_as_in_its_files;
use reqtrace_tests::process::Held;
use reqtrace_tests::reqtrace;
use reqtrace_tests::servers::Server;

/// Statements between two checks of MariaDB.
const STATEMENTS: u64 = 50;
const SECONDS: u64 = 15;
/// Other tests that trace the same program have ended, or pause, within that.
const OTHERS: Duration = Duration::from_secs(60);

/// A server that is attached to.
struct Traced {
    name: &'static str,
    profile: &'static str,
    pid: u32,
    /// Whose code is looked at.
    at: u32,
    traces: u64,
    requests: u64,
    before: Held,
}

impl Traced {
    fn new(name: &'static str, profile: &'static str, pid: u32, at: u32) -> Self {
        Self {
            name,
            profile,
            pid,
            at,
            traces: 0,
            requests: 0,
            before: Held::by(pid).unwrap(),
        }
    }

    /// Attaches for a second.
    fn attach(&mut self) {
        let folder = tempfile::tempdir().unwrap();
        let json = folder.path().join("summary.json");
        let pid = self.pid.to_string();
        let words = ["--profile", self.profile, "-p", &pid, "-y", "-q", "1"];
        let mut command = reqtrace::command(words).unwrap();
        command.arg("--json").arg(&json);
        let outcome = reqtrace::run(command).unwrap();
        assert_eq!(
            outcome.code,
            Some(0),
            "{}: {}",
            self.name,
            outcome.printed()
        );
        // Probes are set per file: those of other tests go with them.
        let limit = Instant::now() + OTHERS;
        while let Err(error) = is_as_in_its_files(self.at) {
            assert!(Instant::now() < limit, "{}: {error:#}", self.name);
            thread::sleep(Duration::from_millis(10));
        }
        let summary: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
        self.traces += 1;
        self.requests += summary["requests"][0]["count"].as_u64().unwrap();
    }

    /// It holds what it held, but for what its load makes it hold.
    fn check(&self) -> String {
        let now = Held::by(self.pid).unwrap();
        let before = self.before;
        assert!(
            now.descriptors <= before.descriptors + 16,
            "{}: {before:?} {now:?}",
            self.name
        );
        assert!(
            now.mappings <= before.mappings + 64,
            "{}: {before:?} {now:?}",
            self.name
        );
        assert!(
            now.resident_kib <= before.resident_kib * 3 / 2 + (128 << 10),
            "{}: {before:?} {now:?}",
            self.name
        );
        format!(
            "| {} | {} | {} | {} → {} | {} → {} | {} → {} |",
            self.name,
            self.traces,
            self.requests,
            before.descriptors,
            now.descriptors,
            before.mappings,
            now.mappings,
            before.resident_kib >> 10,
            now.resident_kib >> 10,
        )
    }
}

/// Each round adds to one row, and reads it.
fn mariadb(server: &MariaDb, over: &AtomicBool, checked: &AtomicU64) {
    server
        .sql("create table sbtest.soak (id int primary key, v bigint) engine=innodb; insert into sbtest.soak values (1, 0)")
        .unwrap();
    let mut expected = 0;
    while !over.load(Ordering::Relaxed) {
        let mut sql = "update sbtest.soak set v = v + 1 where id = 1; ".repeat(STATEMENTS as usize);
        sql.push_str("select v from sbtest.soak");
        expected += STATEMENTS;
        let printed = server.sql(&sql).unwrap();
        assert_eq!(printed.trim().lines().last().unwrap(), expected.to_string());
        checked.fetch_add(STATEMENTS + 1, Ordering::Relaxed);
    }
}

/// TPC-B: every sum is that of the history.
fn postgresql(server: &Server, over: &AtomicBool, checked: &AtomicU64) {
    let sums = "select (select sum(abalance) from pgbench_accounts) = (select coalesce(sum(delta), 0) from pgbench_history) \
                and (select sum(tbalance) from pgbench_tellers) = (select coalesce(sum(delta), 0) from pgbench_history), \
                (select count(*) from pgbench_history)";
    let mut transactions = 0;
    while !over.load(Ordering::Relaxed) {
        server
            .run("pgbench", &["-n", "-c", "2", "-t", "50"])
            .unwrap();
        transactions += 100;
        let printed = server.run("psql", &["-qAt", "-c", sums]).unwrap();
        assert_eq!(printed.trim(), format!("t|{transactions}"));
        checked.fetch_add(700, Ordering::Relaxed);
    }
}

/// A counter that goes up by one.
fn redis(server: &Server, over: &AtomicBool, checked: &AtomicU64) {
    let stream = UnixStream::connect(server.socket()).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    for number in 1_u64.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        (&stream).write_all(b"INCR soak\r\n").unwrap();
        line.clear();
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, format!(":{number}\r\n"));
        checked.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_micros(500));
    }
}

/// All requests are answered, with a page of the same length, and logged.
fn nginx(server: &Nginx, over: &AtomicBool, checked: &AtomicU64) {
    fs::write(server.documents().join("page.html"), "x".repeat(1000)).unwrap();
    let before = server.logged().unwrap();
    let mut asked = 0;
    while !over.load(Ordering::Relaxed) {
        server.ab("/page.html", 500, 2, &["-k"]).unwrap();
        asked += 500;
        checked.fetch_add(500, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(server.logged().unwrap() - before, asked);
}

/// The children that do nginx's work.
fn child(pid: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().next().unwrap().parse().unwrap()
}

/// Ends the loads when the test fails: it would wait for them otherwise.
#[test]
fn attaching_for_a_long_time_changes_nothing() {
    let seconds = std::env::var("SOAK_SECONDS").map_or(SECONDS, |word| word.parse().unwrap());
    let maria = MariaDb::open().unwrap();
    let postgres = Server::postgresql().unwrap();
    postgres.run("pgbench", &["-i", "-q"]).unwrap();
    let redis_server = Server::redis_without_file().unwrap();
    let web = Nginx::start(1).unwrap();
    let over = AtomicBool::new(false);
    let counts = [const { AtomicU64::new(0) }; 4];
    let pages = thread::scope(|scope| {
        let (over, counts) = (&over, &counts);
        let _ends = load::Ends(over);
        let loads = [
            scope.spawn(|| mariadb(&maria, over, &counts[0])),
            scope.spawn(|| postgresql(&postgres, over, &counts[1])),
            scope.spawn(|| redis(&redis_server, over, &counts[2])),
            scope.spawn(|| nginx(&web, over, &counts[3])),
        ];
        // Caches are warm by then.
        thread::sleep(Duration::from_secs(3));
        let worker = child(web.pid());
        let mut traced = [
            ("MariaDB", "mysql", maria.pid(), maria.pid()),
            ("PostgreSQL", "postgresql", postgres.pid(), postgres.pid()),
            ("Redis", "redis", redis_server.pid(), redis_server.pid()),
            ("nginx", "nginx", web.pid(), worker),
        ]
        .map(|(name, profile, pid, at)| Traced::new(name, profile, pid, at));
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut next = Instant::now();
        let mut turn = 0;
        // Each has its turn, however slow the machine is.
        while turn < traced.len() || Instant::now() < end {
            traced[turn % 4].attach();
            turn += 1;
            next += Duration::from_secs(2);
            thread::sleep(next.saturating_duration_since(Instant::now()));
            assert!(
                loads.iter().all(|load| !load.is_finished()),
                "a load has ended"
            );
        }
        over.store(true, Ordering::Relaxed);
        for load in loads {
            load.join().unwrap();
        }
        traced.map(|traced| {
            assert!(traced.requests > 0, "{} saw no request", traced.name);
            traced.check()
        })
    });
    println!(
        "| server | traces | requests seen | descriptors | mappings | resident, MiB | results checked |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    for (page, count) in pages.iter().zip(&counts) {
        println!("{page} {} |", count.load(Ordering::Relaxed));
    }
}
