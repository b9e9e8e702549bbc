//! Metrics: what is read has to add up, and never to decrease. The oracle adds the requests up by itself.

use proptest::prelude::*;
use reqtrace_analysis::cells::{Cell, One};
use reqtrace_analysis::report::{Ledger, Places};

use super::*;
use crate::listen::Page as _;

mod grouped;

const MS: u64 = 1_000_000;

/// Values by the name of the metric with its labels, as a reader has them.
fn read(metrics: &Metrics) -> BTreeMap<String, f64> {
    let text = metrics.text().unwrap();
    assert!(text.ends_with("# EOF\n"));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let line = line.split_once(" # ").map_or(line, |(line, _)| line);
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

fn classes() -> Vec<String> {
    ["disk", "stock lock"].map(str::to_owned).to_vec()
}

fn places() -> Places {
    Places {
        parked: vec!["upstream".to_owned(), String::new()],
        queued: vec![String::new()],
    }
}

/// A ledger of these parts, whose sum is its latency.
fn ledger(parts: [u64; 6]) -> Ledger {
    Ledger {
        latency_ns: parts.iter().sum(),
        on_cpu_ns: parts[0],
        run_queue_ns: parts[1],
        classes: vec![parts[2], parts[3]],
        parked: vec![parts[4], 0],
        queued: vec![parts[5]],
        ..Ledger::default()
    }
}

fn closed(ledgers: &[Ledger]) -> Closed {
    let mut all = Closed::default();
    for (id, ledger) in (1..).zip(ledgers) {
        let mut cell = Cell::default();
        let one = One {
            id,
            ledger,
            weight: 1,
        };
        cell.add(&one);
        all.add(&cell, 0, false);
    }
    all.name_parts(&classes(), &places());
    all
}

/// Metrics of a service that is traced.
fn of_service(slo: Option<Duration>) -> Metrics {
    let metrics = Metrics::default();
    metrics.want(&BTreeMap::from([("db".to_owned(), slo)]));
    metrics.targets(
        &BTreeMap::from([("db", 2)]),
        BTreeMap::from([(Target::Traced, 2)]),
    );
    let empty = Ledger::of(2, &places());
    let names: Vec<String> = parts(&empty, &classes(), &places())
        .map(|(name, _)| name)
        .collect();
    let shown = Shown {
        parts: &names,
        has_causes: false,
        has_groups: false,
    };
    metrics.begin("db", &["query".to_owned()], &shown);
    metrics
}

fn add(metrics: &Metrics, of_type: &str, ledgers: &[Ledger]) {
    let (name, closed) = (of_type.to_owned(), closed(ledgers));
    metrics.closed("db", 10_000_000_000, 0, [(&name, &closed)]);
}

#[test]
fn every_part_is_there_from_the_first_scrape() {
    let metrics = of_service(None);
    let seen = read(&metrics);
    for part in [
        "on_cpu",
        "run_queue",
        "preempted",
        "unattributed",
        "disk",
        "stock_lock",
        "parked:upstream",
        "parked",
        "queued",
    ] {
        let name = format!(
            "reqtrace_request_part_seconds_total{{service=\"db\",type=\"query\",part=\"{part}\"}}"
        );
        assert_eq!(seen.get(&name), Some(&0.0), "{name}");
    }
    let count = "reqtrace_request_duration_seconds_count{service=\"db\",type=\"query\"}";
    assert_eq!(seen[count], 0.0);
    assert_eq!(seen["reqtrace_traced{service=\"db\"}"], 2.0);
    assert_eq!(seen["reqtrace_targets{state=\"waiting\"}"], 0.0);
    assert_eq!(seen["reqtrace_build_info{version=\"0.1.0\"}"], 1.0);
    assert!(seen["reqtrace_agent_resident_memory_bytes"] > 1e6);
    // Blame was not asked for.
    assert!(seen.keys().all(|name| !name.contains("root_cause")));
}

#[test]
fn requests_are_in_the_buckets_of_their_durations() {
    let metrics = of_service(Some(Duration::from_millis(7)));
    let of = |ns: u64| ledger([ns, 0, 0, 0, 0, 0]);
    add(
        &metrics,
        "query",
        &[90_000, 6 * MS, 8 * MS, 8 * MS, 200_000 * MS].map(of),
    );
    let seen = read(&metrics);
    let bucket = |le: &str| {
        let labels = format!("service=\"db\",type=\"query\",le=\"{le}\"");
        // The order of labels is the crate's.
        let turned = format!("le=\"{le}\",service=\"db\",type=\"query\"");
        let name = |labels| format!("reqtrace_request_duration_seconds_bucket{{{labels}}}");
        let value = seen.get(&name(labels)).or_else(|| seen.get(&name(turned)));
        *value.unwrap_or_else(|| panic!("no bucket {le}: {seen:#?}"))
    };
    assert_eq!([bucket("0.0001"), bucket("0.005")], [1.0, 1.0]);
    assert_eq!([bucket("0.007"), bucket("0.01")], [2.0, 4.0]);
    assert_eq!([bucket("100.0"), bucket("+Inf")], [4.0, 5.0]);
    let of_type = "{service=\"db\",type=\"query\"}";
    assert_eq!(seen[&format!("reqtrace_slow_requests_total{of_type}")], 3.0);
    let sum = seen[&format!("reqtrace_request_duration_seconds_sum{of_type}")];
    assert!((sum - 200.02209).abs() < 1e-9, "{sum}");
    // Another SLO begins with what comes: nothing that counts goes back.
    metrics.want(&BTreeMap::from([(
        "db".to_owned(),
        Some(Duration::from_millis(50)),
    )]));
    add(&metrics, "query", &[of(20 * MS)]);
    let later = read(&metrics);
    assert_eq!(
        later[&format!("reqtrace_slow_requests_total{of_type}")],
        3.0
    );
    never_decreases(&seen, &later);
}

/// A request that stands for four counts four times, with its time, and was recorded once.
#[test]
fn what_was_left_out_is_estimated_from_what_was_recorded() {
    let metrics = of_service(None);
    let mut cell = Cell::default();
    cell.add(&One {
        id: 1,
        ledger: &ledger([MS; 6]),
        weight: 4,
    });
    let mut closed = Closed::default();
    closed.add(&cell, 0, false);
    closed.name_parts(&classes(), &places());
    metrics.closed("db", 1, 0, [(&"query".to_owned(), &closed)]);
    let seen = read(&metrics);
    let of_type = "{service=\"db\",type=\"query\"}";
    let value = |name: &str| seen[&format!("reqtrace_{name}{of_type}")];
    assert_eq!(value("request_duration_seconds_count"), 4.0);
    assert_eq!(value("recorded_requests_total"), 1.0);
    assert!((value("request_duration_seconds_sum") - 0.024).abs() < 1e-12);
    closes(&seen);
}

/// Buckets with the labels, value and time of their exemplars.
fn exemplars(metrics: &Metrics) -> Vec<(String, String)> {
    let text = metrics.text().unwrap();
    let lines = text.lines().filter_map(|line| line.split_once(" # "));
    let edge = |line: &str| {
        let (_, from) = line.split_once("le=\"").unwrap();
        from.split('"').next().unwrap().to_owned()
    };
    lines
        .map(|(line, of)| (edge(line), of.to_owned()))
        .collect()
}

#[test]
fn a_bucket_shows_the_request_with_a_row_that_ended_last() {
    const START: u64 = 1_764_000_000_000;
    let slo = |ms| BTreeMap::from([("db".to_owned(), Some(Duration::from_millis(ms)))]);
    let metrics = of_service(Some(Duration::from_millis(8)));
    let one = |id: u64, start_ms: u64, ms: u64| {
        let exemplar = Exemplar {
            id,
            start_unix_ns: (START + start_ms) * MS,
            latency_ns: ms * MS,
            trace: (id == 5).then_some([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]),
        };
        ("query", exemplar)
    };
    let shown = [
        one(1, 0, 6),
        one(2, 500, 6),
        one(3, 400, 6),
        // At the edge, and beyond the last one.
        one(4, 0, 8),
        one(5, 0, 200_000),
    ];
    metrics.exemplars("db", shown[..3].to_vec());
    // Their window is not closed.
    assert_eq!(exemplars(&metrics), []);
    let of = |ms: u64| ledger([ms * MS, 0, 0, 0, 0, 0]);
    add(&metrics, "query", &[6, 7, 200_000].map(of));
    let of_2 = "{id=\"2\",start_ns=\"1764000000500000000\"} 0.006 1764000000.506";
    let of_5 = "{id=\"5\",start_ns=\"1764000000000000000\",trace_id=\"000102030405060708090a0b0c0d0eff\"} \
                200.0 1764000200.000";
    let is = |edge: &str, of: &str| (edge.to_owned(), of.to_owned());
    assert_eq!(exemplars(&metrics), [is("0.008", of_2)]);
    metrics.exemplars("db", shown[3..].to_vec());
    let both = [is("0.008", of_2), is("+Inf", of_5)];
    assert_eq!(exemplars(&metrics), both, "4 ended before 2");

    // Another edge takes what is below it, and shows it when it has counted one.
    metrics.want(&slo(6));
    assert_eq!(exemplars(&metrics), both[1..]);
    add(&metrics, "query", &[5, 6].map(of));
    assert_eq!(exemplars(&metrics), [is("0.006", of_2), is("+Inf", of_5)]);
}

fn never_decreases(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) {
    let counts = |name: &str| {
        ["_total", "_bucket", "_count", "_sum"].iter().any(|end| {
            name.split('{')
                .next()
                .is_some_and(|name| name.ends_with(end))
        })
    };
    for (name, value) in before.iter().filter(|(name, _)| counts(name)) {
        assert!(
            after.get(name).is_some_and(|now| now >= value),
            "{name} {value} {:?}",
            after.get(name)
        );
    }
}

#[test]
fn a_service_that_leaves_and_comes_back_goes_on_where_it_was() {
    let metrics = of_service(None);
    add(&metrics, "query", &[ledger([MS; 6])]);
    let before = read(&metrics);
    metrics.ended("db", true, false);
    metrics.want(&BTreeMap::new());
    metrics.state().services.get_mut("db").unwrap().seen = None;
    let without = read(&metrics);
    assert!(
        without.keys().all(|name| !name.contains("\"db\"")),
        "{without:#?}"
    );
    let again = of_service(None);
    std::mem::swap(&mut *again.state(), &mut *metrics.state());
    metrics.want(&BTreeMap::from([("db".to_owned(), None)]));
    again.want(&BTreeMap::from([("db".to_owned(), None)]));
    again.targets(&BTreeMap::from([("db", 1)]), BTreeMap::new());
    let back = read(&again);
    never_decreases(&before, &back);
    assert_eq!(back["reqtrace_session_failures_total{service=\"db\"}"], 1.0);
}

/// Some types more than there is room for: all are counted, and their parts add up still.
#[test]
fn types_beyond_the_cap_are_one() {
    let metrics = of_service(None);
    for number in 0..MAX_TYPES + 50 {
        add(&metrics, &format!("type {number}\"\n"), &[ledger([MS; 6])]);
    }
    let seen = read(&metrics);
    let counts = seen
        .iter()
        .filter(|(name, _)| name.contains("duration_seconds_count"));
    let counts: Vec<(&String, &f64)> = counts.collect();
    // `query` is one of them.
    assert_eq!(counts.len(), MAX_TYPES + 1);
    assert_eq!(counts.iter().map(|(_, count)| **count).sum::<f64>(), 250.0);
    let other = counts
        .iter()
        .find(|(name, _)| name.contains("~other"))
        .unwrap();
    assert_eq!(*other.1, 51.0);
    closes(&seen);
}

/// Σ parts = Σ durations, of each type.
fn closes(seen: &BTreeMap<String, f64>) {
    let sums = seen
        .iter()
        .filter(|(name, _)| name.starts_with("reqtrace_request_duration_seconds_sum"));
    for (name, sum) in sums {
        let labels = name.split_once('{').unwrap().1.trim_end_matches('}');
        let parts = seen.iter().filter(|(name, _)| {
            name.starts_with("reqtrace_request_part_seconds_total") && name.contains(labels)
        });
        let parts: f64 = parts.map(|(_, value)| value).sum();
        assert!((parts - sum).abs() <= 1e-6 * sum, "{name}: {parts} {sum}");
    }
}

/// A counter that is shown with its first loss in it has not increased, for Prometheus.
#[test]
fn what_the_alert_on_losses_is_about_is_shown_before_any() {
    let rules = include_str!("../../../deploy/prometheus/reqtrace-rules.yml");
    let causes = rules.split_once("reqtrace_lost_total{cause=~\"").unwrap().1;
    let causes = causes.split_once('"').unwrap().0;
    let metrics = of_service(None);
    metrics.lost("db", "key_table_full", 2);
    // Another session.
    let shown = Shown {
        parts: &[],
        has_causes: false,
        has_groups: false,
    };
    metrics.begin("db", &[], &shown);
    let seen = read(&metrics);
    let lost =
        |cause: &str| seen[&format!("reqtrace_lost_total{{service=\"db\",cause=\"{cause}\"}}")];
    let of_causes: Vec<f64> = causes.split('|').map(lost).collect();
    assert_eq!(of_causes, [0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0]);
}

#[test]
fn what_is_now_is_a_gauge_and_goes_with_its_session() {
    let metrics = of_service(None);
    metrics.open("db", 3, 1500 * MS);
    metrics.cost("db", 0.031);
    metrics.lost("db", "ring_full", 7);
    metrics.lost("db", "ring_full", 1);
    metrics.reloaded(true);
    metrics.reloaded(false);
    let seen = read(&metrics);
    assert_eq!(seen["reqtrace_requests_open{service=\"db\"}"], 3.0);
    assert_eq!(seen["reqtrace_oldest_open_seconds{service=\"db\"}"], 1.5);
    assert_eq!(seen["reqtrace_cost_ratio{service=\"db\"}"], 0.031);
    assert_eq!(
        seen["reqtrace_lost_total{service=\"db\",cause=\"ring_full\"}"],
        8.0
    );
    assert_eq!(seen["reqtrace_config_last_reload_successful"], 0.0);
    assert_eq!(
        seen["reqtrace_config_reloads_total{result=\"refused\"}"],
        1.0
    );
    metrics.ended("db", false, false);
    let ended = read(&metrics);
    assert_eq!(ended["reqtrace_oldest_open_seconds{service=\"db\"}"], 0.0);
    assert!(!ended.contains_key("reqtrace_cost_ratio{service=\"db\"}"));
    never_decreases(&seen, &ended);
}

proptest! {
    /// Whatever comes in whatever windows: the sums are those of the requests, the parts add up, and each scrape has at
    /// least what the one before had.
    #[test]
    fn parts_add_up_to_durations(
        windows in prop::collection::vec(
            prop::collection::vec(prop::array::uniform6(0_u64..5_000_000_000), 0..20), 1..6,
        ),
    ) {
        let metrics = of_service(Some(Duration::from_millis(20)));
        let mut before = read(&metrics);
        let mut all = Vec::new();
        for window in &windows {
            let ledgers: Vec<Ledger> = window.iter().map(|parts| ledger(*parts)).collect();
            add(&metrics, "query", &ledgers);
            all.extend(ledgers);
            let seen = read(&metrics);
            never_decreases(&before, &seen);
            closes(&seen);
            before = seen;
        }
        let of_type = "{service=\"db\",type=\"query\"}";
        let count = before[&format!("reqtrace_request_duration_seconds_count{of_type}")];
        prop_assert_eq!(count, all.len() as f64);
        let recorded = before[&format!("reqtrace_recorded_requests_total{of_type}")];
        prop_assert_eq!(recorded, all.len() as f64);
        let ns: u64 = all.iter().map(|ledger| ledger.latency_ns).sum();
        let sum = before[&format!("reqtrace_request_duration_seconds_sum{of_type}")];
        prop_assert!((sum - ns as f64 / 1e9).abs() <= 1e-9 * sum.max(1.0));
        let disk: u64 = all.iter().map(|ledger| ledger.classes[0]).sum();
        let disk_is = before["reqtrace_request_part_seconds_total{service=\"db\",type=\"query\",part=\"disk\"}"];
        prop_assert!((disk_is - disk as f64 / 1e9).abs() <= 1e-9 * disk_is.max(1.0));
        let slow = all.iter().filter(|ledger| ledger.latency_ns > 20 * MS).count() as f64;
        let slow_is = before[&format!("reqtrace_slow_requests_total{of_type}")];
        // A bucket of a cell is 0.1 % wide.
        let near = all.iter().filter(|ledger| ledger.latency_ns.abs_diff(20 * MS) < 20_000).count();
        prop_assert!((slow_is - slow).abs() <= near as f64);
    }
}
