//! Rows of all requests and roll-ups of the same ones, by the agent's own code, sent by the shipper: where both can answer, both
//! engines give the same answers from either.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use reqtrace_agent::simulated::{Agent, Traced};
use reqtrace_agent::{Rollups, Rows, Share};
use reqtrace_analysis::cells::{Cell, One};
use reqtrace_analysis::classify::columns::Columns;
use reqtrace_analysis::report::blame::{Cause, Causes};
use reqtrace_analysis::report::{Ledger, Origin, Places, RequestRow, WindowRow};
use reqtrace_base::plain::Plain;
use reqtrace_profile::Profiles;
use reqtrace_recording::Incomplete;
use reqtrace_tests::engine::{Engine, Reply};
use reqtrace_tests::workspace;
use serde_json::Value;

use crate::fleet::is_same;
use crate::fleet_rollups::{answers, with_rollups};
use crate::fleet_rows::{BEGIN_NS, Chance, SERVICE};

const SECOND_NS: u64 = 1_000_000_000;
/// The time from one request of a service and machine to the next.
const EVERY_NS: u64 = 700_000_000;
/// Half an hour of them: the last ones end 300 ms before its end, those before its last five minutes 600 ms before these. So a
/// window of whole minutes has the same requests as one that ends with the last of them.
const REQUESTS: u64 = 2_572;
const NEW_BUILD: u64 = 1_300;
const SLOW_NS: u64 = 2_000_000;
const HOSTS: [&str; 3] = ["web-1", "web-2", "web-3"];
const SERVICES: [&str; 2] = [SERVICE, "front/php"];

struct Request {
    start_unix_ns: u64,
    ledger: Ledger,
    causes: Causes,
    is_complete: bool,
    build_id: &'static str,
}

impl Request {
    fn end_unix_ns(&self) -> u64 {
        self.start_unix_ns + self.ledger.latency_ns
    }
}

fn request(number: u64, slow_disk: bool, chance: &mut Chance, classes: usize) -> Request {
    let is_new = number >= NEW_BUILD;
    let mut ledger = Ledger::of(classes, &Places::default());
    ledger.on_cpu_ns = 1_000 + chance.below(300_000) * if is_new { 2 } else { 1 };
    ledger.run_queue_ns = chance.below(20_000);
    ledger.preempted_ns = [chance.below(80_000), 0, 0, 0][chance.below(4) as usize];
    let blocked = chance.below(1_500_000) * if slow_disk { 6 } else { 1 };
    ledger.classes[0] = if chance.below(3) == 0 { blocked } else { 0 };
    ledger.classes[1] = chance.below(5_000);
    let sum = |of: &Ledger| {
        of.on_cpu_ns + of.run_queue_ns + of.preempted_ns + of.classes.iter().sum::<u64>()
    };
    // A duration at an edge may be 0.1 % off in roll-ups.
    if (SLOW_NS * 998 / 1_000..=SLOW_NS).contains(&sum(&ledger)) {
        ledger.on_cpu_ns += SLOW_NS / 100;
    }
    ledger.latency_ns = sum(&ledger);
    let mut causes = Causes::default();
    causes.add(Cause::Disk, ledger.classes[0]);
    causes.add(Cause::Timer, ledger.classes[1]);
    Request {
        start_unix_ns: BEGIN_NS + number * EVERY_NS + chance.below(1_000_000),
        ledger,
        causes,
        is_complete: chance.below(100) > 0,
        build_id: if is_new { "bb" } else { "aa" },
    }
}

