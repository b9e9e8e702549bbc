//! The gate before anything is attached: what would cost too much or do harm is refused, says why,
//! and leaves nothing behind.
//!
//! Needs root and a kernel with BPF, redis-server, mariadb-server and sysbench.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::goroutines;
use reqtrace_tests::jobs::Running;
use reqtrace_tests::load;
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::probed::Code;
use reqtrace_tests::process::Child;
use reqtrace_tests::reqtrace::{self, Outcome, Trace};
use reqtrace_tests::servers::Server;
use reqtrace_tests::sysbench::Sysbench;
use reqtrace_tests::tasks;
use reqtrace_tests::workspace;

/// Held by tests that load the machine: what they expect holds for one of them at a time.
static LOADED: Mutex<()> = Mutex::new(());

/// Traces for half a second, with more options.
fn trace(profile: &Path, pid: u32, more: &[&str]) -> Outcome {
    let mut command = reqtrace::command(["--profile"]).unwrap();
    command.arg(profile).args(["-p", &pid.to_string()]);
    reqtrace::run({
        command.args(more).arg("0.5");
        command
    })
    .unwrap()
}

#[track_caller]
fn refused(outcome: &Outcome, words: &[&str]) {
    refused_with_counts(outcome, words);
    assert_eq!(outcome.stdout, "");
}

/// The same, with what was counted until then.
fn refused_with_counts(outcome: &Outcome, words: &[&str]) {
    assert_eq!(outcome.code, Some(2), "{}", outcome.printed());
    for word in words {
        assert!(outcome.stderr.contains(word), "{word}: {}", outcome.stderr);
    }
    assert!(outcome.stderr.contains("next: "), "{}", outcome.stderr);
    let begun = outcome.stderr.lines().any(|l| l.starts_with("tracing "));
    assert!(!begun, "{}", outcome.stderr);
}

const COSTLY: [&str; 3] = ["times a second", "--max-probe-rate allows", "--yes"];

#[test]
fn a_function_that_is_called_all_the_time_is_refused_and_nothing_stays_behind() {
    let _alone = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut fixture = Fixture::start("spinner", &["plain"]).unwrap();
    let profile = fixture.profile("work", "nest").unwrap();
    let code = Code::of_function(fixture.pid(), "work(long)").unwrap();
    fixture.work().unwrap();
    let outcome = trace(&profile, fixture.pid(), &[]);
    refused(&outcome, &COSTLY);
    assert!(!code.is_probed().unwrap(), "a probe was left behind");
    // Its requests are nothing but traps: recording fewer of them would not help.
    assert!(
        !outcome.stderr.contains("(--sample 1/"),
        "{}",
        outcome.stderr
    );

    // Whoever insists, or allows any cost, gets it.
    for options in [["--yes"].as_slice(), &["--max-probe-rate", "100"]] {
        let outcome = trace(&profile, fixture.pid(), options);
        assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
        assert!(
            !outcome.stderr.contains("max-probe-rate"),
            "{}",
            outcome.stderr
        );
        assert!(outcome.stdout.contains("work"), "{}", outcome.printed());
        assert!(!code.is_probed().unwrap(), "a probe was left behind");
    }
    fixture.end().unwrap();
}

#[test]
fn an_idle_program_is_traced_whatever_its_function_is() {
    let fixture = Fixture::start("spinner", &["plain"]).unwrap();
    let profile = fixture.profile("work", "nest").unwrap();
    let trace = Trace::start(&profile, fixture.pid(), &["--max-probe-rate", "1%"]).unwrap();
    let code = Code::of_function(fixture.pid(), "work(long)").unwrap();
    assert!(code.is_probed().unwrap());
    let outcome = trace.finish().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    assert!(!code.is_probed().unwrap(), "a probe was left behind");
    fixture.end().unwrap();
}

