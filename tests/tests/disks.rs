//! What disks did while requests waited for them: whose I/O it was, how long it took by the service's own clock, and who
//! else used the disk by what it wrote.
//!
//! Needs root, a kernel with BPF, g++, and a folder on a file system with a journal on a block device.

use std::path::Path;
use std::process::Command;

use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::process::{Child, run};
use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::workspace;
use serde_json::Value;

const REQUESTS: u64 = 400;
/// Blocks of 1 MiB that another process writes meanwhile.
const OTHERS_MIB: u64 = 64;

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
    let disk = summary["blame"][0]["disk"].clone();
    assert!(
        disk.is_object(),
        "{:#} {}",
        summary["blame"],
        outcome.said()
    );
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
fn own_writes_and_who_writes_beside() {
    let folder = workspace::scratch().unwrap();
    let mut dd = Command::new("dd");
    let to = format!("of={}", folder.path().join("other").display());
    dd.args(["if=/dev/zero", &to, "bs=1M", "oflag=direct", "conv=fsync"]);
    dd.arg(format!("count={OTHERS_MIB}"));
    let dd = Child::start(dd, folder.path(), "dd").unwrap();
    let pid = dd.pid();
    let beside = std::thread::spawn(move || {
        let mut dd = dd;
        dd.wait(std::time::Duration::from_secs(60)).unwrap()
    });
    let (outcome, own_ns, disk) = waits("direct", folder.path());
    assert!(beside.join().unwrap().success());
    closes(&disk);
    let waited_ns = ns(&disk, "waited_ns");
    assert!(
        ns(&disk, "own_ns") * 100 >= waited_ns * 95,
        "{disk:#} {}",
        outcome.said()
    );
    assert!(
        (REQUESTS..=2 * REQUESTS).contains(&ns(&disk, "count")),
        "{disk:#}"
    );
    assert!(
        waited_ns <= own_ns && waited_ns * 2 >= own_ns,
        "of {own_ns} ns: {disk:#}"
    );
    assert_eq!(disk["disks"].as_array().unwrap().len(), 1, "{disk:#}");
    // It had begun before.
    let users = disk["used_by"].as_array().unwrap();
    let other = users.iter().find(|user| user["pid"] == pid);
    if let Some(other) = other {
        assert_eq!(other["comm"], "dd");
        assert!(ns(other, "written_bytes") <= OTHERS_MIB << 20, "{other:#}");
    }
    assert!(
        outcome.said().contains("Disk of `work`"),
        "{}",
        outcome.said()
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
    let dd = dd.unwrap_or_else(|| panic!("{disk:#} {}", outcome.said()));
    let written = 40 * (256 << 10);
    // Its blocks may be allocated through the journal, which writes these.
    assert!(
        (written..=written + written / 10).contains(&ns(dd, "written_bytes")),
        "{dd:#}"
    );
    assert_eq!(ns(dd, "read_bytes"), 0, "{dd:#}");
    assert!(ns(dd, "count") >= 40, "{dd:#}");
}

#[test]
fn a_commit_of_the_journal_is_on_behalf_of_who_waits_for_it() {
    let folder = workspace::scratch().unwrap();
    let kind = run(Command::new("stat")
        .args(["-f", "-c", "%T"])
        .arg(folder.path()))
    .unwrap();
    assert_eq!(kind.trim(), "ext2/ext3", "the test knows ext4's journal");
    let (outcome, own_ns, disk) = waits("append", folder.path());
    closes(&disk);
    let waited_ns = ns(&disk, "waited_ns");
    assert!(waited_ns <= own_ns, "of {own_ns} ns: {disk:#}");
    let bound_ns = ns(&disk, "own_ns") + ns(&disk, "journal_ns");
    assert!(
        ns(&disk, "journal_ns") * 5 >= waited_ns,
        "{disk:#} {}",
        outcome.said()
    );
    assert!(
        bound_ns * 10 >= waited_ns * 8,
        "{disk:#} {}",
        outcome.said()
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
    assert_eq!(outcome.code, Some(0), "{}", outcome.said());
    assert!(
        outcome
            .said()
            .contains("nothing is known of what disks did"),
        "{}",
        outcome.said()
    );
    let summary: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    assert!(summary["blame"][0]["causes_ns"]["disk"].as_u64().unwrap() > 0);
    assert!(
        summary["blame"][0]["disk"].is_null(),
        "{:#}",
        summary["blame"][0]
    );
}
