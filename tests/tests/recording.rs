//! Recordings: what `reqtrace report` makes of one is what the trace itself made, byte for byte; and one
//! that is cut is reported with what is in it.
//!
//! Needs root and a kernel with BPF.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::process::is_root;
use reqtrace_tests::reqtrace::{self, Outcome, Trace};
use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::sysbench::Sysbench;
use reqtrace_tests::truth::{self, Truth};
use reqtrace_tests::workspace::{self, SmallDisk};

/// The files of `--out`.
const FILES: [&str; 5] = [
    "report.html",
    "summary.json",
    "requests.csv",
    "stacks.folded",
    "flamegraph.svg",
];

/// Reports a recording.
fn report(recording: &Path, more: &[&str]) -> Outcome {
    let mut command = reqtrace::command(["report"]).unwrap();
    command.arg(recording).args(more);
    reqtrace::run(command).unwrap()
}

/// Checks that all outputs of a trace and of the report of its recording are the same.
fn check_same(trace: &Outcome, recording: &Path, options: &[&str]) {
    assert_eq!(trace.code, Some(0), "{}", trace.printed());
    let folder = workspace::scratch().unwrap();
    let out = folder.path().join("out");
    let out_option = format!("--out={}", out.display());
    let mut more = vec![out_option.as_str()];
    more.extend(options);
    let reported = report(recording, &more);
    assert_eq!(reported.code, Some(0), "{}", reported.printed());
    assert_eq!(reported.stdout, trace.stdout);
    for name in FILES {
        let [live, again] = [trace.path(name), out.join(name)].map(|file| fs::read(file).unwrap());
        assert!(live == again, "{name} differs");
    }
    assert!(trace.rows().unwrap().len() > 100);
}

fn option(path: &Path) -> String {
    format!("--record={}", path.display())
}

#[test]
fn a_report_of_the_shop_is_what_the_trace_was() {
    let folder = workspace::scratch().unwrap();
    let recording = folder.path().join("shop.rec");
    let shop = Shop::open().unwrap();
    let options = ["--group-by", "fingerprint", "--histogram", "-d"];
    let record = option(&recording);
    let mut more = vec![record.as_str()];
    more.extend(options);
    let trace = Trace::start(&shop::profile(), shop.pid(), &more).unwrap();
    shop.load(8, 3000).unwrap();
    let outcome = trace.finish().unwrap();
    check_same(&outcome, &recording, &options);

    // The rows are in order of their end, whatever the order in which they came.
    let rows = outcome.rows().unwrap();
    let ends = rows.iter().map(|row| row.start_unix_ns + row.latency_ns);
    assert!(ends.is_sorted());

    // Filters need no new trace.
    let filtered = report(
        &recording,
        &["--from", "0s", "--slower-than", "1ms", "--csv", "-"],
    );
    let slow = rows.iter().filter(|row| row.latency_ns >= 1_000_000);
    assert_eq!(filtered.stdout.lines().count(), slow.count() + 1);
    let tid = rows[7].tid;
    let of_thread = rows.iter().filter(|row| row.tid == tid).count();
    let filtered = report(&recording, &["--tid", &tid.to_string(), "--csv", "-"]);
    assert_eq!(filtered.stdout.lines().count(), of_thread + 1);
    assert!(
        filtered.stderr.contains("Filter: thread"),
        "{}",
        filtered.printed()
    );
    // Labels are the numbers of orders.
    let label = rows[7].label.as_str();
    let filtered = report(&recording, &["--label", label, "--csv", "-"]);
    let same = rows.iter().filter(|row| row.label == label).count();
    assert_eq!(filtered.stdout.lines().count(), same + 1);

    for (option, value, words) in [
        ("--request", "query", "it has order"),
        ("--from", "soon", "invalid value"),
        ("--pid", "shop", "is not a PID"),
    ] {
        let refused = report(&recording, &[option, value]);
        assert_eq!(refused.code, Some(2), "{}", refused.printed());
        assert!(refused.stderr.contains(words), "{}", refused.printed());
    }
    // It needs no right at all. The workspace may lie where others may not go, such as in /root.
    if is_root() {
        let everybody = || PermissionsExt::from_mode(0o755);
        let public = tempfile::Builder::new()
            .permissions(everybody())
            .tempdir()
            .unwrap();
        let program = public.path().join("reqtrace");
        workspace::copy_program(&workspace::reqtrace().unwrap(), &program).unwrap();
        let copy = public.path().join("shop.rec");
        fs::copy(&recording, &copy).unwrap();
        // With labels it is for its owner only.
        fs::set_permissions(&copy, everybody()).unwrap();
        let mut command = Command::new(&program);
        command.arg("report").arg(&copy).args(["-f", "-q"]);
        command.uid(65_534).gid(65_534);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(!output.stdout.is_empty());
    }
}

#[test]
fn what_was_not_recorded_is_refused() {
    let folder = workspace::scratch().unwrap();
    let recording = folder.path().join("shop.rec");
    let shop = Shop::open().unwrap();
    let record = option(&recording);
    let trace = Trace::start(&shop::profile(), shop.pid(), &[&record]).unwrap();
    shop.load(4, 200).unwrap();
    assert_eq!(trace.finish().unwrap().code, Some(0));
    for (options, words) in [
        (&["--group-by", "label"][..], "record with --labels"),
        (&["--label", "1*"], "record with --labels"),
        (&["--histogram"], "record with --histogram"),
    ] {
        let refused = report(&recording, options);
        assert_eq!(refused.code, Some(2), "{}", refused.printed());
        assert!(refused.stderr.contains(words), "{}", refused.printed());
    }
    let no_recording = folder.path().join("text");
    fs::write(&no_recording, "no recording").unwrap();
    let refused = report(&no_recording, &[]);
    assert_eq!(refused.code, Some(2), "{}", refused.printed());
    assert!(refused.stderr.contains("no recording of reqtrace"));
    let refused = report(&folder.path().join("missing"), &[]);
    assert_eq!(refused.code, Some(2), "{}", refused.printed());
    assert!(refused.stderr.contains("cannot be read"));
}

