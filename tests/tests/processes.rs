//! Many processes: named together, named by their program's name, forked before the trace and in
//! it; threads and connections that come and go. Every request is counted, each for its process.
//!
//! Needs root, a kernel with BPF, postgresql-15, nginx and ab.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::nginx::Nginx;
use reqtrace_tests::process::Stream;
use reqtrace_tests::reqtrace::{self, Outcome, Trace};
use reqtrace_tests::servers::Server;
use reqtrace_tests::shop::{self, Shop};

const LIMIT: Duration = Duration::from_secs(60);

/// Complete requests of a process, or of all, in a good trace.
fn complete(outcome: &Outcome, pid: Option<u32>) -> u64 {
    outcome.checked().unwrap();
    let rows = outcome.rows().unwrap();
    let of_process = |row: &&reqtrace_tests::rows::Row| pid.is_none_or(|pid| row.pid == pid);
    rows.iter()
        .filter(|row| row.complete)
        .filter(of_process)
        .count() as u64
}

#[test]
fn several_processes_are_told_apart() {
    let (first, second, other) = (
        Shop::open().unwrap(),
        Shop::open().unwrap(),
        Shop::open().unwrap(),
    );
    let more = second.pid().to_string();
    let trace = Trace::start(&shop::profile(), first.pid(), &["-p", &more]).unwrap();
    assert_eq!(first.load(3, 40).unwrap(), 40);
    assert_eq!(second.load(2, 70).unwrap(), 70);
    // One that was not named runs the same file.
    assert_eq!(other.load(2, 30).unwrap(), 30);
    let outcome = trace.finish().unwrap();
    assert_eq!(complete(&outcome, Some(first.pid())), 40);
    assert_eq!(complete(&outcome, Some(second.pid())), 70);
    assert_eq!(complete(&outcome, None), 110);
}

#[test]
fn processes_are_found_by_their_name() {
    // A name that no other process on the machine has.
    let name = format!("shop-{}", std::process::id());
    let (first, second) = (Shop::open_as(&name).unwrap(), Shop::open_as(&name).unwrap());
    // The two copies are two files, each with its own probes.
    let other = Shop::open().unwrap();
    let trace = Trace::start(&shop::profile(), other.pid(), &["--comm", &name]).unwrap();
    assert_eq!(first.load(2, 25).unwrap(), 25);
    assert_eq!(second.load(2, 35).unwrap(), 35);
    let outcome = trace.finish().unwrap();
    assert_eq!(complete(&outcome, Some(first.pid())), 25);
    assert_eq!(complete(&outcome, Some(second.pid())), 35);
    assert_eq!(complete(&outcome, Some(other.pid())), 0);

    // Two servers in one report: that is said whatever else is not.
    let mut command = reqtrace::command(["-q", "--profile"]).unwrap();
    command.arg(shop::profile()).args(["--comm", &name, "0.1"]);
    let outcome = reqtrace::run(command).unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.said());
    let said = &outcome.stderr;
    for words in [
        format!("2 processes are named `{name}`"),
        first.pid().to_string(),
        second.pid().to_string(),
    ] {
        assert!(said.contains(&words), "{words}: {said}");
    }
}

#[test]
fn connections_and_threads_come_and_go() {
    let shop = Shop::open().unwrap();
    let trace = Trace::start(&shop::profile(), shop.pid(), &[]).unwrap();
    let mut orders = 0;
    // Each connection is a thread of its own, and ends with it.
    for round in 1..=15 {
        orders += shop.load(round % 4 + 1, 8).unwrap();
    }
    let outcome = trace.finish().unwrap();
    assert_eq!(complete(&outcome, Some(shop.pid())), orders);
    let rows = outcome.rows().unwrap();
    let mut threads: Vec<u32> = rows.iter().map(|row| row.tid).collect();
    threads.sort_unstable();
    threads.dedup();
    assert!(threads.len() > 15, "{threads:?}");
}

#[test]
fn connections_of_postgresql_that_were_there_before_are_followed() {
    let server = Server::postgresql().unwrap();
    let mut sessions = [server.session("a").unwrap(), server.session("b").unwrap()];
    let trace = Trace::start(Path::new("postgresql"), server.pid(), &[]).unwrap();
    for (index, session) in sessions.iter_mut().enumerate() {
        for number in 0..4 {
            session
                .tell(&format!("select 'answer {index} {number}';"))
                .unwrap();
        }
        let last = format!("answer {index} 3");
        session.wait_for_line(Stream::Out, &last, LIMIT).unwrap();
    }
    // And connections to come.
    server
        .run("psql", &["-c", "select 1", "-c", "select 2"])
        .unwrap();
    let outcome = trace.finish().unwrap();
    assert_eq!(complete(&outcome, None), 2 * 4 + 2);
    let rows = outcome.rows().unwrap();
    let mut backends: Vec<u32> = rows.iter().map(|row| row.pid).collect();
    backends.sort_unstable();
    backends.dedup();
    assert_eq!(backends.len(), 3, "{backends:?}");
    assert!(
        !backends.contains(&server.pid()),
        "the postmaster has no requests"
    );
    // The new connection's greeting is no request, and nothing to warn of.
    let reasons: Vec<&str> = rows.iter().map(|row| row.reason.as_str()).collect();
    assert!(!reasons.contains(&"running at start"), "{reasons:?}");
    let summary = outcome.summary().unwrap();
    assert_eq!(summary.request("query").unwrap().ends_without_begin, 0);
    let said = outcome.said();
    assert!(!said.contains("had no begin"), "{said}");
}

