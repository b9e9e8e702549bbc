//! Comparisons of rows: what `report` makes of two recordings, compared, is what the recordings themselves come to.

#![cfg(feature = "parquet")]
#![allow(clippy::unwrap_used, reason = "a failure of a test")]

mod made;
mod refused;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use reqtrace_recording::{ClockStep, Event, Reader, Writer};
use serde_json::Value as Json;

use made::{A, B, Made, SECOND, recording};

fn reqtrace(args: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_reqtrace"));
    command.args(args).current_dir(folder).output().unwrap()
}

#[track_caller]
fn done(args: &[&str], folder: &Path) -> Output {
    let output = reqtrace(args, folder);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{args:?}: {printed}");
    output
}

/// What a refusal says.
#[track_caller]
fn refused(args: &[&str], folder: &Path) -> String {
    let output = reqtrace(args, folder);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {printed}");
    assert!(printed.contains("next: "), "{printed}");
    printed
}

/// A folder with `a.rec` and `b.rec`, and of each `.parquet` and a folder of `--out`.
fn both() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, made) in [("a", A), ("b", B)] {
        fs::write(folder.path().join(format!("{name}.rec")), recording(made)).unwrap();
        report(name, &[], folder.path());
    }
    folder
}

fn report(name: &str, more: &[&str], folder: &Path) {
    let (recording, parquet) = (format!("{name}.rec"), format!("{name}.parquet"));
    let mut args = vec![
        "report",
        &recording,
        "--parquet",
        &parquet,
        "--out",
        name,
        "-q",
    ];
    args.extend(more);
    done(&args, folder);
}

#[track_caller]
fn diff(sides: &[&str], more: &[&str], folder: &Path) -> Json {
    let args = [&["diff", "-q", "--json", "diff.json"], more, sides].concat();
    done(&args, folder);
    serde_json::from_slice(&fs::read(folder.join("diff.json")).unwrap()).unwrap()
}

/// What has to be the same whatever was read: byte for byte, as JSON.
fn numbers(comparison: &Json, with_groups: bool) -> String {
    let mut types = comparison["types"].clone();
    if !with_groups {
        for of in types.as_array_mut().unwrap() {
            of["mix"] = Json::Null;
            of["groups"] = Json::Null;
        }
    }
    let side = |side: &Json| {
        let keys = [
            "which",
            "length_ns",
            "requests",
            "incomplete",
            "open",
            "block_ns",
            "blocks",
            "drawn_together",
        ];
        keys.map(|key| side[key].clone())
    };
    let sides = [side(&comparison["sides"][0]), side(&comparison["sides"][1])];
    let text = serde_json::json!([sides, comparison["too_short"], types]);
    serde_json::to_string_pretty(&text).unwrap()
}

#[test]
fn open_and_incomplete_requests_are_those_that_are_selected() {
    let folder = both();
    let folder = folder.path();
    for sides in [["a.rec", "b.rec"], ["a.parquet", "b.parquet"], ["a", "b"]] {
        let counts = |select: &[&str]| {
            let comparison = diff(&sides, select, folder);
            let side = &comparison["sides"][0];
            ["open", "incomplete"].map(|key| side[key].as_u64().unwrap())
        };
        let all = counts(&[]);
        let order = counts(&["--select", "type=order"]);
        let http = counts(&["--select", "type=http"]);
        assert_eq!((order[0], http[0]), (1, 0), "{sides:?}");
        assert!(http[1] > 0, "{http:?}");
        assert_eq!([order[0] + http[0], order[1] + http[1]], all, "{sides:?}");
    }
}

