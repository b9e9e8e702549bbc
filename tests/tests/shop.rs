//! The example shop under load: everything that the shop itself can say must agree.
//!
//! Needs root and a kernel with BPF.

use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::{brackets, ledger, rows, xml};

const CONNECTIONS: u32 = 8;
const REQUESTS: u64 = 2000;

/// Kernel functions in which the shop waits outside of requests only: for a client's line, for a
/// client, and the janitor for its next round. And the janitor's own function.
const IDLE: [&str; 6] = [
    "tcp_recvmsg",
    "inet_csk_accept",
    "do_sys_poll",
    "do_sigtimedwait",
    "janitor",
    "shop::payment::work",
];

/// One load that starts after attach and ends before the trace does, and the shop's log.
fn trace_the_load() -> (Outcome, String) {
    let shop = Shop::open().unwrap();
    let trace = Trace::start(&shop::profile(), shop.pid(), &[]).unwrap();
    assert_eq!(shop.load(CONNECTIONS, REQUESTS).unwrap(), REQUESTS);
    let outcome = trace.finish().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    (outcome, shop.close().unwrap())
}

#[test]
fn every_request_is_counted_and_true() {
    let (outcome, log) = trace_the_load();
    let summary = outcome.summary().unwrap();
    let csv = outcome.csv().unwrap();
    let rows = outcome.rows().unwrap();

    // The count, in every place where it stands.
    let order = summary.request("order").unwrap();
    assert_eq!(order.count, REQUESTS);
    assert_eq!((order.begins, order.ends), (REQUESTS, REQUESTS));
    assert_eq!(order.rows, REQUESTS);
    assert_eq!(rows.len() as u64, REQUESTS);
    assert!(rows.iter().all(|row| row.complete && row.reason.is_empty()));
    assert_eq!(summary.lost(), 0, "{:?}", summary.losses);
    outcome.has_whole_stacks().unwrap();

    // Every single request is within its clock brackets, and its ledger closes.
    let offset = summary.trace.monotonic_to_unix_ns;
    let checked = brackets::check(&log, &csv, offset).unwrap();
    assert_eq!(checked as u64, REQUESTS);
    assert_eq!(ledger::check(&csv).unwrap() as u64, REQUESTS);

    every_step_is_seen(&rows);
    stacks_hold_request_time_and_nothing_else(&outcome, &rows);
    xml::check(&outcome.flamegraph().unwrap()).unwrap();
}

/// Each step of an order loses time in its own way; the README of the shop lists them.
fn every_step_is_seen(rows: &[rows::Row]) {
    assert!(rows.iter().all(|row| row.request == "order"));
    assert!(rows.iter().all(|row| row.comm == "shop-conn"));
    assert!(rows.iter().all(|row| row.on_cpu_ns > 0));
    assert!(rows::sum(rows, "journal") > 0, "no wait for the journal");
    // Where no user stack can be read, a wait named by function stays in its built-in class.
    let lock = rows::sum(rows, "stock_lock") + rows::sum(rows, "lock");
    assert!(lock > 0, "no wait for the stock");
    let payment = rows::sum(rows, "payment") + rows::sum(rows, "network");
    assert!(payment > 0, "no wait for the payment desk");
    // The courier comes in every order; a timer may fire before the thread could block.
    let slept = rows.iter().filter(|row| row.classes["sleep"] > 0).count();
    assert!(slept * 100 >= rows.len() * 95, "{slept} slept");
    // Every 4th order waits for the disk; others may wait for its inode, which the sync holds.
    let journal = rows.iter().filter(|row| row.classes["journal"] > 0).count();
    assert!(
        journal * 5 >= rows.len(),
        "{journal} waited for the journal"
    );
}

fn stacks_hold_request_time_and_nothing_else(outcome: &Outcome, rows: &[rows::Row]) {
    let idle = outcome.stack_with(&IDLE).unwrap();
    assert_eq!(idle, None, "idle time in stacks.folded");

    // The stacks add up to the ledgers: each line is rounded to a microsecond, nothing else.
    let off_cpu_ns: u64 = rows
        .iter()
        .map(|row| row.blocked_ns + row.unattributed_ns + row.run_queue_ns + row.preempted_ns)
        .sum();
    let (us, lines) = outcome.folded_sum().unwrap();
    assert!(lines > 0);
    let difference = us.abs_diff(off_cpu_ns / 1000);
    assert!(
        difference <= lines,
        "{us} us in stacks, {off_cpu_ns} ns in ledgers, {lines} lines"
    );
}
