//! Goroutines as what requests are in: every job once and within its own clocks, what it waited for; requests of net/http;
//! what is not found in a program.
//!
//! Needs root, a kernel with BPF, and Go.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use reqtrace_tests::blamed::{self, Blamed};
use reqtrace_tests::goroutine_checks;
use reqtrace_tests::goroutines;
use reqtrace_tests::http::{ab, ab_mean};
use reqtrace_tests::jobs::Traced;
use reqtrace_tests::reqtrace::{self, Outcome, Trace};
use reqtrace_tests::workspace;

/// Jobs of each kind, of which one in twenty panics.
const JOBS: u64 = 100;

/// How long a job computes, ns.
const BUSY_NS: u64 = 2_000_000;

/// How long a job has at least what another one waits for, which may begin to wait a moment later, ns.
const HELD_NS: u64 = 2_000_000;

fn every_job_is_a_request(program: &Path) {
    let (outcome, lines) = goroutines::trace("goroutines.toml", program, JOBS, &[]).unwrap();
    let traced = Traced::of(&outcome).unwrap();
    goroutine_checks::every_call(&traced, &lines, JOBS).unwrap();
    let of_kind = |kind: &str| {
        let kind = kind.to_owned();
        let rows = traced.rows.iter().filter(|row| row.complete);
        rows.filter(move |row| row.attributes["kind"] == kind)
    };
    for kind in [
        "holds",
        "sends",
        "locks",
        "receives",
        "sleeps",
        "asks",
        "expires",
        "deadlines",
        "acquires",
        "reads",
        "awaits",
        "joins",
    ] {
        let latency: u64 = of_kind(kind).map(|row| row.latency_ns).sum();
        let away: u64 = of_kind(kind).map(|row| row.parked_ns + row.queued_ns).sum();
        // The rest is the work of the job, and what the kernel gave others.
        assert!(away * 10 > latency * 7, "{kind}: {away} of {latency}");
    }
    let (mut latency, mut on_thread) = (0, 0);
    for row in of_kind("computes") {
        // By the clock, so that it may lose its turn meanwhile.
        assert!(row.latency_ns >= BUSY_NS, "{row:?}");
        latency += row.latency_ns;
        on_thread += row.latency_ns - row.parked_ns - row.queued_ns;
    }
    assert!(on_thread * 2 > latency, "{on_thread} of {latency}");
    for row in of_kind("yields") {
        assert!(row.queued_ns > 0, "{row:?}");
    }
    // A goroutine in a system call stays on its thread, and blocks as the kernel says.
    let blocked: u64 = of_kind("syncs").map(|row| row.blocked_ns).sum();
    let disk: u64 = of_kind("syncs")
        .filter_map(|row| row.classes.get("disk"))
        .sum();
    assert!(
        blocked > 0 && disk as f64 >= 0.95 * blocked as f64,
        "{disk} of {blocked}"
    );
    // So does one that waits for a lock of the kernel's.
    let blocked: u64 = of_kind("contends").map(|row| row.blocked_ns).sum();
    let lock: u64 = of_kind("contends")
        .filter_map(|row| row.classes.get("lock"))
        .sum();
    assert!(
        lock >= JOBS * HELD_NS && lock as f64 >= 0.95 * blocked as f64,
        "{lock} of {blocked}"
    );
    let printed = outcome.printed();
    assert!(
        printed.contains("     waited for the runtime "),
        "{printed}"
    );
    goroutine_checks::reasons_and_stacks(&traced).unwrap();
}

#[test]
fn every_job_is_a_request_of_its_goroutine() {
    every_job_is_a_request(&goroutines::program().unwrap());
}

#[test]
fn every_job_is_a_request_in_a_stripped_program() {
    every_job_is_a_request(&goroutines::stripped().unwrap());
}

#[test]
fn every_job_is_a_request_by_the_newest_go() {
    let newest = goroutines::VERSIONS.last().unwrap();
    by_version(newest);
}

/// Toolchains that only `cargo xtask test --all` installs.
#[test]
#[ignore]
fn every_job_is_a_request_by_each_version_of_go() {
    for version in goroutines::VERSIONS {
        by_version(version);
    }
}

/// Jobs, their culprits and requests of `net/http`, in a program by this version of Go; and jobs in a stripped one.
fn by_version(version: &str) {
    let program = goroutines::build_by_version(version, &[]).unwrap();
    println!("Go {version}: {}", program.display());
    every_job_is_a_request(&program);
    held_up(&program);
    each_request_of_net_http("go-http.toml", &program);
    every_job_is_a_request(&goroutines::build_by_version(version, &["-ldflags=-s -w"]).unwrap());
}

/// What every tenth request of a client asks for, each in turn, and whether that is answered; see `http.go` of the example. By half
/// of them the handler is left.
const LEAVES: [(&str, bool); 4] = [
    ("/panics", false),
    ("/recovers", true),
    ("/repanics", false),
    ("/twice", true),
];

