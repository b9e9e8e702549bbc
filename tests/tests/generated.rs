//! Stacks through code that a runtime generates, with the names that it writes down: Node and Java,
//! as the manual says.
//!
//! Needs root, a kernel with BPF, Node and a JDK.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use reqtrace_tests::process::{Child, Stream, run};
use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::workspace;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);
const CALLS: u64 = 50;
/// Each call waits for so long, in functions that wait for nothing else.
const WAIT_US: u64 = 10_000;

/// A runtime that waits to be told to go, and a profile for what it calls.
struct Runtime {
    child: Child,
    folder: TempDir,
}

impl Runtime {
    fn start(mut command: Command, folder: TempDir, name: &str) -> Self {
        // Node leaves a log of its own in its working directory.
        command.arg(CALLS.to_string()).current_dir(folder.path());
        let mut child = Child::start(command, folder.path(), name).unwrap();
        child.wait_for_line(Stream::Out, "ready", LIMIT).unwrap();
        Self { child, folder }
    }

    fn trace(self, begin: &str) -> Outcome {
        let profile = self.folder.path().join("runtime.toml");
        let text = format!(
            "[profile]\nname = \"runtime\"\n\n[[request]]\nname = \"call\"\nbegin = {{ {begin} }}\n"
        );
        std::fs::write(&profile, text).unwrap();
        let trace = Trace::start(&profile, self.child.pid(), &["--blocked-only"]).unwrap();
        let mut child = self.child;
        child.tell("go").unwrap();
        child.wait_for_line(Stream::Out, "done", LIMIT).unwrap();
        drop(child.stdin());
        child.wait(LIMIT).unwrap();
        let outcome = trace.wait().unwrap();
        assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
        outcome
    }
}

/// Nearly all of the time that was waited for is below the functions, each inside the one before.
#[track_caller]
fn check(outcome: &Outcome, functions: &[&str]) {
    let folded = outcome.folded().unwrap();
    let (mut named, mut all) = (0, 0);
    for line in folded.lines() {
        let (stack, us) = line.rsplit_once(' ').unwrap();
        let us: u64 = us.parse().unwrap();
        all += us;
        let mut frames = stack.split(';');
        if functions
            .iter()
            .all(|function| frames.any(|frame| frame.contains(function)))
        {
            named += us;
        }
    }
    // On a loaded machine a thread may lose its CPU on the way into a wait, whose end is fixed by then.
    assert!(all * 10 >= CALLS * WAIT_US * 9, "only {all} µs\n{folded}");
    assert!(named * 100 >= all * 95, "{named} of {all} µs\n{folded}");
}

#[test]
fn node_functions_are_in_the_stacks() {
    let mut command = Command::new(workspace::program("node").unwrap());
    command.args(["--perf-basic-prof", "--interpreted-frames-native-stack"]);
    command.arg(workspace::root().join("tests/fixtures/blocks.js"));
    // V8 leaves a log where it was started.
    let folder = workspace::scratch().unwrap();
    command.current_dir(folder.path());
    let node = Runtime::start(command, folder, "node");
    let map = format!("/tmp/perf-{}.map", node.child.pid());
    let outcome = node.trace("function = \"node::Environment::RunTimers\"");
    std::fs::remove_file(map).unwrap();
    check(
        &outcome,
        &[
            "node::Environment::RunTimers",
            "handleOrder",
            "innerWait",
            "Builtin_AtomicsWait",
        ],
    );
}

#[test]
fn java_methods_are_in_the_stacks() {
    let folder = workspace::scratch().unwrap();
    let source = workspace::root().join("tests/fixtures/Blocks.java");
    let mut compiler = Command::new(workspace::program("javac").unwrap());
    run(compiler.arg("-d").args([folder.path(), &source])).unwrap();
    let mut command = Command::new(workspace::program("java").unwrap());
    // Methods that are small would be inlined into others, and have no frame of their own.
    command.args([
        "-XX:+PreserveFramePointer",
        "-Xbatch",
        "-XX:CompileCommand=quiet",
    ]);
    command.args([
        "-XX:CompileCommand=dontinline,Blocks::*",
        "-XX:CompileCommand=exclude,Blocks::serve",
        "-cp",
    ]);
    command.args([folder.path(), Path::new("Blocks")]);
    let java = Runtime::start(command, folder, "java");
    let pid = java.child.pid().to_string();
    let mut jcmd = Command::new(workspace::program("jcmd").unwrap());
    run(jcmd.args([&pid, "Compiler.perfmap"])).unwrap();
    let outcome = java.trace("function = \"JVM_Sleep\", object = \"libjvm.so\"");
    std::fs::remove_file(format!("/tmp/perf-{pid}.map")).unwrap();
    // Through interpreted and compiled methods alike, and through the JVM's own functions below them.
    check(
        &outcome,
        &[
            "start_thread",
            "JavaCalls::call_helper",
            "Interpreter",
            "Blocks.handleOrder",
            "Blocks.innerWait",
            "JVM_Sleep",
        ],
    );
}
