//! The verdict of a disk that stalls under a database: all requests that wait for it, and those that wait for them,
//! are the disk's.
//!
//! Needs root, a kernel with BPF, a controller of block devices and mariadb-server.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use reqtrace_tests::limited::Stalling;
use reqtrace_tests::noise;
use reqtrace_tests::reqtrace::Trace;

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
        for _ in 0..STALLS {
            sleep(PAUSE);
            disk.stall(true).unwrap();
            sleep(STALL);
            disk.stall(false).unwrap();
        }
        for client in &mut clients {
            assert!(client.wait(LIMIT).unwrap().success());
        }
        let outcome = trace.finish().unwrap();
        let verdicts = verdicts(&outcome);
        // Nobody is to blame, whatever else is found.
        let nobody = |verdict: &serde_json::Value| verdict["culprit"].is_null();
        assert!(verdicts.iter().all(nobody), "{verdicts:#?}");
        let [verdict] = verdicts.as_slice() else {
            return Err(format!("{verdicts:#?} {}", outcome.said()));
        };
        let is_right = verdict["class"] == "disk"
            && verdict["object"] == "redo log"
            && verdict["times"]
                .as_u64()
                .is_some_and(|times| times.abs_diff(STALLS) <= 2)
            && verdict["episode_ns"]
                .as_u64()
                .is_some_and(|ns| (STALL / 2..STALL * 2).contains(&Duration::from_nanos(ns)))
            && verdict["cadence"]["period_ns"].as_u64().is_some_and(|ns| {
                (STALL + PAUSE..STALL + 2 * PAUSE).contains(&Duration::from_nanos(ns))
            });
        match is_right {
            true => Ok(()),
            false => Err(format!("{verdict:#} {}", outcome.said())),
        }
    });
}
