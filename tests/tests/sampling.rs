//! `--sample`: one of N requests is recorded, and all are counted.
//!
//! Needs root, a kernel with BPF and g++.

use std::thread::available_parallelism;

use reqtrace_tests::blamed;
use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::ledger;
use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::shop::{self, Shop};
use serde_json::Value;

const CALLS: u64 = 2_000;
const EVERY: u64 = 4;

#[test]
fn all_are_counted_and_one_of_four_is_recorded() {
    let mut fixture = Fixture::start("endings", &[&CALLS.to_string()]).unwrap();
    let profile = fixture.profile("handle", "nest").unwrap();
    let trace = Trace::start(&profile, fixture.pid(), &["--sample", "1/4"]).unwrap();
    fixture.work().unwrap();
    let outcome = trace.finish().unwrap();
    fixture.end().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.said());
    ledger::check(&outcome.csv().unwrap()).unwrap();

    let summary: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let request = &summary["requests"][0];
    let number = |name: &str| request[name].as_u64().unwrap();
    // Four do not come back, and one had begun before.
    assert_eq!(number("begins"), CALLS + 4);
    assert_eq!(number("ends"), CALLS + 1);
    assert_eq!(number("exact_count"), CALLS);
    // 500 are expected, with a deviation of 19: six of those are 116.
    let recorded = number("recorded");
    assert!((384..=616).contains(&recorded), "{recorded}");
    assert_eq!(number("rows"), recorded);
    assert_eq!(number("count"), EVERY * recorded);

    let mut rows = outcome.rows().unwrap();
    rows.retain(|row| row.complete);
    assert_eq!(rows.len() as u64, recorded);
    assert!(rows.iter().all(|row| row.weight == EVERY));
    let latency_ns: u64 = rows.iter().map(|row| row.weight * row.latency_ns).sum();
    assert_eq!(request["ledger"]["latency_ns"], latency_ns);
    let said = outcome.said();
    assert!(said.contains("requests were recorded"), "{said}");
    // What is known exactly is shown, not its estimate.
    let row = said.lines().find_map(|line| line.strip_prefix("work "));
    let count = row.and_then(|row| row.split_whitespace().next());
    let count = count.map(|count| count.replace(',', ""));
    assert_eq!(count, Some(CALLS.to_string()), "{said}");
}

#[test]
fn begins_inside_and_threads_that_move_are_counted_exactly() {
    const THREADS: u64 = 64;
    let cpus = (available_parallelism().unwrap().get() as u64).min(THREADS);
    let mut fixture = Fixture::start("tight", &[]).unwrap();
    let profile = fixture.profile("work", "nest").unwrap();
    let trace = Trace::start(&profile, fixture.pid(), &["--sample", "1/4"]).unwrap();
    for (number, order) in ["cold 3", "nest 500", "warm 500", "nest 500", "block 20"]
        .iter()
        .enumerate()
    {
        let answer = format!("answer {number} ");
        fixture.ask(&format!("{order} {number}"), &answer).unwrap();
    }
    let outcome = trace.finish().unwrap();
    fixture.end().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.said());
    ledger::check(&outcome.csv().unwrap()).unwrap();

    let summary: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let request = &summary["requests"][0];
    let number = |name: &str| request[name].as_u64().unwrap();
    let (nests, others) = (1_000 * cpus, 3 * THREADS + 500 * cpus + 2);
    assert_eq!(number("begins"), 3 * nests + others);
    assert_eq!(number("ends"), 3 * nests + others);
    // Of those inside none is a request, whether the outer one is recorded or not.
    assert_eq!(number("exact_count"), nests + others);
    let all = (nests + others) as f64;
    let (expected, deviation) = (all / 4.0, (all * 3.0 / 16.0).sqrt());
    let recorded = number("recorded") as f64;
    assert!(
        (recorded - expected).abs() < 6.0 * deviation,
        "{recorded} of {all}"
    );
    assert_eq!(number("rows") as f64, recorded);
}

/// Whoever holds up a request that is drawn is known, also if its own was not.
#[test]
fn who_holds_up_those_that_are_drawn_is_known() {
    const ORDERS: u64 = 4_000;
    let shop = Shop::open().unwrap();
    let options = ["--sample", "1/8", "--blame", "--labels"];
    let trace = Trace::start(&shop::profile(), shop.pid(), &options).unwrap();
    assert_eq!(shop.load(4, ORDERS).unwrap(), ORDERS);
    let outcome = trace.finish().unwrap();
    let (rows, blamed) = blamed::of(&outcome).unwrap();
    let summary: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let request = &summary["requests"][0];
    assert_eq!(request["exact_count"], ORDERS);
    let recorded = request["recorded"].as_u64().unwrap();
    assert_eq!(rows.len() as u64, recorded);
    assert!(rows.iter().all(|row| [1, 8].contains(&row.weight)));
    // Without bias: 500 or fewer are drawn, and those of who held one up for long.
    let weights: u64 = rows.iter().map(|row| row.weight).sum();
    assert!(weights.abs_diff(ORDERS) < ORDERS / 4, "{weights}");
    let unknown = &summary["blame"][0]["unknown_ns"];
    assert_eq!(
        unknown["not_recorded"].as_u64().unwrap_or(0),
        0,
        "{unknown:#}"
    );
    let (all_ns, orders_ns) = (
        blamed::sum(&blamed, |_| true),
        blamed::sum(&blamed, |row| row.culprit_request == "order"),
    );
    // The lock of the stock is held by other orders, most of which are not drawn.
    assert!(orders_ns * 200 > all_ns, "{orders_ns} of {all_ns} ns");
    let others = &summary["blame"][0]["causes_ns"]["between_requests"];
    assert!(
        others.as_u64().unwrap_or(0) * 10 < all_ns,
        "{others} of {all_ns} ns"
    );
}
