//! Sessions: services whose processes are replaced while they are traced. Each request is counted that the
//! service's own log has, and what a process took that has left is used by those that come.
//!
//! Needs root, a kernel with BPF and g++.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use reqtrace_tests::fixtures;
use reqtrace_tests::process::{Child, Held, Stream};
use reqtrace_tests::reqtrace::{self, Outcome, Trace};
use reqtrace_tests::workspace;

const LIMIT: Duration = Duration::from_secs(60);
/// After that nothing is kept of a process that has left, nor of files that only it had mapped.
const FORGOTTEN: Duration = Duration::from_secs(7);
/// Each request is recorded, whatever that costs beside other tests.
const ALL: &[&str] = &["--max-overhead", "100"];

/// Complete rows, by process; nothing was lost, and there is no other row.
fn complete(outcome: &Outcome) -> (u64, usize) {
    outcome.checked().unwrap();
    let rows = outcome.rows().unwrap();
    let odd = rows.iter().find(|row| !row.complete);
    assert!(odd.is_none(), "{odd:?}\n{}", outcome.printed());
    let mut processes: Vec<u32> = rows.iter().map(|row| row.pid).collect();
    processes.sort_unstable();
    processes.dedup();
    (rows.len() as u64, processes.len())
}

/// The number in the last word of a line.
fn number(line: &str) -> u64 {
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// The tracer holds what it held, whatever has been replaced meanwhile; its tables of what it has seen may have grown,
/// by less than 6 KiB for each of 1,400 processes.
fn holds(before: Held, now: Held) {
    println!("{before:?} → {now:?}");
    assert!(
        now.descriptors <= before.descriptors + 4,
        "{before:?} {now:?}"
    );
    assert!(
        now.resident_kib <= before.resident_kib + (8 << 10),
        "{before:?} {now:?}"
    );
}

/// 8 workers, each of which is replaced after 20 requests, 2,000 times.
#[test]
fn workers_are_replaced_two_thousand_times() {
    const REPLACED: usize = 2000;
    let folder = workspace::scratch().unwrap();
    let program = fixtures::compile("workers", folder.path()).unwrap();
    let profile = folder.path().join("workers.toml");
    fixtures::write_profile(&profile, "work", "work", "").unwrap();
    let mut command = Command::new(program);
    command.args(["8", &REPLACED.to_string(), "20"]);
    let mut service = Child::start(command, folder.path(), "workers").unwrap();
    service.wait_for_line(Stream::Out, "ready", LIMIT).unwrap();
    // Rows for a device are made at once: events that wait for an idle CPU would count as memory.
    let options = [ALL, &["--windows", "/dev/null"]].concat();
    let trace = Trace::start_without_page(&profile, service.pid(), &options).unwrap();
    service.tell("go").unwrap();
    let left = |service: &mut Child, tenths: usize| {
        let line = format!("left {}", REPLACED / 10 * tenths);
        service.wait_for_line(Stream::Out, &line, LIMIT).unwrap();
        Held::by(trace.pid()).unwrap()
    };
    let (before, after) = (left(&mut service, 3), left(&mut service, 10));
    let done = service.wait_for_line(Stream::Out, "done", LIMIT).unwrap();
    holds(before, after);
    let outcome = trace.finish().unwrap();
    assert_eq!(complete(&outcome), (number(&done), REPLACED));
    assert_eq!(number(&done), 20 * REPLACED as u64);
}

/// The service `workers alone`, and a profile of it, in a folder.
struct Service<'a> {
    folder: &'a Path,
    program: PathBuf,
    profile: PathBuf,
    /// Processes that were started.
    started: Cell<u32>,
    /// Requests in the logs of all that have ended.
    logged: u64,
}

impl<'a> Service<'a> {
    fn new(folder: &'a Path) -> Self {
        let profile = folder.join("service.toml");
        fixtures::write_profile(&profile, "work", "work", "").unwrap();
        Self {
            folder,
            program: fixtures::compile("workers", folder).unwrap(),
            profile,
            started: Cell::new(0),
            logged: 0,
        }
    }

    /// A process of it that serves so many requests when it is asked to.
    fn waiting(&self, times: u64) -> Child {
        let mut child = self.start(&[&times.to_string(), "wait"]);
        child.wait_for_line(Stream::Out, "ready", LIMIT).unwrap();
        child
    }

