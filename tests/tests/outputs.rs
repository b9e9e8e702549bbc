//! Outputs that cannot be written, or that nobody reads: the trace ends and reports all the same, and
//! what was there before stays until something better is there.
//!
//! Needs root, a kernel with BPF and g++.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use reqtrace_tests::process::{Child, Stream, until};
use reqtrace_tests::reqtrace;
use reqtrace_tests::unkind::Unkind;
use reqtrace_tests::workspace;

const LIMIT: Duration = Duration::from_secs(60);

/// `reqtrace --profile … -p … MORE`.
fn command(target: &Unkind, more: &[&str]) -> Command {
    let mut command = reqtrace::command(["--profile"]).unwrap();
    let pid = target.pid().to_string();
    command.arg(target.profile()).args(["-p", &pid]).args(more);
    command
}

/// A trace that has attached, of a target that works.
fn start(target: &mut Unkind, more: &[&str]) -> Child {
    let mut child = Child::start(command(target, more), target.folder(), "reqtrace").unwrap();
    child.wait_for_line(Stream::Err, "tracing ", LIMIT).unwrap();
    target.go().unwrap();
    child
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// A reader that stands still made reqtrace unkillable but by SIGKILL.
#[test]
fn a_reader_that_stands_still_keeps_nobody() {
    let mut target = Unkind::start("nap").unwrap();
    // A row a millisecond fills a pipe of one page at once.
    let (mut reader, writer) = std::io::pipe().unwrap();
    let errors = target.folder().join("errors");
    let mut command = command(&target, &["--csv", "-"]);
    command
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(fs::File::create(&errors).unwrap());
    let mut tracer = command.spawn().unwrap();
    drop(command);
    let printed = || fs::read_to_string(&errors).unwrap();
    until(LIMIT, "the trace", || {
        Ok(printed().contains("tracing ").then_some(()))
    })
    .unwrap();
    target.go().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let begun = Instant::now();
    // SAFETY: plain system call on a child that was not waited for.
    let sent = unsafe { libc::kill(tracer.id().cast_signed(), libc::SIGINT) };
    assert_eq!(sent, 0);
    let status = until(LIMIT, "the end", || Ok(tracer.try_wait()?)).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10), "{}", printed());
    // The report comes, and that rows are missing is printed.
    assert!(printed().contains("complete"), "{}", printed());
    assert_eq!(status.code(), Some(1), "{}", printed());
    assert!(
        printed().contains("standard output could not be written"),
        "{}",
        printed()
    );
    let mut read = Vec::new();
    reader.read_to_end(&mut read).unwrap();
    assert!(read.starts_with(b"id,"));
    target.end().unwrap();
}

/// A full disk took the report with it.
#[test]
fn a_full_disk_costs_one_output() {
    let mut target = Unkind::start("nap").unwrap();
    let json = target.folder().join("summary.json");
    let words = ["--csv", "/dev/full", "--json", json.to_str().unwrap(), "3"];
    let mut tracer = start(&mut target, &words);
    let status = tracer.wait(LIMIT).unwrap();
    let printed = tracer.output(Stream::Err);
    assert_eq!(status.code(), Some(1), "{printed}");
    assert!(
        printed.contains("/dev/full could not be written"),
        "{printed}"
    );
    assert!(printed.contains("No space left"), "{printed}");
    assert!(printed.contains("everything else goes on"), "{printed}");
    assert!(tracer.output(Stream::Out).contains("work"), "{printed}");
    assert!(fs::read_to_string(json).unwrap().contains("\"work\""));
    target.end().unwrap();
}

/// A trace that the gate refuses emptied the files of the one before.
#[test]
fn a_refused_trace_leaves_yesterdays_files() {
    let mut target = Unkind::start("nap").unwrap();
    target.go().unwrap();
    let out = target.folder().join("out");
    fs::create_dir(&out).unwrap();
    let names = [
        "summary.json",
        "requests.csv",
        "stacks.folded",
        "flamegraph.svg",
    ];
    for name in names {
        fs::write(out.join(name), "yesterday").unwrap();
    }
    let out_word = out.to_str().unwrap();
    let refused = command(
        &target,
        &["--out", out_word, "--max-probe-rate", "0.0001", "5"],
    );
    let outcome = reqtrace::run(refused).unwrap();
    assert_eq!(outcome.code, Some(2), "{}", outcome.printed());
    for name in names {
        assert_eq!(fs::read_to_string(out.join(name)).unwrap(), "yesterday");
    }
    assert_eq!(fs::read_dir(&out).unwrap().count(), names.len());
    target.end().unwrap();
}

