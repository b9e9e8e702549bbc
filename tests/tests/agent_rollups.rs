//! `[rows] rollups` of `reqtrace agent`: the shop under load, restarted, under two agents; what a reader of Parquet that is not ours
//! adds up is what `/metrics` had, and what the load generator counted.
//!
//! Needs root and a kernel with BPF.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int64Type, TimestampNanosecondType};
use arrow_array::{Array as _, RecordBatch};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use reqtrace_tests::scraped::{Agent, Scrape, configuration, files_in};
use reqtrace_tests::shop::Shop;
use reqtrace_tests::workspace;

use crate::agent::rule_of_shop;
use crate::agent_rows::all_of;

const COUNT: &str = "reqtrace_request_duration_seconds_count{service=\"shop\",type=\"order\"}";
const TRACED: &str = "reqtrace_traced{service=\"shop\"}";
const OF_ORDERS: &str = "{service=\"shop\",type=\"order\"";

/// Numbers of a row by column; those of its histogram by edge.
#[derive(Debug)]
struct Row {
    level: String,
    request: Option<String>,
    group: Option<String>,
    build_id: Option<String>,
    minute_ns: i64,
    numbers: BTreeMap<String, Option<i64>>,
    histogram: Vec<(i64, i64)>,
}

fn files(of: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(of).into_iter().flatten().flatten() {
        match entry.path() {
            folder if folder.ends_with(".spool") => {}
            folder if folder.is_dir() => all.extend(files(&folder)),
            file => all.push(file),
        }
    }
    all
}

fn rows(dir: &Path) -> Vec<Row> {
    let mut rows = Vec::new();
    for path in files(dir) {
        let place = path
            .strip_prefix(dir)
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let parts: Vec<&str> = place.split('/').collect();
        assert!(
            matches!(parts[..], [date, hour, "service=shop", name]
            if date.starts_with("date=20") && hour.starts_with("hour=") && name.starts_with("rollups-")
                && name.ends_with(".parquet")),
            "{place}"
        );
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
        let mut keys = BTreeSet::new();
        for batch in reader.build().unwrap() {
            let batch = batch.unwrap();
            for at in 0..batch.num_rows() {
                let row = row(&batch, at);
                let key = (
                    row.minute_ns,
                    row.level.clone(),
                    row.request.clone(),
                    row.group.clone(),
                    row.build_id.clone(),
                );
                assert!(
                    keys.insert(key),
                    "a minute has one row of each in a file: {row:?}"
                );
                rows.push(row);
            }
        }
    }
    rows
}

fn row(batch: &RecordBatch, at: usize) -> Row {
    let mut numbers = BTreeMap::new();
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        if let Some(column) = column.as_primitive_opt::<Int64Type>() {
            let number = column.is_valid(at).then(|| column.value(at));
            numbers.insert(field.name().clone(), number);
        }
    }
    let column = |name: &str| batch.column_by_name(name).unwrap();
    let text = |name: &str| {
        let column = column(name).as_string::<i32>();
        column.is_valid(at).then(|| column.value(at).to_owned())
    };
    let list = |name: &str| -> Vec<i64> {
        let column = column(name).as_list::<i32>();
        let numbers = column.value(at);
        numbers.as_primitive::<Int64Type>().values().to_vec()
    };
    assert_eq!(text("service").unwrap(), "shop");
    let edges = list("edges_ns").into_iter().chain([i64::MAX]);
    Row {
        level: text("level").unwrap(),
        request: text("request"),
        group: text("request_group"),
        build_id: text("build_id"),
        minute_ns: column("minute")
            .as_primitive::<TimestampNanosecondType>()
            .value(at),
        numbers,
        histogram: edges.zip(list("histogram")).collect(),
    }
}

fn sum<'a>(rows: impl IntoIterator<Item = &'a Row>, column: &str) -> i64 {
    let numbers = rows.into_iter().map(|row| row.numbers[column].unwrap_or(0));
    numbers.sum()
}

fn of_level<'a>(rows: &'a [Row], level: &str) -> Vec<&'a Row> {
    rows.iter().filter(|row| row.level == level).collect()
}

/// What is in seconds in a metric, ns.
fn ns(seconds: f64) -> i64 {
    (seconds * 1e9).round() as i64
}

