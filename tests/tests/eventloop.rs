//! Because of whom the requests of an event loop waited: of one whose upstreams are known, and of nginx. Most that ends
//! the sleeps of a loop is innocent.
//!
//! Needs root, a kernel with BPF, g++ and nginx.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fs, thread};

use reqtrace_tests::blamed::{self, Blamed};
use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::http::client;
use reqtrace_tests::http::upstream::Upstream;
use reqtrace_tests::nginx::Nginx;
use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::rows::Row;
use reqtrace_tests::workspace;

/// The kinds of requests of the fixture, in its order.
const KINDS: [&str; 8] = [
    "tcp", "unix", "big", "piped", "spliced", "outside", "handed", "ping",
];

/// Each kind is a request type: markers are shared, and say the kind.
fn profile(folder: &Path) -> PathBuf {
    let mut text = "[profile]\nname = \"eventloop\"\n".to_owned();
    for (number, kind) in KINDS.iter().enumerate() {
        text += &format!("\n[[request]]\nname = \"{kind}\"\nkey = {{ arg = 0 }}\n");
        for (marker, function) in [
            ("begin", "begun"),
            ("resume", "resumed"),
            ("park", "parked"),
            ("end", "ended"),
        ] {
            text += &format!(
                "{marker} = {{ function = \"{function}\", key = {{ arg = 0 }}, \
                 when = {{ arg = 1, equals = {number} }} }}\n"
            );
        }
    }
    let path = folder.join("eventloop.toml");
    fs::write(&path, text).unwrap();
    path
}

/// Nanoseconds of one request type by whose they are.
fn shares(rows: &[Blamed], request: &str) -> BTreeMap<String, u64> {
    let mut shares = BTreeMap::new();
    for row in rows.iter().filter(|row| row.victim_request == request) {
        let whose = match row.culprit_kind.as_str() {
            "thread" => &row.culprit_comm,
            _ if row.root_cause == "network" => "network",
            // What keeps the loop busy.
            "request" | "itself" | "interrupt" => "loop",
            kind => kind,
        };
        *shares.entry(whose.to_owned()).or_default() += row.ns;
    }
    shares
}

fn check(rounds: &str, options: &[&str]) {
    let folder = workspace::scratch().unwrap();
    let profile = profile(folder.path());
    let mut arguments = vec![rounds];
    arguments.extend(options);
    let fixture = Fixture::start("eventloop", &arguments).unwrap();
    let pid = fixture.pid();
    let (outcome, pings) = fixture.traced(&profile, &["--blame"]).unwrap();
    let (rows, blamed) = blamed::of(&outcome).unwrap();
    let asked = rows.iter().filter(|row| row.request != "ping").count();
    let pings: usize = pings.trim_start_matches("done ").trim().parse().unwrap();
    assert!(pings > 5 * asked, "{pings} pings, {asked} requests");
    for kind in &KINDS[..KINDS.len() - 1] {
        let shares = shares(&blamed, kind);
        let all: u64 = shares.values().sum();
        let of = |whose: &str| shares.get(whose).copied().unwrap_or(0) as f64 / all as f64;
        // To one decimal none: where any CPU takes packets, a question may reach its upstream upon an innocent.
        assert!(all > 0 && of("innocent") < 0.0005, "{kind}: {shares:?}");
        let upstream = of(&format!("u-{kind}"));
        if *kind == "handed" {
            // No read of a socket tells who wrote to an eventfd.
            assert!(upstream + of("unknown") > 0.95, "{kind}: {shares:?}");
            continue;
        }
        // In a queue packets are late, and the large answer lies there for most of the time.
        let (least, late) = match options {
            ["queue"] => (if *kind == "big" { 0.3 } else { 0.6 }, of("network")),
            _ => (0.7, 0.0),
        };
        let right = upstream + of("loop") + late;
        assert!(upstream > least && right > 0.95, "{kind}: {shares:?}");
        assert!(of("unknown") < 0.05, "{kind}: {shares:?}");
        let slept = |row: &&Blamed| {
            row.victim_request == *kind && row.root_cause == "timer" && row.ns > 1_000_000
        };
        for row in blamed.iter().filter(slept) {
            assert_eq!(row.culprit_comm, format!("u-{kind}"), "{row:?}");
            assert!(
                row.culprit_pid.is_some_and(|culprit| culprit != pid),
                "{row:?}"
            );
            assert!(row.culprit_tid.is_some(), "{row:?}");
        }
    }
}

#[test]
fn parked_requests_wait_for_whom_they_have_asked() {
    check("60", &[]);
}

/// The current thread then says nothing: packets come upon any.
#[test]
fn senders_are_known_whoever_takes_their_packets() {
    check("60", &["rps"]);
}

