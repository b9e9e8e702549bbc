use super::*;
use crate::report::blame::{Blame, BlameRow, Causes, CulpritName, TypeBlame};
use crate::report::{MarkerInfo, TraceInfo};
use reqtrace_base::plain::Plain;
use reqtrace_recording::MarkerCounts;

fn marker(request: &str, marker: &str, place: &str) -> MarkerInfo {
    MarkerInfo {
        request: request.to_owned(),
        marker: marker.to_owned(),
        place: place.to_owned(),
        object: "/usr/sbin/server".to_owned(),
        probes: 1,
        counts: None,
    }
}

fn report(requests: Vec<TypeReport>, markers: Vec<MarkerInfo>) -> Report {
    Report {
        trace: TraceInfo {
            markers,
            duration_ns: 10_000_000_000,
            ..TraceInfo::default()
        },
        requests,
        ..Report::default()
    }
}

fn request(name: &str) -> TypeReport {
    TypeReport {
        name: name.to_owned(),
        ..TypeReport::default()
    }
}

fn hints(report: &Report) -> Vec<String> {
    let signs = vec![Signs::default(); report.requests.len()];
    of(report, &signs, false)
}

#[test]
fn types_that_are_never_hit_have_one_hint() {
    let mut requests: Vec<_> = (0..8)
        .map(|number| request(&format!("t{number}")))
        .collect();
    requests[0].begins = 5;
    requests[0].ends = 5;
    requests[0].count = 5;
    let printed = hints(&report(requests, Vec::new()));
    assert_eq!(printed.len(), 1, "{printed:?}");
    let wanted = "no `t1`, `t2`, `t3`, `t4`, `t5` and 2 more began";
    assert!(printed[0].starts_with(wanted), "{printed:?}");
    assert!(printed[0].contains("The other types were"), "{printed:?}");
}

#[test]
fn ends_without_any_begin_are_a_hint() {
    let mut only_ends = request("http");
    only_ends.ends = 900;
    only_ends.ends_without_begin = 900;
    let markers = vec![
        marker("http", "begin", "accept_request at entry"),
        marker("http", "end", "close_request at entry"),
    ];
    let printed = hints(&report(vec![only_ends], markers));
    assert_eq!(printed.len(), 1, "{printed:?}");
    for words in [
        "close_request",
        "was hit 900 times",
        "accept_request",
        "is the wrong one",
    ] {
        assert!(printed[0].contains(words), "{printed:?}");
    }
}

/// Of HAProxy's 4,000 requests 121 were seen.
#[test]
fn requests_that_take_turns_on_a_thread_are_a_warning() {
    let mut http = request("http");
    (http.begins, http.ends, http.count, http.nested) = (4000, 4000, 121, 3879);
    let two_functions = vec![
        marker("http", "begin", "stream_new at return"),
        marker("http", "end", "stream_free at entry"),
    ];
    let mixed_up = report(vec![http.clone()], two_functions);
    let warnings = super::super::warnings::of(&mixed_up);
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].contains("3,879 of its 4,000 begins"),
        "{warnings:?}"
    );
    assert!(hints(&mixed_up).is_empty(), "{:?}", hints(&mixed_up));

    // A function that calls itself is right as it is.
    let one_function = vec![
        marker("http", "begin", "serve at entry"),
        marker("http", "end", "serve at return"),
    ];
    let recursion = report(vec![http], one_function);
    assert!(super::super::warnings::of(&recursion).is_empty());
    assert!(hints(&recursion)[0].contains("the outermost is the request"));
}

/// The same numbers are right where the profile asks for them.
#[test]
fn begins_that_the_profile_ignores_are_no_warning() {
    let mut http = request("http");
    (http.begins, http.ends, http.count, http.nested) = (4000, 4000, 121, 3879);
    let markers = vec![
        marker("http", "begin", "stream_new at return"),
        marker("http", "end", "stream_free at entry"),
    ];
    let mut report = report(vec![http], markers);
    assert_eq!(super::super::warnings::of(&report).len(), 1);
    report.requests[0].ignores_inner = true;
    assert!(super::super::warnings::of(&report).is_empty());
}

