use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use serde_json::Value;

use super::*;
use reqtrace_analysis::report::page::{Cell, PageStack};
use reqtrace_analysis::report::{Ledger, StackKind, TraceInfo};
use reqtrace_base::plain::Plain;

/// The page of a report, and the data in it.
fn page_of(report: &Report) -> (String, Value) {
    let mut out = Vec::new();
    write(report, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let (_, behind) = text
        .split_once("<script id=\"data\" type=\"text/plain\">")
        .unwrap();
    let (data, _) = behind.split_once("</script>").unwrap();
    let mut json = String::new();
    ZlibDecoder::new(&*STANDARD.decode(data).unwrap())
        .read_to_string(&mut json)
        .unwrap();
    let value = serde_json::from_str(&json).unwrap();
    (text, value)
}

fn report() -> Report {
    let hostile = "</script><script>alert(1)</script>\u{1b}";
    let stack = |frames: &[u32], kind| PageStack {
        frames: frames.to_vec(),
        kind,
        class: Some(0),
    };
    let page = Page {
        column_ns: 1_000_000,
        edges_ns: vec![10, 20],
        cells: vec![Cell {
            count: 3,
            ledger: Ledger {
                latency_ns: 40,
                on_cpu_ns: 10,
                classes: vec![30],
                ..Ledger::default()
            },
            stacks: vec![(0, 20), (1, 10)],
            samples: vec![(1, 3)],
            ..Cell::default()
        }],
        statements: vec![
            Plain::default(),
            Plain::of("[other statements]"),
            Plain::of(hostile),
        ],
        frames: vec!["main".to_owned(), hostile.to_owned(), "read".to_owned()],
        stacks: vec![
            stack(&[0, 1], StackKind::Blocked),
            stack(&[0, 1, 2], StackKind::RunQueue),
        ],
        ..Page::default()
    };
    Report {
        trace: TraceInfo {
            profile: hostile.to_owned(),
            ..TraceInfo::default()
        },
        classes: vec!["disk".to_owned()],
        page: Some(Box::new(page)),
        ..Report::default()
    }
}

#[test]
fn no_name_ends_the_element_that_it_is_in() {
    let (text, data) = page_of(&report());
    assert_eq!(text.matches("</script>").count(), 2);
    assert!(!text.contains("alert(1)"));
    // Names are as they were; what does not print is written out where it is told to people.
    assert_eq!(
        data["frames"][1],
        "</script><script>alert(1)</script>\u{1b}"
    );
    assert!(data["statements"][2].as_str().unwrap().ends_with("\\u{1b}"));
}

#[test]
fn the_policy_allows_this_script_and_no_host() {
    let (text, _) = page_of(&Report::default());
    let (_, script) = text.split_once("<script type=\"module\">").unwrap();
    let (script, _) = script.split_once("</script>").unwrap();
    let (_, style) = text.split_once("<style>").unwrap();
    let (style, _) = style.split_once("</style>").unwrap();
    let policy = format!(
        "default-src 'none'; base-uri 'none'; form-action 'none'; script-src '{}'; style-src '{}'\">",
        hash(script),
        hash(style)
    );
    assert!(text.contains(&policy));
    for address in ["https://", "@import"] {
        assert!(!text.contains(address), "{address}");
    }
    // One is the name of the format of pictures, which nobody asks for.
    assert_eq!(text.matches("http://").count(), 1);
    assert_eq!(text.matches("url(").count(), text.matches("url(#").count());
}

#[test]
fn stacks_with_the_same_callers_share_them() {
    let (_, data) = page_of(&report());
    assert_eq!(data["nodes"]["parent"], serde_json::json!([-1, 0, 1]));
    assert_eq!(data["stacks"]["node"], serde_json::json!([1, 2]));
    assert_eq!(data["stacks"]["kind"], serde_json::json!([0, 1]));
    assert_eq!(data["cells"]["stack_ns"], serde_json::json!([20, 10]));
    assert_eq!(data["cells"]["samples"], serde_json::json!([1]));
    assert_eq!(data["cells"]["sample_count"], serde_json::json!([3]));
    assert_eq!(data["cells"]["classes"], serde_json::json!([30]));
}
