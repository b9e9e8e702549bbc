//! Recordings of many files: read as one they are what the trace was, and each file is a recording.
//!
//! Needs root and a kernel with BPF.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use reqtrace_tests::reqtrace::{self, Outcome, Trace};
use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::summary::Summary;
use reqtrace_tests::workspace::{self, SmallDisk};

fn report(paths: &[&Path], more: &[&str]) -> Outcome {
    let mut command = reqtrace::command(["report"]).unwrap();
    command.args(paths).args(more);
    reqtrace::run(command).unwrap()
}

/// Files of a folder, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

fn started(shop: &Shop, folder: &Path, more: &[&str]) -> Trace {
    let record = format!("--record={}", folder.display());
    let mut options = vec![record.as_str()];
    options.extend(more);
    Trace::start(&shop::profile(), shop.pid(), &options).unwrap()
}

/// Customers place orders for so long; how many.
fn load(shop: &Shop, seconds: u64) -> u64 {
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut placed = 0;
    while Instant::now() < end {
        placed += shop.load(4, 200).unwrap();
    }
    placed
}

#[test]
fn many_files_read_as_one_are_what_the_trace_was() {
    let folder = workspace::scratch().unwrap();
    let recording = folder.path().join("rec");
    let shop = Shop::open().unwrap();
    let trace = started(&shop, &recording, &["--roll=1s,1MB", "--group-by=label"]);
    let placed = load(&shop, 6);
    let outcome = trace.finish().unwrap();
    let summary = outcome.checked().unwrap();
    assert_eq!(summary.request("order").unwrap().count, placed);

    let out = folder.path().join("out");
    let out_option = format!("--out={}", out.display());
    let reported = report(&[&recording], &[&out_option, "--group-by=label"]);
    assert_eq!(reported.code, Some(0), "{}", reported.printed());
    assert_eq!(reported.stdout, outcome.stdout);
    for name in [
        "report.html",
        "summary.json",
        "requests.csv",
        "stacks.folded",
        "flamegraph.svg",
    ] {
        let [live, again] =
            [outcome.path(name), out.join(name)].map(|file| fs::read(file).unwrap());
        assert!(live == again, "{name} differs");
    }

    // They may be named one by one, in any order; and each is a recording.
    let files = files(&recording);
    assert!(files.len() >= 4, "{files:?}");
    let ends = |file: &PathBuf| file.to_string_lossy().ends_with("Z.rec");
    assert!(files.iter().all(ends), "{files:?}");
    let backwards: Vec<&Path> = files.iter().rev().map(PathBuf::as_path).collect();
    let reported = report(&backwards, &["--group-by=label"]);
    assert_eq!(reported.stdout, outcome.stdout);
    let mut rows = 0;
    for file in &files {
        let part = folder.path().join("part");
        let out = format!("--out={}", part.display());
        let reported = report(&[file], &[&out]);
        assert_eq!(reported.code, Some(0), "{}", reported.printed());
        assert!(
            reported
                .stderr
                .lines()
                .all(|line| !line.contains("reqtrace: "))
        );
        let summary = fs::read_to_string(part.join("summary.json")).unwrap();
        let summary = Summary::read(&summary).unwrap();
        assert_eq!(summary.lost(), 0, "{:?}", summary.losses);
        let of_part = summary.request("order").map_or(0, |order| {
            assert_eq!(order.count, order.rows);
            order.count
        });
        let folded = fs::read_to_string(part.join("stacks.folded")).unwrap();
        assert!(of_part == 0 || folded.contains("shop::payment"), "{folded}");
        assert!(!folded.contains("[unknown]"), "{folded}");
        rows += of_part;
    }
    assert_eq!(rows, placed);

    // Without one of them, the others are there.
    let less: Vec<&Path> = backwards.iter().skip(1).copied().collect();
    let reported = report(&[less[0], less[2]], &[]);
    assert_eq!(reported.code, Some(0), "{}", reported.printed());
    assert!(
        reported.stderr.contains("1 files of"),
        "{}",
        reported.printed()
    );
    assert!(reported.stdout.contains("recording_missing_files"));

    // Another trace has files of its own there.
    let trace = started(&shop, &recording, &["--roll=1h"]);
    shop.load(4, 100).unwrap();
    assert_eq!(trace.signal(libc::SIGKILL).unwrap().code, None);
    assert_eq!(self::files(&recording).len(), files.len() + 1);
    let refused = report(&[&recording], &[]);
    assert_eq!(refused.code, Some(2), "{}", refused.printed());
    assert!(refused.stderr.contains("2 traces"), "{}", refused.printed());
    let all = self::files(&recording);
    let killed = all.iter().find(|file| !files.contains(file)).unwrap();
    assert!(killed.to_string_lossy().ends_with(".rec.partial"));
    let reported = report(&[killed], &[]);
    assert_eq!(reported.code, Some(0), "{}", reported.printed());
    assert!(
        reported.stderr.contains("has no end"),
        "{}",
        reported.printed()
    );
    let refused = report(&[killed, &files[0]], &[]);
    assert_eq!(refused.code, Some(2), "{}", refused.printed());
    assert!(refused.stderr.contains("not of one trace"));
}

