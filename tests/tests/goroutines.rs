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

use reqtrace_tests::blamed;
use reqtrace_tests::goroutines::{self, KINDS, Line};
use reqtrace_tests::http::ab;
use reqtrace_tests::reqtrace::{self, Outcome, Trace};
use reqtrace_tests::rows::Row;
use reqtrace_tests::workspace;

/// Jobs of each kind, of which one in twenty panics.
const JOBS: u64 = 100;
const PANICS: u64 = JOBS / 20;

/// How long a job computes, ns.
const BUSY_NS: u64 = 2_000_000;

/// Checks counts and brackets of all jobs, and returns their rows.
fn checked(outcome: &Outcome, lines: &[Line]) -> Vec<Row> {
    let summary = outcome.checked().unwrap();
    let all = JOBS * KINDS as u64;
    let panics = PANICS * KINDS as u64;
    assert_eq!(lines.len() as u64, all);
    let request = summary.request("job").unwrap();
    assert_eq!(
        (request.count, request.begins, request.ends),
        (all - panics, all, all - panics),
        "{}",
        outcome.said()
    );
    assert_eq!(
        request.incomplete,
        [("no end".to_owned(), panics)].into(),
        "{}",
        outcome.said()
    );
    // Goroutines that are in no job are not counted.
    assert_eq!(
        (request.unknown_keys, request.running_elsewhere),
        (Some(0), Some(0))
    );
    let rows = outcome.rows().unwrap();
    goroutines::check(lines, &rows, summary.trace.monotonic_to_unix_ns).unwrap();
    assert!(
        rows.iter()
            .all(|row| row.places["waited_for_the_runtime"] == row.queued_ns)
    );
    rows
}

