//! Targets that make work for the tracer: it ends in time, says what it left out, and leaves no probe.
//!
//! Needs root, a kernel with BPF and g++.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use reqtrace_tests::fixtures::{compile, write_profile};
use reqtrace_tests::process::{Child, Stream, run};
use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::workspace;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);

/// A target that works until it is told to end.
struct Target {
    child: Child,
    folder: TempDir,
}

impl Target {
    fn start(how: &str) -> Self {
        let folder = workspace::scratch().unwrap();
        let program = compile("unkind", folder.path()).unwrap();
        library(folder.path());
        let mut command = Command::new(program);
        command.arg(how).arg(folder.path());
        let mut child = Child::start(command, folder.path(), "unkind").unwrap();
        child.wait_for_line(Stream::Out, "ready", LIMIT).unwrap();
        Self { child, folder }
    }

    /// Traces it while it is unkind; gives how long the tracer took beyond `seconds` as well.
    fn trace(&mut self, seconds: u64, more: &[&str]) -> (Outcome, Duration) {
        let profile = self.folder.path().join("unkind.toml");
        write_profile(&profile, "work", "handle", "").unwrap();
        let length = seconds.to_string();
        let words = [&[&*length], more].concat();
        let trace = Trace::start(&profile, self.child.pid(), &words).unwrap();
        let begun = Instant::now();
        self.child.tell("go").unwrap();
        let outcome = trace.wait().unwrap();
        let late = begun.elapsed().saturating_sub(Duration::from_secs(seconds));
        (outcome, late)
    }

    /// It is as well as before: it answers, its code has no breakpoint, and it ends by itself.
    fn end(mut self) {
        self.child
            .wait_for_line(Stream::Out, "busy", LIMIT)
            .unwrap();
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.child.pid())).unwrap();
        assert!(maps.contains("unkind"), "{maps}");
        drop(self.child.stdin());
        self.child
            .wait_for_line(Stream::Out, "done 1", LIMIT)
            .unwrap();
        assert!(self.child.wait(LIMIT).unwrap().success());
    }
}

/// A library of 1 MB with one function.
fn library(folder: &Path) {
    let source = folder.join("library.c");
    let text = "const char padding[1000000] = {1};\n\
                void in_library(void (*callback)(void)) { callback(); __asm__ volatile(\"\"); }\n";
    std::fs::write(&source, text).unwrap();
    let mut compiler = Command::new(workspace::program("gcc").unwrap());
    compiler.args(["-O1", "-g", "-shared", "-fPIC", "-o"]);
    run(compiler.arg(folder.join("library.so")).arg(source)).unwrap();
}

/// Each unknown address made the whole map be parsed again: two seconds of tracing took a minute.
#[test]
fn a_perf_map_that_grows_keeps_nobody() {
    let mut target = Target::start("map");
    let (outcome, late) = target.trace(2, &[]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.said());
    assert!(late < Duration::from_secs(12), "{late:?} late");
    assert!(outcome.summary().unwrap().request("work").unwrap().count > 100);
    target.end();
}
