//! The verdict of disks: one that stalls under a database, or under the log file of a service; a page cache that is dropped; a
//! scan that fills a database's cache. All requests that wait for it, and those that wait for them, are the disk's.
//!
//! Needs root, a kernel with BPF, a controller of block devices, g++, sysbench and mariadb-server.

use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::limited::Stalling;
use reqtrace_tests::noise;
use reqtrace_tests::process::run;
use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::workspace;
use serde_json::Value;

use crate::verdict::{How, Right, duration, held_up, is_right, load, one, server_with};

/// How often it stalls, for how long, and how long it does not. Each second would be a period of the tracer's own, which is
/// no finding where nobody is to blame.
const STALLS: usize = 10;
const STALL: Duration = Duration::from_millis(300);
const PAUSE: Duration = Duration::from_millis(800);

pub(super) fn stalled_disk(how: How) -> Right {
    let server = server_with(&["--innodb-flush-log-at-trx-commit=1"]);
    let options = how.options(&["--blame", "--labels"]);
    let trace = Trace::start(Path::new("mysql.toml"), server.pid(), &options).unwrap();
    let socket = server.socket();
    let disk = Stalling::writes_of(server.pid(), socket.parent().unwrap()).unwrap();
    let mut load = load(&server, how, "update d.t set n = n + 1 where id = ID");
    how.beside(|| stall(&disk));
    load.stop().unwrap();
    let outcome = trace.finish().unwrap();
    is_the_disk(how, &outcome, "redo log")?;
    let summary: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let blame = summary["blame"].as_array().unwrap();
    let mut disks = blame.iter().map(|of| &of["disk"]);
    let disk = disks.find(|disk| disk.is_object());
    let disk = disk.unwrap_or_else(|| panic!("{blame:#?}"));
    let ns = |name: &str| disk[name].as_u64().unwrap();
    // The limit holds I/O back before the device has it.
    match ns("not_bound_ns") * 2 > ns("waited_ns") {
        true => Ok(()),
        false => Err(format!("{disk:#} {}", outcome.printed())),
    }
}