#[test]
fn workers_of_nginx_that_were_there_before_are_followed() {
    let nginx = Nginx::start(2).unwrap();
    let trace = Trace::start(Path::new("nginx"), nginx.pid(), &[]).unwrap();
    nginx.ab("/", 200, 4, &[]).unwrap();
    let outcome = trace.finish().unwrap();
    assert_eq!(complete(&outcome, None), 200);
    assert_eq!(complete(&outcome, Some(nginx.pid())), 0);
}

/// One after the other there are more than the kernel's table has room for.
#[test]
fn children_that_have_left_make_room_for_others() {
    const CHILDREN: u64 = 5000;
    let mut server = Fixture::start("forks", &[&CHILDREN.to_string()]).unwrap();
    let profile = server.profile("work", "nest").unwrap();
    let trace = Trace::start(&profile, server.pid(), &[]).unwrap();
    server.work().unwrap();
    let outcome = trace.finish().unwrap();
    assert_eq!(complete(&outcome, None), CHILDREN);
    let rows = outcome.rows().unwrap();
    let mut processes: Vec<u32> = rows.iter().map(|row| row.pid).collect();
    processes.sort_unstable();
    processes.dedup();
    assert_eq!(processes.len() as u64, CHILDREN);
    server.end().unwrap();
}

#[test]
fn a_process_lives_on_without_its_first_thread() {
    const REQUESTS: u64 = 600;
    let mut server = Fixture::start("forks", &["leaderless", &REQUESTS.to_string()]).unwrap();
    let profile = server.profile("work", "nest").unwrap();
    let trace = Trace::start(&profile, server.pid(), &[]).unwrap();
    server.work().unwrap();
    let outcome = trace.finish().unwrap();
    assert_eq!(complete(&outcome, Some(server.pid())), REQUESTS);
    server.end().unwrap();
}

/// The capabilities that are left, and whether programs that it runs can have more.
fn privileges(status: &str) -> (u64, u64, bool) {
    let value = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap().trim().to_owned()
    };
    let set = |key| u64::from_str_radix(&value(key), 16).unwrap();
    (set("CapPrm:"), set("CapEff:"), value("NoNewPrivs:") == "1")
}

#[test]
fn a_running_tracer_has_no_privileges_but_for_reading() {
    // CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE and CAP_CHECKPOINT_RESTORE.
    const READING: u64 = 1 << 2 | 1 << 19 | 1 << 40;
    let shop = Shop::open().unwrap();
    let trace = Trace::start(&shop::profile(), shop.pid(), &[]).unwrap();
    let tasks = format!("/proc/{}/task", trace.pid());
    // What reads the kernel's names at the start may still be at it.
    let began = std::time::Instant::now();
    loop {
        let threads: Vec<_> = std::fs::read_dir(&tasks)
            .unwrap()
            .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).ok())
            .map(|status| privileges(&status))
            .collect();
        assert!(!threads.is_empty());
        if threads.iter().all(|&(permitted, effective, no_more)| {
            (permitted | effective) & !READING == 0 && no_more
        }) {
            break;
        }
        assert!(began.elapsed() < LIMIT, "{threads:x?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(shop.load(2, 20).unwrap(), 20);
    let outcome = trace.finish().unwrap();
    assert_eq!(complete(&outcome, None), 20);
}

/// Anybody can give a program the name of a server.
#[test]
fn a_process_of_another_user_with_that_name_has_to_be_asked_for() {
    let name = format!("twin-{}", std::process::id());
    let own = Shop::open_as(&name).unwrap();
    // Where that user may look: a folder of the tests need not be.
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let program = folder.path().join(&name);
    std::os::unix::fs::symlink("/usr/bin/sleep", &program).unwrap();
    let mut other = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--clear-groups"])
        .arg(&program)
        .arg("1000")
        .spawn()
        .unwrap();
    let comm = format!("/proc/{}/comm", other.id());
    let began = std::time::Instant::now();
    while std::fs::read_to_string(&comm).unwrap_or_default().trim() != name {
        assert!(began.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(5));
    }
    let profile = shop::profile();
    let arguments = ["--profile", profile.to_str().unwrap(), "--comm", &name, "1"];
    let traced_as = |more: &[&str]| {
        let arguments = arguments.iter().chain(more);
        reqtrace::run(reqtrace::command(arguments).unwrap()).unwrap()
    };
    let (refused, traced) = (traced_as(&[]), traced_as(&["--user", "root"]));
    other.kill().unwrap();
    other.wait().unwrap();
    drop(own);
    assert_eq!(refused.code, Some(2), "{}", refused.said());
    for words in ["several users", "root (pids", "--user USER"] {
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
    }
    assert_eq!(traced.code, Some(0), "{}", traced.said());
}
