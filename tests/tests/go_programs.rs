//! Real programs in Go, as Debian has built and stripped them: as many requests as their load generator has sent, and
//! as they have counted themselves.
//!
//! Needs root, a kernel with BPF, apache2-utils, prometheus and etcd.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use reqtrace_tests::http::{ab, free_port, listens};
use reqtrace_tests::process::{Child, until};
use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::workspace;

const LIMIT: Duration = Duration::from_secs(60);

/// What one run of the load generator sends.
const REQUESTS: u64 = 400;

/// Connections at a time, and whether they are kept.
const RUNS: [(u32, &[&str]); 4] = [(1, &[]), (8, &[]), (1, &["-k"]), (8, &["-k"])];
const ALL: u64 = REQUESTS * RUNS.len() as u64;

/// A program with its files, which are removed after it.
struct Running {
    process: Child,
    port: u16,
    folder: TempDir,
}

impl Running {
    fn start(name: &str, arguments: impl Fn(&Path, u16) -> Vec<String>) -> Self {
        let folder = workspace::scratch().unwrap();
        let port = free_port().unwrap();
        let mut command = Command::new(workspace::program(name).unwrap());
        command
            .args(arguments(folder.path(), port))
            .current_dir(folder.path());
        let process = Child::start(command, folder.path(), name).unwrap();
        listens(port, LIMIT).unwrap();
        Self {
            process,
            port,
            folder,
        }
    }

    fn trace(&self, profile: &str, more: &[&str]) -> Trace {
        let profile = workspace::root().join("profiles").join(profile);
        Trace::start(&profile, self.process.pid(), more).unwrap()
    }

    fn load(&self, path: &str, more: &[&str]) {
        for (clients, keeps) in RUNS {
            let more = [keeps, more].concat();
            ab(self.port, path, REQUESTS, clients, &more).unwrap();
        }
    }

    /// What it answers to this path, with its head.
    fn answer(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        // Not of a later version, whose answer would be in pieces.
        let request = format!("GET {path} HTTP/1.0\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// The sum of a counter of its own over all lines with each of these in them. Asking for it is a request, which
    /// is not counted yet.
    fn counted(&self, name: &str, with: &[&str]) -> u64 {
        // A request is counted a moment behind its answer.
        thread::sleep(Duration::from_millis(200));
        let text = self.answer("/metrics");
        let lines = text.lines().filter(|line| line.starts_with(name));
        lines
            .filter(|line| with.iter().all(|part| line.contains(part)))
            .map(|line| {
                let value = line.rsplit(' ').next().unwrap();
                value.parse::<f64>().unwrap() as u64
            })
            .sum()
    }
}

/// A stack is whole, or ends where the runtime has left the goroutine's stack for the thread's.
fn check_stacks(outcome: &Outcome) {
    let folded = outcome.folded().unwrap();
    let leaves = |line: &str| {
        let behind = line.split_once(";[truncated: ").map(|(_, rest)| rest);
        behind.is_none_or(|rest| {
            let outer = rest.split(';').nth(1).unwrap_or_default();
            ["runtime.systemstack", "runtime.mcall", "runtime.morestack"]
                .iter()
                .any(|switch| outer.starts_with(switch))
        })
    };
    let wrong: Vec<&str> = folded.lines().filter(|line| !leaves(line)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn prometheus() -> Running {
    let running = Running::start("prometheus", |folder, port| {
        let config = folder.join("prometheus.yml");
        fs::write(&config, "global:\n  scrape_interval: 1h\n").unwrap();
        vec![
            format!("--config.file={}", config.display()),
            format!("--storage.tsdb.path={}", folder.join("data").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
        ]
    });
    // It listens before, and refuses what it is asked.
    until(LIMIT, "Prometheus to be ready", || {
        let head = running.answer("/-/ready");
        let is_ready = head.split(' ').nth(1) == Some("200");
        Ok(is_ready.then_some(()))
    })
    .unwrap();
    running
}

#[test]
fn queries_of_prometheus_are_as_many_as_it_has_counted() {
    const QUERY: &str = "/api/v1/query";
    let server = prometheus();
    let counter = "prometheus_http_requests_total";
    let of_query = || server.counted(counter, &["handler=\"/api/v1/query\"", "code=\"200\""]);
    server.load("/api/v1/query?query=vector(1)", &[]);
    let before = of_query();
    assert_eq!(before, ALL);
    let trace = server.trace("go-http.toml", &["--labels"]);
    server.load("/api/v1/query?query=vector(1)", &[]);
    let counted = of_query() - before;
    let outcome = trace.finish().unwrap();
    let summary = outcome.checked().unwrap();
    let http = summary.request("http").unwrap();
    assert_eq!(counted, ALL);
    // One more has asked for the counter.
    assert_eq!(
        (http.count, http.begins, http.ends),
        (ALL + 1, ALL + 1, ALL + 1),
        "{}",
        outcome.printed()
    );
    assert!(http.incomplete.is_empty(), "{}", outcome.printed());
    let rows = outcome.rows().unwrap();
    let of_path = |path: &str| {
        let rows = rows.iter();
        let of_path = rows.filter(|row| row.complete && row.attributes["path"] == path);
        of_path.count() as u64
    };
    assert_eq!((of_path(QUERY), of_path("/metrics")), (ALL, 1));
    assert!(rows.iter().all(|row| row.attributes["method"] == "GET"));
    check_stacks(&outcome);
}

fn etcd() -> Running {
    let peers = free_port().unwrap();
    let server = Running::start("etcd", |folder, port| {
        let clients = format!("http://127.0.0.1:{port}");
        let peers = format!("http://127.0.0.1:{peers}");
        vec![
            format!("--data-dir={}", folder.join("data").display()),
            format!("--listen-client-urls={clients}"),
            format!("--advertise-client-urls={clients}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster=default={peers}"),
        ]
    });
    // It listens before it has a leader.
    until(LIMIT, "etcd to lead", || {
        Ok((server.counted("etcd_server_has_leader", &[]) == 1).then_some(()))
    })
    .unwrap();
    server
}

#[test]
fn calls_of_etcd_are_as_many_as_it_has_counted() {
    const METHOD: &str = "/etcdserverpb.KV/Range";
    let server = etcd();
    let body = server.folder.path().join("body");
    fs::write(&body, r#"{"key": "YQ=="}"#).unwrap();
    let post = ["-p", body.to_str().unwrap(), "-T", "application/json"];
    // Its gateway makes a call of gRPC, to itself, of each request.
    let load = || server.load("/v3/kv/range", &post);
    let counted = || server.counted("grpc_server_handled_total", &["\"Range\"", "\"OK\""]);
    load();
    let before = counted();
    let trace = server.trace("go-grpc.toml", &["--labels"]);
    load();
    let outcome = trace.finish().unwrap();
    assert_eq!((before, counted() - before), (ALL, ALL));
    let summary = outcome.checked().unwrap();
    let calls = summary.request("call").unwrap();
    assert_eq!(
        [calls.count, calls.begins, calls.ends],
        [ALL; 3],
        "{}",
        outcome.printed()
    );
    assert!(calls.incomplete.is_empty(), "{}", outcome.printed());
    let rows = outcome.rows().unwrap();
    assert_eq!(rows.len() as u64, ALL);
    assert!(rows.iter().all(|row| row.attributes["method"] == METHOD));
    check_stacks(&outcome);
}
