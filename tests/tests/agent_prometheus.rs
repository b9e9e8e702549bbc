//! A real Prometheus that scrapes a real agent: exemplars lead to rows, each query of the dashboard and each alert finds what
//! it asks for.
//!
//! Needs root, a kernel with BPF and prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqtrace_tests::process::until;
use reqtrace_tests::prometheus::Prometheus;
use reqtrace_tests::scraped::{Agent, configuration, files_in, sums};
use reqtrace_tests::shop::Shop;
use reqtrace_tests::workspace;
use serde_json::Value;

use crate::agent::rule_of_shop;
use crate::agent_rows::{all_of, begin};

const LIMIT: Duration = Duration::from_secs(60);
const COUNT: &str = "reqtrace_request_duration_seconds_count{service=\"shop\",type=\"order\"}";
const BUCKETS: &str = "reqtrace_request_duration_seconds_bucket";

pub(crate) fn deployed(path: &str) -> PathBuf {
    workspace::root().join("deploy").join(path)
}

fn started(folder: &Path, agent: &Agent) -> Prometheus {
    let rules = deployed("prometheus/reqtrace-rules.yml");
    Prometheus::start(folder, agent.address(), &rules).unwrap()
}

/// Whoever looks at a bucket finds a request of it by its id and begin in the rows.
#[test]
fn exemplars_in_prometheus_are_rows_of_their_buckets() {
    const ORDERS: u64 = 2_000;
    let folder = workspace::scratch().unwrap();
    let dir = folder.path().join("rows");
    let (shop, config, mut agent) = begin(folder.path(), &dir, "one-in = 10");
    // Some orders take longer, however quiet the machine is.
    let changed = configuration(&config.replace("7ms", "1ms"));
    agent.reload(&changed).unwrap();
    let slo = "reqtrace_slo_seconds{service=\"shop\"}";
    agent.wait_for(slo, 0.001).unwrap();
    let server = started(folder.path(), &agent);
    assert_eq!(shop.load(4, ORDERS).unwrap(), ORDERS);
    agent.wait_for(COUNT, ORDERS as f64).unwrap();
    let shown = until(LIMIT, "the exemplars", || {
        let shown = exemplars(&server);
        // A bucket whose requests were not drawn has none; that of slow ones always has.
        Ok(shown
            .keys()
            .any(|(edge, _)| *edge > 1_000_000)
            .then_some(shown))
    })
    .unwrap();
    let (code, printed) = agent.end().unwrap();
    assert_eq!(code, Some(0), "{printed}");
    let rows: BTreeMap<(i64, i64), i64> = all_of(&dir)
        .iter()
        .map(|row| ((row.id, row.begin.0), row.latency_ns))
        .collect();
    for ((edge_ns, below_ns), of) in shown
        .iter()
        .flat_map(|(at, all)| all.iter().map(move |of| (at, of)))
    {
        let latency_ns = rows.get(&(of.id, of.start_ns));
        let latency_ns = *latency_ns.unwrap_or_else(|| panic!("{of:?} has no row"));
        assert!(
            (*below_ns..=*edge_ns).contains(&latency_ns),
            "{of:?} {edge_ns}"
        );
        assert!(
            (of.seconds - latency_ns as f64 / 1e9).abs() < 1e-9,
            "{of:?}"
        );
        let end_ms = (of.start_ns + latency_ns) / 1_000_000;
        assert_eq!((of.time * 1e3).round() as i64, end_ms, "{of:?}");
    }
}

/// An exemplar, as Prometheus has it.
#[derive(Clone, Debug)]
struct Exemplar {
    id: i64,
    start_ns: i64,
    seconds: f64,
    time: f64,
}

