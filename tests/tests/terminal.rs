//! What is written to a terminal: lines that fit it, and nothing redrawn where that cannot be done.
//! `script` gives reqtrace a terminal of its own.
//!
//! Needs root, a kernel with BPF, and `script` of util-linux.

use std::process::Command;

use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::{load, reqtrace, workspace};

/// Columns of the terminal.
const COLUMNS: usize = 60;

/// What appears on a terminal of that kind in one second of a trace under load.
fn shown_on(kind: &str) -> String {
    let shop = Shop::open().unwrap();
    let line = format!(
        "stty rows 30 cols {COLUMNS}; {} --profile {} -p {} --histogram 1.5",
        workspace::reqtrace().unwrap().display(),
        shop::profile().display(),
        shop.pid(),
    );
    let mut command = Command::new(workspace::program("script").unwrap());
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    command.env("TERM", kind);
    let shopping = || shop.load(2, 100).map(drop).unwrap();
    let outcome = load::beside(shopping, || reqtrace::run(command).unwrap());
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    outcome.stdout
}

#[test]
fn a_dumb_terminal_gets_lines_that_fit_and_no_escapes() {
    let text = shown_on("dumb");
    assert!(!text.contains('\u{1b}'), "{text:?}");
    assert!(text.contains("Time of `order`"), "{text}");
    assert!(text.contains("on CPU"), "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= COLUMNS, "{line}\n{text}");
    }
}

#[test]
fn the_progress_line_fits_its_terminal() {
    let text = shown_on("xterm");
    // One line that is drawn again and again.
    let redrawn: Vec<&str> = text
        .split(['\r', '\n'])
        .filter(|line| line.contains("Ctrl-C"))
        .collect();
    assert!(redrawn.len() > 1, "{text:?}");
    for line in redrawn {
        let line = line.replace("\u{1b}[2K", "");
        assert!(line.chars().count() <= COLUMNS, "{line:?}");
    }
}
