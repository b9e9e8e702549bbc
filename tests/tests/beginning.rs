//! The first command of a user: profiles that are found by a program, programs that are found by a
//! profile, and programs that reqtrace starts.
//!
//! Needs root, a kernel with BPF, and mariadb-server.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use reqtrace_tests::fixtures::{self, Fixture};
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::probed::Code;
use reqtrace_tests::process::{Child, Stream};
use reqtrace_tests::reqtrace::{self, Outcome, Trace};
use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::summary::Summary;
use reqtrace_tests::workspace;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);
/// Calls of `work` in the program that is started.
const TIMES: u64 = 200;

/// A user's folder of configuration, with profiles.
struct Home {
    folder: TempDir,
}

impl Home {
    fn new() -> Self {
        let folder = workspace::scratch().unwrap();
        fs::create_dir_all(folder.path().join("reqtrace/profiles")).unwrap();
        Self { folder }
    }

    fn profile(&self, name: &str) -> PathBuf {
        let file = format!("reqtrace/profiles/{name}.toml");
        self.folder.path().join(file)
    }

    /// Adds the shop's profile under that name, made for executables of that name.
    fn add(&self, name: &str, executable: &str) -> PathBuf {
        let text = fs::read_to_string(shop::profile()).unwrap();
        let made_for = "executables = [\"shop\"]";
        assert!(text.contains(made_for));
        let text = text.replace(made_for, &format!("executables = [\"{executable}\"]"));
        fs::write(self.profile(name), text).unwrap();
        self.profile(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = reqtrace::command(args.iter().copied()).unwrap();
        command.env("XDG_CONFIG_HOME", self.folder.path());
        command
    }

    fn run(&self, args: &[&str]) -> Outcome {
        reqtrace::run(self.command(args)).unwrap()
    }
}

/// A name that no program on the machine has.
fn unique(what: &str) -> String {
    format!("{what}-{}", std::process::id())
}

#[track_caller]
fn refused(outcome: &Outcome, code: i32, words: &[&str]) {
    assert_eq!(outcome.code, Some(code), "{}", outcome.printed());
    for word in words {
        assert!(outcome.stderr.contains(word), "{word}: {}", outcome.stderr);
    }
    assert!(outcome.stderr.contains("next: "), "{}", outcome.stderr);
}

#[test]
fn the_profile_is_found_by_the_program() {
    let name = unique("a");
    let (home, shop) = (Home::new(), Shop::open_as(&name).unwrap());
    let pid = shop.pid().to_string();
    refused(
        &home.run(&["-p", &pid, "1"]),
        2,
        &["none is made for", &name, "--profile"],
    );

    let path = home.add("bakery", &format!("{}*", &name[..name.len() - 1]));
    let outcome = home.run(&["-p", &pid, "0.2"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let printed = format!("{name} has the profile bakery ({})", path.display());
    assert!(outcome.stderr.contains(&printed), "{}", outcome.stderr);
    let line = format!("with {} for 0.2 s", "shop");
    assert!(outcome.stderr.contains(&line), "{}", outcome.stderr);

    // Another program with another profile: each takes its own.
    let other = unique("b");
    let second = Shop::open_as(&other).unwrap();
    let path = home.add("butcher", &other);
    let both = format!("{pid},{}", second.pid());
    let words = ["two of the profiles have the name `shop`", "two names"];
    refused(&home.run(&["-p", &both, "1"]), 2, &words);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("name = \"shop\"", "name = \"butcher\"")).unwrap();
    let outcome = home.run(&["-p", &both, "0.2"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    for (name, profile) in [(&name, "bakery"), (&other, "butcher")] {
        let printed = format!("{name} has the profile {profile} (");
        assert!(outcome.stderr.contains(&printed), "{}", outcome.stderr);
    }
}

#[test]
fn the_program_is_found_by_the_profile() {
    let name = unique("c");
    let home = Home::new();
    home.add("corner", &name);
    let words = ["no process given", &name, "-p PID"];
    refused(&home.run(&["--profile", "corner", "1"]), 2, &words);

    let first = Shop::open_as(&name).unwrap();
    let outcome = home.run(&["--profile", "corner", "0.2"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let line = format!("tracing {name} (pid {}) with shop", first.pid());
    assert!(outcome.stderr.contains(&line), "{}", outcome.stderr);

    let second = Shop::open_as(&name).unwrap();
    let ids = [first.pid(), second.pid()].map(|pid| format!("-p {pid}"));
    let words = ["2 servers", &ids[0], &ids[1], "serve --listen"];
    refused(&home.run(&["--profile", "corner", "1"]), 2, &words);

    let doctor = home.run(&["doctor"]);
    for id in ids {
        let command = format!("reqtrace --profile corner {id} 10");
        assert!(doctor.stdout.contains(&command), "{}", doctor.printed());
    }
}

#[test]
fn profiles_that_others_can_write_are_not_read() {
    let name = unique("d");
    let (home, shop) = (Home::new(), Shop::open_as(&name).unwrap());
    let pid = shop.pid().to_string();
    let path = home.add("deli", &name);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let words = [
        "deli.toml is not read",
        "can be written by everybody",
        "chmod go-w",
    ];
    refused(
        &home.run(&["--profile", "deli", "-p", &pid, "1"]),
        2,
        &words,
    );
    // It is printed where it was not asked for, too.
    refused(
        &home.run(&["-p", &pid, "1"]),
        2,
        &[words[0], "none is made for"],
    );
    let list = home.run(&["profiles"]);
    assert_eq!(list.code, Some(0), "{}", list.printed());
    let line = list.stdout.lines().find(|line| line.starts_with("deli "));
    assert!(
        line.unwrap().contains("cannot be used: "),
        "{}",
        list.stdout
    );

    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    chown(&path, Some(12345), None).unwrap();
    refused(
        &home.run(&["--profile", "deli", "-p", &pid, "1"]),
        2,
        &["belongs to user 12345"],
    );
    // Whoever has called sudo may have written it.
    let mut command = home.command(&["--profile", "deli", "-p", &pid, "0.2"]);
    command.env("SUDO_UID", "12345");
    let outcome = reqtrace::run(command).unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
}

/// Whoever may write to a folder on the way to a profile can put another one there.
#[test]
fn profiles_below_a_folder_that_others_can_write_are_not_read() {
    let name = unique("e");
    let (home, shop) = (Home::new(), Shop::open_as(&name).unwrap());
    let path = home.add("eatery", &name);
    let line = ["--profile", "eatery", "-p", &shop.pid().to_string(), "0.2"];
    let folder = home.folder.path().join("reqtrace");
    let mode = |mode| fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o777);
    let above = format!(
        "{} can be written by everybody (mode 777)",
        folder.display()
    );
    refused(&home.run(&line), 2, &["eatery.toml is not read", &above]);
    // As /tmp: what is there stays its owner's.
    mode(0o1777);
    assert_eq!(home.run(&line).code, Some(0));
    mode(0o755);
    // The way to what a link names counts too.
    let elsewhere = home.folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::rename(&path, elsewhere.join("eatery.toml")).unwrap();
    std::os::unix::fs::symlink(elsewhere.join("eatery.toml"), &path).unwrap();
    assert_eq!(home.run(&line).code, Some(0));
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o777)).unwrap();
    refused(
        &home.run(&line),
        2,
        &["elsewhere can be written by everybody"],
    );
    // A path says which file is meant.
    let path = path.display().to_string();
    assert_eq!(
        home.run(&["--profile", &path, line[2], line[3], line[4]])
            .code,
        Some(0)
    );
}

/// Anybody may have put it there.
#[test]
fn a_file_of_the_working_directory_is_no_profile_by_its_name() {
    let name = unique("f");
    let (home, shop) = (Home::new(), Shop::open_as(&name).unwrap());
    home.add("fish", &name);
    let here = home.folder.path().join("here");
    fs::create_dir(&here).unwrap();
    for file in ["fish", "fish.toml", "own.toml"] {
        fs::write(here.join(file), "no profile").unwrap();
    }
    let run = |profile: &str| {
        let pid = shop.pid().to_string();
        let mut command = home.command(&["--profile", profile, "-p", &pid, "0.2"]);
        command.current_dir(&here);
        reqtrace::run(command).unwrap()
    };
    for profile in ["fish", "fish.toml"] {
        let outcome = run(profile);
        assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    }
    refused(
        &run("own.toml"),
        2,
        &["no profile named `own.toml`", "--profile ./own.toml"],
    );
    refused(&run("./own.toml"), 2, &["./own.toml:1:"]);
}

#[test]
fn under_sudo_the_callers_profiles_are_found() {
    let home = workspace::scratch().unwrap();
    let folder = home.path().join(".config/reqtrace/profiles");
    fs::create_dir_all(&folder).unwrap();
    fs::copy(shop::profile(), folder.join("mysql.toml")).unwrap();
    let mut command = reqtrace::command(["profiles"]).unwrap();
    command.env_remove("XDG_CONFIG_HOME");
    command
        .env("SUDO_UID", "12345")
        .env("SUDO_HOME", home.path());
    let outcome = reqtrace::run(command).unwrap();
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    let place = folder.join("mysql.toml").display().to_string();
    assert!(
        lines[0].starts_with("mysql ") && lines[0].contains(&place),
        "{lines:#?}"
    );
    let hidden = lines
        .iter()
        .find(|line| line.ends_with("the one above has its name"));
    assert!(hidden.unwrap().contains("built in"), "{lines:#?}");
}

#[test]
fn profiles_of_the_machine_are_found() {
    // In a mount namespace of its own, /etc holds nothing but a profile.
    let script = "mount -t tmpfs none /etc && mkdir -p /etc/reqtrace/profiles && \
                  cp \"$1\" /etc/reqtrace/profiles/shop.toml && exec \"$0\" profiles";
    let mut command = Command::new(workspace::program("unshare").unwrap());
    command.args(["--mount", "sh", "-c", script]);
    command
        .arg(workspace::reqtrace().unwrap())
        .arg(shop::profile());
    let outcome = reqtrace::run(command).unwrap();
    let place = "/etc/reqtrace/profiles/shop.toml";
    assert!(outcome.stdout.contains(place), "{}", outcome.printed());
}

/// Standard error is no terminal here.
#[test]
fn that_tracing_has_begun_is_reported_and_is_true() {
    let fixture = Fixture::start("spinner", &["plain"]).unwrap();
    let profile = fixture.profile("work", "nest").unwrap();
    let code = Code::of_function(fixture.pid(), "work(long)").unwrap();
    assert!(!code.is_probed().unwrap());
    // `Trace::start` waits for a line that begins with `tracing`.
    let trace = Trace::start(&profile, fixture.pid(), &["0.5"]).unwrap();
    assert!(code.is_probed().unwrap(), "it was printed too early");
    let outcome = trace.wait().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let line = format!(
        "tracing spinner (pid {}) with fixture for 0.5 s; probes set",
        fixture.pid()
    );
    let lines: Vec<&str> = outcome.stderr.lines().collect();
    assert_eq!(
        lines.iter().filter(|printed| **printed == line).count(),
        1,
        "{lines:#?}"
    );

    // -q says nothing, but what is wrong.
    let mut command = reqtrace::command(["-q", "--profile"]).unwrap();
    command
        .arg(&profile)
        .args(["-p", &fixture.pid().to_string(), "0.1"]);
    assert_eq!(reqtrace::run(command).unwrap().stderr, "");
    fixture.end().unwrap();
}

/// How long it takes is up to the machine, what reqtrace itself computes is not. To look for the profile's
/// waits among the names of all libraries once took a second more.
#[test]
fn a_trace_of_a_large_server_computes_little_before_it_begins() {
    let server = MariaDb::open().unwrap();
    let duration = Duration::from_millis(500);
    let trace = Trace::start(Path::new("mysql"), server.pid(), &["0.5"]).unwrap();
    let computed = user_time(trace.pid());
    assert!(computed < Duration::from_millis(900), "{computed:?}");
    // The duration is that of the trace: what it took to begin is not part of it.
    let traced = trace.wait().unwrap().summary().unwrap().trace.duration_ns;
    let traced = Duration::from_nanos(traced);
    assert!(traced >= duration && traced < duration * 2, "{traced:?}");
    server.close().unwrap();
}

/// CPU time of a process outside the kernel.
fn user_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // Behind the name, which may have anything in it.
    let fields = stat.rsplit(") ").next().unwrap();
    let ticks: u64 = fields.split(' ').nth(11).unwrap().parse().unwrap();
    // A hundred a second, whatever the kernel's own are (`USER_HZ`).
    Duration::from_millis(ticks * 10)
}

/// A program that begins its work at once.
struct Short {
    folder: TempDir,
}

impl Short {
    fn new() -> Self {
        let folder = workspace::scratch().unwrap();
        fixtures::compile("short", folder.path()).unwrap();
        Self { folder }
    }

    fn program(&self) -> String {
        self.folder.path().join("short").display().to_string()
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    /// `reqtrace --profile PROFILE --out DIR MORE -- COMMAND`.
    fn command(&self, marker: &str, more: &[&str], line: &[&str]) -> Command {
        let profile = self.folder.path().join("short.toml");
        let text = format!(
            "[profile]\nname = \"short\"\nexecutables = [\"short\"]\n\n[[request]]\n\
             name = \"work\"\nbegin = {{ {marker} }}\n"
        );
        fs::write(&profile, text).unwrap();
        let mut command = reqtrace::command(["--profile"]).unwrap();
        command.arg(profile).arg("--out").arg(self.out());
        command.args(more).arg("--").args(line);
        command
    }

    fn summary(&self) -> Summary {
        Summary::read(&fs::read_to_string(self.out().join("summary.json")).unwrap()).unwrap()
    }

    fn check(&self, outcome: &Outcome, code: i32) {
        assert_eq!(outcome.code, Some(code), "{}", outcome.printed());
        let summary = self.summary();
        assert_eq!(summary.lost(), 0);
        let work = summary.request("work").unwrap();
        assert_eq!(
            (work.count, work.begins),
            (TIMES, TIMES),
            "{}",
            outcome.printed()
        );
        let folded = fs::read_to_string(self.out().join("stacks.folded")).unwrap();
        let [whole, all] = [";main;work(long);usleep;", ""].map(|frames| {
            let lines = folded.lines().filter(|line| line.contains(frames));
            let us = lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
            us.sum::<u64>()
        });
        // The tables of its files are there before it is; what it has mapped where is known a moment
        // after its first wait.
        assert!(whole * 2 > all, "{whole} of {all} us\n{folded}");
    }
}

#[test]
fn a_program_is_traced_from_its_first_call_to_its_end() {
    let short = Short::new();
    let (program, times) = (short.program(), TIMES.to_string());
    let own = "function = \"work\"";
    for more in [&[][..], &["--no-follow"]] {
        let line = [&*program, &times, "0"];
        let outcome = reqtrace::run(short.command(own, more, &line)).unwrap();
        short.check(&outcome, 0);
        assert!(
            outcome.stderr.contains("until it ends"),
            "{}",
            outcome.stderr
        );
        assert!(outcome.stderr.contains("has ended (exit status: 0)"));
    }
    // Behind another program, and with the marker in a library that it has not loaded yet.
    let line = [
        "setpriv",
        "--reuid",
        "65534",
        "--clear-groups",
        &program,
        &times,
        "0",
    ];
    let library = "function = \"usleep\", object = \"libc.so*\"";
    let outcome = reqtrace::run(short.command(library, &[], &line)).unwrap();
    short.check(&outcome, 0);
}

#[test]
fn how_a_program_ended_is_reported() {
    let short = Short::new();
    let (program, times) = (short.program(), TIMES.to_string());
    let own = "function = \"work\"";
    let outcome = reqtrace::run(short.command(own, &[], &[&program, &times, "7"])).unwrap();
    short.check(&outcome, 1);
    refused(&outcome, 1, &["has ended badly (exit status: 7)"]);

    // Interrupted: the terminal sends the signal to both. What is killed by it has ended badly.
    for (signal, code, printed) in [
        (libc::SIGINT, 1, "has ended badly (signal: 2 (SIGINT))"),
        (libc::SIGTERM, 1, "has ended badly (exit status: 7)"),
    ] {
        let command = short.command(own, &[], &[&program, "-1", "7"]);
        let mut trace = Child::start(command, short.folder.path(), "reqtrace").unwrap();
        trace.wait_for_line(Stream::Err, "tracing ", LIMIT).unwrap();
        trace.signal(signal).unwrap();
        let status = trace.wait(LIMIT).unwrap();
        let stderr = trace.output(Stream::Err);
        assert_eq!(status.code(), Some(code), "{stderr}");
        assert!(
            stderr.contains(printed) && stderr.contains("interrupted"),
            "{stderr}"
        );
        assert!(short.summary().request("work").is_ok());
    }

    // Its time is over before it ends.
    let forever = [&*program, "-1", "7"];
    let outcome = reqtrace::run(short.command(own, &["0.5"], &forever)).unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    for printed in ["ended by SIGTERM", "has ended (exit status: 7)"] {
        assert!(outcome.stderr.contains(printed), "{}", outcome.stderr);
    }

    for (line, words) in [
        (["no-such-program", "", ""], "no such program in PATH"),
        (["/etc/passwd", "", ""], "no file that may be executed"),
    ] {
        let outcome = reqtrace::run(short.command(own, &[], &line)).unwrap();
        assert_eq!(outcome.code, Some(2), "{}", outcome.printed());
        assert!(outcome.stderr.contains(words), "{}", outcome.stderr);
    }
    // A program that the profile is made for, and in which it finds nothing, is never started.
    let touched = short.folder.path().join("touched");
    let other = short.folder.path().join("other");
    fs::create_dir(&other).unwrap();
    let other = other.join("short");
    fs::copy(workspace::program("touch").unwrap(), &other).unwrap();
    let line = [other.to_str().unwrap(), touched.to_str().unwrap()];
    let outcome = reqtrace::run(short.command(own, &[], &line)).unwrap();
    refused(&outcome, 2, &["work"]);
    assert!(!touched.exists());
}

#[test]
fn a_signal_is_passed_on() {
    let short = Short::new();
    let program = short.program();
    let line = [&*program, "-1", "0"];
    let command = short.command("function = \"work\"", &[], &line);
    let mut trace = Child::start(command, short.folder.path(), "reqtrace").unwrap();
    let line = trace.wait_for_line(Stream::Err, "tracing ", LIMIT).unwrap();
    let pid: u32 = line
        .split_once("(pid ")
        .and_then(|(_, rest)| rest.split_once(')')?.0.parse().ok())
        .unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    trace.signal(libc::SIGTERM).unwrap();
    let status = trace.wait(LIMIT).unwrap();
    assert_eq!(status.code(), Some(0), "{}", trace.output(Stream::Err));
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    assert!(short.summary().request("work").unwrap().count > 10);
}
