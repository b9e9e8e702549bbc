//! Requests that change hands in ways that threads race for, keys that are never free again, keys of two values, and
//! requests that begin in a queue: each counted exactly.
//!
//! Needs root, a kernel with BPF, and g++.

use reqtrace_tests::fixtures::{Fixture, write_profile};
use reqtrace_tests::reqtrace::Outcome;
use reqtrace_tests::rows::Row;
use reqtrace_tests::summary::{Loss, Request};
use reqtrace_tests::workspace;
use serde_json::Value;

const COUNT: u64 = 2000;

/// Markers of all modes but `pair`.
const ONE: &str = "key = { arg = 0 }
resume = { function = \"unit_resume\" }
park = { function = \"unit_leave\", as = \"left\" }
end = { function = \"unit_end\" }
";

fn traced(mode: &str, markers: &str, more: &[&str]) -> Outcome {
    traced_of(mode, COUNT, markers, more)
}

fn traced_of(mode: &str, count: u64, markers: &str, more: &[&str]) -> Outcome {
    let folder = workspace::scratch().unwrap();
    let profile = folder.path().join("handed.toml");
    write_profile(&profile, "unit", "unit_begin", markers).unwrap();
    let fixture = Fixture::start("handed", &[mode, &count.to_string()]).unwrap();
    // Begins, some 200,000 at once in one mode, are what is to be traced.
    let more = [more, &["--yes"][..]].concat();
    fixture.traced(&profile, &more).unwrap().0
}

/// A count of a marker of a request type.
fn counted(outcome: &Outcome, request: &str, marker: &str, count: &str) -> u64 {
    let summary: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let markers = summary["trace"]["markers"].as_array().unwrap();
    let is_it = |info: &&Value| info["request"] == request && info["marker"] == marker;
    let found = markers.iter().find(is_it);
    let counts = &found.unwrap_or_else(|| panic!("{markers:?}"))["counts"];
    counts[count]
        .as_u64()
        .unwrap_or_else(|| panic!("{markers:?}"))
}

fn unit(outcome: &Outcome) -> Request {
    outcome.summary().unwrap().request("unit").unwrap().clone()
}

#[test]
fn a_request_that_is_handed_over_before_it_is_left_is_complete() {
    let outcome = traced("early", ONE, &[]);
    outcome.checked().unwrap();
    let unit = unit(&outcome);
    assert_eq!((unit.count, unit.begins, unit.ends), (COUNT, COUNT, COUNT));
    assert_eq!(unit.unknown_keys, Some(0), "{}", outcome.printed());
    assert_eq!(unit.running_elsewhere, Some(0), "{}", outcome.printed());
    let rows = outcome.rows().unwrap();
    assert_eq!(rows.len() as u64, COUNT);
    assert!(rows.iter().all(|row| row.complete));
    // One in two was never left before.
    assert!(rows.iter().filter(|row| row.parked_ns == 0).count() as u64 >= COUNT / 2);
}

#[test]
fn races_for_a_key_break_no_ledger_and_lose_nothing() {
    for _ in 0..3 {
        let outcome = traced("race", ONE, &[]);
        let summary = outcome.summary().unwrap();
        for loss in ["malformed", "ledger_negative", "key_table_full"] {
            let is_it = |found: &Loss| found.name == loss;
            assert!(!summary.losses.iter().any(is_it), "{}", outcome.printed());
        }
        let unit = unit(&outcome);
        let incomplete: u64 = unit.incomplete.values().sum();
        let elsewhere = unit.running_elsewhere.unwrap();
        // Each begin is a request, or was left out because another thread had the key just then.
        let all = unit.count + incomplete;
        assert!(
            all <= unit.begins && unit.begins <= all + elsewhere,
            "{unit:?}"
        );
        assert!(unit.count >= COUNT, "{unit:?}");
    }
}

#[test]
fn keys_that_are_never_free_again_make_room() {
    for sample in [None, Some("1/4")] {
        // The guard would sample too.
        let mut more = vec!["--max-overhead", "100"];
        more.extend(sample.iter().flat_map(|rate| ["--sample", rate]));
        let outcome = traced("leak", ONE, &more);
        let unit = unit(&outcome);
        assert_eq!(unit.exact_count, COUNT, "{}", outcome.printed());
        assert_eq!(unit.begins, 200_000 + COUNT, "{unit:?}");
        assert!(unit.incomplete["no room"] > 10_000, "{unit:?}");
        assert!(
            outcome.printed().contains("for want of room"),
            "{}",
            outcome.printed()
        );
        if sample.is_none() {
            let incomplete: u64 = unit.incomplete.values().sum();
            assert_eq!(incomplete, 200_000, "{unit:?}");
        }
    }
}

#[test]
fn a_key_of_two_values_tells_requests_apart_that_have_one_in_common() {
    let markers = ONE.replace("{ arg = 0 }", "[{ arg = 0 }, { arg = 1 }]");
    let outcome = traced("pair", &markers, &[]);
    outcome.checked().unwrap();
    let unit = unit(&outcome);
    assert_eq!((unit.count, unit.begins), (2 * COUNT, 2 * COUNT));
    assert_eq!(unit.unknown_keys, Some(0), "{}", outcome.printed());
    assert_eq!(unit.running_elsewhere, Some(0), "{}", outcome.printed());
    assert!(outcome.rows().unwrap().iter().all(|row| row.parked_ns > 0));
    // The profile has no `ready`.
    for count in ["resumed", "not_ready"] {
        let found = counted(&outcome, "unit", "resume", count);
        assert_eq!(found, 2 * COUNT, "{count}");
    }
    assert!(!outcome.stdout.contains("without a ready"));
    // By one of them alone they are mixed up.
    let one = traced("pair", ONE, &[]);
    assert!(self::unit(&one).count < 2 * COUNT, "{}", one.printed());
}

#[test]
fn a_request_that_begins_in_a_queue_leaves_its_producer_with_its_own() {
    // The producer's own request has another type.
    let own =
        "key = { arg = 0 }\nend = { function = \"unit_end\", when = { arg = 0, equals = 1 } }\n";
    let markers = format!(
        "{own}\n[[request]]\nname = \"made\"\nkey = {{ arg = 0 }}\n\
         begin = {{ function = \"unit_made\", queued = true, as = \"backlog\" }}\n\
         resume = {{ function = \"unit_resume\" }}\n\
         end = {{ function = \"unit_end\", when = {{ arg = 0, not-equals = 1 }} }}\n"
    );
    let outcome = traced("queue", &markers, &[]);
    let summary = outcome.checked().unwrap();
    let made = summary.request("made").unwrap();
    assert_eq!(
        (made.count, made.begins),
        (COUNT, COUNT),
        "{}",
        outcome.printed()
    );
    // One marker's end is where the other one's is, under another condition.
    let hits = |request, marker, count| counted(&outcome, request, marker, count);
    assert_eq!(hits("unit", "begin", "hits"), 1);
    assert_eq!(hits("unit", "end", "hits"), 1);
    assert_eq!(hits("unit", "end", "condition_false"), COUNT);
    assert_eq!(hits("made", "begin", "hits"), COUNT);
    assert_eq!(hits("made", "resume", "hits"), COUNT);
    assert_eq!(hits("made", "end", "hits"), COUNT);
    assert_eq!(hits("made", "end", "condition_false"), 1);
    let rows = outcome.rows().unwrap();
    let (made, own): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.request == "made");
    assert_eq!((made.len() as u64, own.len()), (COUNT, 1));
    assert!(
        made.iter()
            .all(|row| row.queued_ns > 0 && row.queued_ns == row.places["backlog"])
    );
    // It was never left for what it made.
    assert_eq!((own[0].parked_ns, own[0].queued_ns), (0, 0));
    assert!(own[0].complete);
}

#[test]
fn what_misses_is_counted_by_marker_and_named() {
    let outcome = traced("twice", ONE, &["-v"]);
    let summary = outcome.checked().unwrap();
    let unit = summary.request("unit").unwrap();
    assert_eq!((unit.count, unit.begins, unit.ends), (COUNT, COUNT, COUNT));
    assert_eq!(unit.unknown_keys, Some(COUNT));
    for (marker, hits, unknown, twice) in [
        ("begin", COUNT, 0, 0),
        ("park", 2 * COUNT, 0, COUNT),
        ("resume", COUNT, COUNT, 0),
        ("end", COUNT, 0, 0),
    ] {
        let of = |count| counted(&outcome, "unit", marker, count);
        let found = (of("hits"), of("unknown_keys"), of("parked_already"));
        assert_eq!(
            found,
            (hits, unknown, twice),
            "{marker}: {}",
            outcome.printed()
        );
        assert_eq!((of("elsewhere"), of("condition_false")), (0, 0), "{marker}");
    }
    let printed: Vec<&str> = outcome.stdout.split_whitespace().collect();
    let printed = printed.join(" ");
    for words in [
        "no request has (2,000 of 2,000 hits of `resume` (unit_resume at entry))",
        "2,000 parks of `unit` found the request parked or queued already (2,000 of 4,000 hits of `park`",
        "MARKER PLACE HITS NOT MET NO KEY ELSEWHERE PARKED",
        "unit park unit_leave at entry 4,000 0 0 0 2,000",
        "unit resume unit_resume at entry 2,000 0 2,000 0 0",
    ] {
        assert!(printed.contains(words), "{words}: {}", outcome.printed());
    }
}

#[test]
fn an_end_that_comes_with_the_next_request_is_a_hint() {
    let outcome = traced_of("late", 50, ONE, &[]);
    let unit = unit(&outcome);
    assert_eq!((unit.count, unit.begins), (50, 50), "{}", outcome.printed());
    let printed: Vec<&str> = outcome.stdout.split_whitespace().collect();
    let hint = "its end may come only with the next request of the same client";
    assert!(printed.join(" ").contains(hint), "{}", outcome.printed());
    // What is parked as long, and not followed by another one, has none.
    let outcome = traced(
        "pair",
        &ONE.replace("{ arg = 0 }", "[{ arg = 0 }, { arg = 1 }]"),
        &[],
    );
    assert!(
        !outcome.stdout.contains("next request"),
        "{}",
        outcome.printed()
    );
}
