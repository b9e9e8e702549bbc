//! Five seconds of each target; `cargo xtask fuzz NAME` runs longer.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use reqtrace_fuzz::{by_name, run};

#[track_caller]
fn short(name: &str) {
    let run = run(&by_name(name).unwrap(), Duration::from_secs(5), 4711).unwrap();
    println!(
        "{name}: {} inputs, the longest {:?}",
        run.inputs, run.longest
    );
    assert!(run.inputs > 100, "{}", run.inputs);
    if let Some((input, what)) = run.found {
        let path = std::env::temp_dir().join(format!("found-{name}"));
        std::fs::write(&path, input).unwrap();
        panic!("{} {what}", path.display());
    }
}

#[test]
fn profile() {
    short("profile");
}

#[test]
fn elf() {
    short("elf");
}

#[test]
fn perf_map() {
    short("perf-map");
}

#[test]
fn maps() {
    short("maps");
}

#[test]
fn ring() {
    short("ring");
}

#[test]
fn recording() {
    short("recording");
}