    fn start(&self, words: &[&str]) -> Child {
        let mut command = Command::new(&self.program);
        command.arg("alone").args(words);
        self.started.set(self.started.get() + 1);
        let name = format!("service-{}", self.started.get());
        Child::start(command, self.folder, &name).unwrap()
    }

    /// Lets one serve and end.
    fn serve(&mut self, mut child: Child) {
        child.tell("go").unwrap();
        self.end(child);
    }

    fn end(&mut self, mut child: Child) {
        assert!(child.wait(LIMIT).unwrap().success());
        let printed = child.output(Stream::Out);
        self.logged += number(printed.trim_end());
    }

    /// Installs another version: the same program in a new file at the same path.
    fn replace(&self) {
        let new = self.program.with_extension("new");
        std::fs::copy(&self.program, &new).unwrap();
        std::fs::rename(&new, &self.program).unwrap();
    }
}

/// Each of its processes is traced from its first instruction: none waits for the tracer.
#[test]
fn a_service_is_restarted_fifty_times() {
    const TIMES: u64 = 40;
    let folder = workspace::scratch().unwrap();
    let mut service = Service::new(folder.path());
    let first = service.waiting(TIMES);
    // One that came before it by another way is of the same program.
    let second = service.waiting(TIMES);
    let trace = Trace::of_exe(&service.profile, &service.program, ALL).unwrap();
    service.serve(first);
    service.serve(second);
    let mut restarted = |rounds: usize| {
        for _ in 0..rounds {
            let next = service.start(&[&TIMES.to_string()]);
            service.end(next);
        }
        Held::by(trace.pid()).unwrap()
    };
    let (before, after) = (restarted(20), restarted(30));
    let logged = service.logged;
    let outcome = trace.finish().unwrap();
    holds(before, after);
    assert_eq!(complete(&outcome), (logged, 52));
    assert_eq!(logged, 52 * TIMES);
    assert!(
        !outcome.printed().contains("got probes"),
        "{}",
        outcome.printed()
    );
}

/// The new file has no probes before its first process: that one waits for them here. Those after it have them
/// from their start.
#[test]
fn a_service_is_restarted_as_another_version() {
    const TIMES: u64 = 30;
    const VERSIONS: usize = 12;
    let folder = workspace::scratch().unwrap();
    let mut service = Service::new(folder.path());
    let first = service.waiting(TIMES);
    let trace = Trace::of_exe(
        &service.profile,
        &service.program,
        &["-vv", "--max-overhead", "100"],
    );
    let mut trace = trace.unwrap();
    let mut before = None;
    service.serve(first);
    for version in 1..=VERSIONS {
        // One of the old version goes on meanwhile.
        let old = service.waiting(TIMES);
        service.replace();
        let new = service.waiting(TIMES);
        let probed = format!("reqtrace: process {} (workers) has probes", new.pid());
        trace.wait_for_line(&probed).unwrap();
        service.serve(new);
        service.serve(old);
        let next = service.start(&[&TIMES.to_string()]);
        service.end(next);
        if version == VERSIONS / 3 {
            std::thread::sleep(FORGOTTEN);
            before = Some(Held::by(trace.pid()).unwrap());
        }
    }
    std::thread::sleep(FORGOTTEN);
    let (before, after) = (before.unwrap(), Held::by(trace.pid()).unwrap());
    let logged = service.logged;
    let outcome = trace.finish().unwrap();
    assert_eq!(complete(&outcome), (logged, 1 + 3 * VERSIONS));
    assert_eq!(logged, TIMES * (1 + 3 * VERSIONS as u64));
    holds(before, after);
}