#[test]
fn the_oldest_files_go_and_a_full_disk_is_no_secret() {
    let folder = workspace::scratch().unwrap();
    let disk = SmallDisk::mount(&folder.path().join("disk"), "2m").unwrap();
    let shop = Shop::open().unwrap();
    // There is room for what is kept, and what is written.
    let kept = disk.path().join("kept");
    let trace = started(&shop, &kept, &["--roll=1s,64KB", "--keep=600KB"]);
    let placed = load(&shop, 12);
    let outcome = trace.finish().unwrap();
    let summary = outcome.checked().unwrap();
    assert_eq!(summary.request("order").unwrap().count, placed);
    assert!(
        outcome.stderr.contains("had to go"),
        "{}",
        outcome.printed()
    );
    let bytes: u64 = files(&kept)
        .iter()
        .map(|file| file.metadata().unwrap().len())
        .sum();
    assert!(bytes <= 900 << 10, "{bytes}");
    let reported = report(&[&kept], &["--csv", "-"]);
    assert_eq!(reported.code, Some(0), "{}", reported.printed());
    assert!(
        reported.stderr.contains("begins with file"),
        "{}",
        reported.printed()
    );
    let rows = reported.stdout.lines().count() as u64 - 1;
    assert!(rows > 0 && rows < placed, "{rows} of {placed}");

    // There is no room for all.
    fs::remove_dir_all(&kept).unwrap();
    let full = disk.path().join("full");
    let mut trace = started(&shop, &full, &["--roll=1s"]);
    let begin = Instant::now();
    let mut placed = 0;
    let (mut size, mut grew) = (0, begin);
    while size == 0 || grew.elapsed() < Duration::from_secs(3) {
        assert!(begin.elapsed() < Duration::from_secs(100), "{size} bytes");
        placed += shop.load(4, 400).unwrap();
        let all = files(&full);
        let now: u64 = all.iter().map(|file| file.metadata().unwrap().len()).sum();
        if now != size {
            (size, grew) = (now, Instant::now());
        }
    }
    trace.wait_for_line("reqtrace: the recording").unwrap();
    // Somebody makes room.
    let first = files(&full).into_iter().next().unwrap();
    for file in files(&full).iter().take(3).filter(|file| **file != first) {
        fs::remove_file(file).unwrap();
    }
    placed += load(&shop, 12);
    let outcome = trace.finish().unwrap();
    assert_eq!(outcome.code, Some(1), "{}", outcome.printed());
    for words in ["No space left on device", "tried again", "is not whole"] {
        assert!(outcome.stderr.contains(words), "{}", outcome.printed());
    }
    let summary = outcome.summary().unwrap();
    assert_eq!(summary.request("order").unwrap().count, placed);
}

#[test]
fn bad_values_are_errors() {
    for (options, words) in [
        (
            &["--record=x", "--roll=soon"][..],
            "neither a time nor a size",
        ),
        (&["--record=x", "--roll=10m,1h"], "two times"),
        (&["--record=x", "--roll=1KB"], "at least 64KB"),
        (
            &["--record=x", "--roll=10m", "--keep=much"],
            "neither a time",
        ),
        (&["--roll=10m"], "--record"),
        (&["--record=x", "--keep=24h"], "--roll"),
    ] {
        let mut command = reqtrace::command(["--profile", "mysql", "-p", "1"]).unwrap();
        command.args(options);
        let refused = reqtrace::run(command).unwrap();
        assert_eq!(refused.code, Some(2), "{}", refused.printed());
        assert!(refused.stderr.contains(words), "{}", refused.printed());
    }
    let folder = workspace::scratch().unwrap();
    let refused = report(&[folder.path()], &[]);
    assert_eq!(refused.code, Some(2), "{}", refused.printed());
    assert!(refused.stderr.contains("no file that ends with .rec"));
}
