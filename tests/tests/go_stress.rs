//! A program in Go whose stacks grow, shrink and move, with the collector and the CPU profiler always at work, and with calls to C and
//! back: all of its tasks are requests, and its results are right, also if tracers come and go.
//!
//! Needs root, a kernel with BPF, Go and a C compiler.

use std::fs;
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

impl Running {
    fn start(amount: &str) -> Self {
        let folder = workspace::scratch().unwrap();
        let mut command = Command::new(go::program("stress", true).unwrap());
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

/// Traces all tasks; the counts of these request types are to be as many.
fn all_are_requests(profile: &str, wanted: impl Fn(u64) -> Vec<(&'static str, u64)>) {
    let mut running = Running::start(&TASKS.to_string());
    let trace = running.trace(profile);
    running.process.tell("go").unwrap();
    let (tasks, kinds) = running.done(LIMIT);
    assert_eq!(tasks, WORKERS * TASKS);
    let outcome = trace.finish().unwrap();
    let summary = outcome.checked().unwrap();
    for (name, wanted) in wanted(kinds) {
        let request = summary.request(name).unwrap();
        assert_eq!(
            [request.count, request.begins, request.ends],
            [wanted; 3],
            "{name}: {}",
            outcome.said()
        );
        assert_eq!(
            (request.unknown_keys, request.running_elsewhere),
            (Some(0), Some(0))
        );
        assert!(request.incomplete.is_empty(), "{}", outcome.said());
    }
}

#[test]
fn every_task_is_a_request_however_its_stack_moves() {
    all_are_requests(TASK, |_| vec![("task", WORKERS * TASKS)]);
}

#[test]
fn every_goroutine_is_a_request_however_its_stack_moves() {
    // The second kind of tasks goes through channels, and tasks have numbers from 0 on.
    all_are_requests(UNITS, |kinds| {
        let hopping = (0..WORKERS * TASKS).filter(|number| number % kinds == 1);
        vec![("worker", WORKERS), ("hop", hopping.count() as u64 * HOPS)]
    });
}

/// Traces it so often while it works for so long, and checks its results.
fn tracers_come_and_go(cycles: usize, lasting: &str, limit: Duration) {
    let mut running = Running::start(lasting);
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
    tracers_come_and_go(15, "20s", LIMIT);
}

#[test]
#[ignore = "ten minutes: cargo xtask test --all"]
fn two_hundred_tracers_come_and_go_in_ten_minutes() {
    tracers_come_and_go(200, "600s", Duration::from_secs(900));
}
