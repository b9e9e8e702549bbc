//! `-m`, `-M`, `--state` and `--histogram` on a service whose blocks are known: stacks hold the
//! blocks that were asked for, and the ledger all of them.
//!
//! Needs root, a kernel with BPF and g++.

use std::thread;
use std::time::Duration;

use reqtrace_tests::fixtures::{Fixture, write_profile};
use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::{rows, workspace};
use serde_json::Value;

const CALLS: u64 = 20;
const MS: u64 = 1_000_000;

/// Traces the service with some options; everything but the stacks must be as without them.
fn trace(more: &[&str]) -> Outcome {
    trace_and_sleeps(more).0
}

/// The same, with how many of the sleeps were blocks.
fn trace_and_sleeps(more: &[&str]) -> (Outcome, u64) {
    let fixture = Fixture::start("blocks", &[&CALLS.to_string()]).unwrap();
    let profile = fixture.profile("handle", "nest").unwrap();
    let (outcome, printed) = fixture.traced(&profile, more).unwrap();
    outcome.checked().unwrap();
    let rows = outcome.rows().unwrap();
    assert_eq!(rows.len() as u64, CALLS);
    assert!(rows::sum(&rows, "sleep") >= CALLS * 100 * MS);
    assert!(rows::sum(&rows, "process") >= CALLS * MS);
    let sleeps = printed.strip_prefix("done ").unwrap().parse().unwrap();
    (outcome, sleeps)
}

/// Whether a function is in the folded stacks.
fn has(outcome: &Outcome, functions: [&str; 3]) -> [bool; 3] {
    functions.map(|name| outcome.stack_with(&[name]).unwrap().is_some())
}

const ALL: [&str; 3] = ["short_sleep", "long_sleep", "vfork"];

#[test]
fn blocks_are_chosen_by_their_length() {
    assert_eq!(has(&trace(&[]), ALL), [true, true, true]);
    let long = trace(&["-m", "90000"]);
    assert_eq!(has(&long, ALL), [false, true, false]);
    let printed = long.printed();
    assert!(
        printed.contains("Stacks: only blocks of at least 90000 µs"),
        "{printed}"
    );
    assert!(long.flamegraph().unwrap().contains("of at least 90000 µs"));
    assert_eq!(has(&trace(&["-M", "90000"]), ALL), [true, false, true]);
    assert_eq!(
        has(&trace(&["-m", "200000000"]), ALL),
        [false, false, false]
    );
}

#[test]
fn blocks_are_chosen_by_the_state_of_the_thread() {
    assert_eq!(has(&trace(&["--state", "1"]), ALL), [true, true, false]);
    assert_eq!(has(&trace(&["--state", "2"]), ALL), [false, false, true]);
    assert_eq!(has(&trace(&["--state", "0x3"]), ALL), [true, true, true]);
    let runnable = trace(&["--state", "0"]);
    let folded = runnable.folded().unwrap();
    assert!(
        folded.lines().all(|line| line.contains(";[preempted] ")),
        "{folded}"
    );
    // Asked for by themselves they have their stacks.
    assert!(
        folded.lines().all(|line| line.split(';').count() > 3),
        "{folded}"
    );
}

/// Timers and child, on CPUs that are busy with others: who was interrupted by the timer has woken
/// nobody, and the child has.
#[test]
fn an_interrupt_is_no_waker() {
    let busy = || {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        Busy(command.spawn().unwrap())
    };
    let cpus = thread::available_parallelism().unwrap().get();
    let busy: Vec<Busy> = (0..cpus).map(|_| busy()).collect();
    let outcome = trace(&[]);
    drop(busy);
    let summary: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let blocks = &summary["requests"][0]["slow"]["longest_blocks"];
    let blocks = blocks.as_array().unwrap();
    let of = |class: &'static str| blocks.iter().filter(move |block| block["class"] == class);
    assert!(
        of("sleep").count() > 0 && of("process").count() > 0,
        "{blocks:#?}"
    );
    assert!(
        of("sleep").all(|block| block["waker"].is_null()),
        "{blocks:#?}"
    );
    for block in of("process") {
        assert!(block["waker"]["pid"].as_u64().unwrap() > 0, "{block:#}");
        assert_ne!(block["waker"]["pid"], block["pid"], "{block:#}");
    }
}

