//! Every target reads its corpus and some mutations of it; `cargo xtask test --all` gives each five seconds, and
//! `cargo xtask fuzz NAME` as long as you like.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use reqtrace_fuzz::{all, by_name, corpus, run};

/// How long inputs are made of the corpus in each run of the tests.
const SHORT: Duration = Duration::from_millis(500);

#[track_caller]
fn fuzz(name: &str, time: Duration) {
    let target = by_name(name).unwrap();
    let seeds = corpus(&target).unwrap().len() as u64;
    let run = run(&target, time, 4711).unwrap();
    println!(
        "{name}: {} inputs, the longest {:?}",
        run.inputs, run.longest
    );
    assert!(run.inputs > seeds, "{} of {seeds}", run.inputs);
    if let Some((input, what)) = run.found {
        let path = std::env::temp_dir().join(format!("found-{name}"));
        std::fs::write(&path, input).unwrap();
        panic!("{} {what}", path.display());
    }
}

#[test]
fn profile() {
    fuzz("profile", SHORT);
}

#[test]
fn elf() {
    fuzz("elf", SHORT);
}

#[test]
fn perf_map() {
    fuzz("perf-map", SHORT);
}

#[test]
fn maps() {
    fuzz("maps", SHORT);
}

#[test]
fn ring() {
    fuzz("ring", SHORT);
}

#[test]
fn recording() {
    fuzz("recording", SHORT);
}

#[test]
#[ignore = "half a minute: cargo xtask test --all"]
fn each_for_five_seconds() {
    for target in all() {
        fuzz(target.name, Duration::from_secs(5));
    }
}

#[test]
fn payload() {
    fuzz("payload", SHORT);
}