/// One client: this many requests, of which each tenth panics. Returns how many were answered.
fn ask(port: u16, requests: u64) -> u64 {
    let mut leaves = LEAVES.iter().cycle();
    let mut answered = 0;
    for number in 0..requests {
        let path = if number % 10 == 9 {
            leaves.next().unwrap().0
        } else {
            "/1"
        };
        answered += u64::from(is_answered(port, path));
    }
    answered
}

/// Asks for a path. A handler that is left by a panic leaves nothing but the end of its connection.
pub(crate) fn is_answered(port: u16, path: &str) -> bool {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: go\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
}

#[test]
fn requests_of_net_http_are_counted_whatever_their_connections_do() {
    each_request_of_net_http("go-http.toml", &goroutines::program().unwrap());
}

#[test]
fn fewer_probes_count_the_same_requests_of_net_http() {
    each_request_of_net_http("go-http.toml:cheap", &goroutines::program().unwrap());
}

fn each_request_of_net_http(profile: &str, program: &Path) {
    const CLIENTS: u64 = 4;
    const REQUESTS: u64 = 400;
    const BY_AB: u64 = 600;
    const ALONE: u64 = 200;
    let (server, port) = goroutines::server(program).unwrap();
    let profile = workspace::root().join("profiles").join(profile);
    let trace = Trace::start(&profile, server.pid(), &["--labels", "--before"]).unwrap();
    ab(port, "/1", BY_AB, 8, &[]).unwrap();
    ab(port, "/0", BY_AB, 8, &["-k"]).unwrap();
    // One at a time, which a client waits for alone.
    let by_client = ab_mean(port, "/3", ALONE, 1, &["-k"]).unwrap();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| thread::spawn(move || ask(port, REQUESTS)))
        .collect();
    let answered: u64 = clients
        .into_iter()
        .map(|client| client.join().unwrap())
        .sum();
    // The goroutines of connections end a moment after them.
    thread::sleep(Duration::from_millis(200));
    let outcome = trace.finish().unwrap();
    let summary = outcome.checked().unwrap();
    let http = summary.request("http").unwrap();
    // Of each as many.
    let panics = CLIENTS * REQUESTS / 10;
    let of_each = panics / LEAVES.len() as u64;
    let all = CLIENTS * REQUESTS;
    let unanswered = LEAVES
        .iter()
        .filter(|(_, is_answered)| !is_answered)
        .count() as u64;
    assert_eq!(answered, all - unanswered * of_each);
    let all = 2 * BY_AB + ALONE + all;
    assert_eq!(
        [http.count, http.begins, http.ends],
        [all; 3],
        "{}",
        outcome.printed()
    );
    assert!(http.incomplete.is_empty(), "{}", outcome.printed());
    assert_eq!(
        (http.unknown_keys, http.running_elsewhere),
        (Some(0), Some(0))
    );
    let rows = outcome.rows().unwrap();
    let of_path = |path: &'static str| {
        let rows = rows.iter();
        rows.filter(move |row| row.attributes["path"] == path)
    };
    assert_eq!(of_path("/0").count() as u64, BY_AB);
    let by_clients = CLIENTS * REQUESTS - panics;
    assert_eq!(of_path("/1").count() as u64, BY_AB + by_clients);
    for (path, is_answered) in LEAVES {
        assert_eq!(of_path(path).count() as u64, of_each, "{path}");
        // One that recovers inside goes on for 2 ms behind that.
        let least = if is_answered { 2_000_000 } else { 0 };
        let short = of_path(path).find(|row| row.latency_ns < least);
        assert!(short.is_none(), "{path}: {short:?}");
    }
    let latencies: Vec<u64> = of_path("/3").map(|row| row.latency_ns).collect();
    assert_eq!(latencies.len() as u64, ALONE);
    let by_client = by_client.as_nanos() as f64 * ALONE as f64;
    let covered = latencies.iter().sum::<u64>() as f64 / by_client;
    // The server reads the request before it calls the handler.
    let before: u64 = of_path("/3").filter_map(|row| row.waited_before_ns).sum();
    let with_before = covered + before as f64 / by_client;
    println!("{covered:.3}, {with_before:.3} with the wait before, of what a client waited for");
    // The rest is the client.
    assert!(
        covered <= 1.0 && (0.9..=1.0).contains(&with_before),
        "{covered}, {with_before}"
    );
    assert!(rows.iter().all(|row| row.attributes["method"] == "GET"));
    for row in of_path("/1") {
        // It sleeps for 1 ms.
        let away = row.latency_ns - row.on_cpu_ns;
        assert!(away >= 900_000 && row.parked_ns > 0, "{row:?}");
    }
}

