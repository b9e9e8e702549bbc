//! The verdict of a disk that stalls under a database, or under the log file of a service, and of a page cache that is dropped: all requests that wait for it, and
//! those that wait for them, are the disk's.
//!
//! Needs root, a kernel with BPF, a controller of block devices, g++ and mariadb-server.

use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::limited::Stalling;
use reqtrace_tests::load::beside;
use reqtrace_tests::noise;
use reqtrace_tests::process::run;
use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::workspace;
use serde_json::Value;

use crate::verdict::{CLIENTS, LIMIT, client_of, server_that_flushes, verdicts};

/// How often it stalls, for how long, and how long it does not. Each second would be a period of the tracer's own, which is
/// no finding where nobody is to blame.
const STALLS: u64 = 10;
const STALL: Duration = Duration::from_millis(300);
const PAUSE: Duration = Duration::from_millis(800);
/// A client's statements last longer than all stalls.
const STATEMENTS: usize = 300;

#[test]
fn a_disk_that_stalls() {
    noise::once_in(2, "verdict", || {
        let server = server_that_flushes("1");
        let options = ["--blame", "--labels"];
        let trace = Trace::start(Path::new("mysql.toml"), server.pid(), &options).unwrap();
        let socket = server.socket();
        let disk = Stalling::writes_of(server.pid(), socket.parent().unwrap()).unwrap();
        let update = "update d.t set n = n + 1 where id = ID";
        let mut clients: Vec<_> = (1..=CLIENTS)
            .map(|id| client_of(&server, id, update, STATEMENTS))
            .collect();
        stall(&disk);
        for client in &mut clients {
            assert!(client.wait(LIMIT).unwrap().success());
        }
        let outcome = trace.finish().unwrap();
        is_the_disk(&outcome, "redo log")?;
        let summary: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
        let blame = summary["blame"].as_array().unwrap();
        let disk = blame
            .iter()
            .map(|of| &of["disk"])
            .find(|disk| disk.is_object());
        let disk = disk.unwrap_or_else(|| panic!("{blame:#?}"));
        let ns = |name: &str| disk[name].as_u64().unwrap();
        // The limit holds I/O back before the device has it.
        match ns("not_bound_ns") * 2 > ns("waited_ns") {
            true => Ok(()),
            false => Err(format!("{disk:#} {}", outcome.said())),
        }
    });
}

/// The journal of a shop, which each order waits for, on a disk that stalls, beside another process that reads.
#[test]
fn a_log_file_on_a_slow_disk() {
    noise::once_in(2, "verdict", || {
        let shop = Shop::open().unwrap();
        let trace = Trace::start(&shop::profile(), shop.pid(), &["--blame"]).unwrap();
        let disk = Stalling::writes_of(shop.pid(), &workspace::target()).unwrap();
        let seconds = ((STALL + PAUSE) * STALLS as u32).as_secs() as u32 + 2;
        let load = shop.start_load_for(6, seconds, 10).unwrap();
        let reads = || {
            run(Command::new("cksum").arg(workspace::shop().unwrap())).unwrap();
        };
        let outcome = beside(reads, || {
            stall(&disk);
            load.finish().unwrap();
            trace.finish().unwrap()
        });
        is_the_disk(&outcome, "journal")
    });
}

/// How often the file of a service is dropped from the page cache, and how much of it there is, MiB.
const DROPS: u32 = 10;
const CACHED_MIB: &str = "8";
/// Reads a second of its disk.
const READS: u32 = 4_000;

#[test]
fn a_page_cache_that_is_dropped() {
    noise::once_in(3, "verdict", || {
        let folder = workspace::scratch().unwrap();
        let file = folder.path().join("file");
        let file = file.to_str().unwrap();
        let mut service =
            Fixture::start("cached", &[file, CACHED_MIB, "4", "6000", "2000"]).unwrap();
        let profile = service.profile("handle", "ignore").unwrap();
        let options = ["--blame", "--max-overhead", "100"];
        let trace = Trace::start(&profile, service.pid(), &options).unwrap();
        let disk = Stalling::writes_of(service.pid(), folder.path()).unwrap();
        disk.slow_reads(READS).unwrap();
        let working = std::thread::spawn(move || service.work().map(|_| service));
        for _ in 0..DROPS {
            sleep(PAUSE * 3 / 2);
            let mut drops = Command::new("dd");
            run(drops.args([&format!("if={file}"), "iflag=nocache", "count=0"])).unwrap();
        }
        working.join().unwrap().unwrap().end().unwrap();
        let outcome = trace.wait().unwrap();
        let verdicts = verdicts(&outcome);
        let nobody = |verdict: &Value| verdict["culprit"].is_null();
        assert!(verdicts.iter().all(nobody), "{verdicts:#?}");
        match verdicts.as_slice() {
            [verdict] if verdict["class"] == "disk" && verdict["object"] == "disk" => Ok(()),
            _ => Err(format!("{verdicts:#?} {}", outcome.said())),
        }
    });
}

/// Stalls now and then.
fn stall(disk: &Stalling) {
    for _ in 0..STALLS {
        sleep(PAUSE);
        disk.stall(true).unwrap();
        sleep(STALL);
        disk.stall(false).unwrap();
    }
}

/// The only verdict is the disk's, with its times.
fn is_the_disk(outcome: &Outcome, object: &str) -> Result<(), String> {
    let verdicts = verdicts(outcome);
    // Nobody is to blame, whatever else is found.
    let nobody = |verdict: &Value| verdict["culprit"].is_null();
    assert!(verdicts.iter().all(nobody), "{verdicts:#?}");
    let [verdict] = verdicts.as_slice() else {
        return Err(format!("{verdicts:#?} {}", outcome.said()));
    };
    let ns = |value: &Value| value.as_u64().map(Duration::from_nanos);
    let is_about = |ns: Option<Duration>| ns.is_some_and(|ns| (STALL / 2..STALL * 2).contains(&ns));
    let is_right = verdict["class"] == "disk"
        && verdict["object"] == object
        && verdict["times"]
            .as_u64()
            .is_some_and(|times| times.abs_diff(STALLS) <= 2)
        && is_about(ns(&verdict["episode_ns"]))
        && is_about(ns(&verdict["stood"]["ns"]))
        && verdict["stood"]["requests"]
            .as_u64()
            .is_some_and(|requests| requests >= 2)
        && ns(&verdict["cadence"]["period_ns"])
            .is_some_and(|period| (STALL + PAUSE..STALL + 2 * PAUSE).contains(&period));
    match is_right {
        true => Ok(()),
        false => Err(format!("{verdict:#} {}", outcome.said())),
    }
}
