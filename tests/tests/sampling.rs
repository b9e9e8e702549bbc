//! `--sample`: one of N requests is recorded, and all are counted. `--keep-slow`: all are recorded, and those that are slow have
//! a row, and one in N of the others.
//!
//! Needs root, a kernel with BPF and g++.

use std::path::Path;
use std::thread::available_parallelism;

use reqtrace_tests::blamed;
use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::ledger;
use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::rows::Row;
use reqtrace_tests::servers::Server;
use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::{tasks, workspace};
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
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
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
    let printed = outcome.printed();
    assert!(printed.contains("requests were recorded"), "{printed}");
    // What is known exactly is shown, not its estimate.
    let row = printed.lines().find_map(|line| line.strip_prefix("work "));
    let count = row.and_then(|row| row.split_whitespace().next());
    let count = count.map(|count| count.replace(',', ""));
    assert_eq!(count, Some(CALLS.to_string()), "{printed}");
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
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
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

const SLOW_NS: u64 = 3_000_000;
const ONE_IN: u64 = 10;

/// All requests are in the totals, each slow one has a row, and so have as many of the others as chance gives. Returns the rows
/// of complete requests.
fn check_kept(outcome: &Outcome, wanted: u64) -> Vec<Row> {
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    outcome.checked().unwrap();
    ledger::check(&outcome.csv().unwrap()).unwrap();
    let summary: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let request = &summary["requests"][0];
    let number = |name: &str| request[name].as_u64().unwrap();
    for counted in ["begins", "ends", "count", "exact_count", "recorded"] {
        assert_eq!(number(counted), wanted, "{counted}: {}", outcome.printed());
    }
    assert_eq!(summary["trace"]["keep_slow_ns"], SLOW_NS);
    assert_eq!(summary["trace"]["one_in"], ONE_IN);

    let mut rows = outcome.rows().unwrap();
    rows.retain(|row| row.complete);
    assert_eq!(
        (number("sent"), number("rows")),
        (rows.len() as u64, rows.len() as u64)
    );
    for row in &rows {
        let stands_for = if row.latency_ns < SLOW_NS { ONE_IN } else { 1 };
        assert_eq!(row.weight, stands_for, "{row:?}");
    }
    let slow = rows.iter().filter(|row| row.weight == 1).count() as u64;
    let (drawn, fast) = (rows.len() as u64 - slow, wanted - slow);
    let share = 1.0 / ONE_IN as f64;
    let deviation = (fast as f64 * share * (1.0 - share)).sqrt();
    assert!(
        (drawn as f64 - fast as f64 * share).abs() < 6.0 * deviation,
        "{drawn} of {fast}, {slow} slow"
    );

    // The ledger is the kernel's, of all of them.
    let part = |name: &str| request["ledger"][name].as_u64().unwrap_or(0);
    let classes = request["ledger"]["classes_ns"].as_object().unwrap();
    let blocked_ns: u64 = classes.values().filter_map(Value::as_u64).sum();
    assert_eq!(part("blocked_ns"), blocked_ns);
    let parts = [
        "on_cpu_ns",
        "run_queue_ns",
        "preempted_ns",
        "blocked_ns",
        "unattributed_ns",
        "parked_ns",
        "queued_ns",
    ];
    assert_eq!(part("latency_ns"), parts.map(part).iter().sum::<u64>());
    let own = |weight: u64| rows.iter().filter(move |row| row.weight == weight);
    let slow_ns: u64 = own(1).map(|row| row.latency_ns).sum();
    let fast_ns = part("latency_ns") - slow_ns;
    // What the rows stand for is what the kernel has added up: Var = Σ w (w − 1) x².
    let estimate: u64 = own(ONE_IN).map(|row| ONE_IN * row.latency_ns).sum();
    let squares: f64 = own(ONE_IN).map(|row| (row.latency_ns as f64).powi(2)).sum();
    let deviation = ((ONE_IN * (ONE_IN - 1)) as f64 * squares).sqrt();
    let error = (estimate as f64 - fast_ns as f64).abs();
    assert!(error < 6.0 * deviation, "{estimate} of {fast_ns} ns");
    let longest = rows.iter().map(|row| row.latency_ns).max().unwrap();
    if slow > 0 {
        assert_eq!(request["latency"]["max_ns"], longest);
    }
    rows
}