/// Rows of all of them, and roll-ups, of a machine.
fn serve(host: &'static str, rows: &Rows, chance: &mut Chance) {
    let shop = workspace::root().join("examples/shop/shop.toml");
    let shop = std::fs::read_to_string(shop).unwrap();
    let profiles = Profiles::parse([shop.as_str()], "shop.toml").unwrap();
    let classes = Columns::of(&profiles).unwrap().classes.len();
    let slo = Some(Duration::from_nanos(SLOW_NS));
    let services = SERVICES.map(|service| (service.to_owned(), slo));
    let agent = Agent::start(host, "0123456789ab", &services.into(), Some(rows)).unwrap();
    for service in SERVICES {
        let traced = Traced {
            service,
            profile: "shop",
            kernel: "6.18",
            profiles: &profiles,
            has_causes: true,
            window: Duration::from_secs(10),
            begin_unix_ns: BEGIN_NS,
        };
        let mut session = agent.session(&traced).unwrap();
        let mut seconds: BTreeMap<u64, Vec<(u64, Request)>> = BTreeMap::new();
        for number in 0..REQUESTS {
            let one = request(number, host == "web-2", chance, classes);
            let second = one.end_unix_ns() / SECOND_NS;
            seconds.entry(second).or_default().push((number, one));
        }
        for (second, requests) in seconds {
            let (mut cell, mut incomplete) = (Cell::default(), 0);
            let build_id = requests.last().map(|(_, one)| one.build_id);
            for (id, one) in requests {
                if one.is_complete {
                    let (ledger, weight) = (&one.ledger, 1);
                    cell.add(&One { id, ledger, weight });
                    cell.book(&one.causes, 1);
                } else {
                    incomplete += 1;
                }
                let no_text = Plain::default();
                session.request(&row(host, id, &one, &no_text)).unwrap();
            }
            let window = WindowRow {
                start_unix_ns: second * SECOND_NS,
                length_ns: SECOND_NS,
                request: "order",
                cell: &cell,
                incomplete,
                has_causes: true,
                build_id,
            };
            session.window(&window).unwrap();
            session.close((second + 1) * SECOND_NS);
        }
        session.end(BEGIN_NS + 1_800 * SECOND_NS);
    }
    let page = agent.end().unwrap();
    for kind in ["rows", "rollups"] {
        for cause in ["queue_full", "disk", "oldest"] {
            let none = format!("\nreqtrace_{kind}_dropped_total{{cause=\"{cause}\"}} 0.0\n");
            assert!(page.contains(&none), "{page}");
        }
    }
}

fn row<'a>(host: &'a str, id: u64, one: &'a Request, no_text: &'a Plain) -> RequestRow<'a> {
    RequestRow {
        id,
        origin: Origin {
            host,
            service: "shop",
            build_id: Some(one.build_id),
        },
        start_unix_ns: one.start_unix_ns,
        since_start_ns: (one.start_unix_ns - BEGIN_NS) as i64,
        request: "order",
        pid: 7,
        tid: 8,
        comm: no_text,
        label: no_text,
        attributes: &[],
        ledger: &one.ledger,
        blocks: 1,
        preemptions: 0,
        incomplete: (!one.is_complete).then_some(Incomplete::NoEnd),
        weight: 1,
        slow: None,
        waited_before_ns: None,
        lost: None,
        is_keyed: false,
        causes: Some(one.causes),
        blames: &[],
        kept: None,
    }
}

fn configuration(folder: &Path, dir: &Path, rollups: &Path, host: &str) -> Rows {
    Rows {
        dir: dir.to_owned(),
        spool: folder.join(format!("{host}-rows")),
        keep_slow: None,
        one_in: 1,
        every: Duration::from_secs(300),
        bytes: 1 << 20,
        max: 64 << 20,
        keep_free: Share::of_percent(0.1),
        rollups: Some(Rollups {
            dir: rollups.to_owned(),
            spool: folder.join(format!("{host}-rollups")),
            max: 64 << 20,
        }),
    }
}

/// These columns of an answer.
fn columns<const N: usize>(answer: &Value, columns: [usize; N]) -> Vec<[Value; N]> {
    let rows = answer.as_array().unwrap().iter();
    rows.map(|row| columns.map(|at| row[at].clone())).collect()
}

fn are_same<const N: usize>(of: &str, rollups: &[[Value; N]], rows: &[[Value; N]]) {
    let pairs = rollups.iter().flatten().zip(rows.iter().flatten());
    let mut pairs = pairs.into_iter();
    let is = rollups.len() == rows.len() && pairs.all(|(one, other)| is_same(one, other));
    assert!(
        is && !rows.is_empty(),
        "{of}\nroll-ups {rollups:?}\nrows     {rows:?}"
    );
}

