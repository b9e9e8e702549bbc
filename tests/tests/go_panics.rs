//! Functions of Go that are requests and panic: whoever recovers from that, each has the end that it has had.
//!
//! Requests of `net/http` that panic are in `goroutines`. Needs root, a kernel with BPF, and Go.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use reqtrace_tests::goroutines::{self, VERSIONS};
use reqtrace_tests::reqtrace::{self, Trace};
use reqtrace_tests::workspace;

use crate::goroutines::is_answered;

/// Requests for each path.
const EACH: u64 = 50;

/// Functions of the example: see its `http.go`.
const FUNCTIONS: [&str; 3] = ["guarded", "falls", "exits"];

fn profile() -> String {
    let mut text = "[profile]\nname = \"panics\"\n[runtime]\nkind = \"go\"\n".to_owned();
    for name in FUNCTIONS {
        text += &format!(
            "[[request]]\nname = \"{name}\"\nkey = \"unit\"\nbegin = {{ function = \"main.{name}\" }}\n\
             end = {{ function = \"main.{name}\", at = \"return\" }}\n"
        );
    }
    text
}

fn each_function_has_its_end(program: &Path) {
    let profile_of_http = workspace::root().join("profiles/go-http.toml");
    let mut command = reqtrace::command(["check", "--profile"]).unwrap();
    let output = command.arg(&profile_of_http).arg(program).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        printed.contains("recover a goroutine goes on behind a panic (instruction)"),
        "{printed}"
    );
    let (server, port) = goroutines::server(program).unwrap();
    let folder = workspace::scratch().unwrap();
    let path = folder.path().join("panics.toml");
    fs::write(&path, profile()).unwrap();
    let trace = Trace::start(&path, server.pid(), &[]).unwrap();
    for _ in 0..EACH {
        assert!(is_answered(port, "/recovers"));
        assert!(is_answered(port, "/falls"));
        assert!(!is_answered(port, "/exits"));
    }
    // The last goroutine ends a moment after its connection.
    thread::sleep(Duration::from_millis(200));
    let outcome = trace.finish().unwrap();
    let summary = outcome.checked().unwrap();
    // One that recovers by itself returns, and one that does not is left there. One that ends its goroutine has no end.
    for (name, ends) in FUNCTIONS.into_iter().zip([EACH, EACH, 0]) {
        let request = summary.request(name).unwrap();
        let printed = outcome.printed();
        assert_eq!(
            [request.begins, request.ends, request.count],
            [EACH, ends, ends],
            "{name}: {printed}"
        );
        let without = (ends < EACH).then(|| ("no end".to_owned(), EACH - ends));
        assert_eq!(request.incomplete, without.into_iter().collect(), "{name}");
        assert_eq!(
            (request.unknown_keys, request.running_elsewhere),
            (Some(0), Some(0)),
            "{name}: {printed}"
        );
    }
}

#[test]
fn each_function_that_panics_has_its_end() {
    each_function_has_its_end(&goroutines::program().unwrap());
}

#[test]
fn each_function_that_panics_has_its_end_by_the_newest_go() {
    let newest = VERSIONS.last().unwrap();
    each_function_has_its_end(&goroutines::build_by_version(newest, &[]).unwrap());
}

/// Toolchains that only `cargo xtask test --all` installs.
#[test]
#[ignore]
fn each_function_that_panics_has_its_end_by_each_version_of_go() {
    for version in VERSIONS {
        for options in [&[][..], &["-ldflags=-s -w"]] {
            println!("Go {version} {options:?}");
            each_function_has_its_end(&goroutines::build_by_version(version, options).unwrap());
        }
    }
}