fn counted(name: &str, place: &str, counts: MarkerCounts) -> MarkerInfo {
    MarkerInfo {
        counts: Some(counts),
        ..marker("unit", name, place)
    }
}

#[test]
fn a_warning_names_the_markers_that_miss() {
    let mut unit = request("unit");
    unit.is_keyed = true;
    (unit.begins, unit.ends, unit.count) = (2000, 2000, 10);
    (unit.unknown_keys, unit.running_elsewhere) = (1990, 30);
    let hits = MarkerCounts {
        hits: 2000,
        ..MarkerCounts::default()
    };
    let markers = vec![
        counted("begin", "unit_begin at entry", hits),
        counted(
            "resume",
            "unit_resume at entry",
            MarkerCounts {
                unknown_keys: 1990,
                ..hits
            },
        ),
        counted(
            "park",
            "unit_leave at entry",
            MarkerCounts {
                elsewhere: 30,
                parked_already: 500,
                ..hits
            },
        ),
    ];
    let report = report(vec![unit], markers);
    let warnings = super::super::warnings::of(&report);
    let [unknown, elsewhere] = warnings.as_slice() else {
        panic!("{warnings:?}");
    };
    let wanted = "no request has (1,990 of 2,000 hits of `resume` (unit_resume at entry)):";
    assert!(unknown.contains(wanted), "{unknown}");
    let wanted = "ran just then (30 of 2,000 hits of `park` (unit_leave at entry)):";
    assert!(elsewhere.contains(wanted), "{elsewhere}");
    let printed = hints(&report);
    let twice = printed
        .iter()
        .find(|hint| hint.contains("parked or queued already"));
    let twice = twice.unwrap_or_else(|| panic!("{printed:?}"));
    assert!(twice.starts_with("500 parks of `unit`"), "{twice}");
    assert!(twice.contains("`park` (unit_leave at entry)"), "{twice}");
}

#[test]
fn resumes_without_a_ready_are_a_share_where_there_are_markers_for_it() {
    let found = |ready: &str, not_ready| {
        let counts = MarkerCounts {
            hits: 2000,
            resumed: 600,
            not_ready,
            ..MarkerCounts::default()
        };
        let mut unit = request("unit");
        unit.is_keyed = true;
        let markers = vec![
            counted("resume", "unit_resume at entry", counts),
            counted(ready, "unit_wake at entry", MarkerCounts::default()),
            counted(
                "begin",
                "unit_begin at entry",
                MarkerCounts {
                    resumed: 400,
                    ..MarkerCounts::default()
                },
            ),
        ];
        let hints = hints(&report(vec![unit], markers));
        hints
            .into_iter()
            .find(|hint| hint.contains("without a ready"))
    };
    let hint = found("ready", 250).unwrap();
    let wanted = "250 of 1,000 resumes of `unit` (25 %) came without a ready (250 of 2,000 hits of `resume` (unit_resume at";
    assert!(hint.starts_with(wanted), "{hint}");
    assert_eq!(found("ready", 9), None);
    assert_eq!(found("park", 250), None);
}

/// Requests with a key change threads and stacks as they like: neither leaves them without an end.
#[test]
fn why_requests_have_no_end_goes_by_whether_they_have_a_key() {
    let printed = |is_keyed| {
        let mut unit = request("unit");
        (unit.begins, unit.ends, unit.count) = (50, 50, 43);
        unit.incomplete = vec![(Incomplete::NoEnd, 7)];
        unit.is_keyed = is_keyed;
        let printed = hints(&report(vec![unit], Vec::new()));
        let found = printed.iter().find(|hint| hint.contains("have no end"));
        found.unwrap_or_else(|| panic!("{printed:?}")).clone()
    };
    let keyed = printed(true);
    assert!(
        keyed.contains("a begin came with the key of a request that was open"),
        "{keyed}"
    );
    assert!(
        !keyed.contains("longjmp") && !keyed.contains("Go"),
        "{keyed}"
    );
    let plain = printed(false);
    assert!(
        plain.contains("longjmp") && plain.contains("(Go)"),
        "{plain}"
    );
    assert!(!plain.contains("key"), "{plain}");
}

