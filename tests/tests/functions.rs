//! `reqtrace functions`: what it finds, counts and writes is held against `reqtrace check` and
//! against what the load was told to do.
//!
//! Needs root and a kernel with BPF for `--count`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use reqtrace_tests::process::{Child, Stream};
use reqtrace_tests::reqtrace::{self, Outcome};
use reqtrace_tests::servers::{self, Server};
use reqtrace_tests::shop::Shop;
use reqtrace_tests::workspace;

fn run(args: &[&str]) -> Outcome {
    reqtrace::run(reqtrace::command(args).unwrap()).unwrap()
}

#[track_caller]
fn found(args: &[&str]) -> String {
    let outcome = run(args);
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    outcome.stdout
}

#[track_caller]
fn refused(args: &[&str], words: &[&str]) {
    let outcome = run(args);
    assert_eq!(outcome.code, Some(2), "{}", outcome.printed());
    for word in words {
        assert!(outcome.stderr.contains(word), "{word}: {}", outcome.stderr);
    }
    assert!(outcome.stderr.contains("next: "), "{}", outcome.stderr);
    assert_eq!(outcome.stdout, "");
}

fn binary(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The profile that `functions` writes is one that `check` takes, in the same program.
#[track_caller]
fn starter_is_accepted(target: &[&str], pattern: &str, begins: &str) -> String {
    let profile = found(&[&["functions"], target, &[pattern, "--as-profile"]].concat());
    assert!(profile.contains(begins), "{profile}");
    let folder = workspace::scratch().unwrap();
    let path = folder.path().join("starter.toml");
    std::fs::write(&path, &profile).unwrap();
    let checked = found(&[&["check", "--profile", binary(&path)], target].concat());
    assert!(checked.contains("begin "), "{checked}");
    profile
}

#[test]
fn a_starter_profile_is_one_that_check_takes() {
    let shop = workspace::shop().unwrap();
    let text = starter_is_accepted(
        &[binary(&shop)],
        "handle_request",
        "begin = { function = \"shop::service::handle_request\" }",
    );
    assert!(text.contains("executables = [\"shop\"]"), "{text}");
    let mariadbd = workspace::program("mariadbd").unwrap();
    starter_is_accepted(
        &[binary(&mariadbd)],
        "dispatch_command",
        "begin = { function = \"dispatch_command\" }",
    );
    let redis = workspace::program("redis-server").unwrap();
    starter_is_accepted(&[binary(&redis)], "processCommand*", "\"processCommand\"");
}

#[test]
fn a_starter_profile_of_a_process_names_the_library() {
    let shop = Shop::open().unwrap();
    let pid = shop.pid().to_string();
    starter_is_accepted(&["-p", &pid], "fdatasync", "object = \"libc.so.6\"");
    starter_is_accepted(&["-p", &pid], "handle_request", "shop::service");
}

#[test]
fn a_process_is_searched_in_all_its_objects() {
    let shop = Shop::open().unwrap();
    let pid = shop.pid().to_string();
    let list = found(&["functions", "-p", &pid, "take_stock"]);
    assert!(list.contains("shop::service::take_stock"), "{list}");
    let list = found(&["functions", "-p", &pid, "fdatasync"]);
    assert!(list.contains("libc.so.6"), "{list}");
    refused(
        &["functions", "-p", &pid, "--object", "libnone.so", "x"],
        &["libnone.so"],
    );
    refused(
        &[
            "functions",
            "-p",
            &pid,
            "--object",
            "libc.so*",
            "take_stock",
        ],
        &["take_stock"],
    );
}

#[test]
fn a_name_that_is_nowhere_and_words_that_make_no_sense() {
    let shop = workspace::shop().unwrap();
    let shop = binary(&shop);
    refused(
        &["functions", shop, "shop::service::handle_reqest"],
        &["handle_reqest", "handle_request"],
    );
    refused(&["functions", shop, "shop:no__such__probe"], &["no__such"]);
    refused(&["functions", shop], &["a pattern"]);
    refused(&["functions"], &["nothing to search"]);
    refused(&["functions", "-p", "1", "a", "b"], &["one pattern"]);
    refused(&["functions", shop, ""], &["empty"]);
    refused(&["functions", "/nonexistent", "x"], &["/nonexistent"]);
    refused(&["functions", shop, "x", "--count", "soon"], &["soon"]);
}

#[test]
fn a_wildcard_over_a_large_server_is_cut_or_refused_with_the_count() {
    let mariadbd = workspace::program("mariadbd").unwrap();
    let mariadbd = binary(&mariadbd);
    let list = found(&["functions", mariadbd, "*", "--limit", "7"]);
    let total: usize = list
        .lines()
        .find_map(|line| line.split_once(" functions"))
        .map(|(count, _)| count.replace(',', "").parse().unwrap())
        .unwrap();
    assert!(total > 10_000, "{list}");
    let listed = list.lines().filter(|line| line.contains("  0x")).count();
    assert_eq!(listed, 7, "{list}");
    let rest = list
        .lines()
        .find_map(|line| line.split_once(" more are not listed"))
        .map(|(count, _)| count.replace(',', "").parse::<usize>().unwrap());
    assert_eq!(rest, Some(total - 7), "{list}");
    let count = list
        .lines()
        .find(|line| line.contains(" functions"))
        .unwrap();
    let count = count.split(' ').next().unwrap();
    refused(&["functions", mariadbd, "*", "--as-profile"], &[count]);
    refused(
        &["functions", mariadbd, "*", "--count", "1"],
        &[count, "512"],
    );
}

#[test]
fn hits_are_counted_exactly() {
    let server = Server::redis().unwrap();
    let other = Server::redis().unwrap();
    let pid = server.pid().to_string();
    let folder = workspace::scratch().unwrap();
    let mut command =
        reqtrace::command(["functions", "-p", &pid, "call", "--count", "60"]).unwrap();
    command.args(["--object", "*redis*"]);
    let mut counting = Child::start(command, folder.path(), "reqtrace").unwrap();
    wait_for_probe(&mut counting);
    server
        .redis_benchmark(&["-t", "set", "-n", "1000", "-c", "4", "-q"])
        .unwrap();
    // Another process of the same program is not counted.
    other
        .redis_benchmark(&["-t", "set", "-n", "500", "-c", "4", "-q"])
        .unwrap();
    counting.signal(libc::SIGINT).unwrap();
    let status = counting.wait(Duration::from_secs(60)).unwrap();
    assert!(status.success(), "{}", counting.output(Stream::Err));
    let text = counting.output(Stream::Out);
    // 1000 commands of the load, and the two settings that it asks for.
    let line = text.lines().find(|line| line.ends_with("  call")).unwrap();
    assert_eq!(line.split_whitespace().next(), Some("1,002"), "{text}");
    assert!(text.contains(" were hit in "), "{text}");
}

#[test]
fn a_count_is_cut_to_the_limit() {
    let shop = Shop::open().unwrap();
    let pid = shop.pid().to_string();
    let args = ["functions", "-p", &pid, "shop::service::*"];
    let more = ["--count", "30", "--limit", "2"];
    let folder = workspace::scratch().unwrap();
    let command = reqtrace::command([args, more].concat()).unwrap();
    let mut counting = Child::start(command, folder.path(), "reqtrace").unwrap();
    wait_for_probe(&mut counting);
    shop.load(2, 100).unwrap();
    counting.signal(libc::SIGINT).unwrap();
    assert!(counting.wait(Duration::from_secs(60)).unwrap().success());
    let text = counting.output(Stream::Out);
    let rows = text.lines().filter(|line| line.contains("shop::service::"));
    assert_eq!(rows.count(), 2, "{text}");
    assert!(text.contains("more"), "{text}");
}

/// Its first instruction is `lock decl`, which no kernel probes.
#[test]
fn a_function_that_cannot_be_probed_is_named_and_the_others_are_counted() {
    let shop = Shop::open().unwrap();
    let pid = shop.pid().to_string();
    let count = |pattern| run(&["functions", "-p", &pid, pattern, "--count", "0.2"]);
    let outcome = count("pthread_spin_*");
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let printed = outcome
        .stderr
        .lines()
        .find(|line| line.contains("left out"));
    let printed = printed.unwrap_or_else(|| panic!("{}", outcome.printed()));
    assert!(printed.contains("pthread_spin_lock"), "{printed}");
    assert!(
        outcome.stdout.contains("0 of 3 were hit"),
        "{}",
        outcome.stdout
    );
    // Alone it is an error, with what to do.
    let outcome = count("pthread_spin_lock");
    assert_eq!(outcome.code, Some(1), "{}", outcome.printed());
    let why = "the kernel does not probe the instruction";
    assert!(outcome.stderr.contains(why), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("next: "), "{}", outcome.stderr);
}

/// Waits until reqtrace has its probes set and sleeps.
fn wait_for_probe(counting: &mut Child) {
    let line = counting.wait_for_line(Stream::Err, "counting ", Duration::from_secs(60));
    line.unwrap();
}

#[test]
fn counting_needs_privileges_and_says_which() {
    let shop = workspace::shop().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let copy = |from: &Path, name: &str| {
        let to = folder.path().join(name);
        workspace::copy_program(from, &to).unwrap();
        to
    };
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), mode).unwrap();
    let program = copy(&workspace::reqtrace().unwrap(), "reqtrace");
    let shop = copy(&shop, "shop");
    let mut command = Command::new(workspace::program("setpriv").unwrap());
    command
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .args(["--inh-caps=-all", "--"])
        .arg(program)
        .args(["functions", binary(&shop), "handle_request", "--count", "1"])
        .current_dir(folder.path());
    let outcome = reqtrace::run(command).unwrap();
    assert_eq!(outcome.code, Some(3), "{}", outcome.printed());
    assert!(outcome.stderr.contains("CAP_BPF"), "{}", outcome.stderr);
}

