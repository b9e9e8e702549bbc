//! The queries of `deploy/*/rollups`: roll-ups of three machines, written by the agent's writer and sent by the shipper beside
//! rows, with each file more than once, in ClickHouse and in DuckDB; both give the answers that are computed here.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use reqtrace_analysis::classify::columns::Columns;
use reqtrace_analysis::report::blame::{Cause, Causes};
use reqtrace_analysis::report::{Ledger, Places};
use reqtrace_output::parquet::RollupsExporter;
use reqtrace_output::rollups::{Figures, Level, OfRequests, OfService, Rollup, RollupsMeta};
use reqtrace_tests::engine::{Engine, Reply};
use reqtrace_tests::process::run;
use reqtrace_tests::workspace;
use serde_json::{Value, json};

use crate::fleet::is_same;
use crate::fleet_answers::{Answer, TARGET};
use crate::fleet_rows::{BEGIN_NS, SERVICE};
use crate::ship::{Place, files, left};

const MINUTE_NS: u64 = 60_000_000_000;
const EDGES_NS: [u64; 3] = [1_000_000, 2_000_000, 5_000_000];
const MINUTES: u64 = 12;
/// The minute of the deploy.
const NEW_BUILD: u64 = 5;
const HOSTS: [&str; 3] = ["web-1", "web-2", "web-3"];

/// Figures of a type of a service on a machine in a minute, in two windows.
fn windows(host: u64, minute: u64, of: u64) -> [OfRequests; 2] {
    let window = |at: u64| {
        let mut ledger = Ledger::of(1, &Places::default());
        let requests = 100 + 7 * minute + 13 * host + at;
        ledger.on_cpu_ns = requests * 300_000;
        ledger.run_queue_ns = requests * (1_000 + of);
        ledger.preempted_ns = at * 777;
        // One machine has slow disks.
        ledger.classes[0] = requests * if host == 1 { 900_000 } else { 200_000 + minute };
        ledger.latency_ns =
            ledger.on_cpu_ns + ledger.run_queue_ns + ledger.preempted_ns + ledger.classes[0];
        let mut causes = Causes::default();
        causes.add(Cause::Disk, ledger.classes[0]);
        let slow = requests / if host == 1 { 10 } else { 100 };
        OfRequests {
            recorded: requests - minute,
            requests,
            incomplete: Some(at),
            slow: Some(slow),
            ledger,
            causes: Some(causes),
            histogram: vec![requests - 2 * slow, slow, slow / 2, slow - slow / 2],
        }
    };
    [window(0), window(1)]
}

/// Seconds of a minute in which a machine was traced.
fn traced_s(host: u64, minute: u64) -> u64 {
    if host == 2 && minute == 3 { 15 } else { 60 }
}

/// The build that runs in a minute.
fn build(minute: u64) -> &'static str {
    if minute < NEW_BUILD { "aa" } else { "bb" }
}

/// A file of a machine and a service.
pub(crate) fn write(dir: &Path, host: u64, service: &str, number: u64) {
    let name = format!(
        "rollups-{}-0123456789ab-{number:08}.parquet",
        HOSTS[host as usize]
    );
    let place = format!(
        "date=2026-11-24/hour=15/service={}",
        service.replace('/', "%2F")
    );
    fs::create_dir_all(dir.join(&place)).unwrap();
    let file = File::create(dir.join(place).join(&name)).unwrap();
    let columns = Columns {
        classes: vec!["redo log".to_owned()],
        ..Columns::default()
    };
    let meta = RollupsMeta {
        service: service.to_owned(),
        slow_above_ns: Some(1_000_000),
        edges_ns: EDGES_NS.to_vec(),
        most_groups: Some(1),
        ..RollupsMeta::default()
    };
    let mut exporter = RollupsExporter::new(Box::new(file), &name, &columns, meta);
    for minute in 0..MINUTES {
        let mut add = |level: Level, figures: Figures| {
            exporter.add(&Rollup {
                minute_unix_ns: BEGIN_NS + minute * MINUTE_NS,
                level,
                build_id: Some(build(minute).to_owned()),
                figures,
            });
        };
        let traced_ns = traced_s(host, minute) * 1_000_000_000;
        for part in [20, 40] {
            let of = OfService {
                covered_ns: part * 1_000_000_000,
                traced_ns: traced_ns * part / 60,
                lost: minute,
            };
            add(Level::Service, Figures::Service(of));
        }
        for requests in windows(host, minute, number) {
            // Groups are distinguished from types by their level only.
            let group = Level::Group("order".to_owned(), "SELECT ?".to_owned());
            add(group, Figures::Requests(Box::new(requests.clone())));
            let of_type = Level::Type("order".to_owned());
            add(of_type, Figures::Requests(Box::new(requests)));
        }
    }
    assert_eq!(
        exporter.rows(),
        3 * MINUTES,
        "windows of a minute are one row"
    );
    exporter.finish(HOSTS[host as usize]).unwrap();
}

