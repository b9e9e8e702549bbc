//! What happens around a trace: another tracer at the same places, disks that are full, readers that
//! leave. The target does not notice, every request is counted, and what can be written is.
//!
//! Needs root, a kernel with BPF, bpftrace and g++.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use reqtrace_tests::faults::Faulty;
use reqtrace_tests::held::Held;
use reqtrace_tests::probed::is_as_in_its_files;
use reqtrace_tests::process::{Child, Stream, run, until};
use reqtrace_tests::reqtrace::{self, Outcome, Trace};
use reqtrace_tests::workspace;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);

/// Another tracer at the places of ours, and at the scheduler.
struct Bpftrace {
    process: Child,
    _folder: TempDir,
}

impl Bpftrace {
    fn start(target: &Faulty) -> Self {
        let file = target.program().display().to_string();
        let script = format!(
            "uprobe:{file}:handle {{ @begins = count(); }} uretprobe:{file}:handle {{ @ends = count(); }} \
             tracepoint:sched:sched_switch {{ @switches = count(); }} interval:ms:200 {{ printf(\"tick\\n\"); }}"
        );
        let folder = workspace::scratch().unwrap();
        // It needs tracefs: in a mount namespace of its own, so that nobody else finds it.
        let mut command = Command::new(workspace::program("unshare").unwrap());
        let with_tracefs = "ls /sys/kernel/tracing/events >/dev/null 2>&1 || \
                            mount -t tracefs tracefs /sys/kernel/tracing; exec \"$0\" \"$@\"";
        command.args(["--mount", "sh", "-c", with_tracefs]);
        command.arg(workspace::program("bpftrace").unwrap());
        command.args(["-B", "line", "-e", &script]);
        let mut process = Child::start(command, folder.path(), "bpftrace").unwrap();
        // It says first that it attaches, and reads what its probes print when it has.
        process.wait_for_line(Stream::Out, "tick", LIMIT).unwrap();
        Self {
            process,
            _folder: folder,
        }
    }

    /// Ends it; gives the begins and ends that it counted.
    fn end(mut self) -> (u64, u64) {
        self.process.signal(libc::SIGINT).unwrap();
        let status = self.process.wait(LIMIT).unwrap();
        let printed = self.process.output(Stream::Out);
        assert!(status.success(), "{status}: {printed}");
        let count = |name: &str| {
            let line = printed.lines().find_map(|line| line.strip_prefix(name));
            line.map_or(0, |line| line.trim().parse().unwrap())
        };
        assert!(count("@switches:") > 0, "{printed}");
        (count("@begins:"), count("@ends:"))
    }
}

/// All requests of these rounds, and nothing lost.
#[track_caller]
fn all_counted(outcome: &Outcome, requests: u64) {
    let summary = outcome.checked().unwrap();
    let work = summary.request("work").unwrap();
    assert_eq!(
        (work.begins, work.count, work.rows),
        (requests, requests, requests),
        "{}",
        outcome.printed()
    );
}

#[test]
fn bpftrace_was_there_before() {
    let mut target = Faulty::start("plain").unwrap();
    let bpftrace = Bpftrace::start(&target);
    let trace = Trace::start(target.profile(), target.pid(), &[]).unwrap();
    let held = Held::by(trace.pid()).unwrap();
    let round = target.round().unwrap();
    all_counted(&trace.finish().unwrap(), round.begun);
    held.are_gone().unwrap();
    // Its probes stay where they are, and count on.
    assert!(is_as_in_its_files(target.pid()).is_err());
    assert_eq!(target.round().unwrap(), round);
    assert_eq!(bpftrace.end(), (2 * round.begun, 2 * round.ended));
    is_as_in_its_files(target.pid()).unwrap();
    target.end().unwrap();
}

#[test]
fn bpftrace_comes_and_goes() {
    let mut target = Faulty::start("plain").unwrap();
    let trace = Trace::start(target.profile(), target.pid(), &[]).unwrap();
    let held = Held::by(trace.pid()).unwrap();
    let round = target.round().unwrap();
    let bpftrace = Bpftrace::start(&target);
    assert_eq!(target.round().unwrap(), round);
    assert_eq!(bpftrace.end(), (round.begun, round.ended));
    assert_eq!(target.round().unwrap(), round);
    all_counted(&trace.finish().unwrap(), 3 * round.begun);
    held.are_gone().unwrap();
    is_as_in_its_files(target.pid()).unwrap();
    target.end().unwrap();
}

/// A file system of its own with little room.
struct Disk(PathBuf);