#[test]
fn a_report_of_the_truth_program_is_what_the_trace_was() {
    let folder = workspace::scratch().unwrap();
    let recording = folder.path().join("truth.rec");
    let mut service = Truth::open(20).unwrap();
    let record = option(&recording);
    let trace = Trace::start(&truth::profile(), service.pid(), &[&record]).unwrap();
    service.run().unwrap();
    check_same(&trace.finish().unwrap(), &recording, &[]);
    service.close().unwrap();
}

#[test]
fn a_report_of_mariadb_is_what_the_trace_was() {
    let folder = workspace::scratch().unwrap();
    let recording = folder.path().join("mariadb.rec");
    let server = MariaDb::open().unwrap();
    let sysbench = Sysbench::prepare(&server, 2, 2000).unwrap();
    let record = option(&recording);
    let options = ["--labels", "--preempted-stacks"];
    let mut more = vec![record.as_str()];
    more.extend(options);
    let trace = Trace::start(Path::new("mysql"), server.pid(), &more).unwrap();
    sysbench.run(8, 300).unwrap();
    check_same(&trace.finish().unwrap(), &recording, &[]);
    let slow = report(
        &recording,
        &["--slower-than", "5ms", "--group-by", "fingerprint"],
    );
    assert_eq!(slow.code, Some(0), "{}", slow.printed());
}

#[test]
fn a_trace_that_is_killed_leaves_a_recording_with_names_and_counters() {
    let folder = workspace::scratch().unwrap();
    let recording = folder.path().join("killed.rec");
    let shop = Shop::open().unwrap();
    let record = option(&recording);
    let trace = Trace::start(&shop::profile(), shop.pid(), &[&record]).unwrap();
    let end = std::time::Instant::now() + Duration::from_secs(5);
    let mut load = 0;
    while std::time::Instant::now() < end {
        load += shop.load(4, 200).unwrap();
    }
    let outcome = trace.signal(libc::SIGKILL).unwrap();
    assert_eq!(outcome.code, None, "{}", outcome.printed());
    let out = folder.path().join("out");
    let reported = report(&recording, &["--out", &out.to_string_lossy()]);
    assert_eq!(reported.code, Some(0), "{}", reported.printed());
    assert!(
        reported.stderr.contains("has no end"),
        "{}",
        reported.printed()
    );
    assert!(reported.stdout.contains("recording_unended"));
    assert!(reported.stdout.contains("(recording ended)"));
    let rows = fs::read_to_string(out.join("requests.csv")).unwrap();
    let rows = rows.lines().count() as u64 - 1;
    assert!(rows > load / 4 && rows <= load, "{rows} of {load}");
    let folded = fs::read_to_string(out.join("stacks.folded")).unwrap();
    assert!(folded.contains("shop::payment"), "{folded}");
    assert!(!folded.contains("[unknown]"), "{folded}");

    // Cut where it may be, and with a bit that has flipped.
    let whole = fs::read(&recording).unwrap();
    for part in [whole.len() / 3, whole.len() / 2, whole.len() - 1] {
        fs::write(&recording, &whole[..part]).unwrap();
        let reported = report(&recording, &[]);
        assert_eq!(reported.code, Some(0), "{}", reported.printed());
    }
    let mut flipped = whole;
    let middle = flipped.len() / 2;
    flipped[middle] ^= 4;
    fs::write(&recording, &flipped).unwrap();
    let reported = report(&recording, &[]);
    assert_eq!(reported.code, Some(0), "{}", reported.printed());
    assert!(
        reported.stderr.contains("is damaged"),
        "{}",
        reported.printed()
    );
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_trace() {
    let folder = workspace::scratch().unwrap();
    let disk = SmallDisk::mount(&folder.path().join("disk"), "256k").unwrap();
    let recording = disk.path().join("full.rec");
    let shop = Shop::open().unwrap();
    let record = option(&recording);
    let trace = Trace::start(&shop::profile(), shop.pid(), &[&record]).unwrap();
    let begin = std::time::Instant::now();
    let (mut load, mut size, mut grew) = (0, 0, begin);
    // It is written to every second, until there is no room.
    while size == 0 || grew.elapsed() < Duration::from_secs(3) {
        assert!(begin.elapsed() < Duration::from_secs(100), "{size} bytes");
        load += shop.load(4, 400).unwrap();
        let now = fs::metadata(&recording).unwrap().len();
        if now != size {
            (size, grew) = (now, std::time::Instant::now());
        }
    }
    let outcome = trace.finish().unwrap();
    assert_eq!(outcome.code, Some(1), "{}", outcome.printed());
    assert!(outcome.stderr.contains("No space left on device"));
    assert!(
        outcome.stderr.contains("tracing goes on"),
        "{}",
        outcome.printed()
    );
    assert!(
        outcome.stderr.contains("is not whole"),
        "{}",
        outcome.printed()
    );
    // The trace has all of it.
    let summary = outcome.summary().unwrap();
    assert_eq!(summary.request("order").unwrap().count, load);
    let reported = report(&recording, &["--csv", "-"]);
    assert_eq!(reported.code, Some(0), "{}", reported.printed());
    let rows = reported.stdout.lines().count() as u64 - 1;
    assert!(rows > 50 && rows < load, "{rows} of {load}");
}
