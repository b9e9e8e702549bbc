//! The example with a thread pool: every order is one request, on two threads and in a queue between.
//!
//! Needs root and a kernel with BPF.

use std::process::Command;
use std::time::Duration;

use reqtrace_tests::process::{Child, Stream, run};
use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::rows;
use reqtrace_tests::workspace;

const ORDERS: u64 = 1500;
const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn every_order_is_counted_from_the_acceptor_to_the_baker() {
    let folder = workspace::scratch().unwrap();
    let program = workspace::bakery().unwrap();
    let mut command = Command::new(&program);
    command.args(["serve", "--listen", "127.0.0.1:0", "--bakers", "3"]);
    let mut bakery = Child::start(command, folder.path(), "bakery").unwrap();
    let line = bakery
        .wait_for_line(Stream::Out, "listening on ", LIMIT)
        .unwrap();
    let address = line.strip_prefix("listening on ").unwrap();
    let profile = workspace::root().join("examples/bakery/bakery.toml");
    let trace = Trace::start(&profile, bakery.pid(), &[]).unwrap();
    let mut load = Command::new(&program);
    load.args(["load", "--connect", address, "--customers", "8"]);
    let printed = run(load.args(["--orders", &ORDERS.to_string()])).unwrap();
    let mean_us = printed
        .lines()
        .find_map(|line| line.strip_prefix("mean latency "));
    let mean_us: u64 = mean_us
        .unwrap()
        .strip_suffix(" us")
        .unwrap()
        .parse()
        .unwrap();
    let outcome = trace.finish().unwrap();

    let summary = outcome.checked().unwrap();
    outcome.has_whole_stacks().unwrap();
    let order = summary.request("order").unwrap();
    assert_eq!(
        (order.count, order.rows),
        (ORDERS, ORDERS),
        "{}",
        outcome.printed()
    );
    assert_eq!((order.begins, order.ends), (ORDERS, ORDERS));
    assert_eq!(
        (order.unknown_keys, order.running_elsewhere),
        (Some(0), Some(0))
    );

    let rows = outcome.rows().unwrap();
    assert!(rows.iter().all(|row| row.complete));
    // The acceptor began all of them, and bakers ended them.
    assert!(rows.iter().all(|row| row.comm == "baker"), "{:?}", rows[0]);
    // Each waits in the queue, if only for the baker to wake up.
    assert!(
        rows.iter()
            .all(|row| row.queued_ns > 0 && row.queued_ns == row.places["order_queue"])
    );
    assert!(rows.iter().all(|row| row.parked_ns == 0));
    let latency_ns: u64 = rows.iter().map(|row| row.latency_ns).sum();
    let queued_ns: u64 = rows.iter().map(|row| row.queued_ns).sum();
    // Eight customers and three bakers.
    assert!(queued_ns * 3 > latency_ns, "{queued_ns} of {latency_ns} ns");
    assert!(
        latency_ns / ORDERS / 1000 <= mean_us,
        "{latency_ns} ns, {mean_us} us for the customers"
    );
    for wait in ["oven", "sleep"] {
        assert!(rows::sum(&rows, wait) > 0, "{wait}");
    }
    let weights = ["500", "750", "1000"];
    for weight in weights {
        let count = rows
            .iter()
            .filter(|row| row.attributes["flour"] == weight)
            .count() as u64;
        assert_eq!(count, ORDERS / 3, "{weight}");
    }
    // Bakers that wait for an order are in no request.
    assert_eq!(
        outcome
            .stack_with(&["Queue::pop", "inet_csk_accept", "tcp_recvmsg"])
            .unwrap(),
        None
    );
}