/// The builds of the orders that have a row.
fn builds_of_rows(dir: &Path) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for path in files(dir) {
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
        for batch in reader.build().unwrap() {
            let batch = batch.unwrap();
            let builds = batch.column_by_name("build_id").unwrap().as_string::<i32>();
            all.extend(builds.iter().flatten().map(str::to_owned));
        }
    }
    all
}

/// Orders of each minute by group: as many are distinguished as the rule asks for, and all are those of the type.
fn are_groups_of_their_type(rows: &[Row], most: usize) {
    let groups = of_level(rows, "group");
    for column in [
        "recorded",
        "requests",
        "slow",
        "latency_ns",
        "on_cpu_ns",
        "blocked_ns",
    ] {
        let of_type = sum(of_level(rows, "type"), column);
        assert_eq!(sum(groups.clone(), column), of_type, "{column}");
    }
    let names = groups.iter().map(|row| row.group.as_deref().unwrap());
    let named = names
        .clone()
        .filter(|name| name.parse::<u64>().is_ok())
        .count();
    assert_eq!(
        named + names.clone().filter(|name| *name == "~other").count(),
        groups.len()
    );
    let files = of_level(rows, "type").len();
    assert!(named <= most * files, "{named} in {files}");
    assert!(named >= most, "{named}");
}

/// Each figure of orders in these roll-ups is that of the metrics, to the nanosecond.
fn are_those_of_the_metrics(rows: &[Row], seen: &Scrape) {
    let orders = of_level(rows, "type");
    assert!(
        orders
            .iter()
            .all(|row| row.request.as_deref() == Some("order") && row.group.is_none())
    );
    let of = |name: &str| seen[&format!("reqtrace_{name}{OF_ORDERS}}}")];
    assert_eq!(
        sum(orders.clone(), "requests"),
        of("request_duration_seconds_count") as i64
    );
    assert_eq!(
        sum(orders.clone(), "recorded"),
        of("recorded_requests_total") as i64
    );
    assert_eq!(
        sum(orders.clone(), "slow"),
        of("slow_requests_total") as i64
    );
    assert_eq!(
        sum(orders.clone(), "incomplete"),
        of("incomplete_requests_total") as i64
    );
    assert_eq!(
        sum(orders.clone(), "latency_ns"),
        ns(of("request_duration_seconds_sum"))
    );
    let mut parts = 0;
    for (name, value) in seen {
        let Some(part) = name.strip_prefix(&format!(
            "reqtrace_request_part_seconds_total{OF_ORDERS},part=\""
        )) else {
            continue;
        };
        let part = part.trim_end_matches("\"}");
        assert_eq!(
            sum(orders.clone(), &format!("{part}_ns")),
            ns(*value),
            "{part}"
        );
        parts += ns(*value);
    }
    assert_eq!(parts, sum(orders.clone(), "latency_ns"), "parts add up");
    // The histogram of the metrics has the slo as an edge more, and adds up what is below.
    let mut below = BTreeMap::new();
    for (edge, count) in orders.iter().flat_map(|row| &row.histogram) {
        *below.entry(*edge).or_insert(0) += count;
    }
    let mut all = 0;
    for (edge_ns, count) in below {
        all += count;
        let edge = match edge_ns {
            i64::MAX => "+Inf".to_owned(),
            ns => format!("{:?}", ns as f64 / 1e9),
        };
        let bucket = of_bucket(seen, &edge);
        assert_eq!(all, bucket as i64, "{edge}");
    }
}

fn of_bucket(seen: &Scrape, edge: &str) -> f64 {
    seen[&format!("reqtrace_request_duration_seconds_bucket{OF_ORDERS},le=\"{edge}\"}}")]
}