/// Who sends next takes them out of the queue, and wakes whom they are for.
#[test]
fn who_sends_on_the_late_packets_of_others_is_innocent() {
    check("30", &["queue"]);
}

/// A client that asks for a page again and again, and waits for nobody.
pub(crate) struct Innocent {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Innocent {
    pub(crate) fn start(port: u16, path: &'static str) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let has_ended = Arc::clone(&ends);
        let asks = move || {
            let mut asked = 0;
            while !has_ended.load(Ordering::Relaxed) {
                client::get(port, path).unwrap();
                asked += 1;
                thread::sleep(Duration::from_millis(5));
            }
            asked
        };
        let thread = thread::Builder::new().name("innocent".to_owned());
        Self {
            ends,
            thread: thread.spawn(asks).unwrap(),
        }
    }

    /// Returns how often it has asked.
    pub(crate) fn end(self) -> u64 {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// An nginx that answers by itself, and below `/slow` asks a server on this port.
pub(crate) fn proxy(behind: u16) -> Nginx {
    let server = format!(
        "location /slow {{ proxy_pass http://127.0.0.1:{behind}; }} location / {{ return 200 hi; }}"
    );
    Nginx::start_with(1, "", &server).unwrap()
}

/// The outer requests have waited for the inner ones, which waited for the upstream.
pub(crate) fn check_depth(blamed: &[Blamed]) {
    let slept = |depth| {
        blamed::sum(blamed, |row| {
            row.root_cause == "timer" && row.depth == depth
        })
    };
    assert!(slept(2) > slept(1) / 2, "{blamed:?}");
}

/// Requests parked in this place have waited for an upstream of this process that slept, and for no client. Of those
/// that went to the upstream nearly all is known; the others are over in less than `pause`.
pub(crate) fn check_waits(rows: &[Row], blamed: &[Blamed], place: &str, pause: Duration) {
    let own = std::process::id();
    let is_here = |row: &&Blamed| row.wait_class == place;
    let types: BTreeSet<_> = blamed
        .iter()
        .filter(is_here)
        .map(|row| &row.victim_request)
        .collect();
    let mut slept = 0;
    // Parked also where the profile has no name for it.
    for row in blamed
        .iter()
        .filter(|row| types.contains(&row.victim_request))
    {
        assert_ne!(row.culprit_comm, "innocent", "{row:?}");
        if row.root_cause == "timer" && row.culprit_pid == Some(own) {
            slept += row.ns;
        }
    }
    let is_slow = |row: &&Row| {
        types.contains(&row.request) && u128::from(row.latency_ns) > pause.as_nanos() * 9 / 10
    };
    let slow: Vec<&Row> = rows.iter().filter(is_slow).collect();
    let parked: u64 = slow.iter().map(|row| row.parked_ns).sum();
    let unknown: u64 = slow.iter().map(|row| row.causes["unknown"]).sum();
    let share = |ns: u64| ns as f64 / parked as f64;
    assert!(share(slept) > 0.85, "{slept} of {parked}: {slow:?}");
    assert!(share(unknown) < 0.05, "{unknown} of {parked}: {slow:?}");
}

#[test]
fn a_client_that_wakes_nginx_is_not_what_a_proxied_request_waits_for() {
    const PAUSE: Duration = Duration::from_millis(100);
    let upstream = Upstream::start(|_| PAUSE).unwrap();
    let nginx = proxy(upstream.port());
    let trace = Trace::start(Path::new("nginx"), nginx.pid(), &["--blame"]).unwrap();
    let other = Innocent::start(nginx.port(), "/");
    for number in 0..20 {
        client::get(nginx.port(), &format!("/slow/{number}")).unwrap();
    }
    assert!(other.end() > 60);
    let outcome = trace.finish().unwrap();
    let (rows, blamed) = blamed::of(&outcome).unwrap();
    check_waits(&rows, &blamed, "parked: upstream", PAUSE);
}

#[test]
fn a_chain_goes_through_the_parked_request_of_another_server() {
    const PAUSE: Duration = Duration::from_millis(100);
    let upstream = Upstream::start(|_| PAUSE).unwrap();
    let inner = proxy(upstream.port());
    let outer = proxy(inner.port());
    let pid = inner.pid().to_string();
    let options = ["--blame", "-p", &pid];
    let trace = Trace::start(Path::new("nginx"), outer.pid(), &options).unwrap();
    let other = Innocent::start(inner.port(), "/");
    for number in 0..20 {
        client::get(outer.port(), &format!("/slow/{number}")).unwrap();
    }
    assert!(other.end() > 60);
    let outcome = trace.finish().unwrap();
    let (rows, blamed) = blamed::of(&outcome).unwrap();
    check_waits(&rows, &blamed, "parked: upstream", PAUSE);
    check_depth(&blamed);
}
