//! Tasks of tokio as requests: every job once and within its own clocks, what they waited for, and for whom.
//!
//! Needs root and a kernel with BPF.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use reqtrace_tests::blamed;
use reqtrace_tests::jobs::{self, Traced};
use reqtrace_tests::process::{Child, Stream};
use reqtrace_tests::reqtrace::{self, Outcome};
use reqtrace_tests::rows::{self, Row};
use reqtrace_tests::summary::Summary;
use reqtrace_tests::task_checks;
use reqtrace_tests::tasks::{self, Line};
use reqtrace_tests::workspace;

/// Jobs of each kind, of which one in twenty panics.
const JOBS: u64 = 100;

const LIMIT: Duration = Duration::from_secs(60);

/// How long a job computes, and at least keeps one that is starved from the only thread, ns.
const BUSY_NS: u64 = 2_000_000;

/// Checks counts and brackets of all jobs.
pub(crate) fn checked(outcome: &Outcome, lines: &[Line], of_each: u64) -> Traced {
    let traced = Traced::of(outcome).unwrap();
    task_checks::every_job(&traced, lines, of_each).unwrap();
    traced
}

/// What the jobs of a kind sum up to.
fn sum(rows: &[Row], kind: &str, of: impl Fn(&Row) -> u64) -> u64 {
    let of_kind = rows.iter().filter(|row| row.attributes["kind"] == kind);
    of_kind.map(of).sum()
}

fn every_job_is_a_request(runtime: &str) {
    let (outcome, lines) = tasks::trace(runtime, JOBS, &[]).unwrap();
    let traced = checked(&outcome, &lines, JOBS);
    let rows = &traced.rows;
    let mut parked_at_most: BTreeMap<&str, i128> = BTreeMap::new();
    for line in &lines {
        *parked_at_most.entry(&line.kind).or_default() += line.parked.most;
    }
    for kind in [
        "sleeps",
        "locks",
        "receives",
        "acquires",
        "asks",
        "syncs",
        "queues",
        "has_a_child",
    ] {
        let parked = i128::from(sum(rows, kind, |row| row.parked_ns));
        // The rest lies between clocks and markers.
        assert!(
            parked * 10 > parked_at_most[kind] * 8,
            "{kind}: {parked} of {parked_at_most:?}"
        );
        let on_thread = sum(rows, kind, |row| {
            row.latency_ns - row.parked_ns - row.queued_ns
        });
        let latency = sum(rows, kind, |row| row.latency_ns);
        assert!(on_thread * 2 < latency, "{kind}: {on_thread} of {latency}");
    }
    for row in rows
        .iter()
        .filter(|row| row.attributes["kind"] == "computes")
    {
        let on_thread = row.latency_ns - row.parked_ns - row.queued_ns;
        assert!(on_thread >= BUSY_NS && row.parked_ns == 0, "{row:?}");
    }
    if runtime == "current" {
        // The only thread was busy behind the spawn.
        let starved = rows
            .iter()
            .filter(|row| row.attributes["kind"] == "starves");
        for row in starved {
            assert!(row.queued_ns >= BUSY_NS && row.parked_ns == 0, "{row:?}");
        }
    }
    let printed = outcome.printed();
    assert!(
        printed.contains("     waited for the runtime "),
        "{printed}"
    );
    task_checks::reasons_and_stacks(&traced).unwrap();
    task_checks::blocking_jobs(&traced, JOBS).unwrap();
}

#[test]
fn every_job_is_a_request_on_many_threads() {
    every_job_is_a_request("multi");
}

#[test]
fn every_job_is_a_request_on_one_thread() {
    every_job_is_a_request("current");
}

#[test]
fn fewer_probes_tell_the_same_jobs_without_reasons() {
    let program = workspace::tasks().unwrap();
    let profile = tasks::profile("tasks.toml:cheap");
    for runtime in ["multi", "current"] {
        let (outcome, lines) = tasks::trace_of(&program, &profile, runtime, JOBS, &[]).unwrap();
        let traced = checked(&outcome, &lines, JOBS);
        let row = traced.rows.first().unwrap();
        let places: Vec<&String> = row.places.keys().collect();
        assert_eq!(places, ["waited_for_the_runtime"]);
    }
}

