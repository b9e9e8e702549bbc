//! Many processes: named together, named by their program's name, forked before the trace and in
//! it; threads and connections that come and go. Every request is counted, each for its process.
//!
//! Needs root, a kernel with BPF, postgresql-15, nginx and ab.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqtrace_tests::apache::Apache;
use reqtrace_tests::fixtures::{self, Fixture};
use reqtrace_tests::nginx::Nginx;
use reqtrace_tests::process::{self, Child, Stream};
use reqtrace_tests::reqtrace::{self, Outcome, Trace};
use reqtrace_tests::servers::Server;
use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::workspace;
use tempfile::TempDir;

use crate::screen::Screen;

const LIMIT: Duration = Duration::from_secs(60);
/// How long the threads of the start may last.
const GIVING_UP: Duration = Duration::from_secs(20);

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

    // Two servers in one report: that is printed whatever else is not.
    let mut command = reqtrace::command(["-q", "--profile"]).unwrap();
    command.arg(shop::profile()).args(["--comm", &name, "0.1"]);
    let outcome = reqtrace::run(command).unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let printed = &outcome.stderr;
    for words in [
        format!("2 processes are named `{name}`"),
        first.pid().to_string(),
        second.pid().to_string(),
    ] {
        assert!(printed.contains(&words), "{words}: {printed}");
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
    let printed = outcome.printed();
    assert!(!printed.contains("had no begin"), "{printed}");
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

/// Its probes are set while it waits to begin: in its executable, and so in each child from its start.
#[test]
fn children_of_a_program_that_is_started_are_traced_from_their_start() {
    const CHILDREN: u64 = 1000;
    let folder = workspace::scratch().unwrap();
    let program = fixtures::compile("forks", folder.path()).unwrap();
    let profile = folder.path().join("forks.toml");
    fixtures::write_profile(&profile, "work", "work", "").unwrap();
    let line = [program.to_str().unwrap(), &CHILDREN.to_string()];
    let trace = Trace::of_program(&profile, &[], &line, "go").unwrap();
    let outcome = trace.wait().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    assert_eq!(complete(&outcome, None), CHILDREN);
    let rows = outcome.rows().unwrap();
    assert_eq!(rows.len() as u64, CHILDREN);
    let mut processes: Vec<u32> = rows.iter().map(|row| row.pid).collect();
    processes.sort_unstable();
    processes.dedup();
    assert_eq!(processes.len() as u64, CHILDREN);
    let printed = outcome.printed();
    assert!(!printed.contains("their probes"), "{printed}");
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

/// CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE and CAP_CHECKPOINT_RESTORE.
const READING: u64 = 1 << 2 | 1 << 19 | 1 << 40;
/// What sends a signal to a program that was started.
const CAP_KILL: u64 = 1 << 5;

/// The threads of a process, and those of its children that are its own: name and status of each.
fn threads(pid: u32) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return all;
    };
    for task in tasks {
        let task = task.unwrap().path();
        let read = |file: &str| std::fs::read_to_string(task.join(file)).unwrap_or_default();
        all.push((read("comm").trim().to_owned(), read("status")));
        for child in read("children").split_whitespace() {
            let of_child = threads(child.parse().unwrap());
            all.extend(
                of_child
                    .into_iter()
                    .filter(|(name, _)| name.starts_with("reqtrace")),
            );
        }
    }
    // One that has left meanwhile.
    all.retain(|(_, status)| !status.is_empty());
    all
}