impl Disk {
    fn of(kib: u64, parent: &Path) -> Self {
        let place = parent.join("disk");
        fs::create_dir(&place).unwrap();
        let size = format!("size={kib}k");
        let mut mount = Command::new(workspace::program("mount").unwrap());
        run(mount
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(&place))
        .unwrap();
        Self(place)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Leaves no room.
    fn fill(&self) {
        let filled = fs::write(self.0.join("filler"), vec![0; 1 << 20]);
        assert_eq!(filled.unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let umount = Command::new("umount").arg("--lazy").arg(&self.0).status();
        assert!(umount.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

/// Traces rounds with these outputs, so that there is far more to write than room; the target is well
/// afterwards. Gives the exit code, the report and the messages.
fn on_a_full_disk(
    outputs: &[&str],
    rounds: u64,
    meanwhile: impl FnOnce(),
) -> (i32, String, String) {
    let mut target = Faulty::start("plain").unwrap();
    let mut command = reqtrace::command(["--profile"]).unwrap();
    let pid = target.pid().to_string();
    command
        .arg(target.profile())
        .args(["-p", &pid])
        .args(outputs);
    let folder = workspace::scratch().unwrap();
    let mut tracer = Child::start(command, folder.path(), "reqtrace").unwrap();
    tracer
        .wait_for_line(Stream::Err, "tracing ", LIMIT)
        .unwrap();
    let held = Held::by(tracer.pid()).unwrap();
    let mut requests = 0;
    for _ in 0..rounds {
        requests += target.round().unwrap().ended;
    }
    meanwhile();
    tracer.signal(libc::SIGINT).unwrap();
    let status = tracer.wait(LIMIT).unwrap();
    let (report, printed) = (tracer.output(Stream::Out), tracer.output(Stream::Err));
    assert!(!printed.contains("panicked"), "{printed}");
    let plain = report.replace(',', "");
    assert!(
        plain.contains(&format!("{requests} requests")),
        "{report}{printed}"
    );
    held.are_gone().unwrap();
    is_as_in_its_files(target.pid()).unwrap();
    target.round().unwrap();
    target.end().unwrap();
    (status.code().unwrap(), report, printed)
}

/// Rows of two thousand requests are more than the disk holds: the other outputs are elsewhere.
#[test]
fn a_disk_that_fills_up_costs_the_rows() {
    let folder = workspace::scratch().unwrap();
    let disk = Disk::of(64, folder.path());
    let csv = disk.path("rows.csv");
    let json = folder.path().join("summary.json").display().to_string();
    let (code, _, printed) = on_a_full_disk(&["--csv", &csv, "--json", &json], 35, || {});
    assert_eq!(code, 1, "{printed}");
    assert!(
        printed.contains("rows.csv could not be written"),
        "{printed}"
    );
    assert!(printed.contains("No space left"), "{printed}");
    assert!(printed.contains("everything else goes on"), "{printed}");
    // What is there under its own name is whole.
    assert!(!Path::new(&csv).exists(), "{printed}");
    let summary: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(summary["requests"][0]["count"], 35 * 60);
}

/// The disk is full when the report comes: nothing of it is written, and no old file is lost.
#[test]
fn a_disk_that_is_full_at_the_end_costs_every_file_on_it() {
    let folder = workspace::scratch().unwrap();
    let disk = Disk::of(256, folder.path());
    fs::create_dir(disk.0.join("out")).unwrap();
    let names = ["summary.json", "stacks.folded", "flamegraph.svg"];
    for name in names {
        fs::write(disk.0.join("out").join(name), "yesterday").unwrap();
    }
    let out = disk.path("out");
    let (code, _, printed) = on_a_full_disk(&["--out", &out], 3, || disk.fill());
    assert_eq!(code, 1, "{printed}");
    assert!(printed.contains("No space left"), "{printed}");
    for name in names {
        let file = disk.0.join("out").join(name);
        assert_eq!(
            fs::read_to_string(file).unwrap(),
            "yesterday",
            "{name}: {printed}"
        );
        assert!(
            printed.contains(&format!("{name} could not be written")),
            "{name}: {printed}"
        );
    }
    assert!(!printed.contains("wrote "), "{printed}");
}

/// A recording that is cut off is read as far as it goes.
#[test]
fn a_disk_that_fills_up_leaves_the_recording_before() {
    let folder = workspace::scratch().unwrap();
    let disk = Disk::of(16, folder.path());
    let recording = disk.path("trace.rqt");
    let (code, _, printed) = on_a_full_disk(&["--record", &recording], 35, || {});
    assert_eq!(code, 1, "{printed}");
    assert!(printed.contains("trace.rqt is not whole"), "{printed}");
    assert!(printed.contains("No space left"), "{printed}");
    let report = reqtrace::command(["report", &recording]).unwrap();
    let outcome = reqtrace::run(report).unwrap();
    assert!(outcome.printed().contains("work"), "{}", outcome.printed());
}

/// `reqtrace --csv - | head -1`.
#[test]
fn a_reader_that_leaves_ends_no_trace() {
    let mut target = Faulty::start("plain").unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let folder = workspace::scratch().unwrap();
    let errors = folder.path().join("errors");
    let mut command = reqtrace::command(["--profile"]).unwrap();
    let pid = target.pid().to_string();
    command
        .arg(target.profile())
        .args(["-p", &pid, "--csv", "-"]);
    command.stdin(Stdio::null()).stdout(writer);
    command.stderr(fs::File::create(&errors).unwrap());
    let mut tracer = command.spawn().unwrap();
    drop(command);
    let printed = || fs::read_to_string(&errors).unwrap();
    until(LIMIT, "the trace", || {
        Ok(printed().contains("tracing ").then_some(()))
    })
    .unwrap();
    let held = Held::by(tracer.id()).unwrap();
    drop(reader);
    let round = target.round().unwrap();
    // SAFETY: plain system call on a child that was not waited for.
    unsafe { libc::kill(tracer.id().cast_signed(), libc::SIGINT) };
    let status = until(LIMIT, "the end", || Ok(tracer.try_wait()?)).unwrap();
    assert!(
        matches!(status.code(), Some(0 | 1)),
        "{status}: {}",
        printed()
    );
    assert!(!printed().contains("panicked"), "{}", printed());
    assert!(
        printed().contains(&format!("{} requests", round.ended)),
        "{}",
        printed()
    );
    held.are_gone().unwrap();
    is_as_in_its_files(target.pid()).unwrap();
    assert_eq!(target.round().unwrap(), round);
    target.end().unwrap();
}
