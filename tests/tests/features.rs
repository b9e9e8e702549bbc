//! Kernels that lack something: features of this one are hidden one by one. What lacks is left out of the trace, and
//! printed; what is left is right; and it is refused where ledgers would be wrong.
//!
//! Needs root and a kernel with BPF.

use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::ledger;
use reqtrace_tests::reqtrace::{self, Outcome, Trace};
use reqtrace_tests::shop::{self, Shop};

const CONNECTIONS: u32 = 4;
const REQUESTS: u64 = 400;

/// Without these ledgers would be wrong, or nothing can be loaded.
const NEEDED: [&str; 5] = [
    "tracepoints",
    "switch-states",
    "helpers",
    "task-members",
    "probe-members",
];

/// Without these a trace has less, or takes more; with the words for it.
const OTHERS: [(&str, &str); 8] = [
    ("file-members", "degraded"),
    ("page-faults", "degraded"),
    ("TCP-sockets", "degraded"),
    ("Unix-sockets", "degraded"),
    ("uprobe_multi", "ok"),
    ("process-filter", "ok"),
    ("maps-by-descriptor", "ok"),
    ("lockless-hits", "ok"),
];

fn doctor_without(features: &str) -> Outcome {
    let mut command = reqtrace::command(["doctor"]).unwrap();
    command.env("REQTRACE_HIDE", features);
    reqtrace::run(command).unwrap()
}

/// A line on a feature that is hidden.
#[track_caller]
fn printed<'a>(outcome: &'a Outcome, feature: &str, state: &str) -> &'a str {
    let mut lines = outcome.stdout.lines();
    let start = format!("{state:<9} {:<20} ", feature.replace('-', " "));
    let line = lines.find(|line| line.starts_with(&start));
    let line = line.unwrap_or_else(|| panic!("{start}: {}", outcome.printed()));
    assert!(line.contains(" this kernel has no "), "{line}");
    assert!(line.contains("(hidden by REQTRACE_HIDE), so "), "{line}");
    line
}

#[test]
fn the_doctor_says_what_each_lack_costs() {
    for (feature, state) in OTHERS {
        let outcome = doctor_without(feature);
        assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
        printed(&outcome, feature, state);
    }
}

#[test]
fn a_kernel_without_what_ledgers_need_is_refused() {
    let shop = Shop::open().unwrap();
    for feature in NEEDED {
        let outcome = doctor_without(feature);
        assert_eq!(outcome.code, Some(3), "{}", outcome.printed());
        printed(&outcome, feature, "missing");
        let mut command = reqtrace::command(["--profile"]).unwrap();
        command.arg(shop::profile());
        command.args(["-p", &shop.pid().to_string(), "1"]);
        command.env("REQTRACE_HIDE", feature);
        let outcome = reqtrace::run(command).unwrap();
        assert_eq!(outcome.code, Some(3), "{}", outcome.printed());
        for words in ["this kernel has no ", "next: use Linux "] {
            assert!(outcome.stderr.contains(words), "{}", outcome.stderr);
        }
    }
    shop.close().unwrap();
}

#[test]
fn what_lacks_is_left_out_and_the_rest_is_right() {
    let easier = "uprobe_multi,process-filter,maps-by-descriptor,lockless-hits";
    for (features, words) in [
        (
            "file-members",
            "so the files that threads wait for are missing",
        ),
        ("page-faults", "so the files of page faults are missing"),
        (easier, ""),
    ] {
        let shop = Shop::open().unwrap();
        let (profile, pid) = (shop::profile(), shop.pid());
        let trace = Trace::start_without(features, &profile, pid, &["--blame"]).unwrap();
        assert_eq!(shop.load(CONNECTIONS, REQUESTS).unwrap(), REQUESTS);
        let outcome = trace.finish().unwrap();
        let summary = outcome.checked().unwrap();
        assert_eq!(summary.request("order").unwrap().count, REQUESTS);
        let rows = ledger::check(&outcome.csv().unwrap()).unwrap();
        assert_eq!(rows as u64, REQUESTS);
        assert!(outcome.stderr.contains(words), "{}", outcome.stderr);
        let lacks = outcome.stderr.matches("this kernel has no").count();
        assert_eq!(lacks, usize::from(!words.is_empty()), "{}", outcome.stderr);
        // A report of the recording says it, too.
        let printed: Vec<_> = outcome.stdout.split_whitespace().collect();
        assert!(printed.join(" ").contains(words), "{}", outcome.stdout);
        let has_files = outcome.summary_text().unwrap().contains("/journal");
        assert_eq!(has_files, features != "file-members", "{features}");
        shop.close().unwrap();
    }
}

#[test]
fn before_is_of_tcp_alone_without_the_sockets_tracepoints_and_refused_without_any() {
    let fixture = Fixture::start("waited", &["2"]).unwrap();
    let profile = fixture.profile("handle", "nest").unwrap();
    let pid = fixture.pid().to_string();
    let mut command = reqtrace::command(["--profile"]).unwrap();
    command.arg(&profile).args(["-p", &pid, "--before", "1"]);
    command.env("REQTRACE_HIDE", "TCP-sockets");
    let outcome = reqtrace::run(command).unwrap();
    assert_eq!(outcome.code, Some(3), "{}", outcome.printed());
    let words = "--before: this kernel has no tracepoints and members of TCP sockets";
    assert!(outcome.stderr.contains(words), "{}", outcome.stderr);

    let mut fixture = fixture;
    let trace =
        Trace::start_without("Unix-sockets", &profile, fixture.pid(), &["--before"]).unwrap();
    fixture.work().unwrap();
    let outcome = trace.finish().unwrap();
    outcome.checked().unwrap();
    let words = "only TCP connections have a time before the begin";
    assert!(outcome.stderr.contains(words), "{}", outcome.stderr);
    let rows = outcome.rows().unwrap();
    let known = rows.iter().filter(|row| row.waited_before_ns.is_some());
    let known = known.count();
    assert!(known > 0 && known < rows.len(), "{known} of {}", rows.len());
    fixture.end().unwrap();
}

#[test]
fn what_is_no_feature_is_an_error() {
    let fixture = Fixture::start("library", &["0", "1"]).unwrap();
    let pid = fixture.pid().to_string();
    let mut command = reqtrace::command(["functions", "-p", &pid, "getpgid"]).unwrap();
    command.args(["--object", "libc.so*", "--count", "0.1"]);
    command.env("REQTRACE_HIDE", "page-faults,air");
    let outcome = reqtrace::run(command).unwrap();
    assert_eq!(outcome.code, Some(2), "{}", outcome.printed());
    assert!(outcome.stderr.contains("`air`"), "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("next: unset REQTRACE_HIDE"),
        "{}",
        outcome.stderr
    );
    fixture.end().unwrap();
}
