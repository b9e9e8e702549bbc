//! `[rows]` of `reqtrace agent`: the shop under load; the rows that a reader of Parquet that is not ours finds in the folder
//! are the orders that were placed.
//!
//! Needs root and a kernel with BPF.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int64Type, TimestampNanosecondType};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use reqtrace_tests::process::until;
use reqtrace_tests::scraped::{Agent, Scrape, files_in, sums};
use reqtrace_tests::shop::Shop;
use reqtrace_tests::workspace::{self, SmallDisk};

use crate::agent::rule_of_shop;

const LIMIT: Duration = Duration::from_secs(60);
const COUNT: &str = "reqtrace_request_duration_seconds_count{service=\"shop\",type=\"order\"}";
const TRACED: &str = "reqtrace_traced{service=\"shop\"}";
const SLOW: &str = "reqtrace_slow_requests_total{service=\"shop\",type=\"order\"}";
const WRITTEN: &str = "reqtrace_rows_written_total";

/// A row, as another program reads it.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) id: i64,
    /// ns since the Unix epoch, and the thread: there is one such request.
    pub(crate) begin: (i64, i64),
    pub(crate) latency_ns: i64,
    pub(crate) weight: i64,
    pub(crate) is_slow: bool,
    pub(crate) is_complete: bool,
    /// Text of its label, fingerprint and attributes.
    pub(crate) texts: usize,
    /// Why it is there.
    pub(crate) kept: String,
}

/// All files below a folder.
fn files(of: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(of).into_iter().flatten().flatten() {
        match entry.path() {
            folder if folder.is_dir() => all.extend(files(&folder)),
            file => all.push(file),
        }
    }
    all
}

/// Those that were handed over: each is whole, in its partition, and not for everybody.
fn tables(dir: &Path) -> Vec<PathBuf> {
    let all = files(dir);
    let handed = all
        .into_iter()
        .filter(|path| !path.starts_with(dir.join(".spool")));
    let handed: Vec<PathBuf> = handed.collect();
    for path in &handed {
        let place = path
            .strip_prefix(dir)
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let parts: Vec<&str> = place.split('/').collect();
        assert!(
            matches!(parts[..], [date, hour, "service=shop", name]
            if date.starts_with("date=20") && hour.starts_with("hour=") && name.starts_with("rows-")
                && name.ends_with(".parquet")),
            "{place}"
        );
        // Its group reads it, and takes it away.
        let modes = path.ancestors().take(3);
        let modes = modes.map(|path| fs::metadata(path).unwrap().permissions().mode() & 0o777);
        assert_eq!(modes.collect::<Vec<_>>(), [0o640, 0o770, 0o750]);
    }
    handed
}

fn read(path: &Path) -> Vec<Row> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let mut rows = Vec::new();
    for batch in reader.build().unwrap() {
        let batch = batch.unwrap();
        let column = |name: &str| {
            batch
                .column_by_name(name)
                .unwrap_or_else(|| panic!("{name}"))
        };
        let number = |name: &str, at: usize| column(name).as_primitive::<Int64Type>().value(at);
        let flag = |name: &str, at: usize| column(name).as_boolean().value(at);
        let null = |name: &str, at: usize| usize::from(column(name).is_null(at));
        for at in 0..batch.num_rows() {
            assert_eq!(column("service").as_string::<i32>().value(at), "shop");
            assert_eq!(column("request").as_string::<i32>().value(at), "order");
            assert_eq!(null("trace_id", at) + null("span_id", at), 2);
            rows.push(Row {
                id: number("id", at),
                begin: (
                    column("start")
                        .as_primitive::<TimestampNanosecondType>()
                        .value(at),
                    number("tid", at),
                ),
                latency_ns: number("latency_ns", at),
                weight: number("weight", at),
                is_slow: flag("slow", at),
                is_complete: flag("complete", at),
                texts: 2 - null("label", at) - null("fingerprint", at),
                kept: column("kept").as_string::<i32>().value(at).to_owned(),
            });
        }
    }
    rows
}

pub(crate) fn all_of(dir: &Path) -> Vec<Row> {
    tables(dir).iter().flat_map(|path| read(path)).collect()
}

fn of_cause(seen: &Scrape, cause: &str) -> f64 {
    seen[&format!("reqtrace_rows_dropped_total{{cause=\"{cause}\"}}")]
}