#[test]
fn rows_come_to_the_same_as_recordings() {
    let folder = both();
    let folder = folder.path();
    let words: [&[&str]; 6] = [
        &[],
        &["--slo", "2ms"],
        &["--group-by", "label", "--all"],
        &["--group-by", "path"],
        &["--select", "type=http", "--select", "path=/page/1*"],
        &["--select", "a:time=2s..36s", "--select", "b:time=..35s"],
    ];
    for more in words {
        let recordings = diff(&["a.rec", "b.rec"], more, folder);
        assert!(recordings["too_short"].is_null());
        let first = &recordings["types"][0];
        assert!(first["metrics"][1]["absolute"]["interval"].is_array());
        assert!(!first["causes"].is_null() && !first["tail"].is_null());
        let parquet = diff(&["a.parquet", "b.parquet"], more, folder);
        assert_eq!(
            numbers(&parquet, true),
            numbers(&recordings, true),
            "{more:?}"
        );
        assert_eq!(parquet["unlike"], recordings["unlike"], "{more:?}");
        assert_eq!(parquet["items"], serde_json::json!([]));
        let out = diff(&["a", "b"], more, folder);
        // Which attribute stands for a label is not in requests.csv.
        let has_groups = more.contains(&"path");
        assert_eq!(
            numbers(&out, has_groups),
            numbers(&recordings, has_groups),
            "{more:?}"
        );
        // One of each kind.
        let mixed = diff(&["a.rec", "b.parquet"], more, folder);
        assert_eq!(
            numbers(&mixed, true),
            numbers(&recordings, true),
            "{more:?}"
        );
    }
    let ranges = ["--from", "..19s", "--against", "19s.."];
    let recording = diff(&["a.rec"], &ranges, folder);
    assert_eq!(
        numbers(&diff(&["a.parquet"], &ranges, folder), true),
        numbers(&recording, true)
    );
}

#[test]
fn a_condition_is_decided_by_rows() {
    let folder = both();
    let folder = folder.path();
    for sides in [["a.rec", "b.rec"], ["a.parquet", "b.parquet"], ["a", "b"]] {
        let code = |condition: &str| {
            let args = ["diff", sides[0], sides[1], "-q", "--fail-if", condition];
            reqtrace(&args, folder).status.code()
        };
        assert_eq!(code("order mean > +5%"), Some(1), "{sides:?}");
        assert_eq!(code("order mean > +50%"), Some(0), "{sides:?}");
    }
}

#[test]
fn what_rows_do_not_have_comes_from_the_summary_or_is_unknown() {
    let folder = both();
    let folder = folder.path();
    let kinds = |comparison: &Json| -> Vec<String> {
        let items = comparison["items"].as_array().unwrap().iter();
        items
            .map(|rows| rows["what"].as_str().unwrap().to_owned())
            .collect()
    };
    let noise = ["--all"];
    let out = diff(&["a", "b"], &noise, folder);
    let recordings = diff(&["a.rec", "b.rec"], &noise, folder);
    assert_eq!(kinds(&out), kinds(&recordings));
    // Stacks of a recording have other names; rows alone have nothing.
    for sides in [["a.rec", "b"], ["a.rec", "b.parquet"]] {
        let comparison = diff(&sides, &noise, folder);
        assert!(!kinds(&comparison).contains(&"stacks".to_owned()));
        let notes = comparison["notes"].to_string();
        assert!(
            notes.contains("not compared") && notes.contains("stacks"),
            "{notes}"
        );
    }
    // A Parquet file beside the summary of its trace.
    for name in ["a", "b"] {
        let to = folder.join(name).join("rows");
        fs::copy(folder.join(format!("{name}.parquet")), to).unwrap();
    }
    let both = diff(&["a", "b"], &noise, folder);
    assert_eq!(kinds(&both), kinds(&recordings));
    assert_eq!(numbers(&both, true), numbers(&recordings, true));
    // Of some requests the summary knows nothing.
    let selected = diff(&["a", "b"], &["--select", "type=order"], folder);
    assert_eq!(selected["items"], serde_json::json!([]));
    assert!(
        selected["notes"]
            .to_string()
            .contains("of all its requests only")
    );
}

/// Culprits, locks and files of a real trace are those of its recording, by name and nanoseconds.
#[test]
fn a_summary_names_culprits_and_locks_as_a_recording_does() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/locks.rec");
    fs::copy(recording, folder.join("locks.rec")).unwrap();
    report("locks", &[], folder);
    let named = |what: &str| {
        let comparison = diff(&[what, what], &["--all"], folder);
        let mut named = Vec::new();
        for kind in comparison["items"].as_array().unwrap() {
            for row in kind["rows"].as_array().unwrap() {
                if row["kind"] != "stack" {
                    named.push(
                        [
                            &row["kind"],
                            &row["request"],
                            &row["name"],
                            &row["total_ns"],
                        ]
                        .map(Json::to_string),
                    );
                }
            }
        }
        named.sort();
        named
    };
    let wanted = named("locks.rec");
    let culprits = wanted.iter().filter(|row| row[0] == "\"culprit\"");
    assert!(culprits.count() > 10, "{wanted:?}");
    assert_eq!(named("locks"), wanted);
}

