//! Comparisons: what is refused, what all outputs have in common, and other requests against slower ones.
//!
//! Needs root, a kernel with BPF, mariadb-server and postgresql-15.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::process::Child;
use reqtrace_tests::reqtrace::{self, Outcome, Trace};
use reqtrace_tests::servers::Server;
use reqtrace_tests::workspace;
use serde_json::Value;

/// Seconds of a recording: below 30 there are no intervals.
pub(super) const SECONDS: u32 = 33;

fn diff(recordings: &[&Path], more: &[&str]) -> Outcome {
    let mut command = reqtrace::command(["diff"]).unwrap();
    command.args(recordings).args(more);
    reqtrace::run(command).unwrap()
}

/// What `--json` has.
pub(super) fn compared(a: &Path, b: &Path, folder: &Path) -> Value {
    let file = folder.join("diff.json");
    let outcome = diff(&[a, b], &["--json", &file.display().to_string()]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    println!("{}", outcome.stdout);
    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

fn ns(value: &Value) -> i64 {
    value.as_i64().unwrap()
}

/// Records processes at the same time, each under its own load: what else the machine does meanwhile is the same for all.
pub(super) fn record(
    profile: &Path,
    pids: &[u32],
    options: &[&str],
    folder: &Path,
) -> Vec<PathBuf> {
    let seconds = SECONDS.to_string();
    let traces: Vec<(Trace, PathBuf)> = pids
        .iter()
        .map(|pid| {
            let recording = folder.join(format!("{pid}.rec"));
            let file = format!("--record={}", recording.display());
            let mut all = vec![seconds.as_str(), file.as_str()];
            all.extend(options);
            (Trace::start(profile, *pid, &all).unwrap(), recording)
        })
        .collect();
    let ended = traces.into_iter().map(|(trace, recording)| {
        let outcome = trace.wait().unwrap();
        assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
        recording
    });
    ended.collect()
}

/// What a thread has more of when it blocks more often on a busy machine.
const SCHEDULED: [&str; 3] = ["run queue", "preempted", "on CPU"];

/// Bars add up; whether of those that grew by more than noise the one on top is this one, whatever the scheduler added.
pub(super) fn is_on_top(waterfall: &Value, name: &str) -> bool {
    let bars = waterfall["bars"].as_array().unwrap();
    let sum: i64 = bars.iter().map(|bar| ns(&bar["change_ns"])).sum();
    assert_eq!(sum, ns(&waterfall["change_ns"]));
    let mut grown = bars.iter().filter(|bar| {
        let is_scheduled = SCHEDULED.iter().any(|part| bar["name"] == *part);
        bar["estimate"]["is_clear"] == true
            && ns(&bar["change_ns"]) > 0
            && (bar["name"] == name || !is_scheduled)
    });
    grown.next().is_some_and(|top| top["name"] == name)
}

/// Rows of a kind.
pub(super) fn rows<'a>(comparison: &'a Value, what: &str) -> &'a [Value] {
    let mut kinds = comparison["items"].as_array().unwrap().iter();
    let rows = kinds.find(|rows| rows["what"] == what).unwrap();
    rows["rows"].as_array().unwrap()
}

/// Exit codes for a pipeline, on sides of which one is far slower.
pub(super) fn gate(before: &Path, after: &Path) {
    let code = |condition: &str| diff(&[before, after], &["-q", "--fail-if", condition]);
    let failed = code("order p50 > +5%");
    assert_eq!(failed.code, Some(1), "{}", failed.printed());
    assert!(
        failed.stderr.contains("'order p50 > +5%'"),
        "{}",
        failed.printed()
    );
    assert_eq!(code("p50 > +500%").code, Some(0));
    let open = code("order p99.9 > +1%");
    assert_eq!(open.code, Some(3), "{}", open.printed());
    assert!(
        open.stderr.contains("next: record some "),
        "{}",
        open.printed()
    );
    for wrong in ["order p98 > 1ms", "pay mean > +1%", "slow > 1%"] {
        let refused = code(wrong);
        assert_eq!(refused.code, Some(2), "{}", refused.printed());
        assert!(refused.stderr.contains(wrong), "{}", refused.printed());
    }
}