/// With `-v` each stack that is remembered is walked too, and a difference is a loss, of which there is none.
#[test]
fn stacks_at_markers_that_are_remembered_are_those_that_a_walk_finds() {
    for runtime in ["multi", "current"] {
        let (outcome, lines) = tasks::trace(runtime, JOBS, &["-v", "--blame"]).unwrap();
        checked(&outcome, &lines, JOBS);
        let remembered = outcome.stderr.lines().find_map(|line| {
            let (before, _) = line.split_once(" stacks at markers were remembered")?;
            before.rsplit(' ').next()?.parse::<u64>().ok()
        });
        assert!(
            remembered.is_some_and(|count| count > JOBS),
            "{}",
            outcome.printed()
        );
    }
}

/// A task that blocks its thread stays on it, whoever serves the runtime meanwhile, and goes on elsewhere after its next wait.
#[test]
fn a_job_that_blocks_its_thread_in_place_is_blocked_there() {
    const BLOCKS_NS: u64 = 3_000_000;
    const KINDS: usize = 5;
    let (outcome, lines) = tasks::trace_blocking(JOBS, &["--blame"]).unwrap();
    let traced = Traced::of(&outcome).unwrap();
    task_checks::threads_held_up(&traced, &outcome.blame().unwrap()).unwrap();
    assert_eq!(lines.len(), KINDS * JOBS as usize);
    let counted: u64 = traced.summary.requests.iter().map(|of| of.count).sum();
    assert_eq!(counted, KINDS as u64 * JOBS);
    let offset = traced.summary.trace.monotonic_to_unix_ns;
    tasks::check(&lines, &traced.rows, offset).unwrap();
    let jobs = traced.rows.iter();
    let jobs = jobs.filter(|row| row.attributes["kind"] == "blocks");
    let is_right = |row: &&Row| {
        let blocked = row.latency_ns - row.parked_ns - row.queued_ns - row.on_cpu_ns;
        blocked >= BLOCKS_NS && row.parked_ns > 0
    };
    // Some kernels hide a switch now and then, which is counted.
    let right = jobs.filter(is_right).count() as u64;
    assert!(right * 100 >= JOBS * 95, "{right}: {}", outcome.printed());
}

/// What `check` says of a profile with this `[[request]]` and a program.
fn refused(requests: &str, program: &Path) -> String {
    let folder = workspace::scratch().unwrap();
    let profile = folder.path().join("p.toml");
    let head = "[profile]\nname = \"p\"\n[runtime]\nkind = \"tokio\"\n";
    fs::write(&profile, format!("{head}{requests}")).unwrap();
    let mut command = reqtrace::command(["check", "--profile"]).unwrap();
    let output = command.arg(&profile).arg(program).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{requests}");
    String::from_utf8(output.stderr).unwrap()
}

fn unit(name: &str, pattern: &str) -> String {
    format!("[[request]]\nname = \"{name}\"\nunit = \"{pattern}\"\n")
}

#[test]
fn what_cannot_be_found_in_a_program_is_reported() {
    let program = workspace::tasks().unwrap();
    let printed = refused(&unit("a", "*no_such_job*"), &program);
    assert!(
        printed.contains("no type of task of ") && printed.contains("tasks::http::connection"),
        "{printed}"
    );
    let both = unit("a", "*jobs::holders*") + &unit("b", "*Measured<*");
    let printed = refused(&both, &program);
    assert!(
        printed.contains("would be requests of `a` and of `b`"),
        "{printed}"
    );
    let printed = refused(&(unit("a", "*") + &unit("b", "*sleeps*")), &program);
    assert!(
        printed.contains("would be requests of `a` and of `b`"),
        "{printed}"
    );
    let printed = refused(&unit("a", "*"), &workspace::bakery().unwrap());
    assert!(
        printed.contains("no function of tokio is in it"),
        "{printed}"
    );
    let folder = workspace::scratch().unwrap();
    let stripped = folder.path().join("stripped");
    let mut strip = Command::new(workspace::program("strip").unwrap());
    assert!(
        strip
            .arg("-o")
            .arg(&stripped)
            .arg(&program)
            .status()
            .unwrap()
            .success()
    );
    let printed = refused(&unit("a", "*sleeps*"), &stripped);
    assert!(
        printed.contains("no name tells the types of its tasks"),
        "{printed}"
    );
    // Between functions nothing can be found there, and whole tasks can.
    let within = "[[request]]\nname = \"a\"\nkey = \"unit\"\nbegin = { function = \"tasks::begin\" }\n\
                  end = { function = \"tasks::end\" }\n";
    let printed = refused(within, &stripped);
    assert!(
        printed.contains("no function symbols") && printed.contains("whole tasks need no names"),
        "{printed}"
    );
    let mut command = reqtrace::command(["functions", "--as-profile"]).unwrap();
    let output = command.arg(&stripped).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("unit = \"*\""), "{text}");
}

