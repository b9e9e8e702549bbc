//! Recorded traces through decode, aggregate, classify and report, against golden files.
//!
//! `REQTRACE_BLESS=1 cargo test -p reqtrace --test replay` writes the golden files anew. A golden
//! file that is missing is a failure.

#![allow(clippy::unwrap_used, reason = "a failure of a test")]

mod build;
mod scenes;
mod views;

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use reqtrace::aggregate::replay;
use reqtrace::decode::recording::Recording;
use reqtrace::profile::{
    At, MarkerSpec, Origin, PlaceSpec, Profile, RequestSpec, ReturnProbe, WaitSpec,
};
use reqtrace::report::folded::FoldedOptions;
use reqtrace::report::outputs::{OutputOptions, open};
use reqtrace::report::{Report, table};
use reqtrace_common::cookie::Reentry;

/// All that comes out of a replay.
struct Replayed {
    report: Report,
    files: HashMap<&'static str, String>,
}

const FILES: [&str; 4] = [
    "summary.json",
    "requests.csv",
    "stacks.folded",
    "flamegraph.svg",
];

fn profile() -> Profile {
    let request = |name: &str| RequestSpec {
        labels: Vec::new(),
        name: name.to_owned(),
        begin: MarkerSpec {
            place: PlaceSpec::Function {
                patterns: vec!["dispatch_command".to_owned()],
                at: At::Entry,
            },
            object: None,
            called_by: None,
        },
        end: None,
        reentry: Reentry::Nest,
        return_probe: ReturnProbe::Sites,
    };
    let wait = |name: &str, functions: &[&str], files: &[&str]| WaitSpec {
        name: name.to_owned(),
        functions: functions.iter().map(|&text| text.to_owned()).collect(),
        files: files.iter().map(|&text| text.to_owned()).collect(),
        ..WaitSpec::default()
    };
    Profile {
        name: "mysql".to_owned(),
        description: String::new(),
        executables: vec!["mariadbd".to_owned()],
        origin: Origin::BuiltIn,
        requests: vec![request("command")],
        waits: vec![
            wait("redo log", &["log_write_up_to*"], &["*/ib_logfile*"]),
            wait("row lock", &["lock_wait"], &[]),
        ],
    }
}

fn run(recording: &Recording, slower_than_ns: u64) -> Replayed {
    let folder = tempfile::tempdir().unwrap();
    let profile = profile();
    let classes = reqtrace::classify::Classifier::new(&profile.waits).unwrap();
    let options = OutputOptions {
        out: Some(folder.path().to_owned()),
        slower_than_ns,
        stacks: FoldedOptions::default(),
        ..OutputOptions::default()
    };
    let mut exporters = open(&options, classes.names()).unwrap();
    let threshold = (slower_than_ns > 0).then_some(slower_than_ns);
    let report = replay(recording, &profile, threshold, &mut exporters).unwrap();
    for exporter in &mut exporters {
        exporter.finish(&report).unwrap();
    }
    let read = |name| (name, fs::read_to_string(folder.path().join(name)).unwrap());
    Replayed {
        files: FILES.into_iter().map(read).collect(),
        report,
    }
}

/// Compares with a golden file, or writes it when `REQTRACE_BLESS` is 1.
fn golden(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name);
    if std::env::var("REQTRACE_BLESS").is_ok_and(|value| value == "1") {
        fs::write(&path, text).unwrap();
        return;
    }
    let wanted = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; REQTRACE_BLESS=1 writes it", path.display()));
    assert!(
        wanted == text,
        "{name} is not as it was; REQTRACE_BLESS=1 takes the new one:\n{text}"
    );
}

/// Replays a scene through its recorded file, and compares all that comes out.
fn scene(name: &str, built: &Recording) -> Replayed {
    let recorded = format!("{}\n", built.to_json().unwrap());
    golden(&format!("{name}.recording.json"), &recorded);
    let replayed = run(&Recording::from_json(&recorded).unwrap(), 0);
    for (file, text) in &replayed.files {
        golden(&format!("{name}.{file}"), text);
    }
    let page = table::render(&replayed.report, false, table::WIDTH);
    golden(&format!("{name}.table.txt"), &page);
    for line in page.lines() {
        assert!(line.chars().count() <= 100, "too wide: {line}");
    }
    check_csv(&replayed);
    check_svg(&replayed.files["flamegraph.svg"]);
    replayed
}

/// The ledger of every row closes, and the complete rows add up to the report.
fn check_csv(replayed: &Replayed) {
    let mut reader = csv::Reader::from_reader(replayed.files["requests.csv"].as_bytes());
    let header = reader.headers().unwrap().clone();
    let first_class = header
        .iter()
        .position(|name| name == "unattributed_ns")
        .unwrap()
        + 1;
    let after_classes = header.iter().position(|name| name == "blocks").unwrap();
    let (mut rows, mut latency, mut previous_end) = (0, 0, 0);
    for record in reader.records() {
        let record = record.unwrap();
        let text = |name: &str| &record[header.iter().position(|column| column == name).unwrap()];
        let value = |name: &str| text(name).parse::<u64>().unwrap();
        let classes: u64 = (first_class..after_classes)
            .map(|index| record[index].parse::<u64>().unwrap())
            .sum();
        assert_eq!(classes, value("blocked_ns"));
        let off: u64 = [
            "run_queue_ns",
            "preempted_ns",
            "blocked_ns",
            "unattributed_ns",
        ]
        .map(value)
        .into_iter()
        .sum();
        assert_eq!(value("on_cpu_ns") + off, value("latency_ns"));
        let end = value("start_unix_ns") + value("latency_ns");
        assert!(end >= previous_end, "rows are in order of their end");
        previous_end = end;
        assert_eq!(text("complete") == "true", text("reason").is_empty());
        if text("complete") == "true" {
            rows += 1;
            latency += value("latency_ns");
        }
    }
    let wanted: u64 = replayed
        .report
        .requests
        .iter()
        .map(|request| request.rows)
        .sum();
    assert_eq!(rows, wanted);
    for request in &replayed.report.requests {
        let ledger = &request.ledger;
        assert_eq!(
            ledger.on_cpu_ns
                + ledger.run_queue_ns
                + ledger.preempted_ns
                + ledger.blocked_ns()
                + ledger.unattributed_ns,
            ledger.latency_ns
        );
        if request.classes_exact {
            assert_eq!(latency, ledger.latency_ns);
        }
    }
}