/// The shop, and an agent that keeps its rows.
pub(crate) fn begin(folder: &Path, dir: &Path, keys: &str) -> (Shop, String, Agent) {
    let program = folder.join("shop");
    workspace::copy_program(&workspace::shop().unwrap(), &program).unwrap();
    let config = format!(
        "{}{keys}\n{}",
        files_in("rows", dir),
        rule_of_shop(&program)
    );
    let shop = Shop::open_from(&program).unwrap();
    let agent = Agent::start(folder, &config).unwrap();
    agent.wait_for(TRACED, 1.0).unwrap();
    (shop, config, agent)
}

#[test]
fn each_order_has_a_row_and_its_parts_are_those_of_the_metrics() {
    const ORDERS: u64 = 2_000;
    let folder = workspace::scratch().unwrap();
    let dir = folder.path().join("rows");
    let keys = "one-in = 1\nroll = { every = \"2s\" }";
    let (shop, config, mut agent) = begin(folder.path(), &dir, keys);
    assert_eq!(shop.load(4, ORDERS).unwrap(), ORDERS);
    let seen = agent.wait_for(COUNT, ORDERS as f64).unwrap();
    let [parts, durations] = sums(&seen, "shop", "order");
    // What says where rows go is changed by a restart only.
    let changed =
        reqtrace_tests::scraped::configuration(&config.replace("one-in = 1", "one-in = 2"));
    agent.reload(&changed).unwrap();
    agent
        .wait_for("reqtrace_config_last_reload_successful", 0.0)
        .unwrap();
    assert!(
        agent.printed().contains("[rows] has changed"),
        "{}",
        agent.printed()
    );
    // A file is handed over when it is old enough, also when nothing more comes.
    agent.wait_for(WRITTEN, ORDERS as f64).unwrap();
    let (code, printed) = agent.end().unwrap();
    assert_eq!(code, Some(0), "{printed}");

    let rows = all_of(&dir);
    assert_eq!(
        rows.iter().map(|row| row.weight).sum::<i64>(),
        ORDERS as i64
    );
    assert_eq!(rows.len() as u64, ORDERS);
    assert!(rows.iter().all(|row| row.is_complete && row.texts == 0));
    let ids: BTreeSet<i64> = rows.iter().map(|row| row.id).collect();
    assert_eq!(ids.len() as u64, ORDERS);
    let latency = rows.iter().map(|row| row.latency_ns).sum::<i64>() as f64 / 1e9;
    assert!(
        (latency - durations).abs() <= 1e-6 * durations,
        "{latency} {durations} {parts}"
    );
    let slow = rows.iter().filter(|row| row.is_slow).count();
    assert_eq!(slow as f64, seen[SLOW]);
    for row in &rows {
        assert_eq!(row.is_slow, row.latency_ns > 7_000_000, "{row:?}");
    }
    assert_eq!(shop.load(1, 5).unwrap(), 5);
}

#[test]
fn weights_stand_for_the_orders_that_have_no_row() {
    const ORDERS: u64 = 6_000;
    let folder = workspace::scratch().unwrap();
    let dir = folder.path().join("rows");
    let (shop, _, agent) = begin(folder.path(), &dir, "one-in = 10");
    assert_eq!(shop.load(4, ORDERS).unwrap(), ORDERS);
    let seen = agent.wait_for(COUNT, ORDERS as f64).unwrap();
    let (code, printed) = agent.end().unwrap();
    assert_eq!(code, Some(0), "{printed}");
    let rows = all_of(&dir);
    let (slow, drawn): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.is_slow);
    // All slow ones are there for themselves; others for ten.
    assert_eq!(slow.len() as f64, seen[SLOW]);
    assert!(slow.iter().all(|row| row.weight == 1 && row.kept == "slow"));
    let is_drawn = |row: &&Row| row.weight == 10 && row.kept == "drawn";
    assert!(drawn.iter().all(is_drawn), "{drawn:?}");
    let all: i64 = rows.iter().map(|row| row.weight).sum();
    let variance: i64 = rows.iter().map(|row| row.weight * (row.weight - 1)).sum();
    let error = (all - ORDERS as i64) as f64;
    assert!(
        error.abs() <= 4.0 * (variance as f64).sqrt(),
        "{all} {variance}"
    );
}

