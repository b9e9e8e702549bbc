//! What disks did while requests waited for them: whose I/O it was, how long it took by the service's own clock, and who
//! else used the disk by what it wrote.
//!
//! Needs root, a kernel with BPF, g++, e2fsprogs, a loop device, and a target folder on a block device.

use std::path::Path;
use std::process::Command;

use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::process::Child;
use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::workspace::{self, SmallDisk};
use serde_json::Value;

const REQUESTS: u64 = 400;

/// The trace of a service that does this, the ns that it took by its own clock, and what the report says of its disk.
fn waits(how: &str, folder: &Path) -> (Outcome, u64, Value) {
    let file = folder.join("file");
    let args = [how, file.to_str().unwrap(), &REQUESTS.to_string()];
    let service = Fixture::start("disks", &args).unwrap();
    let profile = service.profile("handle", "ignore").unwrap();
    let options = ["--blame", "--max-overhead", "100"];
    let (outcome, results) = service.traced(&profile, &options).unwrap();
    let own_ns = results.split(' ').nth(1).unwrap().parse().unwrap();
    let disk = disk(&outcome);
    (outcome, own_ns, disk)
}

fn disk(outcome: &Outcome) -> Value {
    let summary: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let blame = &summary["blame"][0];
    let disk = blame["disk"].clone();
    let of_cause = &blame["causes_ns"]["disk"];
    assert!(
        disk.is_object(),
        "{:#} {}",
        summary["blame"],
        outcome.printed()
    );
    assert_eq!(disk["waited_ns"], *of_cause, "{blame:#}");
    disk
}

fn ns(disk: &Value, name: &str) -> u64 {
    disk[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name}: {disk:#}"))
}

/// What is split is all of it.
fn closes(disk: &Value) {
    let whose = ["own_ns", "journal_ns", "others_ns"].map(|name| ns(disk, name));
    let bound: u64 = whose.iter().sum();
    assert_eq!(
        bound,
        ns(disk, "queued_ns") + ns(disk, "served_ns"),
        "{disk:#}"
    );
    assert_eq!(
        ns(disk, "waited_ns"),
        bound + ns(disk, "not_bound_ns"),
        "{disk:#}"
    );
}

#[test]
fn own_writes_are_bound_to_the_device() {
    let folder = workspace::scratch().unwrap();
    let (outcome, own_ns, disk) = waits("direct", folder.path());
    closes(&disk);
    let waited_ns = ns(&disk, "waited_ns");
    assert!(waited_ns <= own_ns, "of {own_ns} ns: {disk:#}");
    assert!(
        ns(&disk, "own_ns") * 100 >= waited_ns * 95,
        "{disk:#} {}",
        outcome.printed()
    );
    assert!(
        (REQUESTS * 9 / 10..=2 * REQUESTS).contains(&ns(&disk, "count")),
        "{disk:#}"
    );
    assert_eq!(disk["disks"].as_array().unwrap().len(), 1, "{disk:#}");
    assert!(
        outcome.printed().contains("Disk of `work`"),
        "{}",
        outcome.printed()
    );
}

#[test]
fn who_writes_beside_with_how_many_bytes() {
    let folder = workspace::scratch().unwrap();
    let file = folder.path().join("file");
    let args = ["direct", file.to_str().unwrap(), "3000"];
    let mut service = Fixture::start("disks", &args).unwrap();
    let profile = service.profile("handle", "ignore").unwrap();
    let trace = Trace::start(
        &profile,
        service.pid(),
        &["--blame", "--max-overhead", "100"],
    )
    .unwrap();
    let working = std::thread::spawn(move || service.work().map(|_| service));
    let mut dd = Command::new("dd");
    let to = format!("of={}", folder.path().join("other").display());
    dd.args([
        "if=/dev/zero",
        &to,
        "bs=256K",
        "oflag=direct,dsync",
        "count=40",
    ]);
    let mut dd = Child::start(dd, folder.path(), "dd").unwrap();
    let pid = dd.pid();
    assert!(
        dd.wait(std::time::Duration::from_secs(60))
            .unwrap()
            .success()
    );
    let service = working.join().unwrap().unwrap();
    service.end().unwrap();
    let outcome = trace.wait().unwrap();
    let disk = disk(&outcome);
    closes(&disk);
    let users = disk["used_by"].as_array().unwrap();
    let dd = users.iter().find(|user| user["pid"] == pid);
    let dd = dd.unwrap_or_else(|| panic!("{disk:#} {}", outcome.printed()));
    let written = 40 * (256 << 10);
    // Its blocks may be allocated through the journal, which writes these.
    assert!(
        (written..=written + written / 10).contains(&ns(dd, "written_bytes")),
        "{dd:#}"
    );
    // What it reads is its own program.
    assert!(ns(dd, "read_bytes") < written / 4, "{dd:#}");
    assert!(ns(dd, "count") >= 40, "{dd:#}");
}

#[test]
fn a_commit_of_the_journal_is_on_behalf_of_who_waits_for_it() {
    let folder = workspace::scratch().unwrap();
    let journaled = SmallDisk::with_journal(&folder.path().join("mount")).unwrap();
    let (outcome, own_ns, disk) = waits("append", journaled.path());
    closes(&disk);
    let waited_ns = ns(&disk, "waited_ns");
    assert!(waited_ns <= own_ns, "of {own_ns} ns: {disk:#}");
    let bound_ns = ns(&disk, "own_ns") + ns(&disk, "journal_ns");
    assert!(
        ns(&disk, "journal_ns") * 5 >= waited_ns,
        "{disk:#} {}",
        outcome.printed()
    );
    assert!(
        bound_ns * 10 >= waited_ns * 8,
        "{disk:#} {}",
        outcome.printed()
    );
}

/// Nothing of it is in a trace without blame, nor where the kernel lacks it.
#[test]
fn a_kernel_without_these_tracepoints_says_so() {
    let shop = Shop::open().unwrap();
    let trace = Trace::start_without("block-devices", &shop::profile(), shop.pid(), &["--blame"]);
    let trace = trace.unwrap();
    shop.load(2, 50).unwrap();
    let outcome = trace.finish().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    assert!(
        outcome
            .printed()
            .contains("nothing is known of what disks did"),
        "{}",
        outcome.printed()
    );
    let summary: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    assert!(summary["blame"][0]["causes_ns"]["disk"].as_u64().unwrap() > 0);
    assert!(
        summary["blame"][0]["disk"].is_null(),
        "{:#}",
        summary["blame"][0]
    );
}