/// By the edges of their buckets, ns: the upper and the lower one.
fn exemplars(server: &Prometheus) -> BTreeMap<(i64, i64), Vec<Exemplar>> {
    let answer = server.ask(
        "query_exemplars",
        &[("query", BUCKETS), ("start", "0"), ("end", "4000000000")],
    );
    let answer = answer.unwrap();
    let ns = |edge: &str| (edge.parse::<f64>().unwrap().min(1e9) * 1e9).round() as i64;
    let series = server.query(&format!("{BUCKETS}{{service=\"shop\",type=\"order\"}}"));
    let mut edges: Vec<i64> = series
        .unwrap()
        .iter()
        .map(|series| ns(series.labels["le"].as_str().unwrap()))
        .collect();
    edges.sort_unstable();
    let mut all = BTreeMap::new();
    for series in answer.as_array().unwrap() {
        let edge_ns = ns(series["seriesLabels"]["le"].as_str().unwrap());
        let below_ns = edges.iter().rev().find(|other| **other < edge_ns);
        let of = series["exemplars"].as_array().unwrap().iter().map(|of| {
            let number = |name: &str| of["labels"][name].as_str().unwrap().parse().unwrap();
            Exemplar {
                id: number("id"),
                start_ns: number("start_ns"),
                seconds: of["value"].as_str().unwrap().parse().unwrap(),
                time: of["timestamp"].as_f64().unwrap(),
            }
        });
        all.insert(
            (edge_ns, below_ns.map_or(0, |below| below + 1)),
            of.collect(),
        );
    }
    all
}

/// Without rows nothing leads to a request.
/// Who asks for native histograms gets them as a family of their own, and all others as whoever does not ask.
#[test]
fn native_histograms_are_there_beside_the_classic_ones() {
    const ORDERS: u64 = 2_000;
    const NATIVE: &str =
        "reqtrace_request_duration_native_seconds{service=\"shop\",type=\"order\"}";
    let folder = workspace::scratch().unwrap();
    let dir = folder.path().join("rows");
    let (shop, _, agent) = begin(folder.path(), &dir, "one-in = 1");
    let rules = deployed("prometheus/reqtrace-rules.yml");
    let server = Prometheus::start_native(folder.path(), agent.address(), &rules).unwrap();
    assert_eq!(shop.load(4, ORDERS).unwrap(), ORDERS);
    agent.wait_for(COUNT, ORDERS as f64).unwrap();
    let value = |query: &str| server.query(query).ok()?.first().map(|one| one.value);
    let native = format!("histogram_count({NATIVE})");
    for count in [COUNT, &native] {
        until(LIMIT, count, || {
            Ok((value(count) == Some(ORDERS as f64)).then_some(()))
        })
        .unwrap();
    }
    let sum = COUNT.replace("_count", "_sum");
    assert_eq!(value(&format!("histogram_sum({NATIVE})")), value(&sum));
    assert!(!exemplars(&server).is_empty());
    // Everything that the text has has come.
    let scraped = agent.scrape().unwrap().len() as f64;
    let all = value("count({__name__=~\"reqtrace_.*\"})").unwrap();
    assert!(all > 0.9 * scraped, "{all} of {scraped}");
    // The median of the rows is in its bucket, which is 4.4 % wide.
    let median = value(&format!("histogram_quantile(0.5, {NATIVE})")).unwrap();
    let (code, printed) = agent.end().unwrap();
    assert_eq!(code, Some(0), "{printed}");
    let mut latencies: Vec<i64> = all_of(&dir).iter().map(|row| row.latency_ns).collect();
    latencies.sort_unstable();
    assert_eq!(latencies.len() as u64, ORDERS);
    let exact = latencies[latencies.len() / 2] as f64 / 1e9;
    assert!((median / exact - 1.0).abs() < 0.06, "{median} {exact}");
}

#[test]
fn without_rows_there_are_no_exemplars() {
    let folder = workspace::scratch().unwrap();
    let program = folder.path().join("shop");
    workspace::copy_program(&workspace::shop().unwrap(), &program).unwrap();
    let shop = Shop::open_from(&program).unwrap();
    let agent = Agent::start(folder.path(), &rule_of_shop(&program)).unwrap();
    agent
        .wait_for("reqtrace_traced{service=\"shop\"}", 1.0)
        .unwrap();
    shop.load(4, 200).unwrap();
    agent.wait_for(COUNT, 200.0).unwrap();
    let text = agent.exposition().unwrap();
    assert!(!text.contains(" # {"), "{text}");
}

