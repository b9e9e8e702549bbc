//! Because of whom requests of databases waited, and of services before them.
//!
//! Needs root, a kernel with BPF, mariadb-server, sysbench, postgresql-15 and php8.2-fpm with php8.2-mysql.

use std::convert::Infallible;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use reqtrace_recording::{Event, Reader};
use reqtrace_tests::blamed::{self, Blamed};
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::php_fpm::{MYSQLI, PhpFpm};
use reqtrace_tests::process::{Stream, run};
use reqtrace_tests::reqtrace::{self, Trace};
use reqtrace_tests::servers::Server;
use reqtrace_tests::sysbench::Sysbench;
use reqtrace_tests::workspace;
use tempfile::NamedTempFile;

/// Transactions of a load that keeps all CPUs busy.
const TRANSACTIONS: u64 = 1_000;

/// Transactions of a load.
const COMMITS: u64 = 3000;

/// Threads of the kernel that end waits of others, and may wait for a CPU before.
const KERNEL: [&str; 3] = ["kworker/", "ksoftirqd/", "jbd2/"];

fn is_of_kernel(row: &Blamed) -> bool {
    KERNEL.iter().any(|name| row.culprit_comm.starts_with(name))
}

/// Whether somebody waited for a CPU, as all do beside others.
fn is_crowded(row: &Blamed) -> bool {
    ["run_queue", "preempted"].contains(&row.root_cause.as_str())
}

/// The time in some wait classes of which not the request's own wait for a device is the cause.
struct Waited<'a>(Vec<&'a Blamed>);

impl<'a> Waited<'a> {
    fn of(blamed: &'a [Blamed], classes: &[&str]) -> Self {
        let fits = |row: &&Blamed| {
            classes.contains(&row.wait_class.as_str()) && row.culprit_kind != "interrupt"
        };
        Self(blamed.iter().filter(fits).collect())
    }

    /// The share that fits of what there would be without others: beside them all wait for a CPU.
    fn share(&self, fits: impl Fn(&Blamed) -> bool) -> f64 {
        let calm = self.0.iter().filter(|row| !is_crowded(row));
        // They work for a device.
        let calm = calm.filter(|row| !is_of_kernel(row));
        let all: u64 = calm.clone().map(|row| row.ns).sum();
        let fitting = calm.filter(|row| fits(row));
        fitting.map(|row| row.ns).sum::<u64>() as f64 / all.max(1) as f64
    }

    /// Requests whose time was another's wait for the disk.
    fn behind_disk(&self, fits: impl Fn(&Blamed) -> bool) -> u64 {
        let disk = self.0.iter().filter(|row| row.root_cause == "disk");
        let fitting = disk.filter(|row| fits(row));
        fitting.map(|row| row.requests).max().unwrap_or_default()
    }

    /// Nobody else is named but threads of this name and the kernel's.
    fn check_threads(&self, comm: &str) {
        let innocent = self.0.iter().find(|row| {
            row.culprit_kind == "thread" && row.culprit_comm != comm && !is_of_kernel(row)
        });
        assert!(innocent.is_none(), "{innocent:#?}");
    }
}

/// Commits of eight connections, of which each waits until the log is on the disk.
fn group_commit(options: &[&str]) -> Vec<Blamed> {
    let server = MariaDb::open_with(options).unwrap();
    let sysbench = Sysbench::prepare(&server, 1, 10_000).unwrap();
    let trace = Trace::start(Path::new("mysql.toml"), server.pid(), &["--blame"]).unwrap();
    sysbench
        .run_test("oltp_update_non_index", 8, COMMITS)
        .unwrap();
    server.wait_until_alone().unwrap();
    blamed::of(&trace.finish().unwrap()).unwrap().1
}

#[test]
fn commits_of_a_group_wait_for_the_disk_of_the_one_that_writes() {
    let durable = "--innodb-flush-log-at-trx-commit=1";
    for options in [&[durable][..], &[durable, "--log-bin", "--sync-binlog=1"]] {
        let blamed = group_commit(options);
        let waited = Waited::of(&blamed, &["redo log", "binary log"]);
        let by_command = |row: &Blamed| row.culprit_request == "command";
        let disk = waited.share(|row| by_command(row) && row.root_cause == "disk");
        let commands = waited.share(by_command);
        let behind = waited.behind_disk(by_command);
        assert!(
            disk > 0.3 && commands > 0.75,
            "{disk} {commands} {blamed:#?}"
        );
        assert!(behind > COMMITS / 3, "{behind} {blamed:#?}");
        waited.check_threads("mariadbd");
    }
}

fn psql(server: &Server, statements: &[&str]) {
    let args: Vec<&str> = statements.iter().flat_map(|sql| ["-c", sql]).collect();
    server.run("psql", &args).unwrap();
}

fn postgresql(server: &Server) -> Trace {
    Trace::start(Path::new("postgresql.toml"), server.pid(), &["--blame"]).unwrap()
}