#[test]
fn machines_that_are_unlike_are_named() {
    let folder = both();
    let folder = folder.path();
    let other = Made { host: "web2", ..B };
    fs::write(folder.join("c.rec"), recording(other)).unwrap();
    report("c", &[], folder);
    let unlike = |b: &str| diff(&["a.parquet", b], &[], folder)["unlike"].clone();
    assert_eq!(unlike("c.parquet"), unlike("c.rec"));
    assert!(unlike("c.parquet").to_string().contains("web2"));
    // The summary does not name the machine, and an unknown one is not another.
    assert_eq!(unlike("c"), serde_json::json!([]));
}

#[test]
fn a_folder_of_files_is_one_series() {
    let folder = both();
    let folder = folder.path();
    let series = folder.join("series");
    fs::create_dir(&series).unwrap();
    for name in ["b", "a"] {
        let from = folder.join(format!("{name}.parquet"));
        fs::copy(from, series.join(format!("{name}.parquet"))).unwrap();
    }
    let whole = diff(
        &["series"],
        &["--from", "..40s", "--against", "40s.."],
        folder,
    );
    let apart = diff(&["a.parquet", "b.parquet"], &[], folder);
    let mean = |comparison: &Json| comparison["types"][0]["parts"]["total_ns"].clone();
    assert_eq!(mean(&whole), mean(&apart));
    assert_eq!(whole["sides"][1]["length_ns"], 40 * SECOND);
    // Several files of a side are several recordings.
    let several = diff(
        &["a.parquet", "b.parquet", "--", "a.parquet", "b.parquet"],
        &[],
        folder,
    );
    assert_eq!(several["sides"][0]["names"].as_array().unwrap().len(), 2);
    // The same time twice, and another machine.
    fs::copy(series.join("a.parquet"), series.join("twice")).unwrap();
    assert!(refused(&["diff", "series", "a.parquet"], folder).contains("of the same time"));
    let other = Made {
        host: "web2",
        start_ns: 9_000 * SECOND,
        ..A
    };
    fs::write(folder.join("c.rec"), recording(other)).unwrap();
    report("c", &[], folder);
    fs::rename(folder.join("c.parquet"), series.join("twice")).unwrap();
    assert!(refused(&["diff", "series", "a.parquet"], folder).contains("not of one machine"));
}

/// A request is placed by the clock that is never set.
#[test]
fn a_step_of_the_wall_clock_moves_no_request() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let plain = recording(A);
    let mut reader = Reader::open(std::io::Cursor::new(&plain)).unwrap();
    let header = reader.header().clone();
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    let mut is_set = false;
    reader
        .read(|event| {
            if let Event::Request(request) = &event
                && request.begin_ns > A.start_ns + 20 * SECOND
                && !is_set
            {
                is_set = true;
                writer
                    .event(&Event::Clock(&ClockStep {
                        at_ns: A.start_ns + 20 * SECOND,
                        to_unix_ns: header.monotonic_to_unix_ns + 3_600 * SECOND as i64,
                    }))
                    .unwrap();
            }
            writer.event(&event)
        })
        .unwrap()
        .unwrap();
    writer.flush().unwrap();
    fs::write(folder.join("stepped.rec"), writer.into_inner()).unwrap();
    fs::write(folder.join("plain.rec"), plain).unwrap();
    fs::write(folder.join("b.rec"), recording(B)).unwrap();
    report("stepped", &[], folder);
    let sides = |a: &str| numbers(&diff(&[a, "b.rec"], &[], folder), true);
    assert_eq!(sides("stepped.rec"), sides("plain.rec"));
    assert_eq!(sides("stepped.parquet"), sides("plain.rec"));
    // requests.csv has the wall clock only.
    let printed = refused(&["diff", "stepped", "b.rec"], folder);
    assert!(printed.contains("the wall clock was set"), "{printed}");
}