#[test]
fn labels_are_for_their_owner_only() {
    let target = Unkind::start("nap").unwrap();
    let profile = target.folder().join("labelled.toml");
    let text = fs::read_to_string(target.profile()).unwrap();
    fs::write(
        &profile,
        format!("{text}label = {{ arg = 0, type = \"integer\" }}\n"),
    )
    .unwrap();
    for (word, wanted) in [("--labels", 0o600), ("--blocked-only", 0o644)] {
        let out = target.folder().join(word);
        let record = target.folder().join(format!("{word}.rqt"));
        let mut command = reqtrace::command(["--profile"]).unwrap();
        command
            .arg(&profile)
            .args(["-p", &target.pid().to_string()]);
        command.arg("--out").arg(&out).arg("--record").arg(&record);
        command.args([word, "1"]);
        let outcome = reqtrace::run(command).unwrap();
        assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
        for name in [
            "report.html",
            "summary.json",
            "requests.csv",
            "stacks.folded",
            "flamegraph.svg",
        ] {
            assert_eq!(mode(&out.join(name)), wanted, "{name}");
        }
        assert_eq!(mode(&record), wanted);
    }
}

/// `--out` into a folder of another user followed that user's links and overwrote root's files.
#[test]
fn folders_of_other_users_are_refused() {
    let target = Unkind::start("nap").unwrap();
    let victim = target.folder().join("victim");
    fs::write(&victim, "root's").unwrap();
    let theirs = target.folder().join("theirs");
    fs::create_dir(&theirs).unwrap();
    symlink(&victim, theirs.join("requests.csv")).unwrap();
    symlink(&victim, target.folder().join("rows.csv")).unwrap();
    chown(&theirs, Some(4711), None).unwrap();
    let place = theirs.to_str().unwrap().to_owned();
    let link = target.folder().join("rows.csv").display().to_string();
    let record = format!("{place}/recording");
    for (option, path, printed) in [
        ("--out", &place, "belongs to user 4711"),
        ("--csv", &link, "it is a symbolic link"),
        ("--record", &record, "belongs to user 4711"),
    ] {
        let outcome = reqtrace::run(command(&target, &[option, path, "5"])).unwrap();
        assert_eq!(outcome.code, Some(2), "{}", outcome.printed());
        assert!(outcome.stderr.contains(printed), "{}", outcome.printed());
        assert!(outcome.stderr.contains("next: "), "{}", outcome.printed());
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "root's");
    assert_eq!(fs::metadata(&victim).unwrap().uid(), 0);
}

/// A folder that was removed meanwhile was not noticed.
#[test]
fn a_folder_that_is_gone_is_reported() {
    let mut target = Unkind::start("nap").unwrap();
    let out = target.folder().join("out");
    let mut tracer = start(&mut target, &["--out", out.to_str().unwrap(), "2"]);
    fs::remove_dir_all(&out).unwrap();
    let status = tracer.wait(LIMIT).unwrap();
    let printed = tracer.output(Stream::Err);
    assert_eq!(status.code(), Some(1), "{printed}");
    assert!(
        printed.contains("summary.json could not be written"),
        "{printed}"
    );
    assert!(!printed.contains("wrote "), "{printed}");
    assert!(tracer.output(Stream::Out).contains("work"), "{printed}");
    target.end().unwrap();
}

/// The connection to the terminal is gone: everything was lost.
#[test]
fn a_hang_up_ends_and_reports() {
    let mut target = Unkind::start("nap").unwrap();
    let out = target.folder().join("out");
    let mut tracer = start(&mut target, &["--out", out.to_str().unwrap()]);
    std::thread::sleep(Duration::from_millis(500));
    tracer.signal(libc::SIGHUP).unwrap();
    let status = tracer.wait(LIMIT).unwrap();
    assert_eq!(status.code(), Some(0), "{}", tracer.output(Stream::Err));
    let summary = fs::read_to_string(out.join("summary.json")).unwrap();
    assert!(summary.contains("\"interrupted\""), "{summary}");
    assert!(!out.join("requests.csv.partial").exists());
    target.end().unwrap();
}

#[test]
fn a_csv_has_its_limits_and_the_report_the_rest() {
    let mut target = Unkind::start("nap").unwrap();
    let folder = workspace::scratch().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let words = [
        "--csv",
        &path("a"),
        "--json",
        &path("b"),
        "--max-rows",
        "7",
        "2",
    ];
    let mut tracer = start(&mut target, &words);
    tracer.wait(LIMIT).unwrap();
    let rows = fs::read_to_string(path("a")).unwrap();
    assert_eq!(rows.lines().count(), 8, "{rows}");
    let summary: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(path("b")).unwrap()).unwrap();
    let left_out = summary["losses"]
        .as_array()
        .unwrap()
        .iter()
        .find(|loss| loss["name"] == "rows_beyond_limit")
        .unwrap();
    let all = summary["requests"][0]["count"].as_u64().unwrap();
    let open = summary["requests"][0]["incomplete"]
        .as_object()
        .map_or(0, |reasons| {
            reasons.values().filter_map(serde_json::Value::as_u64).sum()
        });
    assert_eq!(left_out["count"].as_u64().unwrap() + 7, all + open);
    target.end().unwrap();
}
