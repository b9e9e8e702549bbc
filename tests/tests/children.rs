//! What requests make and wait for, with `children = true`: each task and goroutine that a request makes has a ledger of its
//! own, and a request that waits for it waited for what that waited for.
//!
//! Needs root, a kernel with BPF, and Go.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use reqtrace_tests::blamed;
use reqtrace_tests::go;
use reqtrace_tests::process::{Child, Stream};
use reqtrace_tests::reqtrace::{self, Outcome, Trace};
use reqtrace_tests::tasks;
use reqtrace_tests::workspace;

const LIMIT: Duration = Duration::from_secs(60);

/// Tasks of which each makes one that sleeps, and waits for it.
const TASKS: &str = r#"
[profile]
name = "parents"
[runtime]
kind = "tokio"
[[request]]
name = "parent"
unit = "*alone::has_a_child*"
children = true
"#;

/// What a goroutine does that makes three and waits for them, of which one makes another one.
const WITHIN: &str = r#"
[profile]
name = "parents"
[runtime]
kind = "go"
[[request]]
name = "parent"
key = "unit"
begin = { function = "main.request" }
end = { function = "main.request", at = "return" }
children = true
"#;

/// The same, as the goroutine that it is.
const WHOLE: &str = r#"
[profile]
name = "parents"
[runtime]
kind = "go"
[[request]]
name = "parent"
unit = "main.whole"
children = true
"#;

const PARENTS: &str = "parent";
const CHILDREN: &str = "parent children";

/// How long each waits at least for what sleeps, ns: tasks, and goroutines.
const TASK_SLEEPS_NS: u64 = 3_000_000;
const NAP_NS: u64 = 5_000_000;

/// Requests that are traced in Go, by so many workers.
const WORKERS: u64 = 4;
const REQUESTS: u64 = 50;

/// Children of one, of which two sleep.
const OF_ONE: u64 = 4;

/// Checks how many there are, and that those who wait for children wait for a timer, and for them.
fn checked(outcome: &Outcome, counts: [u64; 2], direct: u64, waits_in: &str, is_known: bool) {
    let summary = outcome.checked().unwrap();
    for (name, count) in [(PARENTS, counts[0]), (CHILDREN, counts[1])] {
        let request = summary.request(name).unwrap();
        assert_eq!(
            [request.count, request.begins, request.ends],
            [count; 3],
            "{name}: {}",
            outcome.printed()
        );
        assert!(request.incomplete.is_empty(), "{}", outcome.printed());
    }
    assert_eq!(summary.request(PARENTS).unwrap().children, Some(direct));
    let (_, rows) = blamed::of(outcome).unwrap();
    let of_wait = |fits: &dyn Fn(&blamed::Blamed) -> bool| {
        blamed::sum(&rows, |row| {
            row.victim_request == PARENTS && row.wait_class == waits_in && fits(row)
        })
    };
    let all = of_wait(&|_| true);
    let followed = of_wait(&|row| row.culprit_request == CHILDREN);
    let timer = of_wait(&|row| row.culprit_request == CHILDREN && row.root_cause == "timer");
    let unknown = of_wait(&|row| row.root_cause == "unknown");
    println!(
        "of {all} ns in {waits_in}: {followed} for children, {timer} for their timers, {unknown} not known"
    );
    assert!(all > 0, "{rows:#?}");
    if !is_known {
        assert_eq!(unknown, all, "{rows:#?}");
        return;
    }
    assert!(followed * 100 >= all * 95, "{followed} of {all}: {rows:#?}");
    // The rest of it they waited for a CPU, more on a busy machine.
    assert!(timer * 2 >= all, "{timer} of {all}: {rows:#?}");
    assert!(unknown * 100 <= all * 5, "{unknown} of {all}: {rows:#?}");
}

#[test]
fn a_task_waited_for_what_its_child_waited_for() {
    const JOBS: u64 = 100;
    let folder = workspace::scratch().unwrap();
    let profile = folder.path().join("parents.toml");
    fs::write(&profile, TASKS).unwrap();
    for runtime in ["multi", "current"] {
        let program = workspace::tasks().unwrap();
        let (outcome, lines) =
            tasks::trace_of(&program, &profile, runtime, JOBS, &["--blame"]).unwrap();
        let parents = lines.iter().filter(|line| line.kind == "has_a_child");
        let parents = parents.count() as u64;
        // A runtime with one thread has no function of its own that runs tasks.
        let is_known = runtime == "multi";
        checked(
            &outcome,
            [parents; 2],
            parents,
            "parked: tokio join",
            is_known,
        );
        let rows = outcome.rows().unwrap();
        let children = rows.iter().filter(|row| row.request == CHILDREN);
        // The time of one runs from before it is spawned, while it may be queued.
        let slept: u64 = children
            .map(|row| row.places["tokio_timer"] + row.queued_ns)
            .sum();
        assert!(
            slept * 10 >= parents * TASK_SLEEPS_NS * 8,
            "{slept} ns: {rows:#?}"
        );
    }
}

