//! A program in Go whose stacks grow, shrink and move, with the collector and the CPU profiler always at work, and with calls to C and
//! back: all of its tasks are requests, and its results are right, also if tracers come and go.
//!
//! Needs root, a kernel with BPF, Go and a C compiler.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use reqtrace_tests::go;
use reqtrace_tests::process::{Child, Stream};
use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::workspace;

const LIMIT: Duration = Duration::from_secs(180);

const WORKERS: u64 = 4;

/// Tasks of each of them.
const TASKS: u64 = 1000;

const TASK: &str = r#"
[profile]
name = "stress"
[runtime]
kind = "go"
[[request]]
name = "task"
key = "unit"
begin = { function = "main.task" }
end = { function = "main.task", at = "return" }
"#;

/// A task that goes through channels makes so many goroutines, and does so twice.
const HOPS: u64 = 8;

const UNITS: &str = r#"
[profile]
name = "stress-units"
[runtime]
kind = "go"
[[request]]
name = "hop"
unit = "main.hop"
[[request]]
name = "worker"
unit = "main.worker"
"#;

struct Running {
    process: Child,
    folder: TempDir,
}

/// The program by Debian's Go, and by the newest one: that has coroutines, too.
fn programs() -> [PathBuf; 2] {
    [go::program, go::program_by_newest].map(|build| build("stress", true).unwrap())
}

impl Running {
    fn start(program: &Path, amount: &str) -> Self {
        let folder = workspace::scratch().unwrap();
        let mut command = Command::new(program);
        command.args([&WORKERS.to_string(), amount]);
        let mut process = Child::start(command, folder.path(), "stress").unwrap();
        process.wait_for_line(Stream::Out, "ready", LIMIT).unwrap();
        Self { process, folder }
    }

    fn trace(&self, profile: &str) -> Trace {
        let path = self.folder.path().join("stress.toml");
        fs::write(&path, profile).unwrap();
        // It does nothing but tasks: as many as the machine can.
        Trace::start(&path, self.process.pid(), &["--yes"]).unwrap()
    }

    /// Waits until all is done, and checks its results. How many tasks there were, and of how many kinds.
    fn done(&mut self, limit: Duration) -> (u64, u64) {
        let line = self.process.wait_for_line(Stream::Out, "done ", limit);
        let line = line.unwrap();
        assert!(
            line.contains(" tasks, 0 wrong: ") && line.contains(" callbacks"),
            "{line}{}",
            self.process.output(Stream::Err)
        );
        let all = line.strip_prefix("done ").unwrap();
        let (tasks, kinds) = all.split_once(" tasks, 0 wrong: ").unwrap();
        (
            tasks.parse().unwrap(),
            kinds.split_whitespace().count() as u64,
        )
    }
}

/// A request type, how many there are, and how many goroutines of other types they start.
type Wanted = (&'static str, u64, u64);

/// Goroutines that the runtime may start in a request: those of its collector.
const OF_THE_RUNTIME: u64 = 8;

/// How many goroutines tasks make.
fn hops(kinds: u64) -> u64 {
    // The second kind of tasks goes through channels, and tasks have numbers from 0 on.
    let hopping = (0..WORKERS * TASKS).filter(|number| number % kinds == 1);
    hopping.count() as u64 * HOPS
}

/// Traces all tasks; the counts of these request types are to be as many.
fn all_are_requests(profile: &str, wanted: impl Fn(u64) -> Vec<Wanted>) {
    let kinds = programs().map(|program| all_are_requests_of(&program, profile, &wanted));
    // The coroutines.
    assert_eq!(kinds[1], kinds[0] + 1);
}

/// The same of one program. How many kinds of tasks it has.
fn all_are_requests_of(program: &Path, profile: &str, wanted: impl Fn(u64) -> Vec<Wanted>) -> u64 {
    let mut running = Running::start(program, &TASKS.to_string());
    let trace = running.trace(profile);
    running.process.tell("go").unwrap();
    let (tasks, kinds) = running.done(LIMIT);
    assert_eq!(tasks, WORKERS * TASKS);
    let outcome = trace.finish().unwrap();
    let summary = outcome.checked().unwrap();
    for (name, wanted, children) in wanted(kinds) {
        let request = summary.request(name).unwrap();
        assert_eq!(
            [request.count, request.begins, request.ends],
            [wanted; 3],
            "{name}: {}",
            outcome.printed()
        );
        assert_eq!(
            (request.unknown_keys, request.running_elsewhere),
            (Some(0), Some(0))
        );
        assert!(request.incomplete.is_empty(), "{}", outcome.printed());
        // The runtime itself starts some in whatever goroutine needs them first.
        let spawned = request.children.unwrap();
        assert!(
            (children..=children + OF_THE_RUNTIME).contains(&spawned),
            "{name}: {spawned} children, not {children}"
        );
    }
    kinds
}

#[test]
fn every_task_is_a_request_however_its_stack_moves() {
    all_are_requests(TASK, |kinds| vec![("task", WORKERS * TASKS, hops(kinds))]);
}

#[test]
fn every_goroutine_is_a_request_however_its_stack_moves() {
    all_are_requests(UNITS, |kinds| {
        let hops = hops(kinds);
        vec![("worker", WORKERS, hops), ("hop", hops, 0)]
    });
}

/// Traces the newest so often while it works for so long, and checks its results.
fn tracers_come_and_go(cycles: usize, lasting: &str, limit: Duration) {
    let [_, newest] = programs();
    let mut running = Running::start(&newest, lasting);
    running.process.tell("go").unwrap();
    let mut requests = 0;
    for cycle in 0..cycles {
        let (profile, name) = [(TASK, "task"), (UNITS, "hop")][cycle % 2];
        let trace = running.trace(profile);
        let outcome = trace.finish().unwrap();
        let summary = outcome.checked().unwrap();
        requests += summary.request(name).unwrap().count;
    }
    let (tasks, _) = running.done(limit);
    println!("{requests} requests in {cycles} traces of {tasks} tasks, none wrong");
    assert!(tasks > 0 && requests > 0, "{requests} of {tasks}");
}

#[test]
fn tracers_come_and_go_and_no_result_is_another_one() {
    tracers_come_and_go(6, "8s", LIMIT);
}

#[test]
#[ignore = "ten minutes: cargo xtask test --all"]
fn two_hundred_tracers_come_and_go_in_ten_minutes() {
    tracers_come_and_go(200, "600s", Duration::from_secs(900));
}