/// Waits until no thread of a tracer can do more than it needs: what reads the kernel's names at the start may
/// still be at it. Some of the threads have these names.
fn gave_up(pid: u32, allowed: u64, named: &[&str]) {
    let began = std::time::Instant::now();
    loop {
        let threads = threads(pid);
        let too_much: Vec<_> = threads
            .iter()
            .map(|(name, status)| (name, privileges(status)))
            .filter(|(_, (permitted, effective, no_more))| {
                (permitted | effective) & !allowed != 0 || !no_more
            })
            .collect();
        let is_there = |wanted: &&str| threads.iter().any(|(name, _)| name == wanted);
        if too_much.is_empty() && named.iter().all(is_there) {
            return;
        }
        let names: Vec<&String> = threads.iter().map(|(name, _)| name).collect();
        assert!(began.elapsed() < GIVING_UP, "{too_much:x?} of {names:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Options for all outputs, in a folder.
fn all_outputs(folder: &Path) -> Vec<String> {
    let files = [
        "--record",
        "--html",
        "--csv",
        "--folded",
        "--flamegraph",
        "--json",
        "--intervals",
        "--pprof",
        "--perfetto",
    ];
    let file = |option: &&str| folder.join(&option[2..]).display().to_string();
    let pairs = files
        .iter()
        .map(|option| [(*option).to_owned(), file(option)]);
    let mut options: Vec<String> = pairs.flatten().collect();
    options.extend(["--blame", "--histogram", "--labels"].map(str::to_owned));
    options
}

#[test]
fn a_running_tracer_has_no_privileges_but_for_reading() {
    let shop = Shop::open().unwrap();
    let folder = workspace::scratch().unwrap();
    let options = all_outputs(folder.path());
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let trace = Trace::start(&shop::profile(), shop.pid(), &options).unwrap();
    gave_up(trace.pid(), READING, &["reqtrace", "recorder", "output"]);
    assert_eq!(shop.load(2, 20).unwrap(), 20);
    let outcome = trace.finish().unwrap();
    assert_eq!(complete(&outcome, None), 20);
    let report = reqtrace::command(["report", "--csv", "-", "-q"]).unwrap();
    let report = {
        let mut report = report;
        report.arg(folder.path().join("record"));
        report
    };
    let rows = reqtrace::run(report).unwrap();
    assert_eq!(rows.stdout.lines().count(), 21, "{}", rows.printed());
}

#[test]
fn a_live_tracer_has_no_privileges_but_for_reading() {
    let shop = Shop::open().unwrap();
    let folder = workspace::scratch().unwrap();
    let mut command = reqtrace::command(["--live", "--profile"]).unwrap();
    command
        .arg(shop::profile())
        .args(["-p", &shop.pid().to_string()])
        .args(all_outputs(folder.path()));
    let mut screen = Screen::start(command, 24, 80).unwrap();
    screen
        .wait_for("the overview", LIMIT, |text| text.contains("RUNNING"))
        .unwrap();
    let own = [
        "reqtrace",
        "recorder",
        "output",
        "screen",
        "reqtrace-screen",
    ];
    gave_up(screen.pid(), READING, &own);
    screen.press("q").unwrap();
    assert_eq!(screen.wait(LIMIT).unwrap().code(), Some(0));
}

#[test]
fn a_tracer_with_a_program_of_its_own_has_no_privileges_but_for_reading_and_signals() {
    let folder = workspace::scratch().unwrap();
    let program = fixtures::compile("short", folder.path()).unwrap();
    let profile = folder.path().join("short.toml");
    fixtures::write_profile(&profile, "work", "work", "").unwrap();
    let record = folder.path().join("record").display().to_string();
    let line = [program.to_str().unwrap(), "-1", "0"];
    let trace = Trace::of_program(&profile, &["--record", &record], &line, "").unwrap();
    gave_up(
        trace.pid(),
        READING | CAP_KILL,
        &["reqtrace", "recorder", "output"],
    );
    let outcome = trace.signal(libc::SIGTERM).unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
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
    assert_eq!(refused.code, Some(2), "{}", refused.printed());
    for words in ["several users", "root (pids", "--user USER"] {
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
    }
    assert_eq!(traced.code, Some(0), "{}", traced.printed());
}

const WORKERS: u64 = 200;
const TIMES: u64 = 5;

/// A profile of the workers of `master`, in a folder with their program: the profile, the program.
fn workers(folder: &Path) -> (PathBuf, String) {
    let program = fixtures::compile("short", folder).unwrap();
    let profile = folder.join("short.toml");
    let text = "[profile]\nname = \"workers\"\nexecutables = [\"short\"]\n\n[[request]]\n\
                name = \"work\"\nbegin = { function = \"work\" }\n";
    std::fs::write(&profile, text).unwrap();
    (profile, program.display().to_string())
}

/// All workers are traced, each from its first request on but for the first one, which waits for that; the master
/// has none, and gives the trace its name.
fn are_followed(outcome: &Outcome, program: &str, master: Option<u32>) {
    assert_eq!(complete(outcome, None), (WORKERS + 1) * TIMES);
    let rows = outcome.rows().unwrap();
    assert_eq!(rows.len() as u64, (WORKERS + 1) * TIMES);
    let mut processes: Vec<u32> = rows.iter().map(|row| row.pid).collect();
    processes.sort_unstable();
    processes.dedup();
    assert_eq!(processes.len() as u64, WORKERS + 1);
    assert!(master.is_none_or(|master| !processes.contains(&master)));
    let printed = outcome.printed();
    let runs = format!("runs {program}, which no profile is made for (workers for short)");
    for words in [&*runs, "those that will are traced", "1 process got probes"] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    let mut lines = outcome.stdout.lines();
    let head = lines.find(|line| line.contains(" · ")).unwrap();
    assert!(head.contains("workers · master (pid"), "{head}");
    assert!(
        head.contains(&format!("and {} more", WORKERS + 1)),
        "{head}"
    );
}

#[test]
fn workers_that_are_programs_of_their_own_are_followed() {
    let folder = workspace::scratch().unwrap();
    let (profile, program) = workers(folder.path());
    let line = [&*program, &WORKERS.to_string(), &TIMES.to_string()];
    let mut master = Fixture::start("master", &line).unwrap();
    let trace = Trace::start(&profile, master.pid(), &[]).unwrap();
    master.work().unwrap();
    are_followed(&trace.finish().unwrap(), "master", Some(master.pid()));
    master.end().unwrap();

    // Started by reqtrace: the master is behind `--`, and a shell before it.
    let master = fixtures::compile("master", folder.path()).unwrap();
    let command = format!("exec {} {}", master.display(), line.join(" "));
    let line = ["sh", "-c", &command];
    let outcome = Trace::of_program(&profile, &[], &line, "go")
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    are_followed(&outcome, "dash", None);
}

/// A script is no program of any profile, and has no markers; the worker runs when the trace begins.
#[test]
fn a_worker_that_runs_already_is_followed_and_its_master_may_be_a_script() {
    let folder = workspace::scratch().unwrap();
    let (profile, program) = workers(folder.path());
    let script = folder.path().join("start.sh");
    std::fs::write(
        &script,
        format!("#!/bin/sh\n\"{program}\" {TIMES} 0 $1\nexit 0\n"),
    )
    .unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = script.to_str().unwrap();
    let mut master = std::process::Command::new(script)
        .arg("10000")
        .spawn()
        .unwrap();
    let children = format!("/proc/{0}/task/{0}/children", master.id());
    let began = std::time::Instant::now();
    while std::fs::read_to_string(&children)
        .unwrap_or_default()
        .is_empty()
    {
        assert!(began.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(5));
    }
    let outcome = Trace::start(&profile, master.id(), &[])
        .unwrap()
        .wait()
        .unwrap();
    master.wait().unwrap();
    assert_eq!(complete(&outcome, None), TIMES);
    assert!(
        outcome.stderr.contains("are traced, 1 now"),
        "{}",
        outcome.stderr
    );
    let outcome = Trace::of_program(&profile, &[], &[script, "1000"], "")
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(complete(&outcome, None), TIMES);
}

/// None of its requests can be seen: it is counted that there was such a process.
#[test]
fn a_worker_without_the_markers_is_counted() {
    let folder = workspace::scratch().unwrap();
    let (profile, program) = workers(folder.path());
    std::fs::copy(workspace::program("sleep").unwrap(), &program).unwrap();
    let line = ["sh", "-c", &format!("\"{program}\" 1; exit 0")];
    let outcome = Trace::of_program(&profile, &[], &line, "")
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(outcome.rows().unwrap().len(), 0);
    let printed = outcome.printed();
    assert!(printed.contains("1 processes_unprobed"), "{printed}");
}

/// Apache runs a CGI program for each request, by a process of its own (`mod_cgid`).
struct Cgi {
    apache: Apache,
    profile: PathBuf,
    _folder: TempDir,
}

impl Cgi {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        fixtures::compile("page", folder.path()).unwrap();
        let profile = folder.path().join("page.toml");
        let text = "[profile]\nname = \"cgi\"\nexecutables = [\"page\"]\n\n[[request]]\n\
                    name = \"page\"\nbegin = { function = \"page\" }\n";
        std::fs::write(&profile, text).unwrap();
        let more = format!(
            "ScriptSock {0}/cgi.sock\nScriptAlias /cgi/ {0}/\n",
            folder.path().display()
        );
        Self {
            apache: Apache::start_with("event", &["alias", "cgid"], &more).unwrap(),
            profile,
            _folder: folder,
        }
    }

    /// Gets so many pages, each of which takes so many milliseconds.
    fn get(&self, pages: u64, milliseconds: u64) {
        let port = self.apache.port();
        let url = format!("http://127.0.0.1:{port}/cgi/page?{milliseconds}&{pages}");
        let mut ab = std::process::Command::new(workspace::program("ab").unwrap());
        let printed = process::run(ab.args(["-n", &pages.to_string(), "-c", "2", &url])).unwrap();
        assert!(printed.contains("Failed requests:        0"), "{printed}");
    }
}

#[test]
fn cgi_programs_of_apache_are_followed() {
    const PAGES: u64 = 60;
    let cgi = Cgi::start();
    let trace = Trace::start(&cgi.profile, cgi.apache.pid(), &[]).unwrap();
    // The first one has its probes while it sleeps; those that come after it have them from their start.
    cgi.get(2, 1500);
    cgi.get(PAGES, 0);
    let outcome = trace.finish().unwrap();
    assert_eq!(complete(&outcome, None), PAGES + 2, "{}", outcome.printed());
    let head = outcome.stdout.lines().next().unwrap().to_owned();
    assert!(
        head.contains(&format!("apache2 (pid {})", cgi.apache.pid())),
        "{head}"
    );
}

/// Each process leaves before the markers of its program are found, and is counted; those that come after that have
/// probes.
#[test]
fn programs_that_leave_at_once_are_traced_from_the_first_on_that_has_probes() {
    const PAGES: u64 = 300;
    let cgi = Cgi::start();
    let trace = Trace::start(&cgi.profile, cgi.apache.pid(), &[]).unwrap();
    cgi.get(PAGES, 0);
    let outcome = trace.finish().unwrap();
    let rows = outcome.rows().unwrap();
    let seen = rows.iter().filter(|row| row.complete).count() as u64;
    for row in rows.iter().filter(|row| !row.complete) {
        println!("{row:?}");
    }
    let summary: serde_json::Value =
        serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let losses = summary["losses"].as_array().unwrap();
    let is_unprobed = |loss: &&serde_json::Value| loss["name"] == "processes_unprobed";
    let unprobed = losses.iter().find(is_unprobed);
    let unprobed = unprobed.map_or(0, |loss| loss["count"].as_u64().unwrap());
    let late = summary["trace"]["late_children"]["count"].as_u64().unwrap();
    println!("{seen} seen, {unprobed} unprobed, {late} late");
    assert!(seen > PAGES / 2, "{}", outcome.printed());
    assert!(seen + unprobed <= PAGES && seen + unprobed + late >= PAGES);
}

/// `--comm NAME --wait` is typed before the server is started.
#[test]
fn a_process_is_waited_for_by_its_name() {
    let name = format!("late-{}", std::process::id());
    let profile = shop::profile();
    let folder = workspace::scratch().unwrap();
    let line = ["--profile", profile.to_str().unwrap(), "--comm", &name];
    let refused = reqtrace::run(reqtrace::command(line).unwrap()).unwrap();
    assert_eq!(refused.code, Some(2), "{}", refused.printed());
    assert!(
        refused.stderr.contains("--wait waits"),
        "{}",
        refused.stderr
    );
    let csv = folder.path().join("rows.csv");
    let line = [&line[..], &["--wait", "--csv", csv.to_str().unwrap()]].concat();
    let command = reqtrace::command(line).unwrap();
    let mut trace = Child::start(command, folder.path(), "reqtrace").unwrap();
    let printed = format!("waiting for a process named `{name}`");
    trace
        .wait_for_line(Stream::Err, "reqtrace: waiting", LIMIT)
        .unwrap();
    assert!(trace.output(Stream::Err).contains(&printed));
    let shop = Shop::open_as(&name).unwrap();
    trace.wait_for_line(Stream::Err, "tracing ", LIMIT).unwrap();
    assert_eq!(shop.load(2, 30).unwrap(), 30);
    trace.signal(libc::SIGINT).unwrap();
    assert_eq!(trace.wait(LIMIT).unwrap().code(), Some(0));
    let rows = std::fs::read_to_string(&csv).unwrap();
    assert_eq!(rows.lines().count(), 31, "{}", trace.output(Stream::Err));

    // Nothing was traced.
    let line = [
        "--profile",
        profile.to_str().unwrap(),
        "--comm",
        "none-of-it",
        "--wait",
    ];
    let command = reqtrace::command(line).unwrap();
    let mut trace = Child::start(command, folder.path(), "none").unwrap();
    trace
        .wait_for_line(Stream::Err, "reqtrace: waiting", LIMIT)
        .unwrap();
    trace.signal(libc::SIGINT).unwrap();
    assert_eq!(trace.wait(LIMIT).unwrap().code(), Some(1));
    let printed = trace.output(Stream::Err);
    assert!(
        printed.contains("interrupted before anything was traced"),
        "{printed}"
    );
}