#[test]
fn a_row_lock_of_a_session_that_idles_in_its_transaction_is_its_fault() {
    const IDLES: Duration = Duration::from_millis(800);
    let server = Server::postgresql().unwrap();
    psql(
        &server,
        &["create table t (a int)", "insert into t values (1)"],
    );
    let trace = postgresql(&server);
    let mut holder = server.session("holder").unwrap();
    holder
        .tell("begin; update t set a = 2; select 'held';")
        .unwrap();
    holder
        .wait_for_line(Stream::Out, "held", IDLES * 20)
        .unwrap();
    let mut update = server
        .client("psql", &["-c", "update t set a = 3"])
        .unwrap();
    let mut update = update.stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(IDLES);
    holder.tell("commit;").unwrap();
    assert!(update.wait().unwrap().success());
    drop(holder);
    let (rows, blamed) = blamed::of(&trace.finish().unwrap()).unwrap();
    let victim = rows
        .iter()
        .max_by_key(|row| row.classes["row_or_table_lock"])
        .unwrap();
    let idle = victim.causes["between_requests"];
    assert!(idle as f64 > 0.9 * victim.blocked_ns as f64, "{victim:#?}");
    assert!(idle > IDLES.as_nanos() as u64 / 2, "{victim:#?}");
    let culprits: Vec<_> = blamed
        .iter()
        .filter(|row| row.root_cause == "between_requests")
        .collect();
    let [
        Blamed {
            culprit_kind,
            culprit_comm,
            wait_class,
            ..
        },
    ] = culprits.as_slice()
    else {
        panic!("{culprits:#?}");
    };
    assert_eq!(
        [culprit_kind, culprit_comm, wait_class],
        ["thread", "postgres", "row or table lock"]
    );
}

/// A script for pgbench that commits so many rows, with or without waiting for the log.
fn commits(waits: &str, rows: u32) -> NamedTempFile {
    let script = NamedTempFile::new().unwrap();
    let sql = format!(
        "begin;\nset local synchronous_commit = {waits};\ninsert into t select repeat('x', 500) from generate_series(1, {rows});\ncommit;\n"
    );
    std::fs::write(script.path(), sql).unwrap();
    script
}

/// Clients that run a script, so often or so long.
fn pgbench(server: &Server, script: &NamedTempFile, how: &[&str]) -> Command {
    let args = ["-n", "-f", script.path().to_str().unwrap()];
    let args = [&args[..], how].concat();
    server.client("pgbench", &args).unwrap()
}

#[test]
fn commits_wait_for_the_log_that_another_backend_writes() {
    let server = Server::postgresql().unwrap();
    psql(&server, &["create table t (a text)"]);
    let script = commits("on", 1);
    let trace = postgresql(&server);
    run(&mut pgbench(&server, &script, &["-c", "8", "-t", "200"])).unwrap();
    let (_, blamed) = blamed::of(&trace.finish().unwrap()).unwrap();
    let waited = Waited::of(&blamed, &["WAL"]);
    let by_query = |row: &Blamed| row.culprit_request == "query";
    let disk = waited.share(|row| by_query(row) && row.root_cause == "disk");
    let queries = waited.share(by_query);
    let behind = waited.behind_disk(by_query);
    assert!(disk > 0.3 && queries > 0.75, "{disk} {queries} {blamed:#?}");
    assert!(behind > 8 * 200 / 4, "{behind} {blamed:#?}");
    waited.check_threads("postgres");
}

#[test]
fn commits_wait_for_the_log_that_the_wal_writer_writes() {
    let server = Server::postgresql().unwrap();
    let table = "create table t (a text)";
    let often = "alter system set wal_writer_delay = '1ms'";
    let always = "alter system set wal_writer_flush_after = 0";
    psql(&server, &[table, often, always, "select pg_reload_conf()"]);
    let (waits, not) = (commits("on", 1), commits("off", 200));
    let trace = postgresql(&server);
    // Some 10 MB a second.
    let how = ["-c", "2", "-T", "60", "--rate", "100"];
    let mut others = pgbench(&server, &not, &how);
    let others = others.stdout(Stdio::null()).stderr(Stdio::null());
    let mut others = others.spawn().unwrap();
    let done = run(&mut pgbench(&server, &waits, &["-T", "5"]));
    others.kill().unwrap();
    others.wait().unwrap();
    done.unwrap();
    let (_, blamed) = blamed::of(&trace.finish().unwrap()).unwrap();
    // It is the one process that syncs in no request.
    let waited = Waited::of(&blamed, &["WAL"]);
    let by_writer = |row: &Blamed| row.culprit_comm == "postgres";
    let disk = waited.share(|row| by_writer(row) && row.root_cause == "disk");
    let queries = waited.share(|row| row.culprit_request == "query");
    let behind = waited.behind_disk(by_writer);
    assert!(
        disk > 0.05 && queries < 0.25,
        "{disk} {queries} {blamed:#?}"
    );
    assert!(behind > 5, "{behind} {blamed:#?}");
    waited.check_threads("postgres");
}