fn check_svg(svg: &str) {
    assert!(svg.contains("<svg") && svg.trim_end().ends_with("</svg>"));
    assert!(!svg.contains("@import") && !svg.contains("href=\"http"));
}

#[test]
fn a_busy_server() {
    let replayed = scene("busy", &scenes::busy());
    let request = &replayed.report.requests[0];
    assert!(request.classes_exact);
    assert_eq!(request.count, request.rows);
    let redo_log = request.ledger.classes[0];
    assert!(redo_log > 0);
    assert!(replayed.files["stacks.folded"].contains("[run queue]"));
    assert!(!replayed.report.open.is_empty());
}

#[test]
fn a_server_whose_records_were_lost() {
    let replayed = scene("lost", &scenes::lost());
    let request = &replayed.report.requests[0];
    assert!(!request.classes_exact);
    assert!(request.rows < request.count);
    // Only complete requests were lost, so the estimate is the truth.
    let all = run(&scenes::nothing_lost(), 0);
    assert_eq!(request.ledger, all.report.requests[0].ledger);
    assert!(
        replayed
            .report
            .losses
            .iter()
            .any(|loss| loss.name == "ring_full")
    );
}

#[test]
fn an_idle_server() {
    let replayed = scene("idle", &scenes::idle());
    assert_eq!(replayed.files["stacks.folded"], "");
    assert_eq!(replayed.files["requests.csv"].lines().count(), 1);
    assert!(replayed.files["flamegraph.svg"].contains("No off-CPU time"));
    assert!(replayed.report.hints[0].contains("never hit"));
}

#[test]
fn a_narrow_terminal_breaks_no_line() {
    for recording in [
        scenes::busy(),
        scenes::lost(),
        scenes::idle(),
        scenes::open(),
    ] {
        let mut report = run(&recording, 0).report;
        report.warnings.push("these numbers are wrong ".repeat(9));
        for width in [40, 60, 80, 100] {
            let page = table::render(&report, true, width);
            for line in page.lines() {
                assert!(line.chars().count() <= width, "of {width}: {line}");
            }
            let warning = page.find("WARNING").unwrap();
            assert!(warning < page.find("REQUEST ").unwrap(), "{page}");
            if width >= 60 {
                let head = page
                    .lines()
                    .find(|line| line.starts_with("REQUEST"))
                    .unwrap();
                assert!(head.ends_with("P99      MAX"), "{page}");
            }
        }
    }
}

#[test]
fn a_name_that_comes_late_holds_from_then_on() {
    let report = run(&scenes::late_name(), 0).report;
    let class = |report: &Report, name: &str| {
        let index = report.classes.iter().position(|class| class == name);
        report.requests[0].ledger.classes[index.unwrap()]
    };
    assert!(class(&report, "redo log") > 0 && class(&report, "disk") > 0);
    let losses: Vec<_> = report
        .losses
        .iter()
        .map(|loss| loss.name.as_str())
        .collect();
    assert!(losses.contains(&"file_notice"), "{losses:?}");
}

#[test]
fn of_open_requests_the_long_ones_are_shown() {
    let report = run(&scenes::open(), 0).report;
    assert_eq!(report.open.len(), 2);
    let page = table::render(&report, false, table::WIDTH);
    assert!(page.contains("thread 9612"), "{page}");
    assert!(!page.contains("thread 9613"), "{page}");
    assert!(page.contains("2 blocked at stop"), "{page}");
}

#[test]
fn only_slow_requests() {
    let recording = scenes::busy();
    let all = run(&recording, 0);
    let slow = run(&recording, 5_000_000);
    assert_eq!(slow.report.requests[0].count, all.report.requests[0].count);
    let rows = |replayed: &Replayed| replayed.files["requests.csv"].lines().count();
    assert!(rows(&slow) > 1 && rows(&slow) < rows(&all));
    let folded = &slow.files["stacks.folded"];
    assert!(
        folded.contains("lock_wait") && !folded.contains("pread64"),
        "{folded}"
    );
}

#[test]
fn folded_stacks_follow_their_options() {
    let report = run(&scenes::busy(), 0).report;
    let lines = |options| reqtrace::report::folded::lines(&report, options);
    let all = FoldedOptions::default();
    let has = |options, text: &str| lines(options).iter().any(|(line, _)| line.contains(text));
    assert!(has(all, "[preempted]") && has(all, "futex_wait") && !has(all, ";-;"));
    assert!(!has(
        FoldedOptions {
            blocked_only: true,
            ..all
        },
        "[preempted]"
    ));
    assert!(has(
        FoldedOptions {
            delimiter: true,
            ..all
        },
        ";-;"
    ));
    assert!(!has(
        FoldedOptions {
            kernel: false,
            ..all
        },
        "__schedule"
    ));
    assert!(!has(
        FoldedOptions { user: false, ..all },
        "dispatch_command"
    ));
    assert!(lines(all).iter().all(|(_, micros)| *micros > 0));
}