#[test]
fn a_profile_for_tasks_is_proposed_and_counts_them() {
    let program = workspace::tasks().unwrap();
    let mut command = reqtrace::command(["functions", "--as-profile"]).unwrap();
    let output = command.arg(&program).arg("jobs::alone::").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("kind = \"tokio\""), "{text}");
    assert!(!text.contains("begin ="), "{text}");
    let folder = workspace::scratch().unwrap();
    let profile = folder.path().join("proposed.toml");
    fs::write(&profile, text).unwrap();
    let (outcome, lines) = tasks::trace_of(&program, &profile, "multi", JOBS, &[]).unwrap();
    let summary = outcome.checked().unwrap();
    let sleeps = summary.request("sleeps").unwrap();
    let all = lines.iter().filter(|line| line.kind == "sleeps").count() as u64;
    assert_eq!([sleeps.count, sleeps.begins, sleeps.ends], [all; 3]);
}

/// Without a pattern each task is a request, which has its type: of each kind of job as many as there were.
#[test]
fn a_profile_of_all_tasks_is_proposed_without_a_pattern() {
    let program = workspace::tasks().unwrap();
    let mut command = reqtrace::command(["functions", "--as-profile"]).unwrap();
    let output = command.arg(&program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "kind = \"tokio\"",
        "unit = \"*\"",
        "# Its tasks have these types:",
        "#   unit = \"tasks::",
    ] {
        assert!(text.contains(part), "no {part}: {text}");
    }
    let folder = workspace::scratch().unwrap();
    let profile = folder.path().join("proposed.toml");
    fs::write(&profile, text).unwrap();
    let more = ["--group-by", "type"];
    let (outcome, lines) = tasks::trace_of(&program, &profile, "multi", JOBS, &more).unwrap();
    outcome.checked().unwrap();
    let rows = outcome.rows().unwrap();
    let of_type = |row: &&Row| row.attributes["type"].contains("::sleeps::");
    let sleeps = rows.iter().filter(of_type).count();
    let all = lines.iter().filter(|line| line.kind == "sleeps").count();
    assert_eq!(sleeps, all);
    // What is no program of a runtime needs a pattern.
    let shop = workspace::shop().unwrap();
    let mut command = reqtrace::command(["functions", "--as-profile"]).unwrap();
    let output = command.arg(&shop).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(
        printed.contains("neither goroutines nor tasks") && printed.contains("'*' for everything"),
        "{printed}"
    );
}

/// More types fit than a profile has room for, and some that the linker may have made one of: what is left out is named.
#[test]
fn what_is_proposed_of_many_tasks_is_accepted_and_the_rest_is_named() {
    const MOST: usize = 16;
    let program = workspace::tasks().unwrap();
    let folder = workspace::scratch().unwrap();
    for pattern in ["tasks::measured*", "alone"] {
        let mut command = reqtrace::command(["functions", "--as-profile"]).unwrap();
        let output = command.arg(&program).arg(pattern).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let requests = text.matches("\n[[request]]").count();
        assert!((1..=MOST).contains(&requests), "{text}");
        let profile = folder.path().join("proposed.toml");
        fs::write(&profile, &text).unwrap();
        let mut command = reqtrace::command(["check", "--profile"]).unwrap();
        let output = command.arg(&profile).arg(&program).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{text}{output:?}");
        if pattern != "alone" {
            assert_eq!(requests, MOST, "{text}");
            let reason = format!("a profile has at most {MOST} request types");
            assert!(
                text.contains("# Left out:") && text.contains(&reason),
                "{text}"
            );
        }
        assert!(!text.contains("drop_in_place"), "{text}");
        assert!(!text.contains("also looks for a key"), "{text}");
    }
}