/// Records a server whose client asks one slow statement in so many, until it is stopped: 20 ms, in the server's own words.
fn statements(
    profile: &str,
    pid: u32,
    one_in: u32,
    slow: &str,
    folder: &Path,
    start: impl FnOnce(&Path) -> Child,
) -> PathBuf {
    let script = folder.join(format!("1-in-{one_in}.sql"));
    let mut text = String::new();
    for at in 0..120_000_u32 {
        if at % one_in == 0 {
            writeln!(text, "{slow};").unwrap();
        } else {
            writeln!(text, "SELECT md5('{}');", at % 7).unwrap();
        }
    }
    fs::write(&script, text).unwrap();
    let recording = folder.join(format!("1-in-{one_in}.rec"));
    let mut client = start(&script);
    let options = [
        SECONDS.to_string(),
        "--labels".to_owned(),
        format!("--record={}", recording.display()),
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let trace = Trace::start(Path::new(profile), pid, &options).unwrap();
    let outcome = trace.wait().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    assert!(
        client.status().unwrap().is_none(),
        "the client was done too early"
    );
    client.stop().unwrap();
    recording
}

/// Of 20 ms 5 % more, and nothing else changed.
fn is_mix(before: &Path, after: &Path, slow: &str, folder: &Path) {
    let comparison = compared(before, after, folder);
    let requests = &comparison["types"][0];
    let top = &requests["groups"]["rows"][0];
    assert_eq!(top["name"], slow, "{top}");
    assert_eq!(top["part"]["is_clear"], true, "{top}");
    let [mix, inside] =
        ["mix", "inside"].map(|part| requests["mix"][part]["change"].as_f64().unwrap());
    let whole = ns(&requests["parts"]["change_ns"]) as f64;
    assert!((mix + inside - whole).abs() < 2.0);
    assert!(
        mix > 0.8 * whole && (800_000.0..1_200_000.0).contains(&mix),
        "{mix} of {whole}"
    );
}

#[test]
fn more_of_a_slow_statement_is_no_slower_statement() {
    let scratch = workspace::scratch().unwrap();
    let folder = scratch.path();
    let server = MariaDb::open().unwrap();
    let [before, after] = [20, 10].map(|one_in| {
        let slow = "SELECT SLEEP(0.02)";
        statements("mysql", server.pid(), one_in, slow, folder, |script| {
            let source = format!("source {}", script.display());
            server
                .start_sql(&format!("1-in-{one_in}"), &source)
                .unwrap()
        })
    });
    is_mix(&before, &after, "SELECT SLEEP(?)", folder);
    server.close().unwrap();
}

#[test]
#[ignore = "minutes of light load: cargo xtask test --all"]
fn more_of_a_slow_statement_of_postgresql() {
    let scratch = workspace::scratch().unwrap();
    let folder = scratch.path();
    let server = Server::postgresql().unwrap();
    let [before, after] = [20, 10].map(|one_in| {
        let slow = "SELECT pg_sleep(0.02)";
        statements("postgresql", server.pid(), one_in, slow, folder, |script| {
            let file = script.display().to_string();
            let client = server.client("psql", &["-qAt", "-f", &file]).unwrap();
            Child::start(client, folder, &format!("1-in-{one_in}")).unwrap()
        })
    });
    is_mix(&before, &after, "SELECT pg_sleep(?);", folder);
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let root = workspace::root();
    let recording = root.join("reqtrace/tests/data/shop.rec");
    let one = recording.as_path();
    for (recordings, more, code, words) in [
        (vec![one], vec![], 2, "there is only one recording"),
        (
            vec![one, one, one],
            vec![],
            2,
            "which of these 3 recordings are A",
        ),
        (
            vec![one, one],
            vec!["--from", "..1s", "--against", "1s.."],
            2,
            "two ranges of one recording",
        ),
        (vec![one, one], vec!["--select", "order"], 2, "type=NAME"),
        (
            vec![one, one],
            vec!["--select", "type=pay"],
            2,
            "no request type of that name",
        ),
        (
            vec![one, one],
            vec!["--select", "time=5000s.."],
            2,
            "nothing is at the times",
        ),
        (
            vec![one, one],
            vec!["--group-by", "host"],
            2,
            "no attribute of that name",
        ),
        (
            vec![one, Path::new("/none.rec")],
            vec![],
            2,
            "cannot be read",
        ),
        (
            vec![one, one],
            vec!["--json", "/none/diff.json"],
            2,
            "there is no folder",
        ),
        (
            vec![one, one],
            vec!["--json", "-", "--folded", "-"],
            2,
            "standard output",
        ),
        (
            vec![one, one],
            vec!["--fail-if", "order p99 > +10%"],
            3,
            "cannot tell",
        ),
    ] {
        let outcome = diff(&recordings, &more);
        assert_eq!(outcome.code, Some(code), "{more:?}: {}", outcome.printed());
        assert!(
            outcome.stderr.contains(words),
            "{more:?}: {}",
            outcome.printed()
        );
    }
}

#[test]
fn all_outputs_hold_the_same_time() {
    let root = workspace::root();
    let recording = root.join("reqtrace/tests/data/shop.rec");
    let scratch = workspace::scratch().unwrap();
    let file = |name: &str| scratch.path().join(name);
    let [json, folded, svg, pprof] = ["d.json", "d.folded", "d.svg", "d.pb.gz"].map(file);
    let options = ["--json", "--folded", "--flamegraph", "--pprof"];
    let files = [&json, &folded, &svg, &pprof].map(|file| file.display().to_string());
    let more: Vec<&str> = options
        .into_iter()
        .zip(&files)
        .flat_map(|(option, file)| [option, file.as_str()])
        .collect();
    let outcome = diff(&[&recording, &recording], &more);
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    assert!(outcome.stdout.contains("too short"), "{}", outcome.stdout);
    // A recording against itself: both times of each stack are the same.
    let lines = fs::read_to_string(&folded).unwrap();
    assert!(lines.lines().count() > 5);
    for line in lines.lines() {
        let mut words = line.rsplit(' ');
        assert_eq!(words.next(), words.next(), "{line}");
    }
    let json: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert!(
        json["types"]
            .as_array()
            .unwrap()
            .iter()
            .all(|of| ns(&of["parts"]["change_ns"]) == 0)
    );
    assert!(
        fs::read_to_string(svg)
            .unwrap()
            .contains("What changed from A to B")
    );
    let top = workspace::program("go").unwrap();
    let mut pprof_top = std::process::Command::new(top);
    let shown =
        reqtrace_tests::process::run(pprof_top.args(["tool", "pprof", "-top"]).arg(pprof)).unwrap();
    assert!(
        shown.contains("accounting for 0, 0%") || shown.contains("accounting for 0"),
        "{shown}"
    );
}
