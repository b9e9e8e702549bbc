//! Every mistake that a user can make has its exit code, and its message names what was wrong.
//!
//! Exit codes: 2 bad usage or bad profile, 3 not permitted or the machine lacks something. Most
//! need root, because what is not permitted is found first otherwise.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use reqtrace_tests::fixtures::{self, Fixture};
use reqtrace_tests::reqtrace::{self, Outcome};
use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::workspace;
use tempfile::TempDir;

/// The largest number of a process that Linux allows is one less.
const NO_PID: &str = "4194304";

/// A duration that no test waits for: each of these runs must end long before.
const NEVER: &str = "600";

/// Runs reqtrace; it must end with `code` and say at least one of each list of words.
#[track_caller]
fn expect(command: Command, code: i32, words: &[&[&str]]) -> Outcome {
    let outcome = reqtrace::run(command).unwrap();
    assert_eq!(outcome.code, Some(code), "{}", outcome.printed());
    let printed = outcome.stderr.to_lowercase();
    for alternatives in words {
        let found = alternatives
            .iter()
            .any(|word| printed.contains(&word.to_lowercase()));
        assert!(found, "none of {alternatives:?} in: {}", outcome.stderr);
    }
    assert!(!printed.contains("panicked"), "{}", outcome.stderr);
    assert_eq!(outcome.stdout, "", "an error belongs on standard error");
    outcome
}

/// `reqtrace --profile PROFILE -p PID 600`.
fn trace(profile: &Path, pid: &str) -> Command {
    let mut command = reqtrace::command(["--profile"]).unwrap();
    command.arg(profile).args(["-p", pid, NEVER]);
    command
}

/// `reqtrace check --profile PROFILE BINARY`.
fn check(profile: &Path, binary: &Path) -> Command {
    let mut command = reqtrace::command(["check", "--profile"]).unwrap();
    command.arg(profile).arg(binary);
    command
}

/// A file with that content.
fn file(folder: &TempDir, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    path
}

#[test]
fn no_such_process() {
    expect(trace(&shop::profile(), NO_PID), 2, &[&[NO_PID]]);
}

#[test]
fn profile_not_found() {
    let missing = Path::new("/nonexistent/nothing.toml");
    expect(trace(missing, NO_PID), 2, &[&["nothing"]]);
    // The name of no built-in profile: those that there are are listed.
    expect(
        trace(Path::new("mysqll"), NO_PID),
        2,
        &[&["mysqll"], &["mysql.toml", "mysql"]],
    );
}

#[test]
fn malformed_profile() {
    let folder = workspace::scratch().unwrap();
    let broken = file(
        &folder,
        "broken.toml",
        "[profile]\nname = \"x\"\n[[request\n",
    );
    expect(trace(&broken, NO_PID), 2, &[&["broken.toml"], &["3"]]);
}

#[test]
fn unknown_key_with_suggestion() {
    let folder = workspace::scratch().unwrap();
    let path = folder.path().join("typo.toml");
    fixtures::write_profile(&path, "work", "work", "reentri = \"nest\"\n").unwrap();
    expect(
        trace(&path, NO_PID),
        2,
        &[&["typo.toml"], &["reentri"], &["reentry"], &["7"]],
    );
}

#[test]
fn function_missing_names_the_nearest() {
    let folder = workspace::scratch().unwrap();
    let path = folder.path().join("missing.toml");
    fixtures::write_profile(&path, "work", "shop::service::handle_reqest", "").unwrap();
    let shop = Shop::open().unwrap();
    let words: &[&[&str]] = &[&["handle_reqest"], &["handle_request"]];
    expect(trace(&path, &shop.pid().to_string()), 2, words);
    expect(check(&path, &workspace::shop().unwrap()), 2, words);
}

#[test]
fn ambiguous_function_lists_the_candidates() {
    let fixture = Fixture::start("overloads", &[]).unwrap();
    let profile = fixture.profile("work", "nest").unwrap();
    let words: &[&[&str]] = &[&["work(int)"], &["work(long)"]];
    expect(trace(&profile, &fixture.pid().to_string()), 2, words);

    // A signature is not ambiguous.
    let binary = PathBuf::from(format!("/proc/{}/exe", fixture.pid()));
    let exact = fixture.profile("work(long)", "restart").unwrap();
    let outcome = reqtrace::run(check(&exact, &binary)).unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    fixture.end().unwrap();
}

#[test]
fn a_script_is_no_binary() {
    let folder = workspace::scratch().unwrap();
    let script = file(&folder, "service.sh", "#!/bin/sh\nexec sleep 1\n");
    expect(
        check(&shop::profile(), &script),
        2,
        &[&["service.sh"], &["script", "#!"]],
    );
}

#[test]
fn another_architecture() {
    let folder = workspace::scratch().unwrap();
    let binary = file(&folder, "foreign", aarch64_program());
    expect(
        check(&shop::profile(), &binary),
        3,
        &[&["aarch64", "architecture"]],
    );
}