#[test]
fn roll_ups_are_the_metrics_and_the_orders_over_restarts_of_the_service_and_the_agent() {
    let folder = workspace::scratch().unwrap();
    let dir = folder.path().join("rows");
    let rollups = folder.path().join("rollups");
    let program = folder.path().join("shop");
    workspace::copy_program(&workspace::shop().unwrap(), &program).unwrap();
    let config = format!(
        "{}rollups = true\none-in = 1\nroll = {{ every = \"2s\" }}\n{}\
         texts = true\ngroup-by = \"label\"\ngroups = 20\n",
        files_in("rows", &dir),
        rule_of_shop(&program)
    );
    let shop = Shop::open_from(&program).unwrap();
    let mut agent = Agent::start(folder.path(), &config).unwrap();
    assert!(
        agent.printed().contains(&format!(
            "roll-ups of each minute, into {}",
            rollups.display()
        )),
        "{}",
        agent.printed()
    );
    agent.wait_for(TRACED, 1.0).unwrap();
    let mut orders = shop.load(4, 700).unwrap();
    agent.wait_for(COUNT, orders as f64).unwrap();
    // The service is restarted.
    shop.close().unwrap();
    agent.wait_for(TRACED, 0.0).unwrap();
    let shop = Shop::open_from(&program).unwrap();
    agent.wait_for(TRACED, 1.0).unwrap();
    orders += shop.load(4, 800).unwrap();
    agent.wait_for(COUNT, orders as f64).unwrap();
    // The folder of roll-ups is one of the things that change by a restart only.
    let changed = configuration(&config.replace("rollups = true", "rollups = false"));
    agent.reload(&changed).unwrap();
    agent
        .wait_for("reqtrace_config_last_reload_successful", 0.0)
        .unwrap();
    let first = agent.scrape().unwrap();
    assert_eq!(agent.end().unwrap().0, Some(0));
    let of_first = rows(&rollups);
    are_those_of_the_metrics(&of_first, &first);
    assert_eq!(sum(of_level(&of_first, "type"), "requests") as u64, orders);

    // The agent is; the service goes on.
    let agent = Agent::start(folder.path(), &config).unwrap();
    agent.wait_for(TRACED, 1.0).unwrap();
    let more = shop.load(4, 900).unwrap();
    let second = agent.wait_for(COUNT, more as f64).unwrap();
    assert_eq!(second["reqtrace_rollups_kept_bytes"], first_bytes(&rollups));
    let (code, printed) = agent.end().unwrap();
    assert_eq!(code, Some(0), "{printed}");
    let all = rows(&rollups);
    assert_eq!(
        sum(of_level(&all, "type"), "requests") as u64,
        orders + more
    );
    let latency = sum(of_level(&of_first, "type"), "latency_ns");
    let of_second = ns(second[&format!("reqtrace_request_duration_seconds_sum{OF_ORDERS}}}")]);
    assert_eq!(
        sum(of_level(&all, "type"), "latency_ns"),
        latency + of_second
    );

    // The number of an order is its label.
    are_groups_of_their_type(&all, 20);

    // Rows are beside them: readers of their folder find nothing else there, and the same sums.
    let of_rows = all_of(&dir);
    assert_eq!(of_rows.len() as u64, orders + more);
    let latency: i64 = of_rows.iter().map(|row| row.latency_ns).sum();
    assert_eq!(latency, sum(of_level(&all, "type"), "latency_ns"));

    let requests = all.iter().filter(|row| row.level != "service");
    let builds: BTreeSet<String> = requests.map(|row| row.build_id.clone().unwrap()).collect();
    assert_eq!(builds, builds_of_rows(&dir));
    assert_eq!(builds.len(), 1, "{builds:?}");

    // How long the service was looked at: as long as the sessions were there, and all of it was traced.
    let services = of_level(&all, "service");
    for row in &services {
        assert!(
            row.numbers["requests"].is_none(),
            "no zero that looks like health: {row:?}"
        );
        assert_eq!(row.minute_ns % 60_000_000_000, 0);
    }
    let covered = sum(services.clone(), "covered_ns");
    assert_eq!(covered, sum(services, "traced_ns"));
    assert!(
        (2_000_000_000..600_000_000_000).contains(&covered),
        "{covered}"
    );
}

fn first_bytes(dir: &Path) -> f64 {
    let all = files(dir).into_iter();
    all.map(|path| fs::metadata(path).unwrap().len() as f64)
        .sum()
}