/// What `check` says of a profile with this `[[request]]` and a program.
fn refused(requests: &str, program: &Path) -> String {
    let folder = workspace::scratch().unwrap();
    let profile = folder.path().join("p.toml");
    let head = "[profile]\nname = \"p\"\n[runtime]\nkind = \"go\"\n";
    fs::write(&profile, format!("{head}{requests}")).unwrap();
    let mut command = reqtrace::command(["check", "--profile"]).unwrap();
    let output = command.arg(&profile).arg(program).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{requests}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn who_has_what_a_job_waits_for_held_it_up() {
    held_up(&goroutines::program().unwrap());
}

type Check = fn(&Traced, &[Blamed]) -> anyhow::Result<()>;

/// Profiles by kinds, and the check of who waits for which other job there.
const BY_KINDS: [(&str, Check); 2] = [
    ("kinds.toml", goroutine_checks::held_up_by_kinds),
    ("pairs.toml", goroutine_checks::held_up_by_pairs),
];

fn held_up(program: &Path) {
    held_up_in(|profile| goroutines::trace(profile, program, JOBS, &["--blame"]));
}

fn held_up_in(trace: impl Fn(&str) -> anyhow::Result<(Outcome, Vec<goroutines::Line>)>) {
    for (profile, check) in BY_KINDS {
        let (outcome, _) = trace(profile).unwrap();
        let traced = Traced::of(&outcome).unwrap();
        let (_, blamed) = blamed::of(&outcome).unwrap();
        check(&traced, &blamed).unwrap();
    }
}

/// More than ten times as many goroutines are woken as those that the jobs wait for.
#[test]
fn who_held_a_job_up_is_known_beside_unrelated_traffic() {
    const PAIRS: usize = 8;
    let program = goroutines::program().unwrap();
    held_up_in(|profile| goroutines::trace_beside(profile, &program, JOBS, PAIRS));
}

#[test]
fn a_profile_for_a_program_of_go_is_proposed_and_accepted() {
    let program = goroutines::program().unwrap();
    let mut command = reqtrace::command(["functions", "--as-profile"]).unwrap();
    let output = command
        .arg(&program)
        .arg("main.(*service).job")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("kind = \"go\"") && text.contains("key   = \"unit\""),
        "{text}"
    );
    let folder = workspace::scratch().unwrap();
    let profile = folder.path().join("p.toml");
    fs::write(&profile, text).unwrap();
    let mut command = reqtrace::command(["check", "--profile"]).unwrap();
    let output = command.arg(&profile).arg(&program).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    // Without a pattern each goroutine is a request, and what suits the program is named.
    let mut command = reqtrace::command(["functions", "--as-profile"]).unwrap();
    let output = command.arg(&program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["as they are: go-http.", "kind = \"go\"", "unit = \"*\""] {
        assert!(text.contains(part), "no {part}: {text}");
    }
    fs::write(&profile, text).unwrap();
    let mut command = reqtrace::command(["check", "--profile"]).unwrap();
    let output = command.arg(&profile).arg(&program).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    // One without it is told what to do.
    let plain =
        "[profile]\nname = \"p\"\n[[request]]\nname = \"a\"\nbegin = { function = \"no_such\" }\n";
    fs::write(&profile, plain).unwrap();
    let mut command = reqtrace::command(["check", "--profile"]).unwrap();
    let output = command.arg(&profile).arg(&program).output().unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(
        printed.contains("is a Go program") && printed.contains("kind = \"go\""),
        "{printed}"
    );
}

/// Neither a trace nor a check knows the program by its name, and both see what it is made with.
#[test]
fn the_profile_that_suits_a_program_is_named() {
    let program = goroutines::program().unwrap();
    let (server, _) = goroutines::server(&program).unwrap();
    let pid = server.pid().to_string();
    for words in [&["check", "-p"][..], &["-p"]] {
        let mut command = reqtrace::command(words.iter().copied()).unwrap();
        let output = command.arg(&pid).output().unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{printed}");
        assert!(printed.contains("--profile go-http"), "{printed}");
    }
    // Nothing suits this one.
    let mut command = reqtrace::command(["check"]).unwrap();
    let output = command.arg(workspace::tasks().unwrap()).output().unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(
        printed.contains("begins a profile of your own"),
        "{printed}"
    );
    let output = reqtrace::command(["check"]).unwrap().output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn what_cannot_be_found_in_a_program_is_reported() {
    let request = "[[request]]\nname = \"a\"\nkey = \"unit\"\nbegin = { function = \"main\" }\nend = { function = \"main\", at = \"return\" }\n";
    let printed = refused(request, &workspace::bakery().unwrap());
    assert!(printed.contains("is no program of Go"), "{printed}");
    // One byte of the version is another one: `go1.19.8`, `go9.19.8`.
    let folder = workspace::scratch().unwrap();
    let mut bytes = fs::read(goroutines::program().unwrap()).unwrap();
    let magic = b"\xff Go buildinf:";
    let at = bytes
        .windows(magic.len())
        .position(|window| window == magic)
        .unwrap();
    bytes[at + 35] = b'9';
    let unknown = folder.path().join("unknown");
    fs::write(&unknown, bytes).unwrap();
    let request = request.replace("\"main\"", "\"main.main\"");
    let printed = refused(&request, &unknown);
    assert!(
        printed.contains("was built by go9.") && printed.contains("known of Go 1.19 to 1.27"),
        "{printed}"
    );
}