/// A process that is ended with this.
struct Busy(std::process::Child);

impl Drop for Busy {
    fn drop(&mut self) {
        // It has ended when this fails.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn histograms_count_every_block() {
    let (outcome, sleeps) = trace_and_sleeps(&["--histogram"]);
    let rows = outcome.rows().unwrap();
    let summary: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let lengths = summary["requests"][0]["block_lengths"].as_array().unwrap();
    let counts = |class: &str| -> Vec<(u64, u64)> {
        let of_class = lengths.iter().find(|lengths| lengths["class"] == class);
        let counts = of_class.map_or(Vec::new(), |lengths| {
            lengths["counts"].as_array().unwrap().clone()
        });
        let pair = |count: &Value| {
            let number = |key: &str| count[key].as_u64().unwrap();
            (number("from_us"), number("count"))
        };
        counts.iter().map(pair).collect()
    };
    let sum = |counts: &[(u64, u64)]| counts.iter().map(|(_, count)| count).sum::<u64>();

    // Every block and every preemption of the ledgers is in one histogram.
    let blocks: u64 = rows.iter().map(|row| row.blocks).sum();
    let preemptions: u64 = rows.iter().map(|row| row.preemptions).sum();
    let names = lengths
        .iter()
        .map(|lengths| lengths["class"].as_str().unwrap());
    let counted: u64 = names
        .filter(|class| *class != "preempted")
        .map(|class| sum(&counts(class)))
        .sum();
    assert_eq!(counted, blocks);
    assert_eq!(sum(&counts("preempted")), preemptions);

    // Two sleeps a request: one of at least 1 ms, one of at least 100 ms. The kernel of some machines hides a
    // switch, of which it tells one half at times.
    let sleep = counts("sleep");
    let hidden = outcome.summary().unwrap().unseen() + 1;
    assert!(
        (sleeps - hidden..=sleeps).contains(&sum(&sleep)),
        "{sleeps}: {sleep:?}"
    );
    assert!(sleep.iter().all(|(from, _)| *from >= 512), "{sleep:?}");
    let long = sleep.iter().filter(|(from, _)| *from >= 65_536);
    let long: u64 = long.map(|(_, count)| count).sum();
    assert!((CALLS - hidden..2 * CALLS).contains(&long), "{sleep:?}");
    let printed = outcome.printed();
    assert!(printed.contains("Blocks of `work`: sleep"), "{printed}");
    assert!(
        printed.contains("usecs               : count     distribution"),
        "{printed}"
    );
    let plain = trace(&[]);
    assert!(!plain.printed().contains("distribution"));
}

/// A uretprobe replaces the return address that stands where a request began: that of some requests here,
/// for another tracer comes and goes.
#[test]
fn requests_end_while_a_uretprobe_of_another_tracer_comes_and_goes() {
    let mut fixture = Fixture::start("blocks", &[&CALLS.to_string()]).unwrap();
    let profile = fixture.profile("handle", "nest").unwrap();
    let trace = Trace::start(&profile, fixture.pid(), &[]).unwrap();
    let folder = workspace::scratch().unwrap();
    let other = folder.path().join("other.toml");
    let by_uretprobe = "return-probe = \"uretprobe\"\n";
    write_profile(&other, "other", "handle", by_uretprobe).unwrap();
    let pid = fixture.pid();
    let others = thread::spawn(move || {
        let mut seen = 0;
        for _ in 0..3 {
            let trace = Trace::start(&other, pid, &["-d"]).unwrap();
            thread::sleep(Duration::from_millis(300));
            let outcome = trace.finish().unwrap();
            seen += outcome.summary().unwrap().request("other").unwrap().count;
        }
        seen
    });
    fixture.work().unwrap();
    let seen = others.join().unwrap();
    fixture.end().unwrap();
    let outcome = trace.wait().unwrap();
    outcome.checked().unwrap();
    assert!(seen > 0, "the other tracer saw nothing");
    assert_eq!(outcome.rows().unwrap().len() as u64, CALLS);
    assert!(outcome.rows().unwrap().iter().all(|row| row.complete));
}