#[test]
fn the_gate_is_quick_when_nothing_is_hit() {
    let fixture = Fixture::start("spinner", &["plain"]).unwrap();
    let profile = fixture.profile("work", "nest").unwrap();
    let outcome = trace(&profile, fixture.pid(), &["-v"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let line = outcome
        .stderr
        .lines()
        .find(|line| line.contains("counted for "));
    let line = line.unwrap_or_else(|| panic!("{}", outcome.stderr));
    let milliseconds = line.rsplit("counted for ").next().unwrap();
    let milliseconds: u64 = milliseconds.trim_end_matches(" ms").parse().unwrap();
    // 0.15 s, and what a busy machine adds; under load it would be 0.5 s.
    assert!(milliseconds < 400, "{line}");
    fixture.end().unwrap();
}

/// It was refused for 56 % once, and tracing took 4.7 % of its throughput.
#[test]
fn a_process_that_mostly_sleeps_is_not_refused_on_a_busy_machine() {
    let _alone = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut fixture = Fixture::start("spinner", &["napping"]).unwrap();
    let profile = fixture.profile("work", "nest").unwrap();
    fixture.work().unwrap();
    let outcome = load::beside(std::hint::spin_loop, || {
        load::beside(std::hint::spin_loop, || {
            trace(&profile, fixture.pid(), &["-v"])
        })
    });
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let line = outcome
        .stderr
        .lines()
        .find(|line| line.contains(" times a second: "));
    assert!(line.is_some(), "{}", outcome.stderr);
    fixture.end().unwrap();
}

#[test]
fn counting_is_stopped_when_it_costs_too_much_and_the_function_is_named() {
    let _alone = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut fixture = Fixture::start("spinner", &["plain"]).unwrap();
    fixture.work().unwrap();
    let code = Code::of_function(fixture.pid(), "work(long)").unwrap();
    let pid = fixture.pid().to_string();
    let count = |more: &[&str]| {
        let mut command =
            reqtrace::command(["functions", "-p", &pid, "work*", "--object", "*spinner"]).unwrap();
        reqtrace::run({
            command.args(more);
            command
        })
        .unwrap()
    };
    let outcome = count(&["--count", "30"]);
    refused_with_counts(&outcome, &["counting is stopped", "work(long)", "--yes"]);
    let counted = "1 of 1 were hit";
    assert!(outcome.stdout.contains(counted), "{}", outcome.stdout);
    assert!(!code.is_probed().unwrap(), "a probe was left behind");
    for options in [["--yes"].as_slice(), &["--max-probe-rate", "100"]] {
        let outcome = count(&[&["--count", "0.5"], options].concat());
        assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
        assert!(
            outcome.stdout.contains("1 of 1 were hit"),
            "{}",
            outcome.stdout
        );
    }
    fixture.end().unwrap();
}

#[test]
fn redis_with_pipelined_commands_is_refused_unless_one_insists() {
    let _alone = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let server = Server::redis_without_file().unwrap();
    let folder = workspace::scratch().unwrap();
    let mut load = Command::new(workspace::program("redis-benchmark").unwrap());
    load.arg("-s").arg(server.socket());
    load.args([
        "-t",
        "get",
        "-n",
        "1000000000",
        "-c",
        "20",
        "-P",
        "16",
        "-q",
    ]);
    let _load = Child::start(load, folder.path(), "load").unwrap();
    // The load runs when commands are processed.
    std::thread::sleep(std::time::Duration::from_secs(1));
    let profile = Path::new("redis.toml");
    // It would take 57 to 72 %, which is near the default limit on a slow machine.
    let limit = ["--max-probe-rate", "30"];
    refused(&trace(profile, server.pid(), &limit), &COSTLY);
    let outcome = trace(profile, server.pid(), &["--yes"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    assert!(outcome.stdout.contains("command"), "{}", outcome.printed());
}

#[test]
fn mariadb_under_a_full_load_of_transactions_passes() {
    let _alone = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let server = MariaDb::open().unwrap();
    let sysbench = Sysbench::prepare(&server, 2, 5_000).unwrap();
    let transactions = || sysbench.run(8, 2_000).map(drop).unwrap();
    let outcome = load::beside(transactions, || {
        std::thread::sleep(std::time::Duration::from_millis(500));
        trace(Path::new("mysql.toml"), server.pid(), &["-v"])
    });
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    // It was measured under load.
    let measured = outcome.stderr.lines().find_map(|line| {
        let (before, _) = line.split_once(" times a second")?;
        before
            .rsplit(' ')
            .next()?
            .replace(',', "")
            .parse::<u64>()
            .ok()
    });
    assert!(measured > Some(1000), "{}", outcome.stderr);
}

/// Each switch of a unit is a trap, whether the unit is a request or not.
#[test]
fn switches_of_a_runtime_are_counted_by_the_gate() {
    let _alone = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = ["--max-probe-rate", "0.1"];
    let busy = |running: Running, profile: &Path| {
        let mut running = running;
        running.begin().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        refused(&trace(profile, running.pid(), &limit), &COSTLY);
    };
    let tokio = tasks::start_beside("multi", 1_000_000, 12).unwrap();
    busy(tokio, &tasks::profile("tasks.toml"));
    let program = goroutines::program().unwrap();
    let go = goroutines::start_beside(&program, 1_000_000, 12).unwrap();
    busy(go, &goroutines::profile("units.toml"));
}

#[test]
fn a_go_program_is_refused_and_a_uretprobe_on_it_always() {
    let fixture = Fixture::start("golike", &[]).unwrap();
    let profile = fixture.profile("work", "nest").unwrap();
    refused(
        &trace(&profile, fixture.pid(), &[]),
        &["Go program", "--yes"],
    );
    let outcome = trace(&profile, fixture.pid(), &["--yes"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    assert!(outcome.stderr.contains("Go program"), "{}", outcome.stderr);
    let profile = uretprobe_profile(&fixture, "work");
    for options in [["--yes"].as_slice(), &[]] {
        refused(
            &trace(&profile, fixture.pid(), options),
            &["Go program", "return-probe"],
        );
    }
    fixture.end().unwrap();
}

#[test]
fn a_uretprobe_where_fibers_are_is_refused_and_where_exceptions_are_is_warned_of() {
    let fibers = Fixture::start("fibers", &["8", "500"]).unwrap();
    let profile = uretprobe_profile(&fibers, "step");
    refused(
        &trace(&profile, fibers.pid(), &[]),
        &["swapcontext", "--yes"],
    );
    // Without a uretprobe it is a warning, which names request and function, also with -q.
    let profile = fibers.profile("step", "nest").unwrap();
    let outcome = trace(&profile, fibers.pid(), &["-q"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let printed = &outcome.stderr;
    assert!(printed.contains("request `work`, `step"), "{printed}");
    assert!(printed.contains("swapcontext"), "{printed}");
    drop(fibers);

    let thrower = Fixture::start("thrower", &["1", "1", "near"]).unwrap();
    let profile = uretprobe_profile(&thrower, "handle");
    let outcome = trace(&profile, thrower.pid(), &[]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    assert!(outcome.stderr.contains("__cxa_throw"), "{}", outcome.stderr);
}

/// On a kernel with the fix a filtered process gets its uretprobe and lives; on one without it
/// would be refused. That this kernel has the fix is tried, as reqtrace does.
#[test]
fn a_filtered_process_survives_its_uretprobe() {
    let mut fixture = Fixture::start("spinner", &["filtered"]).unwrap();
    let profile = uretprobe_profile(&fixture, "work");
    let trace = Trace::start(&profile, fixture.pid(), &["--yes"]).unwrap();
    fixture.work().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    let outcome = trace.finish().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    assert!(outcome.summary().unwrap().request("work").unwrap().count > 0);
    fixture.end().unwrap();
}

fn uretprobe_profile(fixture: &Fixture, function: &str) -> std::path::PathBuf {
    let path = fixture.profile(function, "restart").unwrap();
    let more = "return-probe = \"uretprobe\"\n";
    reqtrace_tests::fixtures::write_profile(&path, "work", function, more).unwrap();
    path
}