#[test]
#[ignore = "needs ClickHouse and DuckDB in Python, 1.3 GB: `cargo xtask test --all`"]
fn roll_ups_and_all_rows_give_the_same_answers_where_both_can() {
    let engine = Engine::start(|_, _| Reply::Accept).unwrap();
    let (place, rollups) = with_rollups(&engine);
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    for host in HOSTS {
        let rows = configuration(place.folder.path(), &place.rows, &rollups, host);
        serve(host, &rows, &mut chance);
    }
    let (code, output) = place.run(&["--once"]);
    assert_eq!(code, Some(0), "{output}");
    let of_rows = answers(&engine, place.folder.path(), "rows", &["1"]);
    let of_rollups = answers(&engine, place.folder.path(), "rollups", &[]);
    for engine in ["clickhouse", "duckdb"] {
        let [rows, rollups] = [&of_rows, &of_rollups].map(|answers| &answers[engine]);
        let of = |query: &str| format!("{engine} {query}");
        let both = |query: &str| [&rollups[query], &rows[query]];

        let [minutes, of_rows] = both("since.sql").map(|one| columns(one, [0, 1, 2, 3, 4]));
        assert_eq!(minutes.len(), 30);
        are_same(&of("since.sql"), &minutes, &of_rows);

        let burn = both("burn.sql").map(|one| columns(one, [0, 1, 2, 3, 4]));
        assert_eq!(burn[0].len(), SERVICES.len() * 4);
        are_same(&of("burn.sql"), &burn[0], &burn[1]);

        let culprits = both("culprits.sql").map(|one| columns(one, [0, 1, 2, 3]));
        assert_eq!(culprits[0].len(), SERVICES.len() * 2);
        are_same(&of("culprits.sql"), &culprits[0], &culprits[1]);

        // Quantiles are rows' alone, and the begin of a build has a minute here.
        let [builds, of_rows] = [
            columns(&rollups["deploy.sql"], [0, 1, 3, 4, 5, 6, 7, 8]),
            columns(&rows["deploy.sql"], [0, 1, 3, 4, 7, 8, 9, 10]),
        ];
        assert_eq!(builds.len(), 2);
        are_same(&of("deploy.sql"), &builds, &of_rows);
        let minute = |ns: &Value| ns.as_u64().unwrap() / SECOND_NS / 60 * 60;
        let first = columns(&rollups["deploy.sql"], [2]).into_iter();
        let first_ns = columns(&rows["deploy.sql"], [2]).into_iter();
        for ([first], [first_ns]) in first.zip(first_ns) {
            assert_eq!(first.as_u64().unwrap(), minute(&first_ns));
        }

        // The order is by the mean here, and by the 99th percentile there.
        let by_host = |mut hosts: Vec<[Value; 7]>| {
            hosts.sort_by_key(|host| host[0].to_string());
            hosts
        };
        let hosts = by_host(columns(&rollups["hosts.sql"], [0, 1, 4, 6, 7, 8, 5]));
        let of_rows = by_host(columns(&rows["hosts.sql"], [0, 1, 4, 5, 6, 7, 2]));
        let but_last = |hosts: &[[Value; 7]]| {
            let hosts = hosts
                .iter()
                .map(|[a, b, c, d, e, f, _]| [a, b, c, d, e, f].map(Value::clone));
            hosts.collect::<Vec<[Value; 6]>>()
        };
        are_same(&of("hosts.sql"), &but_last(&hosts), &but_last(&of_rows));
        for (host, of_rows) in hosts.iter().zip(&of_rows) {
            let (below, p99) = (host[6].as_u64().unwrap(), of_rows[6].as_u64().unwrap());
            let edges = [1, 2, 5, 10, 20].map(|ms| ms * 1_000_000);
            assert_eq!(
                Some(&below),
                edges.iter().find(|edge| **edge >= p99),
                "{host:?}"
            );
        }
    }
}
