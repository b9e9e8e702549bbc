//! `--pprof` and `--perfetto`, read by the programs of others: the numbers are those of `requests.csv`,
//! `intervals.csv` and `stacks.folded`.
//!
//! Needs root, a kernel with BPF, g++, Go, and Python with the package `perfetto`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::perfetto::{self, Slice};
use reqtrace_tests::reqtrace::{self, Outcome, Trace};
use reqtrace_tests::rows::Row;
use reqtrace_tests::{chains, pprof, workspace};
use tempfile::TempDir;

const CALLS: usize = 10;

/// A trace of requests that wait for each other, and its exports.
struct Traced {
    outcome: Outcome,
    folder: TempDir,
}

impl Traced {
    fn new() -> Self {
        let service = &chains::SERVICES[0];
        let folder = workspace::scratch().unwrap();
        let path = folder.path().display().to_string();
        let mut fixture = Fixture::start(service.name, &[&CALLS.to_string(), &path]).unwrap();
        let profile = folder.path().join("profile.toml");
        std::fs::write(&profile, service.profile().unwrap()).unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let [pprof, perfetto, intervals, record] = FILES.map(at);
        let mut options = vec!["--pprof", &pprof, "--perfetto", &perfetto];
        options.extend(["--intervals", &intervals, "--record", &record]);
        options.extend(fixture.more().iter().flat_map(|pid| ["-p", pid]));
        let trace = Trace::start(&profile, fixture.pid(), &options).unwrap();
        fixture.work().unwrap();
        fixture.end().unwrap();
        let outcome = trace.wait().unwrap();
        outcome.checked().unwrap();
        Self { outcome, folder }
    }

    fn file(&self, index: usize) -> PathBuf {
        self.folder.path().join(FILES[index])
    }

    /// The same exports, of the recording.
    fn report(&self, more: &[&str]) -> [PathBuf; 2] {
        let files = ["again.pb.gz", "again.pftrace"].map(|name| self.folder.path().join(name));
        let mut command = reqtrace::command(["report", "-q", "--pprof"]).unwrap();
        command.arg(&files[0]).arg("--perfetto").arg(&files[1]);
        command.args(more).arg(self.file(3));
        let outcome = reqtrace::run(command).unwrap();
        assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
        files
    }
}

const FILES: [&str; 4] = [
    "profile.pb.gz",
    "trace.pftrace",
    "intervals.csv",
    "trace.rec",
];

#[test]
fn exports_have_the_numbers_of_the_other_files() {
    let traced = Traced::new();
    let rows = traced.outcome.rows().unwrap();
    the_profile_is_that_of_the_folded_stacks(&traced.outcome, &rows, &traced.file(0));
    the_trace_is_that_of_the_rows(&rows, &traced.file(1), &traced.file(2));
    let again = traced.report(&[]);
    for (live, recorded) in [0, 1].into_iter().zip(&again) {
        let same = std::fs::read(traced.file(live)).unwrap() == std::fs::read(recorded).unwrap();
        assert!(same, "{} differs from that of the recording", FILES[live]);
    }
    limits_hold_and_are_reported(&traced, &rows);
}

fn the_profile_is_that_of_the_folded_stacks(outcome: &Outcome, rows: &[Row], file: &Path) {
    let samples = pprof::samples(file).unwrap();
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    let mut classes: BTreeMap<&str, u64> = BTreeMap::new();
    let mut causes: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for sample in &samples {
        let label = |name: &str| sample.labels[name].as_str();
        let first = [label("process"), label("request")];
        let frames = first
            .into_iter()
            .chain(sample.frames.iter().map(String::as_str));
        let line: Vec<String> = frames.map(|frame| frame.replace(';', ":")).collect();
        *lines.entry(line.join(";")).or_default() += sample.ns;
        *classes.entry(label("class")).or_default() += sample.ns;
        if let Some(cause) = sample.labels.get("root_cause") {
            *causes.entry((label("request"), cause)).or_default() += sample.ns;
        }
    }
    let folded = |(line, ns): (&String, &u64)| format!("{line} {}\n", ((ns + 500) / 1000).max(1));
    let folded: String = lines.iter().map(folded).collect();
    assert_eq!(folded, outcome.folded().unwrap());
    // All of these requests are complete.
    let sum = |of: fn(&Row) -> u64| rows.iter().map(of).sum::<u64>();
    assert_eq!(classes["run queue"], sum(|row| row.run_queue_ns));
    assert_eq!(classes["preempted"], sum(|row| row.preempted_ns));
    assert_eq!(classes["lock"], sum(|row| row.classes["lock"]));
    // Root causes are those of blame, as far as stacks have them; nearly all have.
    let mut blamed: BTreeMap<(&str, String), u64> = BTreeMap::new();
    let rows_of_blame = outcome.blame().unwrap();
    for row in &rows_of_blame {
        let words = match row.root_cause.as_str() {
            "unknown" => "not known".to_owned(),
            "on_cpu" => "on CPU".to_owned(),
            other => other.replace('_', " "),
        };
        *blamed.entry((&row.victim_request, words)).or_default() += row.ns;
    }
    for ((request, cause), ns) in &causes {
        let most = blamed[&(*request, (*cause).to_owned())];
        assert!(*ns <= most, "{request}, {cause}: {ns} of {most}");
    }
    let (split, all): (u64, u64) = (causes.values().sum(), blamed.values().sum());
    assert!(
        split * 10 >= all * 9,
        "{split} of {all} ns have a root cause"
    );
    // What the manual shows.
    let focused = pprof::tool(&["-top", "-tagfocus=root_cause=on CPU"], file).unwrap();
    assert!(focused.contains("tagfocus=root_cause=on CPU"), "{focused}");
    let on_cpu: u64 = causes
        .iter()
        .filter(|((_, cause), _)| *cause == "on CPU")
        .map(|(_, ns)| ns)
        .sum();
    let shown = format!("accounting for {:.2}ms", on_cpu as f64 / 1e6);
    assert!(focused.contains(&shown), "{shown}\n{focused}");
    let rooted = pprof::tool(&["-traces", "-tagroot=request,class"], file).unwrap();
    assert!(rooted.contains("syncs"), "{rooted}");
}