/// With blame, those that held up a slow order have a row, too: each ran while a slow one did, and counts for itself. The
/// sums are those of all orders still.
#[test]
fn those_that_held_up_a_slow_order_have_a_row() {
    const ORDERS: u64 = 6_000;
    let folder = workspace::scratch().unwrap();
    let dir = folder.path().join("rows");
    let program = folder.path().join("shop");
    workspace::copy_program(&workspace::shop().unwrap(), &program).unwrap();
    let config = format!(
        "{}one-in = 20\n{}blame = true\n",
        files_in("rows", &dir),
        rule_of_shop(&program).replace("7ms", "3ms")
    );
    let shop = Shop::open_from(&program).unwrap();
    let agent = Agent::start(folder.path(), &config).unwrap();
    agent.wait_for(TRACED, 1.0).unwrap();
    assert_eq!(shop.load(12, ORDERS).unwrap(), ORDERS);
    let seen = agent.wait_for(COUNT, ORDERS as f64).unwrap();
    assert_eq!(seen["reqtrace_rows_not_waited_total"], 0.0);
    let (code, printed) = agent.end().unwrap();
    assert_eq!(code, Some(0), "{printed}");
    let rows = all_of(&dir);
    let of = |kept: &str| -> Vec<&Row> { rows.iter().filter(|row| row.kept == kept).collect() };
    let [slow, blamed, drawn] = ["slow", "blamed", "drawn"].map(of);
    assert_eq!(slow.len() + blamed.len() + drawn.len(), rows.len());
    // The metric takes a duration just below the limit for slow: 0.1 % of it, where there are many.
    let near = seen[SLOW] - slow.len() as f64;
    assert!((0.0..=3.0 + 0.01 * seen[SLOW]).contains(&near), "{near}");
    assert!(slow.iter().all(|row| row.is_slow && row.weight == 1));
    let alone = |row: &&&Row| row.is_slow || row.weight != 1;
    assert_eq!(blamed.iter().find(alone).map(|row| row.id), None);
    assert!(drawn.iter().all(|row| !row.is_slow && row.weight == 20));
    // Now and then an order counts all shelves with the stock locked.
    let counts = [slow.len(), blamed.len(), drawn.len()];
    println!("slow, blamed, drawn: {counts:?}");
    assert!(counts.iter().all(|count| *count >= 3), "{counts:?}");
    let span = |row: &Row| (row.begin.0, row.begin.0 + row.latency_ns);
    for row in &blamed {
        let (begin, end) = span(row);
        let overlaps = |slow: &&Row| span(slow).0 < end && begin < span(slow).1;
        assert!(slow.iter().any(overlaps), "{row:?}");
    }
    let all: i64 = rows.iter().map(|row| row.weight).sum();
    let variance: i64 = rows.iter().map(|row| row.weight * (row.weight - 1)).sum();
    let error = (all - ORDERS as i64) as f64;
    assert!(
        error.abs() <= 4.0 * (variance as f64).sqrt(),
        "{all} {variance}"
    );
}

#[test]
fn an_agent_that_is_killed_loses_only_what_it_had_not_handed_over() {
    let folder = workspace::scratch().unwrap();
    let dir = folder.path().join("rows");
    let keys = "one-in = 1\nroll = { every = \"1s\" }";
    let (shop, config, agent) = begin(folder.path(), &dir, keys);
    let load = shop.start_load_for(2, 12, 2).unwrap();
    let seen = until(LIMIT, "three files", || {
        let seen = agent.scrape()?;
        let is_writing = seen["reqtrace_rows_spool_bytes"] > 0.0;
        Ok((seen["reqtrace_rows_files_total"] >= 3.0 && is_writing).then_some(seen))
    })
    .unwrap();
    agent.kill().unwrap();
    let handed = tables(&dir);
    let before: usize = handed.iter().map(|path| read(path).len()).sum();
    assert!(before as f64 >= seen[WRITTEN], "{before} {seen:#?}");

    let agent = Agent::start(folder.path(), &config).unwrap();
    assert!(agent.scrape().unwrap()["reqtrace_rows_half_made_files_total"] <= 1.0);
    agent.wait_for(TRACED, 1.0).unwrap();
    let orders = load.finish().unwrap();
    let more = shop.load(2, 300).unwrap();
    until(LIMIT, "the last order", || {
        Ok((agent.scrape()?.get(COUNT) >= Some(&(more as f64))).then_some(()))
    })
    .unwrap();
    assert_eq!(agent.end().unwrap().0, Some(0));
    let left: Vec<PathBuf> = files(&dir.join(".spool"));
    let half_made = |path: &&PathBuf| path.extension().is_some_and(|end| end == "part");
    assert_eq!(left.iter().find(half_made), None);
    let all = tables(&dir);
    assert!(handed.iter().all(|path| all.contains(path)));
    let rows = all_of(&dir);
    let different: BTreeSet<(i64, i64)> = rows.iter().map(|row| row.begin).collect();
    assert_eq!(different.len(), rows.len(), "a row is there twice");
    let rows = rows.len();
    assert!(
        rows > before + 300 && rows as u64 <= orders + more,
        "{before} {rows} {orders} {more}"
    );
}

