//! Recordings without a trace: requests and windows in, and what is replayed of them.

use super::*;
use crate::fleet::machine::Recordings;
use crate::fleet::recordings::ALL;

fn row(id: u64, request: &str, latency_ns: u64) -> Row {
    Row {
        id,
        start_ns: 0,
        request: request.to_owned(),
        pid: 1,
        tid: 2,
        comm: Plain::default(),
        attributes: Vec::new(),
        ledger: Ledger {
            latency_ns,
            ..Ledger::default()
        },
        blocks: 0,
        preemptions: 0,
        incomplete: None,
        weight: 1,
        waited_before_ns: None,
        is_keyed: false,
        causes: None,
        blames: Vec::new(),
    }
}

fn window(requests: u64) -> Window {
    let mut cell = Cell::default();
    cell.sum.weight = requests;
    Window {
        length_ns: SECOND_NS,
        request: "order".to_owned(),
        cell,
        incomplete: 0,
        has_causes: true,
    }
}

/// Requests that end in the four seconds from 7.5 s on.
fn taken(counts: [u64; 4]) -> Taken {
    let begin = 7_500_000_000;
    let ends = [
        begin,
        begin + SECOND_NS,
        begin + 3 * SECOND_NS - 1,
        begin + 3 * SECOND_NS,
    ];
    let rows = ends.map(|end| (end - 900_000_000, row(end, "order", 900_000_000)));
    let windows = (0..).zip(counts);
    Taken {
        rows: rows.into(),
        windows: windows
            .map(|(at, count)| (begin + at * SECOND_NS, window(count)))
            .collect(),
    }
}

#[test]
fn a_request_is_in_the_second_of_its_end_and_cut_seconds_are_left_out() {
    let seconds = taken([1, 1, 1, 1]).seconds().unwrap();
    let starts = |second: &Second| second.rows.iter().map(|row| row.start_ns).collect();
    let starts: Vec<Vec<i64>> = seconds.iter().map(starts).collect();
    assert_eq!(starts, [vec![-900_000_000], vec![1_099_999_999]]);
    let error = taken([1, 1, 2, 1]).seconds().unwrap_err().to_string();
    assert_eq!(
        error,
        "second 1 has 1 requests by their rows, and 2 by its windows"
    );
}

#[test]
fn what_is_too_short_or_no_recording_says_so() {
    let short = Taken {
        windows: vec![(5, window(0)), (5 + SECOND_NS, window(0))],
        ..Taken::default()
    };
    let error = short.seconds().unwrap_err().to_string();
    assert_eq!(error, "it has no whole second: record three at least");
    let mut set = taken([1, 1, 1, 1]);
    set.windows[2].0 += 1_000;
    let error = set.seconds().unwrap_err().to_string();
    assert!(error.contains("the wall clock was set"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.rec");
    std::fs::write(&path, "garbage").unwrap();
    let error = Recorded::read(ALL[0], &path).unwrap_err();
    assert!(format!("{error:#}").contains("shop.rec"), "{error:#}");
}

/// The five of the shop: requests of these latencies, ms.
fn shops(latencies: [&[u64]; 5]) -> Recordings {
    let text = std::fs::read_to_string(reqtrace_tests::shop::profile()).unwrap();
    let recorded = |(wanted, latencies): (&Wanted, &[u64])| {
        let rows = latencies.iter().map(|ms| row(1, "order", ms * 1_000_000));
        let second = Second {
            rows: rows.collect(),
            windows: Vec::new(),
        };
        Recorded {
            wanted: *wanted,
            profile: "shop".to_owned(),
            profiles: Profiles::parse([text.as_str()], "shop.toml").unwrap(),
            kernel: "6.18".to_owned(),
            seconds: vec![second],
            ids: 2,
        }
    };
    Recordings::new(ALL.iter().zip(latencies).map(recorded).collect())
}

#[test]
fn what_is_wrong_has_to_be_clear_in_the_recordings() {
    let well: &[u64] = &[1, 1, 1, 8];
    let clear = |short: &[u64], bad: &[u64]| {
        let clear = shops([well, well, well, short, bad]).are_clear();
        clear.map_or_else(|error| error.to_string(), |()| String::new())
    };
    assert_eq!(clear(&[1, 1, 1, 20], &[2, 2, 3, 8]), "");
    let printed = clear(&[1, 1, 1, 19], &[2, 2, 3, 8]);
    assert!(
        printed.starts_with("the outlier has 19000000 ns at 0.99"),
        "{printed}"
    );
    // Beside a bad build with a long tail, too.
    assert!(clear(&[1, 1, 1, 20], &[2, 2, 3, 9]).contains("outlier"));
    let printed = clear(&[1, 1, 1, 20], &[1, 1, 3, 8]);
    assert!(
        printed.starts_with("the bad build has 1000000 ns at 0.5"),
        "{printed}"
    );
    assert_eq!(
        shops([&[], &[3, 1, 2, 4], &[], &[], &[]]).all()[1].quantile(0.5),
        2_000_000
    );
}