#[test]
fn an_agent_that_is_killed_loses_no_window_that_its_metrics_had() {
    let folder = workspace::scratch().unwrap();
    let dir = folder.path().join("rows");
    let rollups = folder.path().join("apart");
    let program = folder.path().join("shop");
    workspace::copy_program(&workspace::shop().unwrap(), &program).unwrap();
    let config = format!(
        "{}rollups = {{ dir = \"{}\" }}\n{}",
        files_in("rows", &dir),
        rollups.display(),
        rule_of_shop(&program)
    );
    let shop = Shop::open_from(&program).unwrap();
    let agent = Agent::start(folder.path(), &config).unwrap();
    agent.wait_for(TRACED, 1.0).unwrap();
    let orders = shop.load(4, 500).unwrap();
    let seen = agent.wait_for(COUNT, orders as f64).unwrap();
    assert!(
        files(&rollups).is_empty(),
        "the minute is not over for long"
    );
    // A window goes on its way before the metrics have it; no disk is as slow as this.
    thread::sleep(Duration::from_secs(1));
    agent.kill().unwrap();
    // Who is not there is not traced: the next agent makes the file of the one before, whatever it traces.
    shop.close().unwrap();
    let agent = Agent::start(folder.path(), &config).unwrap();
    let code = agent.end().unwrap();
    assert_eq!(code.0, Some(0), "{}", code.1);
    let all = rows(&rollups);
    are_those_of_the_metrics(&all, &seen);
}

/// An upgrade under load: one agent ends, and the next begins. Nobody has the orders of in between, and roll-ups do not say that
/// the service was looked at then. What there is of both agents is whole.
#[test]
fn what_comes_while_the_agent_is_replaced_is_not_covered() {
    const SECONDS: u32 = 16;
    let folder = workspace::scratch().unwrap();
    let dir = folder.path().join("rows");
    let rollups = folder.path().join("rollups");
    let program = folder.path().join("shop");
    workspace::copy_program(&workspace::shop().unwrap(), &program).unwrap();
    let config = format!(
        "{}rollups = true\none-in = 1\nroll = {{ every = \"2s\" }}\n{}",
        files_in("rows", &dir),
        rule_of_shop(&program)
    );
    let shop = Shop::open_from(&program).unwrap();
    let begun = Instant::now();
    let agent = Agent::start(folder.path(), &config).unwrap();
    agent.wait_for(TRACED, 1.0).unwrap();
    let load = shop.start_load_for(4, SECONDS, 2).unwrap();
    thread::sleep(Duration::from_secs(5));
    let ended = Instant::now();
    assert_eq!(agent.end().unwrap().0, Some(0));
    let agent = Agent::start(folder.path(), &config).unwrap();
    agent.wait_for(TRACED, 1.0).unwrap();
    let at_most = ended.elapsed();
    let orders = load.finish().unwrap();
    assert_eq!(agent.end().unwrap().0, Some(0));
    let elapsed = begun.elapsed();

    let all_rows = all_of(&dir);
    let all = rows(&rollups);
    let complete = sum(of_level(&all, "type"), "requests") as usize;
    assert_eq!(
        all_rows.iter().filter(|row| row.is_complete).count(),
        complete
    );
    let mut begins: Vec<i64> = all_rows.iter().map(|row| row.begin.0).collect();
    begins.sort_unstable();
    let holes = begins.windows(2).map(|pair| pair[1] - pair[0]);
    let hole = Duration::from_nanos(holes.max().unwrap().cast_unsigned());
    let missing = orders - all_rows.len() as u64;
    let expected = hole.as_secs_f64() / f64::from(SECONDS) * orders as f64;
    println!(
        "the agent was replaced in {at_most:.1?}: nothing was traced for {hole:.2?}, {missing} of {orders} orders"
    );
    assert!(hole <= at_most, "{hole:?} {at_most:?}");
    assert!(
        (0.5 * expected..2.0 * expected).contains(&(missing as f64)),
        "{missing} {expected}"
    );
    let covered = sum(of_level(&all, "service"), "covered_ns");
    let covered = Duration::from_nanos(covered.cast_unsigned());
    let load = Duration::from_secs(u64::from(SECONDS));
    assert!(
        covered + hole <= elapsed && covered + hole + Duration::from_secs(2) >= load,
        "{covered:?} {hole:?} {elapsed:?}"
    );
}
