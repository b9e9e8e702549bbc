//! Stacks of what changes while it is traced: libraries that are loaded, programs that call exec,
//! children, probes of others, threads preempted at a probe.
//!
//! Needs root, a kernel with BPF, and a C compiler.

use std::process::Command;

use reqtrace_tests::corpus::{self, PROGRAMS};
use reqtrace_tests::process::{Child, Stream};
use reqtrace_tests::programs::{
    BLOCK, LIMIT, REQUESTS, compile, named, profile, seen, start, trace,
};
use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::workspace;

/// A library that comes in the middle of a request, of a process that is gone at the report.
#[test]
fn a_library_loaded_in_a_request_has_its_names_and_tables() {
    let folder = workspace::scratch().unwrap();
    let at = folder.path();
    compile(at, "loader.lib.c", "loaded.so", &["-shared", "-fPIC"]);
    let library = format!("-DLIBRARY=\"{}\"", at.join("loaded.so").display());
    compile(at, "loader.c", "loader", &[&library]);
    let mut child = start(at, "loader");
    let pid = child.pid();
    let outcome = trace(&mut child, pid, &profile(at, "request", ""), &[]);
    // The very first block in it may come before its tables do.
    named(&outcome, "main;request;from_a_library;block", REQUESTS - 1);
}

#[test]
fn a_program_that_calls_exec_has_the_names_of_the_new_one() {
    let folder = workspace::scratch().unwrap();
    let at = folder.path();
    compile(at, "replaced.c", "replaced", &["-s"]);
    let mut command = Command::new(at.join("replaced"));
    // One before exec, the others after it. The first block after it may come before its tables do.
    command.arg((REQUESTS - 1).to_string());
    let mut child = Child::start(command, at, "replaced").unwrap();
    child.wait_for_line(Stream::Out, "chain: ", LIMIT).unwrap();
    let pid = child.pid();
    let outcome = trace(&mut child, pid, &profile(at, "request", ""), &[]);
    named(&outcome, "request;block", REQUESTS - 1);
    let unwinding = outcome.summary().unwrap().unwinding;
    let others = seen(&outcome) - 1;
    assert!(unwinding.whole_ns >= others * BLOCK * 1000, "{unwinding:?}");
}

#[test]
fn children_have_whole_stacks_from_their_first_request_on() {
    let folder = workspace::scratch().unwrap();
    let at = folder.path();
    compile(at, "children.c", "children", &["-s"]);
    let mut child = start(at, "children");
    let pid = child.pid();
    let outcome = trace(&mut child, pid, &profile(at, "request", ""), &[]);
    named(&outcome, "request;block", REQUESTS);
    outcome.has_whole_stacks().unwrap();
}

/// Behind a breakpoint and in the copy of the probed instruction a thread is in no place that has
/// unwind information; the kernel knows where it really is.
#[test]
fn a_thread_preempted_on_its_way_over_a_probe_has_its_whole_stack() {
    let folder = workspace::scratch().unwrap();
    let at = folder.path();
    compile(at, "busy.c", "busy", &["-s", "-pthread"]);
    for more in ["", "return-probe = \"uretprobe\"\n"] {
        let mut command = Command::new(at.join("busy"));
        command.arg("1");
        let mut child = Child::start(command, at, "busy").unwrap();
        child.wait_for_line(Stream::Out, "chain: ", LIMIT).unwrap();
        let trace = Trace::start(
            &profile(at, "request", more),
            child.pid(),
            &["-d", "--preempted-stacks"],
        )
        .unwrap();
        child.tell("go").unwrap();
        assert!(child.wait(LIMIT).unwrap().success());
        let outcome = trace.wait().unwrap();
        let folded = outcome.folded().unwrap();
        let at_a_probe = folded.lines().filter(|line| line.contains("int3")).count();
        assert!(at_a_probe > 0, "it did not happen: {folded}");
        assert!(!folded.contains("[truncated: "), "{folded}");
        assert!(!folded.contains("[uprobes"), "{folded}");
    }
}

/// Two tracers with uretprobes, one of them on a function that calls itself: more of them than the
/// kernel nests.
#[test]
fn callers_are_seen_through_nested_uretprobes_of_two_tracers() {
    let folder = workspace::scratch().unwrap();
    let at = folder.path();
    let program = PROGRAMS
        .iter()
        .find(|program| program.name == "recursion")
        .unwrap()
        .build(at)
        .unwrap();
    let mut child = start(at, "recursion");
    let pid = child.pid();
    let by_uretprobe = "return-probe = \"uretprobe\"\n";
    let other = Trace::start(&profile(at, "descend", by_uretprobe), pid, &[]).unwrap();
    let outcome = trace(&mut child, pid, &profile(at, "request", by_uretprobe), &[]);
    let other = other.wait().unwrap();
    assert_eq!(other.code, Some(0), "{}", other.printed());
    let mut chain = program.chain.clone();
    chain.reverse();
    named(&outcome, &format!("main;{}", chain.join(";")), REQUESTS);
    outcome.has_whole_stacks().unwrap();
}

/// A uretprobe of another tool replaces the return address that stands where a request began.
#[test]
fn requests_end_beside_a_uretprobe_of_another_tracer() {
    let folder = workspace::scratch().unwrap();
    let at = folder.path();
    let recursion = |program: &&corpus::Program| program.name == "recursion";
    PROGRAMS.iter().find(recursion).unwrap().build(at).unwrap();
    let mut child = start(at, "recursion");
    let pid = child.pid();
    let by_uretprobe = "return-probe = \"uretprobe\"\n";
    let other = Trace::start(&profile(at, "request", by_uretprobe), pid, &[]).unwrap();
    let outcome = trace(&mut child, pid, &profile(at, "request", ""), &[]);
    let other = other.wait().unwrap();
    assert_eq!(other.code, Some(0), "{}", other.printed());
    for outcome in [outcome, other] {
        let summary = outcome.summary().unwrap();
        let request = summary.request("request").unwrap();
        assert_eq!(
            (request.count, request.rows, request.begins),
            (REQUESTS, REQUESTS, REQUESTS),
            "{}",
            outcome.printed()
        );
        assert_eq!(summary.lost(), 0, "{:?}", summary.losses);
    }
}