#[test]
fn a_truncated_program_is_an_error_never_a_panic() {
    let whole = std::fs::read(workspace::shop().unwrap()).unwrap();
    let folder = workspace::scratch().unwrap();
    let path = folder.path().join("cut");
    // From the first bytes of the header to one byte less than all.
    let lengths = (0..8)
        .map(|n| n * 9)
        .chain((1..16).map(|n| whole.len() / 16 * n))
        .chain([whole.len() - 1, whole.len() - 700]);
    for length in lengths {
        std::fs::write(&path, &whole[..length]).unwrap();
        let outcome = run(&["functions", binary(&path), "handle_request"]);
        assert!(
            matches!(outcome.code, Some(1 | 2)),
            "{length}: {}",
            outcome.printed()
        );
        assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
        assert!(
            outcome.stderr.starts_with("reqtrace: "),
            "{}",
            outcome.stderr
        );
    }
}

#[test]
fn malformed_notes_are_counted_and_the_others_found() {
    let postgres = &servers::postgresql("postgres").unwrap();
    let mut bytes = std::fs::read(postgres).unwrap();
    let pattern = "postgresql:query__*";
    assert!(found(&["functions", binary(postgres), pattern]).contains("10 USDT probes"));
    // The place of the first probe is outside of the code: that note alone is left out.
    let owner = b"stapsdt\0";
    let first = bytes
        .windows(owner.len())
        .position(|at| at == owner)
        .unwrap();
    bytes[first + 8..first + 16].fill(0xff);
    let folder = workspace::scratch().unwrap();
    let path = folder.path().join("postgres");
    std::fs::write(&path, &bytes).unwrap();
    let list = found(&["functions", binary(&path), pattern]);
    assert!(list.contains("1 USDT notes of "), "{list}");
    // Its size is beyond the section: nothing that follows can be found, which is no crash.
    bytes[first - 8..first - 4].fill(0xff);
    std::fs::write(&path, &bytes).unwrap();
    let outcome = run(&["functions", binary(&path), pattern]);
    assert_eq!(outcome.code, Some(2), "{}", outcome.printed());
}

#[test]
fn probes_of_postgresql_are_counted_through_their_semaphores() {
    let server = Server::postgresql().unwrap();
    let mut session = server.session("counted").unwrap();
    let pid = server.pid().to_string();
    let folder = workspace::scratch().unwrap();
    let command =
        reqtrace::command(["functions", "-p", &pid, "query__start", "--count", "60"]).unwrap();
    let mut counting = Child::start(command, folder.path(), "reqtrace").unwrap();
    wait_for_probe(&mut counting);
    for number in 0..7 {
        session.tell(&format!("select 'answer {number}';")).unwrap();
    }
    let last = session.wait_for_line(Stream::Out, "answer 6", Duration::from_secs(60));
    last.unwrap();
    counting.signal(libc::SIGINT).unwrap();
    counting.wait(Duration::from_secs(60)).unwrap();
    let text = counting.output(Stream::Out);
    let line = text
        .lines()
        .find(|line| line.ends_with("  postgresql:query__start"));
    let line = line.unwrap_or_else(|| panic!("{text}{}", counting.output(Stream::Err)));
    assert_eq!(line.split_whitespace().next(), Some("7"), "{text}");
}