#[test]
fn a_task_of_a_program_that_is_started_waited_for_its_child() {
    const JOBS: u64 = 100;
    let folder = workspace::scratch().unwrap();
    let [profile, log, data] = ["parents.toml", "log", "data"].map(|name| folder.path().join(name));
    fs::write(&profile, TASKS).unwrap();
    let (program, jobs) = (workspace::tasks().unwrap(), JOBS.to_string());
    let [program, log_name, data] = [&program, &log, &data].map(|path| path.to_str().unwrap());
    let mut line = vec![program, "jobs", "--runtime", "multi", "--jobs", &jobs];
    line.extend(["--log", log_name, "--data", data]);
    let options = ["--blame", "--max-overhead", "100"];
    let trace = Trace::of_program(&profile, &options, &line, "go\nend\n").unwrap();
    let outcome = trace.wait().unwrap();
    let lines = tasks::read(&fs::read_to_string(&log).unwrap()).unwrap();
    let parents = lines.iter().filter(|line| line.kind == "has_a_child");
    let parents = parents.count() as u64;
    checked(&outcome, [parents; 2], parents, "parked: tokio join", true);
}

/// Traces the program that makes goroutines.
fn trace(program: &Path, profile: &str) -> Outcome {
    let folder = workspace::scratch().unwrap();
    let path = folder.path().join("parents.toml");
    fs::write(&path, profile).unwrap();
    let mut command = Command::new(program);
    command.args([&WORKERS.to_string(), &REQUESTS.to_string()]);
    let mut process = Child::start(command, folder.path(), "parents").unwrap();
    process.wait_for_line(Stream::Out, "ready", LIMIT).unwrap();
    let trace = Trace::start(&path, process.pid(), &["--blame"]).unwrap();
    process.tell("go").unwrap();
    process.wait_for_line(Stream::Out, "done", LIMIT).unwrap();
    trace.finish().unwrap()
}

#[test]
fn a_goroutine_waited_for_what_its_children_waited_for() {
    // The older one has one reason for whatever waits for a semaphore.
    let programs = [
        (go::program("parents", false), "parked: semacquire"),
        (
            go::program_by_newest("parents", false),
            "parked: sync.WaitGroup.Wait",
        ),
    ];
    for (program, waits_in) in programs {
        let program = program.unwrap();
        for profile in [WITHIN, WHOLE] {
            let outcome = trace(&program, profile);
            let all = WORKERS * REQUESTS;
            // A child's child is no child of the request.
            checked(
                &outcome,
                [all, all * OF_ONE],
                all * (OF_ONE - 1),
                waits_in,
                true,
            );
            let rows = outcome.rows().unwrap();
            let naps = rows.iter().filter(|row| row.request == CHILDREN);
            let naps = naps.map(|row| row.places["time.Sleep"]);
            let naps: Vec<u64> = naps.filter(|ns| *ns > 0).collect();
            let slept: u64 = naps.iter().sum();
            assert_eq!(naps.len() as u64, all * 2, "{}", outcome.printed());
            assert!(slept * 10 >= all * 2 * NAP_NS * 9, "{slept} ns");
        }
    }
}

#[test]
fn children_of_what_is_no_unit_are_refused() {
    let folder = workspace::scratch().unwrap();
    let profile = folder.path().join("p.toml");
    let text = "[profile]\nname = \"p\"\n[[request]]\nname = \"r\"\nbegin = { function = \"main\" }\nchildren = true\n";
    fs::write(&profile, text).unwrap();
    let mut command = reqtrace::command(["check", "--profile"]).unwrap();
    command.arg(&profile).arg(workspace::tasks().unwrap());
    let output = command.output().unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(
        printed.contains("p.toml:6:12: ") && printed.contains("tied to none"),
        "{printed}"
    );
}