fn every_job_is_a_request(program: &Path) {
    let (outcome, lines) = goroutines::trace("goroutines.toml", program, JOBS, &[]).unwrap();
    let rows = checked(&outcome, &lines);
    let of_kind = |kind: &str| {
        let kind = kind.to_owned();
        let rows = rows.iter().filter(|row| row.complete);
        rows.filter(move |row| row.attributes["kind"] == kind)
    };
    for kind in ["holds", "sends", "locks", "receives", "sleeps", "asks"] {
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
    // A goroutine in a system call stays on its thread.
    let blocked = |row: &&Row| row.latency_ns - row.parked_ns - row.queued_ns > row.on_cpu_ns;
    assert!(of_kind("syncs").filter(blocked).count() > 0);
    let said = outcome.said();
    assert!(said.contains("     waited for the runtime "), "{said}");
    waits_have_reasons_and_stacks(&outcome, &rows);
}

/// What the kinds of jobs wait for, as the columns of the places are called, and what of a job decides to.
const REASONS: [(&str, &str); 6] = [
    ("holds", "time.Sleep"),
    ("sends", "time.Sleep"),
    ("locks", "sync.Mutex.Lock"),
    ("receives", "chan_receive"),
    ("sleeps", "time.Sleep"),
    ("asks", "IO_wait"),
];

/// Checks that parked time has the reason that its kind has, for 95 % of it, and its stack.
fn waits_have_reasons_and_stacks(outcome: &Outcome, rows: &[Row]) {
    // Before 1.20 all locks are semaphores.
    let has_locks = rows.iter().any(|row| row.places["sync.Mutex.Lock"] > 0);
    for (kind, mut reason) in REASONS {
        if kind == "locks" && !has_locks {
            reason = "semacquire";
        }
        let of_kind = || rows.iter().filter(|row| row.attributes["kind"] == kind);
        let parked: u64 = of_kind().map(|row| row.parked_ns).sum();
        let by_reason: u64 = of_kind().map(|row| row.places[reason]).sum();
        assert!(
            by_reason as f64 >= 0.95 * parked as f64,
            "{kind}: {by_reason} of {parked} by {reason}"
        );
    }
    // All parked time is that of some place with a name.
    for row in rows {
        let named = row
            .places
            .iter()
            .filter(|(name, _)| *name != "waited_for_the_runtime");
        assert_eq!(
            named.map(|(_, ns)| ns).sum::<u64>(),
            row.parked_ns,
            "{row:?}"
        );
    }
    let folded = outcome.folded().unwrap();
    let micros = |of: &dyn Fn(&str) -> bool| -> u64 {
        let lines = folded.lines().filter(|line| of(line));
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum()
    };
    for (reason, decides) in [
        ("time.Sleep", "main.(*service).do"),
        ("chan receive", "main.(*service).do"),
        ("IO wait", "main.(*service).ask"),
        ("sync.Mutex.Lock", "main.(*service).do"),
        ("semacquire", "main.(*service).do"),
    ] {
        let last = format!(";[parked: {reason}] ");
        let all = micros(&|line| line.contains(&last));
        let with_stack = micros(&|line| {
            let from = line.find(";runtime.goexit");
            let job = line.find(";main.(*service).job;");
            let decides = line.find(&format!(";{decides}"));
            let parks = line.find(&format!(";runtime.gopark{last}"));
            from < job && job < decides && decides < parks && from.is_some()
        });
        assert!(
            with_stack as f64 >= 0.95 * all as f64,
            "{reason}: {with_stack} of {all} in {folded}"
        );
    }
}

#[test]
fn every_job_is_a_request_of_its_goroutine() {
    every_job_is_a_request(&goroutines::program().unwrap());
}

#[test]
fn every_job_is_a_request_in_a_stripped_program() {
    every_job_is_a_request(&goroutines::stripped().unwrap());
}

/// One client: this many requests, of which each twentieth panics. Returns how many were answered.
fn ask(port: u16, requests: u64) -> u64 {
    let mut answered = 0;
    for number in 0..requests {
        let path = if number % 20 == 19 { "panics" } else { "1" };
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let request = format!("GET /{path} HTTP/1.1\r\nhost: go\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        // A handler that panics leaves nothing but the end of its connection.
        if stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200") {
            answered += 1;
        }
    }
    answered
}

#[test]
fn requests_of_net_http_are_counted_whatever_their_connections_do() {
    const CLIENTS: u64 = 4;
    const REQUESTS: u64 = 100;
    const BY_AB: u64 = 600;
    let (server, port) = goroutines::server(&goroutines::program().unwrap()).unwrap();
    let profile = workspace::root().join("profiles/go-http.toml");
    let trace = Trace::start(&profile, server.pid(), &["--labels"]).unwrap();
    ab(port, "/1", BY_AB, 8, &[]).unwrap();
    ab(port, "/0", BY_AB, 8, &["-k"]).unwrap();
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
    let panics = CLIENTS * REQUESTS / 20;
    assert_eq!(answered, CLIENTS * REQUESTS - panics);
    let ends = 2 * BY_AB + answered;
    assert_eq!(
        (http.count, http.begins, http.ends),
        (ends, ends + panics, ends),
        "{}",
        outcome.said()
    );
    assert_eq!(http.incomplete, [("no end".to_owned(), panics)].into());
    let rows = outcome.rows().unwrap();
    let of_path = |path: &'static str| {
        let rows = rows.iter();
        rows.filter(move |row| row.attributes["path"] == path)
    };
    assert_eq!(of_path("/0").count() as u64, BY_AB);
    assert_eq!(of_path("/1").count() as u64, BY_AB + answered);
    assert_eq!(of_path("/panics").count() as u64, panics);
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
    let program = goroutines::program().unwrap();
    let (outcome, _) = goroutines::trace("kinds.toml", &program, JOBS, &["--blame"]).unwrap();
    let (_, blamed) = blamed::of(&outcome).unwrap();
    for (waiter, holder) in [("locks", "holds"), ("receives", "sends")] {
        let of_waiter = || {
            blamed.iter().filter(move |row| {
                row.victim_request == waiter && row.wait_class.starts_with("parked")
            })
        };
        let all: u64 = of_waiter().map(|row| row.ns).sum();
        let by = |is: &dyn Fn(&str) -> bool| -> u64 {
            let rows = of_waiter().filter(|row| is(&row.culprit_request));
            rows.map(|row| row.ns).sum()
        };
        let right = by(&|request| request == holder);
        assert!(right as f64 > 0.95 * all as f64, "{waiter}: {blamed:#?}");
        let innocent = by(&|request| !request.is_empty() && request != holder);
        assert!(
            innocent as f64 <= 0.005 * all as f64,
            "{waiter}: {blamed:#?}"
        );
    }
    let of_sleeps = || {
        blamed
            .iter()
            .filter(|row| row.wait_class == "parked: time.Sleep")
    };
    let all: u64 = of_sleeps().map(|row| row.ns).sum();
    let timer = of_sleeps().filter(|row| row.root_cause == "timer");
    let timer: u64 = timer.map(|row| row.ns).sum();
    assert!(all > 0 && timer as f64 > 0.95 * all as f64, "{blamed:#?}");
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
    // One without it is told what to do.
    let plain =
        "[profile]\nname = \"p\"\n[[request]]\nname = \"a\"\nbegin = { function = \"no_such\" }\n";
    fs::write(&profile, plain).unwrap();
    let mut command = reqtrace::command(["check", "--profile"]).unwrap();
    let output = command.arg(&profile).arg(&program).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("is a Go program") && said.contains("kind = \"go\""),
        "{said}"
    );
}

#[test]
fn what_cannot_be_found_in_a_program_is_said() {
    let request = "[[request]]\nname = \"a\"\nkey = \"unit\"\nbegin = { function = \"main\" }\nend = { function = \"main\", at = \"return\" }\n";
    let said = refused(request, &workspace::bakery().unwrap());
    assert!(said.contains("is no program of Go"), "{said}");
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
    let said = refused(&request, &unknown);
    assert!(
        said.contains("was built by go9.") && said.contains("known of Go 1.19 to 1.27"),
        "{said}"
    );
}
