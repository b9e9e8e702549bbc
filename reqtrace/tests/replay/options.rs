//! What is asked of a recording: slow requests, filters, chosen stacks, a narrow terminal.

use std::io::Cursor;

use reqtrace_analysis::aggregate::{Aggregator, FilterOptions, Options};
use reqtrace_analysis::report::Grouping;
use reqtrace_output::folded::{FoldedOptions, Shows};
use reqtrace_output::table;
use reqtrace_profile::Profiles;
use reqtrace_recording::Reader;

use crate::replayed::{Replayed, check_csv, run, run_with};
use crate::scenes;

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
    let lines = |options| Shows::Stacks(options).lines(&report);
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

#[test]
fn a_filter_leaves_requests_out_of_everything() {
    let recording = scenes::busy();
    let all = run(&recording, 0).report;
    let filtered = |filter: FilterOptions| {
        let options = Options {
            filter,
            ..Options::default()
        };
        run_with(&recording, options)
    };
    let one = filtered(FilterOptions {
        tids: vec![9601],
        from_ns: Some(1_000_000_000),
        to_ns: Some(2_000_000_000),
        ..FilterOptions::default()
    });
    let rows = one.files["requests.csv"].lines().count() as u64 - 1;
    assert!(rows > 3 && rows < all.requests[0].rows / 4, "{rows}");
    assert!(
        one.files["requests.csv"]
            .lines()
            .skip(1)
            .all(|row| row.contains(",9601,"))
    );
    let report = &one.report;
    assert_eq!(report.requests[0].count, rows);
    let note = report.filtered.as_ref().unwrap();
    assert_eq!(
        (note.kept, note.kept + note.left_out),
        (rows, all.requests[0].rows + 3)
    );
    // Its stacks are those of its own requests, to the nanosecond.
    let stacks: u64 = report.stacks.iter().map(|line| line.ns).sum();
    let ledger = &report.requests[0].ledger;
    assert_eq!(stacks, ledger.blocked_ns() + ledger.unattributed_ns);
    let page = table::render(report, false, table::WIDTH);
    assert!(page.contains("Filter: thread 9601, begun"), "{page}");
    let hints = report.hints.join("\n");
    assert!(!hints.contains("never hit"), "{hints}");
    check_csv(&one);

    let nothing = filtered(FilterOptions {
        pids: vec![1],
        ..FilterOptions::default()
    });
    assert_eq!(nothing.report.requests[0].count, 0);
    assert_eq!(nothing.files["stacks.folded"], "");
}

#[test]
fn what_was_not_recorded_cannot_be_asked_for() {
    let recording = scenes::busy();
    let reader = Reader::open(Cursor::new(&recording[..])).unwrap();
    let header = reader.header();
    let profiles = Profiles::parse(header.profile_texts(), "recorded").unwrap();
    let refused = |options| {
        let error = Aggregator::new(&profiles, header, options).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        format!("{error} / {}", error.advice().unwrap())
    };
    let filter = |filter| Options {
        filter,
        ..Options::default()
    };
    let label = FilterOptions {
        label: Some("SELECT *".to_owned()),
        ..FilterOptions::default()
    };
    assert!(refused(filter(label)).contains("record with --labels"));
    let request = FilterOptions {
        requests: vec!["query".to_owned()],
        ..FilterOptions::default()
    };
    assert!(refused(filter(request)).contains("it has command"));
    let backwards = FilterOptions {
        from_ns: Some(2),
        to_ns: Some(1),
        ..FilterOptions::default()
    };
    assert!(refused(filter(backwards)).contains("--from"));
    let group = Options {
        group_by: Some(Grouping::Label),
        ..Options::default()
    };
    assert!(refused(group).contains("no labels"));
    let histogram = Options {
        histogram: true,
        ..Options::default()
    };
    assert!(refused(histogram).contains("record with --histogram"));
}