/// The journal of a shop, which each order waits for.
pub(super) fn slow_log_file(how: How) -> Right {
    let shop = Shop::open().unwrap();
    let options = how.options(&["--blame"]);
    let trace = Trace::start(&shop::profile(), shop.pid(), &options).unwrap();
    let disk = Stalling::writes_of(shop.pid(), &workspace::target()).unwrap();
    let seconds = ((STALL + PAUSE) * STALLS as u32).as_secs() as u32 + 2;
    let load = shop.start_load_for(how.clients(), seconds, 10).unwrap();
    how.beside(|| {
        stall(&disk);
        load.finish().unwrap();
    });
    is_the_disk(how, &trace.finish().unwrap(), "journal")
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

/// The only verdict is the disk's, with its times; nobody is to blame.
fn is_the_disk(how: How, outcome: &Outcome, object: &str) -> Right {
    let is_about = |ns: Option<Duration>| ns.is_some_and(|ns| (STALL / 2..STALL * 2).contains(&ns));
    one(
        outcome,
        |_| false,
        |verdict| {
            let stood = &verdict["stood"];
            let several = stood["requests"].as_u64() >= Some(2) && is_about(duration(&stood["ns"]));
            let period = duration(&verdict["cadence"]["period_ns"]);
            verdict["class"] == "disk"
                && verdict["object"] == object
                && how.times(verdict, STALLS)
                && is_about(duration(&verdict["episode_ns"]))
                && (several || how == How::Sampled)
                && period.map_or(how == How::Sampled, |period| {
                    // One stall more that the disk has of its own makes it a little shorter.
                    let least = (STALL + PAUSE) * 49 / 50;
                    how == How::Sampled || (least..STALL + 2 * PAUSE).contains(&period)
                })
        },
    )
}

/// How often the file of a service is dropped from the page cache, how much of it there is, MiB, and reads a second of its disk.
const DROPS: u32 = 10;
const CACHED_MIB: &str = "2";
const READS: u32 = 1_000;

pub(super) fn dropped_page_cache(how: How) -> Right {
    let folder = workspace::scratch().unwrap();
    let file = folder.path().join("file");
    let file = file.to_str().unwrap();
    let threads = (how.clients() / 4 + 2).to_string();
    let args = [file, CACHED_MIB, &threads, "6000", "2000"];
    let mut service = Fixture::start("cached", &args).unwrap();
    let profile = service.profile("handle", "ignore").unwrap();
    let options = how.options(&["--blame", "--max-overhead", "100"]);
    let trace = Trace::start(&profile, service.pid(), &options).unwrap();
    let disk = Stalling::writes_of(service.pid(), folder.path()).unwrap();
    disk.slow_reads(READS).unwrap();
    let working = std::thread::spawn(move || service.work().map(|_| service));
    how.beside(|| {
        for _ in 0..DROPS {
            sleep(PAUSE * 3 / 2);
            let mut drops = Command::new("dd");
            run(drops.args([&format!("if={file}"), "iflag=nocache", "count=0"])).unwrap();
        }
        working.join().unwrap().unwrap().end().unwrap();
    });
    one(
        &trace.wait().unwrap(),
        |_| false,
        |verdict| {
            verdict["class"] == "disk"
                && verdict["object"] == "disk"
                // Until all of it is back, requests stand more than once.
                && verdict["times"].as_u64() >= Some(DROPS.into())
        },
    )
}

/// Rows of a table that fits into the cache, and of one that does not, and the pages that the disk reads in a second.
const FITS: u32 = 20_000;
const PAGES: u32 = 1_500;
const READS_A_SECOND: u32 = 250;

pub(super) fn scan_that_fills_the_cache(how: How) -> Right {
    let server = server_with(&[
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-buffer-pool-size=8M",
        "--innodb-flush-method=O_DIRECT",
        "--innodb-old-blocks-time=0",
    ]);
    let sql = format!(
        "create table d.s (id int primary key, pad char(200)) engine=innodb; \
         insert into d.s select seq, repeat('x', 200) from d.seq_1_to_{FITS}; \
         create table d.big like d.s; insert into d.big select seq, repeat('x', 200) from d.seq_1_to_{}",
        5 * FITS
    );
    server.sql(&sql).unwrap();
    let socket = server.socket();
    let disk = Stalling::writes_of(server.pid(), socket.parent().unwrap()).unwrap();
    disk.slow_reads(PAGES).unwrap();
    let (outcome, tid) = held_up(
        how,
        &server,
        [
            "select length(pad) from d.s where id = RANDOM",
            "select sum(length(pad)) from d.big;\n\\! sleep 0.8\n",
        ],
        &[],
        // Of more the disk would be full all the time.
        READS_A_SECOND,
    );
    one(
        &outcome,
        |_| false,
        |verdict| {
            // Most reads that the limit holds back are submitted by threads of the kernel's.
            let meanwhile = &verdict["meanwhile"];
            assert!(meanwhile["pid"].is_null() || meanwhile["pid"] == server.pid());
            assert!(meanwhile["tid"].is_null() || meanwhile["tid"] == tid);
            verdict["class"] == "disk"
                && ["InnoDB latch", "data file read"]
                    .map(Value::from)
                    .contains(&verdict["object"])
        },
    )
}

#[test]
fn a_disk_that_stalls() {
    is_right(stalled_disk);
}

#[test]
fn a_log_file_on_a_slow_disk() {
    is_right(slow_log_file);
}

#[test]
fn a_page_cache_that_is_dropped() {
    noise::once_in(3, "verdict", || dropped_page_cache(How::Alone));
}

#[test]
fn a_scan_that_fills_the_cache() {
    is_right(scan_that_fills_the_cache);
}
