//! Recorded traces through decode, aggregate, classify and report, against golden files.
//!
//! `busy`, `idle` and `lost` are made by `scenes`; `shop.rec` and `mariadb.rec` are real traces, which
//! `cargo test --release -p reqtrace-tests --test e2e golden -- --ignored` records again (as root).
//! `REQTRACE_BLESS=1 cargo test -p reqtrace --test replay` writes the expected outputs again. A golden
//! file that is missing is a failure.

#![allow(clippy::unwrap_used, reason = "a failure of a test")]

mod build;
mod decoded;
mod keyed;
mod options;
#[cfg(feature = "parquet")]
mod parquet;
mod replayed;
mod rolled;
mod scenes;
mod views;

use std::fs;
use std::io::Cursor;

use reqtrace_analysis::aggregate::Options;
use reqtrace_analysis::report::{Grouping, Report};
use reqtrace_output::folded::{FoldedOptions, Part, Shows};
use reqtrace_output::table;
use reqtrace_recording::{Reader, Writer};

use replayed::{compare, data, is_blessed, recorded, run, run_with, scene};

#[test]
fn a_real_trace_of_the_shop() {
    let replayed = scene("shop", &recorded("shop"));
    let request = &replayed.report.requests[0];
    assert!(request.classes_exact && request.count == 250);
    let classes = &replayed.report.classes;
    for (class, wanted) in ["journal", "stock lock", "payment"].into_iter().enumerate() {
        assert_eq!(classes[class], wanted);
        assert!(request.ledger.classes[class] > 0, "{wanted}");
    }
}

#[test]
fn a_real_trace_of_mariadb() {
    let options = Options {
        group_by: Some(Grouping::Fingerprint),
        ..Options::default()
    };
    let replayed = run_with(&recorded("mariadb"), options);
    compare("mariadb", &replayed);
    let request = &replayed.report.requests[0];
    assert!(request.classes_exact && request.count == request.rows);
    assert!(replayed.report.losses.is_empty());
    assert!(replayed.files["stacks.folded"].contains("dispatch_command"));
}

#[test]
fn a_real_trace_of_who_held_whom_up() {
    let replayed = scene("locks", &recorded("locks"));
    let blame = replayed.report.blame.as_ref().unwrap();
    for (of_type, request) in blame.types.iter().zip(&replayed.report.requests) {
        let blocked = request.ledger.held_up_ns();
        assert_eq!(of_type.causes.sum(), blocked, "{}", of_type.request);
        let rows = blame.rows.iter();
        let rows = rows.filter(|row| row.victim_request == of_type.request);
        assert_eq!(rows.map(|row| row.ns).sum::<u64>(), blocked);
    }
    let all: u64 = blame.types.iter().map(|of_type| of_type.causes.sum()).sum();
    let chains = blame.chains.iter();
    assert_eq!(chains.map(|chain| chain.ns).sum::<u64>(), all);
}

/// Recordings of version 1 of the format, whose fields have no numbers, in `data/old`: byte for byte what the same
/// events give in this version.
#[test]
fn an_old_recording_gives_the_same_bytes() {
    for name in ["shop", "mariadb", "locks"] {
        let old = fs::read(data(&format!("old/{name}.rec"))).unwrap();
        assert_eq!(old[8], 1);
        let (old, new) = (run(&old, 0), run(&recorded(name), 0));
        assert_eq!(old.files, new.files, "{name}");
        assert_eq!(old.report.trace.kernel, new.report.trace.kernel);
    }
}

/// The format has not changed: what is read is written as it was.
#[test]
fn a_recording_that_is_written_again_has_the_same_bytes() {
    for name in ["shop", "mariadb", "locks"] {
        let bytes = recorded(name);
        let mut reader = Reader::open(Cursor::new(&bytes)).unwrap();
        let header = reader.header().clone();
        let mut writer = Writer::new(Vec::new(), &header).unwrap();
        let ending = reader.read(|event| writer.event(&event)).unwrap();
        assert!(ending.unwrap().is_whole());
        writer.flush().unwrap();
        let written = writer.into_inner();
        if is_blessed() {
            fs::write(data(&format!("{name}.rec")), written).unwrap();
            continue;
        }
        // A new field at the end, or another version of zstd: then REQTRACE_BLESS=1 writes them again.
        assert!(written == bytes, "{name}");
    }
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
fn the_whole_latency_is_in_the_stacks() {
    let replayed = scene("computing", &scenes::computing());
    let ledgers = replayed.report.requests.iter().map(|of| &of.ledger);
    let (latency, on_cpu) = ledgers.fold((0, 0), |(latency, on_cpu), ledger| {
        (latency + ledger.latency_ns, on_cpu + ledger.on_cpu_ns)
    });
    let sum = |part| -> u64 {
        let options = FoldedOptions {
            part,
            ..FoldedOptions::default()
        };
        let lines = Shows::Stacks(options).lines(&replayed.report);
        lines.iter().map(|(_, micros)| micros * 1000).sum()
    };
    // Lines are whole microseconds.
    assert!(sum(Part::All).abs_diff(latency) <= 10_000);
    assert!(sum(Part::OnCpu).abs_diff(on_cpu) <= 5_000);
    assert_eq!(sum(Part::All), sum(Part::OnCpu) + sum(Part::OffCpu));
    let svg = &replayed.files["flamegraph.svg"];
    for name in ["on CPU", "disk", "run queue", "preempted", "network"] {
        assert!(svg.contains(&format!(">{name} ")), "{name}");
    }
    assert!(!svg.contains("<b>"));
    assert!(svg.chars().all(|c| c == '\n' || !c.is_control()));
    // The function that computes and blocks has no colour of its own.
    assert!(svg.contains("[on CPU, not sampled]"));
}

#[test]
fn a_recording_cut_anywhere_is_reported_with_what_it_has() {
    let whole = scenes::busy();
    let all = run(&whole, 0).report.requests[0].rows;
    let mut seen = std::collections::BTreeSet::new();
    for len in (0..whole.len()).step_by(97) {
        if Reader::open(Cursor::new(&whole[..len])).is_err() {
            continue;
        }
        let report = run(&whole[..len], 0).report;
        if report.trace.ended_by == "duration" {
            // Only what comes behind the end was cut off.
            continue;
        }
        seen.insert(report.requests[0].rows);
        assert!(
            report
                .losses
                .iter()
                .any(|loss| loss.name == "recording_unended")
        );
        assert_eq!(report.trace.ended_by, "recording ended");
        let known = |line: &reqtrace_analysis::report::StackLine| {
            line.user
                .iter()
                .chain(&line.kernel)
                .all(|frame| frame != "[unknown]")
        };
        assert!(report.stacks.iter().all(known));
        // The requests that are there have the classes of their places.
        assert_eq!(
            report
                .losses
                .iter()
                .filter(|l| l.name == "stacks_unknown")
                .count(),
            0
        );
    }
    assert!(
        seen.len() > 3 && seen.iter().all(|rows| *rows <= all),
        "{seen:?}"
    );
}