#[test]
fn slow_requests_have_a_row_and_the_others_are_counted() {
    const ORDERS: u64 = 4_000;
    let shop = Shop::open().unwrap();
    for more in [&[][..], &["--blame"]] {
        let options = [&["--keep-slow", "3ms", "--one-in", "10"], more].concat();
        let trace = Trace::start(&shop::profile(), shop.pid(), &options).unwrap();
        assert_eq!(shop.load(4, ORDERS).unwrap(), ORDERS);
        let outcome = trace.finish().unwrap();
        check_kept(&outcome, ORDERS);
        let printed = outcome.printed();
        assert!(
            printed.contains("requests have a record (--keep-slow)"),
            "{printed}"
        );
        if more == ["--blame"] {
            // Who held up a slow one is known though its own request has no row.
            let (_, blamed) = blamed::of(&outcome).unwrap();
            let orders_ns = blamed::sum(&blamed, |row| row.culprit_request == "order");
            assert!(orders_ns > 0, "{printed}");
            let summary: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
            let unknown = &summary["blame"][0]["unknown_ns"]["not_recorded"];
            assert_eq!(unknown.as_u64().unwrap_or(0), 0, "{printed}");
        }
    }
}

/// Requests with a key, which any thread may end: jobs that are tasks, most of which have no row.
#[test]
fn jobs_without_a_row_hold_others_up_all_the_same() {
    const JOBS: u64 = 200;
    const SLOW_NS: u64 = 20_000_000;
    let program = workspace::tasks().unwrap();
    let options = ["--blame", "--keep-slow", "20ms", "--one-in", "10"];
    let (outcome, lines) = tasks::trace_of(
        &program,
        &tasks::profile("tasks.toml"),
        "multi",
        JOBS,
        &options,
    )
    .unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    ledger::check(&outcome.csv().unwrap()).unwrap();
    let summary = outcome.summary().unwrap();
    for request in &summary.requests {
        let counts = [request.exact_count, request.begins, request.ends];
        assert_eq!(
            counts,
            [request.count; 3],
            "{}: {}",
            request.name,
            outcome.printed()
        );
    }
    let all: u64 = summary.requests.iter().map(|request| request.count).sum();
    assert_eq!(all, lines.len() as u64, "{}", outcome.printed());
    let mut rows = outcome.rows().unwrap();
    rows.retain(|row| row.complete);
    assert!(
        rows.len() < lines.len() / 2,
        "{} of {}",
        rows.len(),
        lines.len()
    );
    for row in &rows {
        let stands_for = if row.latency_ns < SLOW_NS { ONE_IN } else { 1 };
        assert_eq!(row.weight, stands_for, "{row:?}");
    }
    let value: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    for blame in value["blame"].as_array().unwrap() {
        let unknown = &blame["unknown_ns"]["not_recorded"];
        assert_eq!(unknown.as_u64().unwrap_or(0), 0, "{blame:#}");
    }
}

/// A text comes before the kernel knows that its request has no row.
#[test]
fn rows_that_are_left_have_their_texts() {
    const COMMANDS: u64 = 20_000;
    let server = Server::redis().unwrap();
    let options = ["--labels", "--keep-slow", "3ms", "--one-in", "10"];
    let trace = Trace::start(Path::new("redis.toml"), server.pid(), &options).unwrap();
    let commands = COMMANDS.to_string();
    server
        .redis_benchmark(&["-t", "set,get", "-n", &commands, "-c", "4", "-q"])
        .unwrap();
    let outcome = trace.finish().unwrap();
    assert_eq!(outcome.checked().unwrap().lost(), 0);
    let mut rows = outcome.rows().unwrap();
    rows.retain(|row| row.complete && row.request == "command");
    let named = |name: &str| {
        let own = rows.iter().filter(|row| row.attributes["command"] == name);
        own.map(|row| row.weight).sum::<u64>()
    };
    // 2,000 of each, with a deviation of 42.
    for name in ["set", "get"] {
        assert!(
            named(name).abs_diff(COMMANDS) < 6 * 425,
            "{name}: {}",
            named(name)
        );
    }
    let others = rows.iter().map(|row| row.weight).sum::<u64>() - named("set") - named("get");
    assert!(others <= 4 * ONE_IN, "{others} without a name");
}
