//! The queries of `deploy/`: rows of three machines and two services, written by the agent's writer and sent by the shipper,
//! with each file more than once, in ClickHouse and in DuckDB; both give the answers that are computed here from the rows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use reqtrace_tests::engine::{Engine, Reply};
use reqtrace_tests::process::run;
use reqtrace_tests::workspace;
use serde_json::{Value, json};

use crate::fleet_answers::{Answer, TARGET, computed, sum};
use crate::fleet_rows::{Row, SERVICE, fleet};
use crate::ship::Place;

pub(crate) fn is_same(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => (one - other).abs() <= 1e-9 * one.abs().max(other.abs()),
        _ => one == other,
    }
}

#[test]
#[ignore = "needs ClickHouse and DuckDB in Python, 1.3 GB: `cargo xtask test --all`"]
fn both_engines_answer_all_questions_as_the_rows_do() {
    let engine = Engine::start(|_, _| Reply::Accept).unwrap();
    let place = Place::to("keep = true", &engine, "");
    let rows = fleet(&place.rows);
    let (code, printed) = place.run(&["--once"]);
    assert_eq!(code, Some(0), "{printed}");
    let folder = place.folder.path().join("engines");
    for twice in ["files", "twice"] {
        fs::create_dir_all(folder.join(twice)).unwrap();
        for (name, content) in engine.taken().unwrap() {
            fs::write(folder.join(twice).join(name), content).unwrap();
        }
    }
    let statements: BTreeMap<String, String> = engine
        .sent()
        .into_iter()
        .map(|sent| (sent.token, sent.query))
        .collect();
    assert_eq!(statements.len(), 24);
    fs::write(
        folder.join("statements.json"),
        serde_json::to_string(&statements).unwrap(),
    )
    .unwrap();

    let mut python = Command::new(workspace::engines().join("bin/python"));
    python.arg(workspace::root().join("tests/fixtures/engines/fleet.py"));
    python
        .arg(&folder)
        .arg(workspace::root().join("deploy"))
        .args([SERVICE, &TARGET.to_string(), "1"]);
    let answers: Value = serde_json::from_str(&run(&mut python).unwrap()).unwrap();

    let wanted = computed(&rows);
    let queries = fs::read_dir(workspace::root().join("deploy/duckdb/queries")).unwrap();
    let queries: BTreeSet<String> = queries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(
        queries,
        wanted.keys().map(|name| (*name).to_owned()).collect()
    );
    for engine in ["clickhouse", "duckdb"] {
        for (query, wanted) in &wanted {
            let got = answers[engine][query].as_array().unwrap();
            let got: Answer = got
                .iter()
                .map(|row| row.as_array().unwrap().clone())
                .collect();
            let is_right = got.len() == wanted.len()
                && got.iter().zip(wanted).all(|(got, wanted)| {
                    got.len() == wanted.len()
                        && got
                            .iter()
                            .zip(wanted)
                            .all(|(got, wanted)| is_same(got, wanted))
                });
            assert!(
                is_right,
                "{engine} {query}\ngot    {got:?}\nwanted {wanted:?}"
            );
        }
    }
    // The duplicates were there.
    assert_eq!(answers["clickhouse"]["count"], rows.len());
    assert_eq!(answers["clickhouse"]["with duplicates"], 2 * rows.len());
    assert_eq!(answers["duckdb"]["with duplicates"], 2 * rows.len());
    // The roll-up had them by their tokens only.
    let complete: Vec<&Row> = rows.iter().filter(|row| row.made.is_complete).collect();
    let redo_log = sum(&complete, |row| {
        if row.of.service == SERVICE {
            row.w() * row.made.classes[0]
        } else {
            0
        }
    });
    let wanted = [
        sum(&complete, Row::w),
        sum(&complete, Row::slow_w),
        sum(&complete, |row| row.w() * row.latency()),
        sum(&complete, |row| row.w() * row.made.on_cpu_ns),
        redo_log,
        sum(&complete, |row| row.w() * row.made.causes[3]),
    ];
    let twice = wanted.map(|sum| 2 * sum);
    let minutes = &answers["clickhouse"]["minutes"][0];
    assert_eq!(*minutes, json!(wanted), "twice would be {twice:?}");
}
