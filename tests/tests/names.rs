//! Names that are not where one looks first: debug files in containers, packed symbols, perf maps of
//! generated code, a kernel that hides its own.
//!
//! Needs root, a kernel with BPF, a C compiler, binutils, xz and util-linux.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use reqtrace_tests::process::{Child, Stream, until};
use reqtrace_tests::programs::{
    BLOCK, LIMIT, REQUESTS, compile, execute, named, profile, seen, start, trace,
};
use reqtrace_tests::reqtrace::{command, run};
use reqtrace_tests::workspace;

/// `hidden` with its debug information split off into `debug`.
fn build_hidden(folder: &Path, build: u32, more: &[&str]) {
    let define = format!("-DOTHER_BUILD={build}");
    let flags = [&["-g", "-static", define.as_str()], more].concat();
    compile(folder, "hidden.c", "full", &flags);
    execute(folder, "objcopy", &["--only-keep-debug", "full", "debug"]);
    execute(folder, "objcopy", &["--strip-all", "full", "hidden"]);
}

/// Where the debug file of `full` is looked for in any root.
fn by_build_id(folder: &Path) -> String {
    let notes = execute(folder, "readelf", &["--notes", "full"]);
    let id = notes
        .lines()
        .find_map(|line| line.trim().strip_prefix("Build ID: "))
        .unwrap();
    format!("usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..])
}

/// A container's root with `program` in it.
fn container(folder: &Path, program: &str) -> PathBuf {
    let root = folder.join("root");
    fs::create_dir_all(root.join("tmp")).unwrap();
    workspace::copy_program(&folder.join(program), &root.join(program)).unwrap();
    root
}

/// Starts a program as process 1 of its own namespaces; returns also its id out here.
fn start_contained(folder: &Path, root: &Path, program: &str, more: &[&str]) -> (Child, u32) {
    let mut command = Command::new(workspace::program("unshare").unwrap());
    command
        .args(["--mount", "--pid", "--fork", "--kill-child", "chroot"])
        .arg(root)
        .args([&format!("/{program}"), &REQUESTS.to_string()])
        .args(more);
    let mut child = Child::start(command, folder, program).unwrap();
    child.wait_for_line(Stream::Out, "chain: ", LIMIT).unwrap();
    let children = format!("/proc/{0}/task/{0}/children", child.pid());
    let inside = fs::read_to_string(children)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    (child, inside)
}

#[test]
fn a_debug_file_in_the_containers_root_is_used_for_markers_and_names() {
    let folder = workspace::scratch().unwrap();
    let at = folder.path();
    build_hidden(at, 0, &["-Wl,--build-id=sha1"]);
    let root = container(at, "hidden");
    let place = root.join(by_build_id(at));
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::copy(at.join("debug"), &place).unwrap();
    let (mut child, pid) = start_contained(at, &root, "hidden", &[]);
    let outcome = trace(&mut child, pid, &profile(at, "request", ""), &[]);
    // It knows what was inlined, too.
    named(&outcome, "main;serve;request;inner;block", REQUESTS);
}

#[test]
fn a_debug_file_of_another_build_names_nothing() {
    let folder = workspace::scratch().unwrap();
    let at = folder.path();
    build_hidden(at, 1, &["-Wl,--build-id=sha1"]);
    fs::rename(at.join("debug"), at.join("wrong")).unwrap();
    build_hidden(at, 0, &["-Wl,--build-id=sha1"]);
    let root = container(at, "hidden");
    let place = root.join(by_build_id(at));
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::copy(at.join("wrong"), &place).unwrap();
    let (child, pid) = start_contained(at, &root, "hidden", &[]);
    let functions = ["functions", "-p", &pid.to_string(), "request"];
    let found = run(command(functions).unwrap()).unwrap();
    assert_eq!(found.code, Some(2), "{}", found.printed());
    assert!(
        found.printed().contains("it is of another build"),
        "{}",
        found.printed()
    );
    let mut check = command(["check", "--profile"]).unwrap();
    check.arg(profile(at, "request", ""));
    check.args(["-p", &pid.to_string()]);
    let outcome = run(check).unwrap();
    drop(child);
    assert_eq!(outcome.code, Some(2), "{}", outcome.printed());
    assert!(
        outcome.printed().contains("no function `request`"),
        "{}",
        outcome.printed()
    );
    assert!(
        outcome.printed().contains("it is of another build"),
        "{}",
        outcome.printed()
    );
}

#[test]
fn debug_links_and_packed_symbols_are_used_for_markers_and_names() {
    let folder = workspace::scratch().unwrap();
    let at = folder.path();
    build_hidden(at, 0, &["-Wl,--build-id=none"]);
    let by_symbol = profile(at, "request", "");
    workspace::copy_program(&at.join("hidden"), &at.join("bare")).unwrap();
    execute(at, "objcopy", &["--add-gnu-debuglink=debug", "hidden"]);
    let mut child = start(at, "hidden");
    let pid = child.pid();
    // What can be traced is found, in the process and in the file.
    for place in [["-p", &pid.to_string()], ["hidden", ""]] {
        let words = place.iter().filter(|word| !word.is_empty());
        let mut functions = command(["functions"]).unwrap();
        functions.current_dir(at).args(words).arg("request");
        let found = run(functions).unwrap();
        assert_eq!(found.code, Some(0), "{}", found.printed());
        let mut lines = found.stdout.lines();
        assert!(lines.any(|line| line.ends_with("  request")), "{found:?}");
    }
    let outcome = trace(&mut child, pid, &by_symbol, &[]);
    named(&outcome, "main;serve;request;inner;block", REQUESTS);

    execute(at, "objcopy", &["--strip-debug", "full", "mini"]);
    execute(at, "xz", &["mini"]);
    execute(
        at,
        "objcopy",
        &["--add-section", ".gnu_debugdata=mini.xz", "bare"],
    );
    let mut child = start(at, "bare");
    let pid = child.pid();
    let outcome = trace(&mut child, pid, &by_symbol, &[]);
    named(&outcome, "main;request;inner;block", REQUESTS);
}

#[test]
fn generated_code_has_the_names_of_its_perf_map() {
    let folder = workspace::scratch().unwrap();
    let at = folder.path();
    compile(at, "generated.c", "named", &["-static"]);
    let root = container(at, "named");
    let (mut child, pid) = start_contained(at, &root, "named", &["20", "/tmp"]);
    let outcome = trace(&mut child, pid, &profile(at, "request", ""), &["-v"]);
    // Through the mapping without a table by its frame pointer, to the outermost function.
    let chain = "main;request;call;Generated::code: of a request;block";
    named(&outcome, chain, REQUESTS);
    let unwinding = outcome.summary().unwrap().unwinding;
    assert!(unwinding.truncated_ns.is_empty(), "{unwinding:?}");
    // That is not called whole.
    let seen = seen(&outcome);
    assert!(
        unwinding.frame_pointers_ns >= seen * BLOCK * 1000,
        "{unwinding:?}"
    );
    for (printed, words) in [
        (&outcome.stdout, "user stacks walked by frame pointers"),
        (&outcome.stderr, "no unwind table: anonymous memory"),
    ] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    // -v counts what walks take.
    let walks = unwinding.walks.unwrap();
    let enough = walks.walks >= seen && walks.frames >= seen * 6;
    assert!(
        enough && walks.max_ns >= walks.run_ns / walks.walks,
        "{walks:?}"
    );
    assert!(walks.p999_ns <= walks.max_ns, "{walks:?}");
}

/// `/tmp` is everybody's: what is not the process's own regular file is not read.
#[test]
fn a_perf_map_that_is_not_to_be_trusted_is_not_read() {
    let folder = workspace::scratch().unwrap();
    let at = folder.path();
    compile(at, "generated.c", "generated", &["-static"]);
    let root = container(at, "generated");
    let map = root.join("tmp/perf-1.map");
    let text = "7e0000000000 8 forged\n";
    type Forge<'a> = &'a dyn Fn();
    let link = || {
        fs::write(root.join("tmp/elsewhere"), text).unwrap();
        symlink("/tmp/elsewhere", &map).unwrap();
    };
    let fifo = || drop(execute(at, "mkfifo", &[map.to_str().unwrap()]));
    let other = || {
        fs::write(&map, text).unwrap();
        chown(&map, Some(65534), Some(65534)).unwrap();
    };
    let cases: [(Forge<'_>, &str); 3] = [
        (&link, "no regular file"),
        (&fifo, "no regular file"),
        (&other, "belongs to user 65534"),
    ];
    for (forge, why) in cases {
        forge();
        let (mut child, pid) = start_contained(at, &root, "generated", &[]);
        let outcome = trace(&mut child, pid, &profile(at, "request", ""), &[]);
        named(&outcome, "call;[anonymous];block", REQUESTS);
        assert!(outcome.stderr.contains(why), "{}", outcome.stderr);
        fs::remove_file(&map).unwrap();
    }
    // Without any of them, the same file is read.
    fs::write(&map, format!("{text}nonsense\n")).unwrap();
    let (mut child, pid) = start_contained(at, &root, "generated", &[]);
    let outcome = trace(&mut child, pid, &profile(at, "request", ""), &[]);
    named(&outcome, "call;forged;block", REQUESTS);
}

/// What generated code without a frame pointer leaves in rbp leads to no caller.
#[test]
fn generated_code_without_a_frame_pointer_ends_the_stack() {
    let folder = workspace::scratch().unwrap();
    let at = folder.path();
    compile(at, "generated.c", "named", &["-static"]);
    let root = container(at, "named");
    let (mut child, pid) = start_contained(at, &root, "named", &["20", "/tmp", "bare"]);
    let outcome = trace(&mut child, pid, &profile(at, "request", ""), &[]);
    let chain = "[truncated: no unwind table];Generated::code: of a request;block";
    named(&outcome, chain, REQUESTS);
}

/// Python's trampolines keep no frame pointer, but all that they do when they are returned to is to return.
#[test]
fn stacks_go_on_behind_trampolines_of_python() {
    let folder = workspace::scratch().unwrap();
    let at = folder.path();
    compile(at, "generated.c", "named", &["-static"]);
    let root = container(at, "named");
    let (mut child, pid) = start_contained(at, &root, "named", &["20", "/tmp", "trampoline"]);
    let outcome = trace(&mut child, pid, &profile(at, "request", ""), &[]);
    let chain = "main;request;call;Generated::code: of a request;block";
    named(&outcome, chain, REQUESTS);
    // Nothing of that is by frame pointers, so it is called whole.
    let unwinding = outcome.summary().unwrap().unwinding;
    assert!(unwinding.truncated_ns.is_empty(), "{unwinding:?}");
    assert_eq!(unwinding.frame_pointers_ns, 0, "{unwinding:?}");
}

/// `--unwind dwarf` stops where there is no table.
#[test]
fn dwarf_stops_at_generated_code() {
    let folder = workspace::scratch().unwrap();
    let at = folder.path();
    compile(at, "generated.c", "generated", &[]);
    let mut child = start(at, "generated");
    let pid = child.pid();
    let outcome = trace(
        &mut child,
        pid,
        &profile(at, "request", ""),
        &["--unwind", "dwarf"],
    );
    named(
        &outcome,
        "[truncated: no unwind table];[anonymous];block",
        REQUESTS,
    );
}

/// Where the kernel hides its addresses, the report says so and what to do.
#[test]
fn hidden_kernel_addresses_are_reported() {
    let folder = workspace::scratch().unwrap();
    let at = folder.path();
    compile(at, "children.c", "children", &[]);
    let hidden = at.join("kallsyms");
    fs::write(&hidden, "0000000000000000 T schedule\n").unwrap();
    let mut child = start(at, "children");
    // Only for this one: the setting itself is the whole machine's.
    let mut command = Command::new(workspace::program("unshare").unwrap());
    let script = "mount --bind \"$1\" /proc/kallsyms && shift && exec \"$@\"";
    command
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(&hidden);
    command.arg(workspace::reqtrace().unwrap()).arg("--profile");
    command.arg(profile(at, "request", ""));
    command.args(["-p", &child.pid().to_string(), "-f"]);
    command.process_group(0);
    let mut tracer = Child::start(command, at, "tracer").unwrap();
    tracer
        .wait_for_line(Stream::Err, "tracing ", LIMIT)
        .unwrap();
    child.tell("go").unwrap();
    child.wait(LIMIT).unwrap();
    until(LIMIT, "the report", || tracer.status()).unwrap();
    let printed = tracer.output(Stream::Err);
    for word in ["hides its addresses", "sysctl -w kernel.kptr_restrict=0"] {
        assert!(printed.contains(word), "{word}: {printed}");
    }
    let folded = tracer.output(Stream::Out);
    assert!(folded.contains("[kernel+0x"), "{folded}");
}
