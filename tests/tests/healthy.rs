//! Windows of services that nothing happens to: traces of six services at once, one after the other. In 200 windows two verdicts may be wrong, and nobody may be blamed.
//!
//! Needs root, a kernel with BPF, mariadb-server, sysbench, postgresql-15, redis, nginx, apache2-utils and php8.2-fpm.

use std::path::Path;
use std::thread::{scope, sleep};
use std::time::Duration;

use reqtrace_tests::load::beside;
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::nginx::Nginx;
use reqtrace_tests::php_fpm::PhpFpm;
use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::servers::Server;
use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::sysbench::Sysbench;
use serde_json::Value;

/// A window, and how many of each service: 204 in all. The variable has another number tried by hand.
const WINDOW: Duration = Duration::from_secs(30);
const WINDOWS: u32 = 34;
const VARIABLE: &str = "HEALTHY_WINDOWS";
/// Of 200 windows.
const MOST_VERDICTS: usize = 2;
/// Between two loads.
const PAUSE: Duration = Duration::from_millis(100);

/// What was found in one window.
#[derive(Debug)]
#[expect(dead_code, reason = "printed when a test fails")]
struct Found {
    service: &'static str,
    window: u32,
    verdict: Value,
}

/// What the windows of one service have: each is a trace of its own.
fn windows(
    service: &'static str,
    profile: &Path,
    pid: u32,
    count: u32,
    load: impl Fn() + Sync,
) -> Vec<Found> {
    let found = beside(load, || {
        let each = (0..count).flat_map(|window| {
            let verdicts = window_of(service, profile, pid);
            verdicts.into_iter().map(move |verdict| Found {
                service,
                window,
                verdict,
            })
        });
        each.collect::<Vec<_>>()
    });
    eprintln!("{service}: {count} windows, {} verdicts", found.len());
    found
}

/// The verdicts of one window, which has a hundred requests at least.
fn window_of(service: &str, profile: &Path, pid: u32) -> Vec<Value> {
    let trace = Trace::start(profile, pid, &["--blame"]).unwrap();
    sleep(WINDOW);
    let outcome = trace.finish().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let summary: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let requests = summary["requests"].as_array().unwrap();
    let requests: u64 = requests.iter().filter_map(|of| of["count"].as_u64()).sum();
    assert!(requests >= 100, "{service}: {requests} requests");
    let mut verdicts = summary["verdict"].as_array().unwrap().clone();
    // That no cause is sure is none.
    verdicts.retain(|verdict| verdict["class"] != "no_single_cause");
    verdicts
}

fn mariadb(count: u32) -> Vec<Found> {
    let server = MariaDb::open().unwrap();
    let sysbench = Sysbench::prepare(&server, 2, 1_000).unwrap();
    windows("mariadb", Path::new("mysql"), server.pid(), count, || {
        sysbench.run_at_rate("oltp_read_write", 4, 60, 30).unwrap();
    })
}

fn postgresql(count: u32) -> Vec<Found> {
    let server = Server::postgresql().unwrap();
    server.run("pgbench", &["-i", "-q"]).unwrap();
    windows(
        "postgresql",
        Path::new("postgresql"),
        server.pid(),
        count,
        || {
            let args = ["-n", "-c", "4", "-T", "2", "-R", "50"];
            server.run("pgbench", &args).unwrap();
        },
    )
}

fn redis(count: u32) -> Vec<Found> {
    let server = Server::redis().unwrap();
    windows("redis", Path::new("redis"), server.pid(), count, || {
        let args = ["-t", "set,get", "-n", "500", "-c", "4", "-q"];
        server.redis_benchmark(&args).unwrap();
        sleep(PAUSE);
    })
}

fn nginx(count: u32) -> Vec<Found> {
    let server = Nginx::start(2).unwrap();
    std::fs::write(server.documents().join("page"), [b'x'; 4096]).unwrap();
    windows("nginx", Path::new("nginx"), server.pid(), count, || {
        server.ab("/page", 200, 4, &[]).unwrap();
        sleep(PAUSE);
    })
}

fn shop(count: u32) -> Vec<Found> {
    let server = Shop::open().unwrap();
    windows("shop", &shop::profile(), server.pid(), count, || {
        server.start_load_for(4, 2, 20).unwrap().finish().unwrap();
    })
}

fn php_fpm(count: u32) -> Vec<Found> {
    let server = PhpFpm::start(2).unwrap();
    let code = "<?php $s = ''; for ($i = 0; $i < 20000; $i++) { $s = md5($s . $i); } echo $s;";
    let script = server.script("page.php", code).unwrap();
    let script = script.to_str().unwrap();
    windows("php-fpm", Path::new("php-fpm"), server.pid(), count, || {
        server.get(script).unwrap();
        sleep(PAUSE / 4);
    })
}

#[test]
#[ignore = "half an hour: cargo xtask test --all"]
fn healthy_windows_of_six_services_have_no_culprit() {
    let count = std::env::var(VARIABLE).map_or(WINDOWS, |count| count.parse().unwrap());
    let services = [mariadb, redis, php_fpm, postgresql, nginx, shop];
    // All at the same time: each is the others' noise.
    let found = scope(|threads| {
        let all: Vec<_> = services
            .iter()
            .map(|service| threads.spawn(move || service(count)))
            .collect();
        let all = all.into_iter().map(|one| one.join().unwrap());
        all.flatten().collect::<Vec<_>>()
    });
    let blamed = found
        .iter()
        .any(|found| found.verdict["culprit"].is_object());
    let of = services.len() * count as usize;
    assert!(!blamed, "{found:#?}");
    assert!(
        found.len() * 200 <= MOST_VERDICTS * of.max(200),
        "of {of}: {found:#?}"
    );
}