/// Figures of some machines and minutes of a service: requests, slow ones, and Σ of their times.
fn sums(number: u64, hosts: &[u64], minutes: std::ops::Range<u64>) -> OfRequests {
    let mut all = OfRequests {
        histogram: vec![0; EDGES_NS.len() + 1],
        ..OfRequests::default()
    };
    for host in hosts {
        for minute in minutes.clone() {
            for window in windows(*host, minute, number) {
                all.requests += window.requests;
                *all.slow.get_or_insert_default() += window.slow.unwrap();
                all.ledger.add(&window.ledger);
                for (sum, count) in all.histogram.iter_mut().zip(&window.histogram) {
                    *sum += count;
                }
            }
        }
    }
    all
}

fn traced_share(hosts: &[u64], minutes: std::ops::Range<u64>, of_minutes: u64) -> f64 {
    let all = hosts
        .iter()
        .flat_map(|host| minutes.clone().map(move |minute| traced_s(*host, minute)));
    all.sum::<u64>() as f64 / (60 * of_minutes * hosts.len() as u64) as f64
}

fn burn() -> Answer {
    let of = [("front/php", 2), (SERVICE, 1)].into_iter();
    let rows = of.flat_map(|(service, number)| {
        [5, 60, 360, 4320].map(|minutes: u64| {
            let those = MINUTES.saturating_sub(minutes)..MINUTES;
            let all = sums(number, &[0, 1, 2], those.clone());
            let share = all.slow.unwrap() as f64 / all.requests as f64;
            let traced = traced_share(&[0, 1, 2], those, minutes);
            vec![
                json!(service),
                json!(minutes),
                json!(all.requests),
                json!(all.slow),
                json!(share / (1.0 - TARGET)),
                json!(traced),
            ]
        })
    });
    rows.collect()
}

fn mean(of: &OfRequests, ns: u64) -> f64 {
    ns as f64 / of.requests as f64
}

fn slow_share(of: &OfRequests) -> f64 {
    of.slow.unwrap() as f64 / of.requests as f64
}

fn since() -> Answer {
    let rows = (0..MINUTES).map(|minute| {
        let of = sums(1, &[0, 1, 2], minute..minute + 1);
        vec![
            json!((BEGIN_NS + minute * MINUTE_NS) / 1_000_000_000),
            json!(of.requests),
            json!(of.slow),
            json!(mean(&of, of.ledger.latency_ns)),
            json!(mean(&of, of.ledger.classes[0])),
        ]
    });
    rows.collect()
}

fn deploy() -> Answer {
    let rows = [0..NEW_BUILD, NEW_BUILD..MINUTES].map(|minutes| {
        let of = sums(1, &[0, 1, 2], minutes.clone());
        vec![
            json!(build(minutes.start)),
            json!("order"),
            json!((BEGIN_NS + minutes.start * MINUTE_NS) / 1_000_000_000),
            json!(3),
            json!(of.requests),
            json!(mean(&of, of.ledger.latency_ns)),
            json!(mean(&of, of.ledger.on_cpu_ns)),
            json!(mean(&of, of.ledger.classes[0])),
            json!(slow_share(&of)),
        ]
    });
    rows.to_vec()
}

fn culprits() -> Answer {
    let of = [(1, SERVICE), (2, "front/php")];
    let sums = of.map(|(number, service)| (sums(number, &[0, 1, 2], 0..MINUTES), service));
    let all: u64 = sums.iter().map(|(of, _)| of.ledger.latency_ns).sum();
    let mut rows = sums.map(|(of, service)| {
        let disk = of.ledger.classes[0];
        (disk, service, disk as f64 / all as f64)
    });
    rows.sort_by_key(|(disk, service, _)| (u64::MAX - disk, *service));
    let rows = rows.map(|(disk, service, share)| {
        vec![json!(service), json!("disk"), json!(disk), json!(share)]
    });
    rows.to_vec()
}

fn hosts() -> Answer {
    let fleet = sums(1, &[0, 1, 2], 0..MINUTES);
    let mut rows: Vec<(f64, Vec<Value>)> = [0, 1, 2]
        .map(|host| {
            let of = sums(1, &[host], 0..MINUTES);
            let ledger = &of.ledger;
            let of_fleet = mean(&of, ledger.latency_ns) / mean(&fleet, fleet.ledger.latency_ns);
            let mut below = 0;
            let p99 = of.histogram.iter().zip(EDGES_NS).find(|(count, _)| {
                below += **count;
                below as f64 >= of.requests as f64 * 0.99
            });
            let row = vec![
                json!(HOSTS[host as usize]),
                json!(of.requests),
                json!(mean(&of, ledger.latency_ns)),
                json!(of_fleet),
                json!(slow_share(&of)),
                json!(p99.map(|(_, edge_ns)| edge_ns)),
                json!(mean(&of, ledger.on_cpu_ns)),
                json!(mean(&of, ledger.run_queue_ns + ledger.preempted_ns)),
                json!(mean(&of, ledger.classes[0])),
                json!(traced_share(&[host], 0..MINUTES, MINUTES)),
            ];
            (of_fleet, row)
        })
        .to_vec();
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    rows.into_iter().map(|(_, row)| row).collect()
}