#[test]
fn a_request_of_one_thread_in_a_program_of_tasks_is_warned_of() {
    let folder = workspace::scratch().unwrap();
    let profile = folder.path().join("unkeyed.toml");
    let text = "[profile]\nname = \"unkeyed\"\n[[request]]\nname = \"job\"\nbegin = { function = \"main\" }\n";
    fs::write(&profile, text).unwrap();
    let running = tasks::start("multi", 1).unwrap();
    let mut command = reqtrace::command(["check", "--profile"]).unwrap();
    let output = command
        .arg(&profile)
        .args(["-p", &running.pid().to_string()])
        .output()
        .unwrap();
    let printed =
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    assert!(
        printed.contains("has tasks of tokio") && printed.contains("kind = \"tokio\""),
        "{printed}"
    );
}

/// Its requests begin a moment after its exec, which is still to be taken note of then: they are of the new program.
#[test]
fn a_program_that_is_started_has_its_first_jobs_traced() {
    const FEW: u64 = 8;
    for _ in 0..6 {
        let folder = workspace::scratch().unwrap();
        let (out, log) = (folder.path().join("out"), folder.path().join("log"));
        let mut command = reqtrace::command(["--max-overhead", "100", "--profile"]).unwrap();
        command
            .arg(tasks::profile("tasks.toml"))
            .arg("--out")
            .arg(&out);
        command.arg("--").arg(workspace::tasks().unwrap());
        command.args(["jobs", "--runtime", "multi", "--jobs", &FEW.to_string()]);
        command
            .arg("--log")
            .arg(&log)
            .arg("--data")
            .arg(folder.path().join("data"));
        let mut child = Child::start(command, folder.path(), "reqtrace").unwrap();
        // The program has the same input.
        child.tell("go").unwrap();
        child.tell("end").unwrap();
        let status = child.wait(LIMIT).unwrap();
        let printed = child.output(Stream::Out) + &child.output(Stream::Err);
        assert!(status.success(), "{status}: {printed}");
        let summary =
            Summary::read(&fs::read_to_string(out.join("summary.json")).unwrap()).unwrap();
        let rows = rows::read(&fs::read_to_string(out.join("requests.csv")).unwrap()).unwrap();
        assert_eq!(summary.lost(), 0, "{printed}");
        let lines = tasks::read(&fs::read_to_string(&log).unwrap()).unwrap();
        assert_eq!(lines.len() as u64, FEW * tasks::KINDS as u64);
        tasks::check(&lines, &rows, summary.trace.monotonic_to_unix_ns)
            .unwrap_or_else(|error| panic!("{error:#}\n{printed}"));
    }
}

#[test]
fn who_has_what_a_job_waits_for_held_it_up() {
    for runtime in ["multi", "current"] {
        let (outcome, lines) = tasks::trace(runtime, JOBS, &["--blame"]).unwrap();
        let traced = checked(&outcome, &lines, JOBS);
        let blamed = outcome.blame().unwrap();
        task_checks::held_up(&traced, &blamed).unwrap();
        task_checks::timers(&traced, &blamed).unwrap();
        task_checks::threads_of_the_pool(&traced, &blamed).unwrap();
        task_checks::upstream(&blamed, JOBS).unwrap();
        blamed::sockets_known(&blamed, "asker", "parked: tokio socket", jobs::SOCKETS).unwrap();
        task_checks::queued(&traced, runtime == "current", JOBS).unwrap();
    }
}

/// More than ten times as many tasks are woken as those that the jobs wait for.
#[test]
fn who_held_a_job_up_is_known_beside_unrelated_traffic() {
    const PAIRS: usize = 12;
    for runtime in ["multi", "current"] {
        let (outcome, lines) = tasks::trace_beside(runtime, JOBS, PAIRS).unwrap();
        let traced = checked(&outcome, &lines, JOBS);
        let blamed = outcome.blame().unwrap();
        task_checks::held_up(&traced, &blamed).unwrap();
        task_checks::timers(&traced, &blamed).unwrap();
        task_checks::upstream(&blamed, JOBS).unwrap();
        blamed::sockets_known(&blamed, "asker", "parked: tokio socket", jobs::SOCKETS).unwrap();
    }
}