fn the_trace_is_that_of_the_rows(rows: &[Row], file: &Path, intervals: &Path) {
    let trace = perfetto::read(file).unwrap();
    let requests: Vec<&Slice> = of(&trace.slices, "request").collect();
    assert_eq!(requests.len(), rows.len());
    let mut inside: BTreeMap<u64, BTreeMap<&str, u64>> = BTreeMap::new();
    for category in ["blocked", "run queue", "preempted"] {
        for slice in of(&trace.slices, category) {
            // It lies in the request that it names, on that one's thread.
            assert_eq!(slice.depth, 1, "{slice:?}");
            let id = slice.number("request_id").unwrap();
            *inside.entry(id).or_default().entry(category).or_default() += slice.ns;
        }
    }
    for row in rows {
        let slice = requests
            .iter()
            .find(|slice| slice.number("request_id") == Some(row.id))
            .unwrap();
        assert_eq!(slice.depth, 0, "{slice:?}");
        assert_eq!(slice.name, row.request);
        assert_eq!(
            (slice.begin_ns, slice.ns),
            (row.start_unix_ns, row.latency_ns)
        );
        assert_eq!(slice.thread, (row.pid.into(), row.tid.into()));
        assert_eq!(trace.threads[&slice.thread], row.comm);
        assert_eq!(slice.number("ledger_ns.on CPU").unwrap_or(0), row.on_cpu_ns);
        let times = inside.remove(&row.id).unwrap_or_default();
        let time = |category| times.get(category).copied().unwrap_or(0);
        let printed = [time("blocked"), time("run queue"), time("preempted")];
        let known = [
            row.blocked_ns + row.unattributed_ns,
            row.run_queue_ns,
            row.preempted_ns,
        ];
        assert_eq!(printed, known, "{row:?}");
    }
    assert!(inside.is_empty(), "slices of no request: {inside:?}");
    // One arrow for each interval that another thread has ended, between these two.
    let mut reader = csv::Reader::from_path(intervals).unwrap();
    let columns = reader.headers().unwrap().clone();
    let column = |name: &str| columns.iter().position(|column| column == name).unwrap();
    let mut wanted = Vec::new();
    for row in reader.records() {
        let row = row.unwrap();
        let number = |name: &str| row[column(name)].parse::<u64>().unwrap_or(0);
        if number("waker_tid") != 0 && number("waker_tid") != number("tid") {
            let woken_ns = number("start_unix_ns") + number("off_ns");
            let from = (number("waker_pid"), number("waker_tid"));
            wanted.push((woken_ns, from, (number("pid"), number("tid"))));
        }
    }
    let arrows = trace.arrows.iter().map(|(from, to)| {
        let (from, to) = (&trace.slices[*from], &trace.slices[*to]);
        assert_eq!(
            (from.name.as_str(), to.name.as_str()),
            ("wakes", "run queue")
        );
        assert_eq!(from.begin_ns, to.begin_ns);
        (from.begin_ns, from.thread, to.thread)
    });
    let mut arrows: Vec<_> = arrows.collect();
    arrows.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(arrows, wanted);
    assert!(arrows.len() > rows.len() / 2, "{} arrows", arrows.len());
    // Wakers that serve no request have names, too.
    assert!(
        trace.threads.values().all(|name| !name.is_empty()),
        "{:?}",
        trace.threads
    );
    assert!(!trace.processes.is_empty());
}

fn limits_hold_and_are_reported(traced: &Traced, rows: &[Row]) {
    let threshold = rows.iter().map(|row| row.latency_ns).max().unwrap() / 2;
    let slow = format!("{threshold}ns");
    let [_, file] = traced.report(&["--slower-than", &slow]);
    let trace = perfetto::read(&file).unwrap();
    let kept = rows
        .iter()
        .filter(|row| row.latency_ns >= threshold)
        .count();
    assert_eq!(of(&trace.slices, "request").count(), kept);
    let mut command = reqtrace::command(["report", "--max-rows", "3", "--perfetto"]).unwrap();
    command.arg(&file).arg(traced.file(3));
    let outcome = reqtrace::run(command).unwrap();
    let trace = perfetto::read(&file).unwrap();
    assert_eq!(of(&trace.slices, "request").count(), 3);
    let printed = outcome.printed();
    assert!(printed.contains("perfetto_beyond_limit"), "{printed}");
}

fn of<'a>(slices: &'a [Slice], category: &str) -> impl Iterator<Item = &'a Slice> {
    slices
        .iter()
        .filter(move |slice| slice.category == category)
}