#[test]
fn a_keyed_end_that_comes_with_the_next_request_is_a_hint() {
    let mut unit = request("unit");
    (unit.begins, unit.ends, unit.count) = (50, 50, 50);
    unit.ledger.latency_ns = 51_000;
    unit.ledger.parked = vec![50_000];
    let is_named = |unit: &TypeReport| {
        let printed = hints(&report(vec![unit.clone()], Vec::new()));
        printed
            .iter()
            .any(|hint| hint.contains("only with the next request"))
    };
    assert!(!is_named(&unit));
    unit.ends_with_next = true;
    assert!(is_named(&unit));
    // Its own work, one after the other.
    unit.ledger.parked = vec![5_000];
    assert!(!is_named(&unit));
}

/// PHP that waits for its database looks like a server that waits for its client.
#[test]
fn an_answer_of_a_traced_service_is_no_idle_time() {
    let mut script = request("script");
    script.count = 10;
    script.ledger.latency_ns = 1_000;
    let signs = [Signs {
        network_read: Some(("__poll".to_owned(), 950)),
        ..Signs::default()
    }];
    let mut report = report(vec![script], Vec::new());
    let idle = |report: &Report| {
        let printed = of(report, &signs, false);
        printed.iter().any(|hint| hint.contains("waiting for work"))
    };
    assert!(idle(&report));
    let row = |kind, ns| BlameRow {
        thread: None,
        victim_request: "script".to_owned(),
        victim_label: Plain::default(),
        wait_class: "poll".to_owned(),
        culprit: CulpritName {
            kind,
            ..CulpritName::default()
        },
        cause: Cause::Timer,
        depth: 1,
        ns,
        requests: 10,
    };
    let mut with = |rows| {
        report.blame = Some(Blame {
            rows,
            ..Blame::default()
        });
        idle(&report)
    };
    assert!(with(vec![row(CulpritKind::Unknown, 900)]));
    assert!(with(vec![
        row(CulpritKind::Thread, 900),
        row(CulpritKind::Request, 50)
    ]));
    assert!(!with(vec![
        row(CulpritKind::Request, 900),
        row(CulpritKind::Unknown, 50)
    ]));
}

#[test]
fn what_follows_units_that_are_no_requests_is_a_hint() {
    let of_latency = |latency_ns, ns, children| {
        let mut causes = Causes::default();
        causes.add(Cause::Unknown, ns);
        causes.add(Cause::Timer, 100 - ns);
        let mut http = request("http");
        (http.begins, http.ends, http.count, http.children) = (5, 5, 5, children);
        http.ledger.latency_ns = latency_ns;
        let mut report = report(vec![http], Vec::new());
        report.blame = Some(Blame {
            types: vec![TypeBlame {
                request: "http".to_owned(),
                causes,
                unknown: vec![(Reason::NoRequest, ns)],
                ..TypeBlame::default()
            }],
            ..Blame::default()
        });
        hints(&report).concat()
    };
    let hint = |ns, children| of_latency(200, ns, children);
    assert_eq!(hint(19, Some(3)), "");
    // It hardly waits at all.
    assert_eq!(of_latency(20_100, 40, Some(3)), "");
    assert!(hint(40, Some(3)).contains("40 % of the waiting time of `http` was for tasks"));
    assert!(hint(40, Some(3)).contains("`children = true`"));
    let none = hint(40, None);
    assert!(!none.contains("children = true") && none.contains("of their own follows them"));
}
