//! Ctrl-C and SIGTERM end a trace early, and it still reports.
//!
//! Needs root and a kernel with BPF.

use std::time::Duration;

use reqtrace_tests::process::{Child, Stream, until};
use reqtrace_tests::reqtrace::{self, Trace};
use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::{brackets, ledger, workspace, xml};

/// Ends a trace with `signal` in the middle of a load.
fn ended_by(signal: libc::c_int) {
    let shop = Shop::open().unwrap();
    // Would run for ten minutes; the harness waits for one.
    let trace = Trace::start(&shop::profile(), shop.pid(), &["600"]).unwrap();
    let load = shop.start_load(4, 3000).unwrap();
    // The journal has a line for each order: wait until some are done.
    until(Duration::from_secs(60), "some orders", || {
        Ok((shop.orders() >= 200).then_some(()))
    })
    .unwrap();
    let outcome = trace.signal(signal).unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    assert_eq!(load.finish().unwrap(), 3000);
    let log = shop.close().unwrap();

    let summary = outcome.summary().unwrap();
    let order = summary.request("order").unwrap();
    assert!(order.count > 0 && order.count <= 3000, "{}", order.count);
    assert_eq!(order.rows, order.count);
    let csv = outcome.csv().unwrap();
    let offset = summary.trace.monotonic_to_unix_ns;
    let checked = brackets::check_some(&log, &csv, offset).unwrap();
    assert_eq!(checked as u64, order.count);
    ledger::check(&csv).unwrap();
    // What was running when the trace ended is listed as such, at most one a connection.
    let rows = outcome.rows().unwrap();
    let open: Vec<_> = rows.iter().filter(|row| !row.complete).collect();
    assert!(open.len() <= 4, "{open:?}");
    assert!(
        open.iter().all(|row| row.reason.ends_with("at stop")),
        "{open:?}"
    );
    xml::check(&outcome.flamegraph().unwrap()).unwrap();
    assert!(outcome.printed().contains("order"), "{}", outcome.printed());
}

#[test]
fn ctrl_c_reports() {
    ended_by(libc::SIGINT);
}

#[test]
fn sigterm_reports() {
    ended_by(libc::SIGTERM);
}

/// Before the probes are in there is nothing to report, and that is printed.
fn ended_before_it_began(signal: libc::c_int, printed: &str) {
    let shop = Shop::open().unwrap();
    let folder = workspace::scratch().unwrap();
    let mut command = reqtrace::command(["--profile"]).unwrap();
    command
        .arg(shop::profile())
        .args(["-p", &shop.pid().to_string(), "600"]);
    let mut process = Child::start(command, folder.path(), "reqtrace").unwrap();
    let status = format!("/proc/{}/status", process.pid());
    // As soon as it has a handler of its own.
    let caught = || {
        let text = std::fs::read_to_string(&status).unwrap();
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = u64::from_str_radix(mask.unwrap().trim(), 16).unwrap();
        mask >> (signal - 1) & 1 == 1
    };
    while !caught() {
        std::thread::yield_now();
    }
    process.signal(signal).unwrap();
    let status = process.wait(Duration::from_secs(60)).unwrap();
    let errors = process.output(Stream::Err);
    assert_eq!(status.code(), Some(1), "{errors}");
    assert!(errors.contains(printed), "{errors}");
    assert_eq!(process.output(Stream::Out), "");
    shop.close().unwrap();
}

#[test]
fn signals_before_the_trace_say_that_nothing_was_traced() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        ended_before_it_began(signal, "interrupted before anything was traced");
    }
}