/// A shipper that sends roll-ups, too, and their folder.
pub(crate) fn with_rollups(engine: &Engine) -> (Place, PathBuf) {
    let place = Place::to("keep = true\nROLLUPS", engine, "");
    let rollups = place.folder.path().join("rollups");
    let config = fs::read_to_string(&place.config).unwrap();
    let key = format!("rollups = \"{}\"", rollups.display());
    fs::write(&place.config, config.replace("ROLLUPS", &key)).unwrap();
    (place, rollups)
}

/// What both engines answer from the files of this kind that were sent, each of which they get twice.
pub(crate) fn answers(engine: &Engine, folder: &Path, kind: &str, more: &[&str]) -> Value {
    let folder = folder.join(format!("engines of {kind}"));
    let is_of_kind = |name: &str| name.starts_with(&format!("{kind}-"));
    for twice in ["files", "twice"] {
        fs::create_dir_all(folder.join(twice)).unwrap();
        for (name, content) in engine.taken().unwrap() {
            if is_of_kind(&name) {
                fs::write(folder.join(twice).join(name), content).unwrap();
            }
        }
    }
    let statements = engine.sent().into_iter();
    let statements = statements.filter(|sent| is_of_kind(&sent.token));
    let statements: BTreeMap<String, String> =
        statements.map(|sent| (sent.token, sent.query)).collect();
    let text = serde_json::to_string(&statements).unwrap();
    fs::write(folder.join("statements.json"), text).unwrap();
    let script = match kind {
        "rows" => "fleet.py",
        _ => "rollups.py",
    };
    let mut python = Command::new(workspace::engines().join("bin/python"));
    python.arg(
        workspace::root()
            .join("tests/fixtures/engines")
            .join(script),
    );
    python.arg(&folder).arg(workspace::root().join("deploy"));
    python.args([SERVICE, &TARGET.to_string()]).args(more);
    serde_json::from_str(&run(&mut python).unwrap()).unwrap()
}

#[test]
#[ignore = "needs ClickHouse and DuckDB in Python, 1.3 GB: `cargo xtask test --all`"]
fn both_engines_answer_from_roll_ups_as_these_do() {
    let engine = Engine::start(|_, _| Reply::Accept).unwrap();
    let (place, rollups) = with_rollups(&engine);
    for host in 0..3 {
        write(&rollups, host, SERVICE, 1);
        write(&rollups, host, "front/php", 2);
    }
    // They go side by side, each into its table.
    files(&place.rows, 2);
    let (code, printed) = place.run(&["--once"]);
    assert_eq!(code, Some(0), "{printed}");
    let sent = engine.sent();
    let tables = sent.iter().map(|sent| {
        let of = sent.token.split('-').next().unwrap().to_owned();
        let table = sent.query.split(' ').nth(2).unwrap().to_owned();
        (of, table)
    });
    let mut by_table: BTreeMap<(String, String), u64> = BTreeMap::new();
    tables.for_each(|one| *by_table.entry(one).or_default() += 1);
    let table = |of: &str, name: &str| (of.to_owned(), format!("`reqtrace`.`{name}`"));
    let wanted = [
        (table("rollups", "rollups"), 6),
        (table("rows", "requests"), 2),
    ];
    assert_eq!(by_table, wanted.into());
    assert_eq!(left(&rollups).len(), 6, "keep = true");

    let answers = answers(&engine, place.folder.path(), "rollups", &[]);
    let wanted = [
        ("burn.sql", burn()),
        ("culprits.sql", culprits()),
        ("deploy.sql", deploy()),
        ("hosts.sql", hosts()),
        ("since.sql", since()),
    ];
    for engine in ["clickhouse", "duckdb"] {
        let of_engine = &answers[engine];
        assert_eq!(
            of_engine["with duplicates"],
            2 * 6 * 3 * MINUTES,
            "{engine}"
        );
        assert_eq!(of_engine.as_object().unwrap().len(), wanted.len() + 1);
        for (query, wanted) in &wanted {
            let got = of_engine[query].as_array().unwrap();
            let is_right = got.len() == wanted.len()
                && got.iter().zip(wanted).all(|(got, wanted)| {
                    let got = got.as_array().unwrap();
                    let pairs = got.iter().zip(wanted);
                    got.len() == wanted.len() && pairs.into_iter().all(|(a, b)| is_same(a, b))
                });
            assert!(
                is_right,
                "{engine} {query}\ngot    {got:?}\nwanted {wanted:?}"
            );
        }
    }
}