#[test]
fn a_full_disk_is_counted_and_the_agent_goes_on() {
    let folder = workspace::scratch().unwrap();
    let disk = SmallDisk::mount(&folder.path().join("disk"), "4m").unwrap();
    let dir = disk.path().join("rows");
    let keys = "one-in = 1\nroll = { every = \"1s\", bytes = \"1MB\" }";
    let (shop, _, agent) = begin(folder.path(), &dir, keys);
    shop.load(2, 300).unwrap();
    agent.wait_for(WRITTEN, 300.0).unwrap();
    assert_eq!(all_of(&dir).len(), 300);
    // Somebody else fills it: the oldest go first, then rows are dropped.
    let other = disk.path().join("other");
    let mut filling = File::create(&other).unwrap();
    while filling.write_all(&[0; 4096]).is_ok() {}
    shop.load(2, 300).unwrap();
    let seen = agent.wait_for(COUNT, 600.0).unwrap();
    let seen = until(LIMIT, "dropped rows", || {
        let seen = agent.scrape().unwrap_or_else(|_| seen.clone());
        Ok((of_cause(&seen, "disk") >= 300.0).then_some(seen))
    })
    .unwrap();
    assert_eq!(of_cause(&seen, "disk"), 300.0, "{seen:#?}");
    assert_eq!(of_cause(&seen, "oldest"), 300.0);
    assert!(seen["reqtrace_rows_dropped_seconds_total{cause=\"disk\"}"] > 0.0);
    assert!(tables(&dir).is_empty());
    assert!(
        agent.printed().contains("rows are dropped"),
        "{}",
        agent.printed()
    );
    // There is room again.
    fs::remove_file(&other).unwrap();
    drop(filling);
    std::thread::sleep(Duration::from_secs(2));
    shop.load(2, 300).unwrap();
    agent.wait_for(WRITTEN, 600.0).unwrap();
    assert_eq!(all_of(&dir).len(), 300);
    let (code, printed) = agent.end().unwrap();
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("rows are written again"), "{printed}");
}

/// A spool on another file system, and a folder that another agent has, are errors at the start.
#[test]
fn folders_that_cannot_be_used_are_errors_at_the_start() {
    let folder = workspace::scratch().unwrap();
    let disk = SmallDisk::mount(&folder.path().join("disk"), "1m").unwrap();
    let dir = folder.path().join("rows");
    let config = folder.path().join("agent.toml");
    let keys = format!(
        "[rows]\ndir = \"{}\"\nspool = \"{}\"\n",
        dir.display(),
        disk.path().join("spool").display()
    );
    let rule = rule_of_shop(&workspace::shop().unwrap());
    fs::write(
        &config,
        reqtrace_tests::scraped::configuration(&format!("{keys}{rule}")),
    )
    .unwrap();
    let args = ["agent", "--config", &config.display().to_string()].map(str::to_owned);
    let run = |more: &[&str]| {
        let all = args.iter().map(String::as_str).chain(more.iter().copied());
        let all: Vec<&str> = all.collect();
        let output = reqtrace_tests::reqtrace::command(all)
            .unwrap()
            .output()
            .unwrap();
        let texts =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (output.status.code(), texts.concat())
    };
    let (code, printed) = run(&[]);
    assert_eq!(code, Some(2), "{printed}");
    assert!(
        printed.contains("are on two file systems") && printed.contains("leave spool out"),
        "{printed}"
    );
    let (code, printed) = run(&["--check"]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(
        printed.contains("rows: all slow and incomplete requests and one in 100 of the others"),
        "{printed}"
    );
    let (_, printed) = run(&["--print-effective-config"]);
    assert!(
        printed.contains("roll = { every = \"5m\", bytes = \"64MB\" }"),
        "{printed}"
    );
}