/// Expressions of the dashboard with the title of their panel, as Grafana sends them for all services and types.
fn queries_of_dashboard() -> Vec<(String, String)> {
    let text = fs::read_to_string(deployed("grafana/reqtrace.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let targets = panel["targets"].as_array();
        for target in targets.into_iter().flatten() {
            let of = |value: &Value| value.as_str().unwrap().to_owned();
            queries.push((of(&panel["title"]), filled_in(&of(&target["expr"]))));
        }
    }
    assert!(queries.len() > 20, "{queries:#?}");
    queries
}

fn filled_in(expression: &str) -> String {
    let filled = expression
        .replace("$__rate_interval", "1m")
        .replace("$service", "shop")
        .replace("$type", "order");
    assert!(!filled.contains('$'), "{filled}");
    filled
}

/// Names of metrics of the agent in a text.
pub(crate) fn names(text: &str) -> BTreeSet<String> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = text.split(|c| !is_of_name(c));
    let names = words.filter(|word| word.starts_with("reqtrace_"));
    names.map(str::to_owned).collect()
}

/// All names that the agent has metrics of, also of those that it has no value of yet.
fn names_of_agent(agent: &Agent) -> BTreeSet<String> {
    let text = agent.exposition().unwrap();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names = types.flat_map(|line| {
        let (name, kind) = line.split_once(' ').unwrap();
        let ends: &[&str] = match kind {
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_count", "_sum"],
            "info" => &["_info"],
            "gauge" => &[""],
            other => panic!("{name} is a {other}"),
        };
        ends.iter().map(move |end| format!("{name}{end}"))
    });
    names.collect()
}

/// What may be empty in an agent that is well: nothing was lost, and its rule asks for no groups.
const MAY_BE_EMPTY: [&str; 2] = ["Losses per second", "Time by group"];

#[test]
fn each_query_of_the_dashboard_finds_its_metrics() {
    const ORDERS: u64 = 1_500;
    let folder = workspace::scratch().unwrap();
    let dir = folder.path().join("rows");
    let keys = "one-in = 1\nroll = { every = \"2s\" }";
    let (shop, agent) = begin_with_all(folder.path(), &dir, keys);
    let server = started(folder.path(), &agent);
    assert_eq!(shop.load(4, ORDERS).unwrap(), ORDERS);
    let seen = agent.wait_for(COUNT, ORDERS as f64).unwrap();
    agent
        .wait_for("reqtrace_rows_written_total", ORDERS as f64)
        .unwrap();
    until(LIMIT, "the scrape of the last order", || {
        let count = server.query(&format!("{COUNT} == {ORDERS}"))?;
        Ok((count.len() == 1).then_some(()))
    })
    .unwrap();
    let queries = queries_of_dashboard();
    let empty = until(LIMIT, "data of all queries", || {
        let queries = queries.iter();
        let empty = queries.filter(|(_, query)| server.query(query).unwrap().is_empty());
        let empty: BTreeSet<&str> = empty.map(|(title, _)| title.as_str()).collect();
        let is_well = empty.iter().all(|title| MAY_BE_EMPTY.contains(title));
        Ok(is_well.then_some(()))
    });
    if let Err(error) = empty {
        let empty = queries
            .iter()
            .filter(|(_, query)| server.query(query).unwrap().is_empty());
        panic!("{error}: {:#?}", empty.collect::<Vec<_>>());
    }
    adds_up(&server, &queries);

    // What Prometheus has is what the agent has.
    let [parts, durations] = sums(&seen, "shop", "order");
    let of = |query: &str| server.query(query).unwrap()[0].value;
    let parts_there = of("sum(reqtrace_request_part_seconds_total)");
    let durations_there = of("sum(reqtrace_request_duration_seconds_sum)");
    assert!((parts_there - parts).abs() <= 1e-6 * parts);
    assert!((durations_there - durations).abs() <= 1e-6 * durations);

    // No name in what is deployed is one that the agent has not; those of the shipper are tried with it.
    let own = names_of_agent(&agent);
    let queries: Vec<String> = queries.into_iter().map(|(_, query)| query).collect();
    let mut text = queries.join("\n");
    text.push('\n');
    let rules = fs::read_to_string(deployed("prometheus/reqtrace-rules.yml")).unwrap();
    text.extend(
        rules
            .lines()
            .filter(|line| !line.trim_start().starts_with('#')),
    );
    let used = names(&text);
    let unknown: Vec<&String> = used
        .iter()
        .filter(|name| !name.contains(':') && !name.starts_with("reqtrace_ship_"))
        .filter(|name| !own.contains(*name))
        .collect();
    assert!(unknown.is_empty(), "{unknown:#?} {own:#?}");
    assert!(used.len() > 15, "{used:#?}");
    rules_are_well(&server);
    variables_have_values(&server);
    assert_eq!(agent.end().unwrap().0, Some(0));
}

