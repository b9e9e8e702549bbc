//! `reqtrace doctor`: all is well here for root, and whatever is taken away is named with what to
//! do about it and exit code 3.
//!
//! Needs root and a kernel with BPF.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use reqtrace_tests::reqtrace::{self, Outcome};
use reqtrace_tests::workspace;
use tempfile::TempDir;

/// Runs reqtrace's `doctor` behind another program.
fn behind(program: &str, args: &[&str], folder: &TempDir) -> Outcome {
    let mut command = Command::new(workspace::program(program).unwrap());
    command.args(args).arg(copy(folder)).arg("doctor");
    command.current_dir(folder.path());
    reqtrace::run(command).unwrap()
}

/// A copy of reqtrace that everybody may run.
fn copy(folder: &TempDir) -> std::path::PathBuf {
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let to = folder.path().join("reqtrace");
    workspace::copy_program(&workspace::reqtrace().unwrap(), &to).unwrap();
    to
}

/// The line about a subject, and the one after it.
#[track_caller]
fn line<'a>(outcome: &'a Outcome, subject: &str) -> (&'a str, &'a str) {
    let mut lines = outcome.stdout.lines();
    let line = lines.find(|line| line.contains(subject));
    let line = line.unwrap_or_else(|| panic!("nothing on {subject}: {}", outcome.printed()));
    (line, lines.next().unwrap_or_default())
}

#[track_caller]
fn missing(outcome: &Outcome, subject: &str, words: &[&str]) {
    assert_eq!(outcome.code, Some(3), "{}", outcome.printed());
    let (line, next) = line(outcome, subject);
    assert!(line.starts_with("missing "), "{line}");
    assert!(next.trim_start().starts_with("next: "), "{line}\n{next}");
    for word in words {
        assert!(
            line.contains(word) || next.contains(word),
            "{word}: {line}\n{next}"
        );
    }
    assert!(outcome.stderr.contains(subject), "{}", outcome.stderr);
    assert!(!outcome.stdout.contains("can trace here"));
}

#[test]
fn root_can_trace_here() {
    let outcome = reqtrace::run(reqtrace::command(["doctor"]).unwrap()).unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    for subject in [
        "architecture",
        "kernel",
        "type information",
        "tracepoints",
        "uprobes",
        "capabilities",
        "PID namespace",
        "kernel programs",
        "probes",
    ] {
        let (line, _) = line(&outcome, subject);
        assert!(line.starts_with("ok "), "{line}");
    }
    assert!(
        outcome.stdout.contains("reqtrace can trace here"),
        "{}",
        outcome.stdout
    );
    assert_eq!(outcome.stderr, "");
}

#[test]
fn another_user_is_told_to_be_root() {
    let folder = tempfile::tempdir().unwrap();
    let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let args = [&user[..], &["--inh-caps=-all", "--"]].concat();
    let outcome = behind("setpriv", &args, &folder);
    missing(
        &outcome,
        "capabilities",
        &["CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "sudo"],
    );
}

#[test]
fn a_root_without_a_capability_is_told_which() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace", "--"];
    let outcome = behind("setpriv", &args, &folder);
    missing(
        &outcome,
        "capabilities",
        &["CAP_SYS_PTRACE missing", "--cap-add SYS_PTRACE"],
    );
    let (line, _) = line(&outcome, "capabilities");
    assert!(!line.contains("CAP_BPF"), "{line}");
}

#[test]
fn another_pid_namespace_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = behind("unshare", &["--fork", "--pid", "--mount-proc"], &folder);
    missing(&outcome, "PID namespace", &["pid:[", "--pid=host"]);
}

#[test]
fn type_information_that_is_none() {
    let folder = workspace::scratch().unwrap();
    let whole = std::fs::read("/sys/kernel/btf/vmlinux").unwrap();
    let cut = folder.path().join("cut");
    std::fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    for file in [
        cut.to_str().unwrap(),
        empty.to_str().unwrap(),
        "/nonexistent",
        "/etc/passwd",
    ] {
        let mut command = reqtrace::command(["doctor"]).unwrap();
        command.env("REQTRACE_BTF", file);
        let outcome = reqtrace::run(command).unwrap();
        missing(&outcome, "type information", &[file, "REQTRACE_BTF"]);
        assert!(
            outcome.stdout.contains("was not tried"),
            "{}",
            outcome.stdout
        );
    }
}