/// A program that is not there, that nobody runs, or that is started later.
#[test]
fn a_program_is_waited_for_and_a_wrong_one_is_refused() {
    let folder = workspace::scratch().unwrap();
    let mut service = Service::new(folder.path());
    let (profile, program) = (service.profile.clone(), service.program.clone());
    let (profile, program) = (profile.to_str().unwrap(), program.to_str().unwrap());
    let refused = |words: &[&str]| {
        let line = [&["--profile", profile], words].concat();
        let outcome = reqtrace::run(reqtrace::command(line).unwrap()).unwrap();
        assert_eq!(outcome.code, Some(2), "{}", outcome.printed());
        outcome.stderr
    };
    let printed = refused(&["--exe", program]);
    assert!(
        printed.contains(&format!("no process runs {program}")),
        "{printed}"
    );
    assert!(printed.contains("--wait, which waits"), "{printed}");
    let printed = refused(&["--exe", "/none/of/it", "--wait"]);
    assert!(
        printed.contains("--exe /none/of/it cannot be looked at"),
        "{printed}"
    );
    let printed = refused(&["--exe", "/usr"]);
    assert!(printed.contains("--exe /usr is no file"), "{printed}");
    let printed = refused(&["--wait", "-p", "1"]);
    assert!(
        printed.contains("add --comm NAME or --exe PATH"),
        "{printed}"
    );

    let rows = folder.path().join("rows.csv");
    let csv = rows.to_str().unwrap();
    let line = [
        "--profile",
        profile,
        "--exe",
        program,
        "--wait",
        "--csv",
        csv,
    ];
    let command = reqtrace::command(line).unwrap();
    let mut trace = Child::start(command, folder.path(), "reqtrace").unwrap();
    let printed = format!("reqtrace: waiting for a process that runs {program}");
    trace.wait_for_line(Stream::Err, &printed, LIMIT).unwrap();
    let first = service.waiting(25);
    trace.wait_for_line(Stream::Err, "tracing ", LIMIT).unwrap();
    service.serve(first);
    trace.signal(libc::SIGINT).unwrap();
    assert_eq!(trace.wait(LIMIT).unwrap().code(), Some(0));
    let rows = std::fs::read_to_string(rows).unwrap();
    assert_eq!(rows.lines().count() as u64, 1 + service.logged);
}

/// 400 workers in half a second, in which those that have left are still known: as many as the smallest tables have no
/// room for, and larger ones do.
#[test]
fn tables_grow_with_the_memory_that_they_are_given() {
    let folder = workspace::scratch().unwrap();
    let program = fixtures::compile("workers", folder.path()).unwrap();
    let profile = folder.path().join("workers.toml");
    fixtures::write_profile(&profile, "work", "work", "").unwrap();
    let traced = |memory: &str| {
        let mut command = Command::new(&program);
        command.args(["20", "400", "20"]);
        let mut service = Child::start(command, folder.path(), "workers").unwrap();
        service.wait_for_line(Stream::Out, "ready", LIMIT).unwrap();
        let options = [ALL, &["--memory", memory]].concat();
        let trace = Trace::start(&profile, service.pid(), &options).unwrap();
        service.tell("go").unwrap();
        let done = service.wait_for_line(Stream::Out, "done", LIMIT).unwrap();
        (trace.finish().unwrap(), number(&done))
    };
    let (small, logged) = traced("2MB");
    let losses = small.summary().unwrap().losses;
    let full = |name: &str| losses.iter().any(|loss| loss.name == name);
    assert!(full("process_table_full"), "{losses:?}");
    assert!((small.rows().unwrap().len() as u64) < logged);
    let (large, logged) = traced("16MB");
    assert_eq!(complete(&large), (logged, 400));

    // Those that find no room are looked for again and again, as all of a watched program are, and counted once.
    let mut command = Command::new(&program);
    command.args(["300", "300", "2000"]);
    let mut service = Child::start(command, folder.path(), "workers").unwrap();
    service.wait_for_line(Stream::Out, "ready", LIMIT).unwrap();
    let options = [ALL, &["--memory", "2MB"]].concat();
    let trace = Trace::of_exe(&profile, &program, &options).unwrap();
    service.tell("go").unwrap();
    let done = service.wait_for_line(Stream::Out, "done", LIMIT).unwrap();
    let outcome = trace.finish().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let losses = outcome.summary().unwrap().losses;
    let full = losses
        .iter()
        .find(|loss| loss.name == "process_table_full")
        .unwrap();
    // Once by the kernel at the fork, and once by who looks for them.
    assert!((1..=2 * 300).contains(&full.count), "{losses:?}");
    let rows = outcome.rows().unwrap().len() as u64;
    assert!(rows > 0 && rows < number(&done), "{rows} of {done}");

    let (profile, own) = (profile.to_str().unwrap(), std::process::id().to_string());
    for (memory, words) in [
        ("1MB", "give 2MB to"),
        ("2", "200MB or 1GB"),
        ("9GX", "200MB or 1GB"),
    ] {
        let line = ["--profile", profile, "-p", &own, "--memory", memory];
        let outcome = reqtrace::run(reqtrace::command(line).unwrap()).unwrap();
        assert_eq!(outcome.code, Some(2), "{}", outcome.printed());
        assert!(outcome.stderr.contains(words), "{}", outcome.stderr);
    }
}