/// The smallest ELF file that says it is for 64-bit ARM: a header, no segments, no sections.
fn aarch64_program() -> Vec<u8> {
    let mut elf = b"\x7fELF".to_vec();
    elf.extend([2, 1, 1, 0]); // 64 bits, little endian, version 1, System V
    elf.extend([0; 8]);
    elf.extend(2_u16.to_le_bytes()); // ET_EXEC
    elf.extend(183_u16.to_le_bytes()); // EM_AARCH64
    elf.extend(1_u32.to_le_bytes());
    elf.extend([0; 8 * 3]); // entry, program headers, section headers
    elf.extend([0; 4]); // flags
    elf.extend(64_u16.to_le_bytes()); // size of this header
    elf.extend(56_u16.to_le_bytes()); // size of a program header
    elf.extend(0_u16.to_le_bytes());
    elf.extend(64_u16.to_le_bytes()); // size of a section header
    elf.extend([0; 4]);
    assert_eq!(elf.len(), 64);
    elf
}

#[test]
fn output_that_cannot_be_written() {
    let folder = workspace::scratch().unwrap();
    let shop = Shop::open().unwrap();
    let pid = shop.pid().to_string();
    // Below a file there is no folder, for root neither. The trace would take ten minutes, for which
    // the harness does not wait: it must be found out before.
    let taken = file(&folder, "taken", "");
    for option in ["--out", "--csv", "--folded", "--flamegraph", "--json"] {
        let mut command = trace(&shop::profile(), &pid);
        command.arg(option).arg(taken.join("x"));
        expect(command, 2, &[&["taken"], &["next:"]]);
    }
    assert_eq!(fs::read(&taken).unwrap(), b"");
}

#[test]
fn kernel_without_btf() {
    let shop = Shop::open().unwrap();
    let mut command = trace(&shop::profile(), &shop.pid().to_string());
    command.env("REQTRACE_BTF", "/nonexistent");
    expect(command, 3, &[&["BTF"], &["/nonexistent"]]);
}

#[test]
fn not_root() {
    // The program may be in a folder that nobody else may enter.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let binary = folder.path().join("reqtrace");
    workspace::copy_program(&workspace::reqtrace().unwrap(), &binary).unwrap();
    let profile = folder.path().join("shop.toml");
    fs::copy(shop::profile(), &profile).unwrap();

    let shop = Shop::open().unwrap();
    let mut command = Command::new(workspace::program("setpriv").unwrap());
    command
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .args(["--inh-caps=-all", "--"])
        .arg(&binary)
        .arg("--profile")
        .arg(&profile)
        .args(["-p", &shop.pid().to_string(), NEVER])
        .current_dir(folder.path());
    expect(command, 3, &[&["root", "CAP_BPF", "sudo"]]);
}

#[test]
fn filters_that_make_no_sense() {
    for (more, words) in [
        (vec!["-m", "200", "-M", "100"], "-m less than -m"),
        (vec!["--state", "sleeping"], "a mask of task states"),
        (
            vec!["-m", "100", "--slower-than", "1ms"],
            "give one of the two",
        ),
        (vec!["-m", "-1"], "-1"),
    ] {
        let mut command = reqtrace::command(["--profile", "mysql", "-p", "1"]).unwrap();
        command.args(&more);
        expect(command, 2, &[&[words]]);
    }
    let mut command = reqtrace::command(["--profile", "mysql", "-p", "1"]).unwrap();
    command.arg("2h");
    expect(command, 2, &[&["`2h`"], &["500ms"]]);
}

#[test]
fn words_that_are_not_what_was_meant() {
    // A PID without -p.
    let mut command = reqtrace::command(["--profile", "mysql"]).unwrap();
    command.args(["25996", "1"]);
    expect(command, 2, &[&["no -p before 25996"], &["-p 25996 1"]]);

    // What is traced is looked at after the options were read.
    let mut command = reqtrace::command(["--profile", "mysql", "-p", NO_PID]).unwrap();
    command.args(["--duration", "3"]);
    expect(command, 2, &[&[NO_PID]]);
    for (words, printed) in [
        (vec!["--duration", "soon"], "a duration is above 0"),
        (vec!["5", "--duration", "3"], "two durations"),
    ] {
        let mut command = reqtrace::command(["--profile", "mysql", "-p", "1"]).unwrap();
        command.args(&words);
        expect(command, 2, &[&[printed]]);
    }
}

#[test]
fn an_object_that_is_named_is_not_to_be_named() {
    let folder = workspace::scratch().unwrap();
    let path = folder.path().join("imported.toml");
    fixtures::write_profile(&path, "work", "posix_memalign", "").unwrap();
    let program = workspace::shop().unwrap();
    expect(check(&path, &program), 2, &[&["set object ="]]);
    let shop = Shop::open().unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let named = text.replace(
        "\"posix_memalign\"",
        "\"posix_memalign\", object = \"shop\"",
    );
    fs::write(&path, named).unwrap();
    let outcome = expect(
        trace(&path, &shop.pid().to_string()),
        2,
        &[&["which the process has mapped", "add object = \"libc.so.6\""]],
    );
    assert!(!outcome.stderr.contains("set object"), "{}", outcome.stderr);
}