#[test]
fn a_script_waits_for_a_statement_and_for_who_that_waits_for() {
    const SCRIPTS: usize = 20;
    let server = MariaDb::open().unwrap();
    server
        .sql("create table sbtest.t (id int primary key, n int) engine=innodb; insert into sbtest.t values (1, 0)")
        .unwrap();
    let php = PhpFpm::start_with(1, MYSQLI).unwrap();
    let script = |name: &str, sql: &str| {
        let code = format!(
            "$c = new mysqli('localhost', 'root', '', 'sbtest', 0, '{}'); $c->query('{sql}'); echo 'done';",
            server.socket().display()
        );
        php.script(name, &code).unwrap().display().to_string()
    };
    let sleeps = script("sleeps.php", "select sleep(0.02)");
    let updates = script("updates.php", "update t set n = n + 1 where id = 1");
    let pid = php.pid().to_string();
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("both.rec");
    let recording = recording.to_str().unwrap();
    let mut more = vec!["--profile", "php-fpm", "--blame", "--labels"];
    more.extend(["-p", &pid, "--record", recording]);
    let trace = Trace::start(Path::new("mysql"), server.pid(), &more).unwrap();
    let get = |path: &str| assert!(php.get(path).unwrap().ends_with("done"));
    (0..SCRIPTS).for_each(|_| get(&sleeps));
    let holder = "begin; update sbtest.t set n = n + 2 where id = 1;\n\\! sleep 0.8\ncommit;";
    let mut holder = server.start_sql("holder", holder).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    get(&updates);
    holder.wait(Duration::from_secs(10)).unwrap();
    php.idle().unwrap();
    let outcome = trace.finish().unwrap();
    let (rows, blamed) = blamed::of(&outcome).unwrap();
    let report = reqtrace::command(["report", recording, "-q", "--csv", "-"]).unwrap();
    let report = reqtrace::run(report).unwrap();
    assert_eq!(report.stdout, outcome.csv().unwrap(), "{}", report.stderr);
    let scripts = rows.iter().filter(|row| row.request == "script");
    assert_eq!(scripts.count(), SCRIPTS + 1);
    // What a service calls its waits holds for its own requests only.
    for (request, theirs) in [("script", "row_lock"), ("command", "database")] {
        let named = rows.iter().filter(|row| row.request == request);
        let ns: u64 = named
            .map(|row| row.classes.get(theirs).copied().unwrap_or(0))
            .sum();
        assert_eq!(ns, 0, "{request} waited for {theirs}");
    }
    let share = |of: &str, fits: &dyn Fn(&Blamed) -> bool| {
        let calm = |row: &&Blamed| row.victim_label == of && !is_crowded(row);
        let all: u64 = blamed.iter().filter(calm).map(|row| row.ns).sum();
        let fitting = blamed.iter().filter(calm).filter(|row| fits(row));
        fitting.map(|row| row.ns).sum::<u64>() as f64 / all.max(1) as f64
    };
    let statement = share(&sleeps, &|row| {
        row.culprit_request == "command"
            && row.culprit_label == "select sleep(?)"
            && row.root_cause == "timer"
            && row.depth == 1
    });
    let idle = share(&updates, &|row| {
        row.culprit_comm == "mariadbd" && row.root_cause == "between_requests" && row.depth == 2
    });
    assert!(
        statement > 0.8 && idle > 0.8,
        "{statement} {idle} {blamed:#?}"
    );
}

/// A client ends a wait inside a request now and then, and makes a thousand others between: it is let go soon, or half of what blame
/// costs would be for it.
#[test]
fn clients_that_hardly_help_are_not_followed() {
    let server = MariaDb::open().unwrap();
    let sysbench = Sysbench::prepare(&server, 2, 1_000).unwrap();
    let folder = workspace::scratch().unwrap();
    let recording = folder.path().join("trace.rec");
    let record = format!("--record={}", recording.display());
    let trace = Trace::start(Path::new("mysql"), server.pid(), &["--blame", &record]).unwrap();
    let run = sysbench.run(16, TRANSACTIONS).unwrap();
    let outcome = trace.finish().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let mut reader = Reader::open(BufReader::new(File::open(&recording).unwrap())).unwrap();
    let (mut own, mut of_others) = (0_u64, 0_u64);
    let each = |event: Event<'_>| {
        if let Event::Interval(interval) = event {
            match interval.space.tgid == server.pid() {
                true => own += 1,
                false => of_others += 1,
            }
        }
        Ok::<(), Infallible>(())
    };
    let Ok(_) = reader.read(each).unwrap();
    // Threads that share two CPUs are off them in a part of the statements at least.
    assert!(own * 10 > run.queries, "{own} of {run:?}");
    assert!(of_others * 4 < run.queries, "{of_others} of {run:?}");
}
