//! Because of whom requests waited: a service whose culprits are known, and databases whose are.
//!
//! Needs root, a kernel with BPF, g++ and mariadb-server.

use std::path::Path;
use std::time::Duration;

use reqtrace_tests::blamed::Blamed;
use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::{blamed, chains, workspace};

const CALLS: usize = 40;

/// Traces one of the services.
fn known(index: usize) {
    let service = chains::SERVICES[index];
    let folder = workspace::scratch().unwrap();
    let path = folder.path().display().to_string();
    let mut fixture = Fixture::start(service.name, &[&CALLS.to_string(), &path]).unwrap();
    let profile = folder.path().join("profile.toml");
    std::fs::write(&profile, service.profile().unwrap()).unwrap();
    let mut options = vec!["--blame"];
    options.extend(fixture.more().iter().flat_map(|pid| ["-p", pid]));
    let trace = Trace::start(&profile, fixture.pid(), &options).unwrap();
    fixture.work().unwrap();
    fixture.end().unwrap();
    let outcome = trace.wait().unwrap();
    let (rows, blamed) = blamed::of(&outcome).unwrap();
    chains::check(service.kinds, CALLS, 0.95, &rows, &blamed).unwrap();
}

#[test]
fn known_culprits_are_named_and_nobody_else_is() {
    known(0);
}

#[test]
fn who_has_a_lock_is_named_whatever_the_lock_is() {
    known(1);
}

#[test]
fn a_request_of_another_process_is_named_whatever_connects_them() {
    known(2);
}

/// Requests that wait for who is new, or has never woken anybody: type, name of that thread, how many.
const NEWBORN: [(&str, &str, usize); 3] = [
    ("for_a_thread", "newthread", CALLS),
    ("for_a_process", "sleep", CALLS),
    ("for_a_lock", "keeper", 1),
];

/// The trace of a service with so many more threads.
fn newborn(idle: usize) -> Outcome {
    let args = [CALLS.to_string(), idle.to_string()];
    let fixture = Fixture::start("newborn", &args.each_ref().map(String::as_str)).unwrap();
    let folder = workspace::scratch().unwrap();
    let profile = folder.path().join("profile.toml");
    let mut text = "[profile]\nname = \"newborn\"\n".to_owned();
    for (name, ..) in NEWBORN {
        text += &format!("[[request]]\nname = \"{name}\"\nbegin = {{ function = \"{name}\" }}\n");
    }
    std::fs::write(&profile, text).unwrap();
    let (outcome, _) = fixture.traced(&profile, &["--blame"]).unwrap();
    outcome
}

/// What a thread does is known from its birth on, until its last moment, and of those that are there from the start on.
#[test]
fn who_is_new_or_has_never_woken_anybody_is_known() {
    let (rows, blamed) = blamed::of(&newborn(0)).unwrap();
    for (name, culprit, count) in NEWBORN {
        assert_eq!(rows.iter().filter(|row| row.request == name).count(), count);
        let of_type = || blamed.iter().filter(|row| row.victim_request == name);
        let all: u64 = of_type().map(|row| row.ns).sum();
        let sum =
            |is: &dyn Fn(&&Blamed) -> bool| -> u64 { of_type().filter(is).map(|row| row.ns).sum() };
        let unknown = sum(&|row| row.root_cause == "unknown");
        assert!(
            unknown * 50 < all,
            "{name}: {unknown} of {all}: {blamed:#?}"
        );
        let slept = sum(&|row| row.culprit_comm == culprit && row.root_cause == "timer");
        assert!(
            slept * 100 > all * 40,
            "{name}: {slept} of {all}: {blamed:#?}"
        );
        // Before it has its name it has that of the service.
        let its = sum(&|row| row.culprit_comm == culprit || row.culprit_comm == "newborn");
        assert!(its * 100 > all * 90, "{name}: {its} of {all}: {blamed:#?}");
    }
}

/// More threads than the kernel's table has entries wait for nobody: they leave room for those that serve requests.
#[test]
fn idle_threads_leave_room_for_those_that_serve() {
    let outcome = newborn(6_000);
    let summary = outcome.checked().unwrap();
    for (name, _, count) in NEWBORN {
        let of_type = summary.request(name).unwrap();
        assert_eq!((of_type.count, of_type.rows), (count as u64, count as u64));
    }
    assert!(
        !outcome.printed().contains("thread_table_full"),
        "{}",
        outcome.printed()
    );
}

#[test]
fn a_row_lock_is_the_fault_of_the_connection_that_idles_in_its_transaction() {
    // Of the 800 ms that the holder idles, some are over when the other comes.
    const IDLES: Duration = Duration::from_millis(300);
    let server = MariaDb::open().unwrap();
    server
        .sql("create database d; create table d.t (id int primary key, n int) engine=innodb; insert into d.t values (1, 0)")
        .unwrap();
    let trace = Trace::start(
        Path::new("mysql.toml"),
        server.pid(),
        &["--blame", "--labels"],
    )
    .unwrap();
    let holder = "begin; update d.t set n = n + 1 where id = 1;\n\\! sleep 0.8\ncommit;";
    let mut holder = server.start_sql("holder", holder).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    server.sql("update d.t set n = n + 2 where id = 1").unwrap();
    holder.wait(Duration::from_secs(10)).unwrap();
    let outcome = trace.finish().unwrap();
    let (rows, blamed) = blamed::of(&outcome).unwrap();
    let victim = rows.iter().max_by_key(|row| row.blocked_ns).unwrap();
    let idle = victim.causes["between_requests"];
    let least = u64::try_from(IDLES.as_nanos()).unwrap();
    assert!(idle >= least, "{victim:#?}");
    assert!(idle as f64 >= 0.9 * victim.blocked_ns as f64, "{victim:#?}");
    // The report says which statement that connection ran last.
    let printed = outcome.printed();
    let holds = |line: &str| {
        line.contains("between requests, thread mariadbd")
            && line.contains(" after request ")
            && line.contains(" update d.t set n")
    };
    assert!(printed.lines().any(holds), "{printed}");
    let by_statement = blamed::sum(&blamed, |row| {
        row.root_cause == "between_requests"
            && row.culprit_label == "update d.t set n = n + ? where id = ?"
    });
    assert!(by_statement >= least, "{blamed:#?}");
}