/// The shop, and an agent with everything that has a metric.
fn begin_with_all(folder: &Path, dir: &Path, keys: &str) -> (Shop, Agent) {
    let program = folder.join("shop");
    workspace::copy_program(&workspace::shop().unwrap(), &program).unwrap();
    // Nobody listens there.
    let config = format!(
        "[otlp]\nendpoint = \"http://127.0.0.1:9\"\n{}rollups = true\n{keys}\n{}blame = true\n",
        files_in("rows", dir),
        rule_of_shop(&program)
    );
    let shop = Shop::open_from(&program).unwrap();
    let agent = Agent::start(folder, &config).unwrap();
    agent
        .wait_for("reqtrace_traced{service=\"shop\"}", 1.0)
        .unwrap();
    (shop, agent)
}

/// The parts that are stacked are the mean duration.
fn adds_up(server: &Prometheus, queries: &[(String, String)]) {
    let title = "Where the time of a request goes";
    let (_, parts) = queries.iter().find(|(of, _)| of == title).unwrap();
    let labels = "{service=~\"shop\",type=~\"order\"}[1m]";
    let name = "reqtrace_request_duration_seconds";
    let mean = format!("sum(rate({name}_sum{labels})) / sum(rate({name}_count{labels}))");
    // At one moment.
    let difference = format!("abs(sum({parts}) - {mean}) / ({mean})");
    let error = server.query(&difference).unwrap()[0].value;
    assert!(error <= 1e-6, "{error}");
}

fn rules_are_well(server: &Prometheus) {
    let answer = server.ask("rules", &[]).unwrap();
    let groups = answer["groups"].as_array().unwrap();
    let rules = groups
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap());
    let mut count = 0;
    for rule in rules {
        assert_eq!(rule["health"], "ok", "{rule:#}");
        count += 1;
    }
    assert!(count >= 8, "{answer:#}");
}

/// Each variable of the dashboard has the shop among its values.
fn variables_have_values(server: &Prometheus) {
    let text = fs::read_to_string(deployed("grafana/reqtrace.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let mut found = BTreeMap::new();
    for variable in variables.iter().filter(|of| of["type"] == "query") {
        let query = variable["query"]["query"].as_str().unwrap();
        let inner = query.strip_prefix("label_values(").unwrap();
        let (selector, label) = inner.strip_suffix(')').unwrap().rsplit_once(", ").unwrap();
        let path = format!("label/{label}/values");
        let values = server
            .ask(&path, &[("match[]", &filled_in(selector))])
            .unwrap();
        found.insert(variable["name"].as_str().unwrap().to_owned(), values);
    }
    assert_eq!(found["service"], serde_json::json!(["shop"]));
    assert_eq!(found["type"], serde_json::json!(["order"]));
}
