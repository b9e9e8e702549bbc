//! `--live` on a terminal of its own: what it shows, what keys do, and how the terminal is left.
//!
//! Needs root, a kernel with BPF, mariadb-server and sysbench.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::screen::Screen;
use crate::verdict::{self, How, LIMIT, holder, server};
use reqtrace_tests::fixtures;
use reqtrace_tests::load;
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::process::{Child, Stream};
use reqtrace_tests::reqtrace;
use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::sysbench::Sysbench;
use reqtrace_tests::workspace;

/// How long attaching, or a report, may take.
const LONG: Duration = Duration::from_secs(30);
/// How long what happens may take to be shown.
const SOON: Duration = Duration::from_secs(10);

fn live(profile: &Path, pid: u32, more: &[&str], rows: u16, columns: u16) -> Screen {
    let mut command = reqtrace::command(["--live", "--profile"]).unwrap();
    command
        .arg(profile)
        .args(["-p", &pid.to_string()])
        .args(more);
    command.env_remove("NO_COLOR").env("RUST_BACKTRACE", "0");
    Screen::start(command, rows, columns).unwrap()
}

/// A request waits for a mutex that a thread of no request has: that one is named while the wait goes on.
#[test]
fn who_has_a_lock_is_named_before_the_wait_is_over() {
    let folder = workspace::scratch().unwrap();
    let at = folder.path();
    let program = fixtures::compile("holders", at).unwrap();
    let mut command = Command::new(&program);
    command.args(["1", &at.display().to_string(), "6000"]);
    let mut service = Child::start(command, at, "holders").unwrap();
    let ready = service.wait_for_line(Stream::Out, "ready", LONG).unwrap();
    let holder = ready.split(' ').nth(1).unwrap().to_owned();
    let profile = at.join("holders.toml");
    fixtures::write_profile(&profile, "work", "behind", "label = { arg = 0 }\n").unwrap();
    let options = ["--blame", "--labels", "--max-overhead", "100"];
    let mut screen = live(&profile, service.pid(), &options, 30, 140);
    screen
        .wait_for("the overview", LONG, |text| text.contains("> work"))
        .unwrap();
    service.tell("go").unwrap();
    let named = format!("normal ← held by thread {holder}");
    let shown = screen
        .wait_for("the holder", SOON, |text| text.contains(&named))
        .unwrap();
    assert!(millis(line(&shown, &named)) < 6_000.0, "{shown}");
    assert!(
        shown.contains("Now: a request has waited ")
            && shown.contains(&format!("so far, for a lock of thread {holder}")),
        "{shown}"
    );
    screen.press("\u{3}").unwrap();
    let status = screen.wait(LONG).unwrap();
    assert_eq!(status.code(), Some(0), "{}", screen.text());
}

/// Keeps a shop busy while something is done.
fn under_load<T>(shop: &Shop, work: impl FnOnce() -> T) -> T {
    load::beside(|| shop.load(2, 50).map(drop).unwrap(), work)
}

/// The line that begins with a word, in columns.
fn line<'a>(screen: &'a str, with: &str) -> &'a str {
    let found = screen.lines().find(|line| line.contains(with));
    found.unwrap_or_else(|| panic!("no {with}:\n{screen}"))
}

/// A duration as reqtrace writes it, in milliseconds.
fn millis(text: &str) -> f64 {
    let mut words = text.split_whitespace();
    let number: f64 = words.next().unwrap().replace(',', "").parse().unwrap();
    let unit = match words.next().unwrap() {
        "s" => 1e3,
        "ms" => 1.0,
        "µs" => 1e-3,
        "ns" => 1e-6,
        other => panic!("{other}: {text}"),
    };
    number * unit
}

#[test]
fn a_query_that_hangs_is_seen_while_the_others_go_on() {
    let server = MariaDb::open().unwrap();
    let sysbench = Sysbench::prepare(&server, 2, 1000).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| sysbench.run_seconds("oltp_read_write", 4, 20).unwrap());
        let options = ["--blame", "--labels"];
        let mut screen = live(Path::new("mysql.toml"), server.pid(), &options, 24, 80);
        let shown = screen
            .wait_for("the overview", LONG, |text| text.contains("> command"))
            .unwrap();
        assert!(shown.contains("TIME OF `command`, last 10 s"), "{shown}");
        assert!(shown.contains("ROOT CAUSES of blocked time"), "{shown}");
        let shown = screen
            .wait_for("a second of load", SOON, |text| {
                text.contains("redo log") && text.contains("tracing takes ")
            })
            .unwrap();
        assert!(shown.contains("lost"), "{shown}");
        let command = line(&shown, "> command");
        let rate: f64 = command
            .split_whitespace()
            .nth(2)
            .unwrap()
            .replace(',', "")
            .parse()
            .unwrap();
        assert!(rate > 10.0, "{shown}");

        let mut hung = server.start_sql("hung", "select sleep(30)").unwrap();
        let is_there = |text: &str| text.lines().any(|line| line.contains("select sleep(30)"));
        let shown = screen
            .wait_for("the query that hangs", SOON, is_there)
            .unwrap();
        let first = millis(line(&shown, "select sleep(30)"));
        thread::sleep(Duration::from_secs(2));
        // It is the longest, so the first; its time rises, and so does the time of its wait.
        let shown = screen.text();
        let at = shown
            .lines()
            .position(|line| line.starts_with(" LONGEST"))
            .unwrap();
        let oldest = shown.lines().nth(at + 1).unwrap();
        assert!(oldest.contains("select sleep(30)"), "{shown}");
        assert!(
            millis(oldest) >= first + 900.0,
            "{first} ms before:\n{shown}"
        );
        let since = oldest.get(26..).unwrap();
        assert!((millis(since) - millis(oldest)).abs() < 100.0, "{shown}");
        keys_and_sizes(&mut screen, &server);

        screen.press("\u{3}").unwrap();
        let status = screen.wait(LONG).unwrap();
        assert_eq!(status.code(), Some(0), "{}", screen.text());
        screen.is_restored().unwrap();
        let bytes = screen.bytes();
        let (_, report) = bytes.rsplit_once("\u{1b}[?1049l").unwrap();
        assert!(
            report.contains("Time of `command`") && report.contains("mysql · "),
            "{report}"
        );
        hung.signal(libc::SIGKILL).unwrap();
    });
}

fn keys_and_sizes(screen: &mut Screen, server: &MariaDb) {
    screen.press("s").unwrap();
    screen
        .wait_for("another order", SOON, |text| text.contains("order: rate"))
        .unwrap();
    screen.press("f").unwrap();
    screen
        .wait_for("a frozen picture", SOON, |text| text.starts_with("FROZEN "))
        .unwrap();
    thread::sleep(Duration::from_millis(200));
    let frozen = screen.text();
    thread::sleep(Duration::from_millis(2200));
    assert_eq!(screen.text(), frozen);
    screen.press(" ").unwrap();
    screen
        .wait_for("it to go on", SOON, |text| !text.contains("FROZEN"))
        .unwrap();
    screen.press("\r").unwrap();
    let is_there = |text: &str| text.contains("stacks of `command`") && text.contains("redo log");
    let shown = screen.wait_for("stacks", LONG, is_there).unwrap();
    assert!(
        shown.contains("TIMES") && shown.contains("innermost first"),
        "{shown}"
    );
    // Below are the frames of the chosen stack: of one that is blocked too. Preempted time has none.
    let has_frames = |text: &str| text.contains("\n  __schedule\n");
    let mut lines = 12;
    while !has_frames(&screen.text()) {
        assert!(lines > 0, "no frames: {}", screen.text());
        lines -= 1;
        screen.press("\u{1b}[B").unwrap();
        thread::sleep(Duration::from_millis(500));
    }
    screen.press("\u{1b}").unwrap();
    screen
        .wait_for("the overview", SOON, |text| text.contains("TIME OF"))
        .unwrap();
    screen.press("n").unwrap();
    let is_there =
        |text: &str| text.contains("command of pid ") && text.contains(": select sleep(30)");
    screen
        .wait_for("requests that run", SOON, is_there)
        .unwrap();
    // Statements without their values, those of the last minute added up, by their time. What sysbench does is
    // prepared, and has its text too.
    for value in 1..=3 {
        server.sql(&format!("select sleep(1.{value})")).unwrap();
    }
    screen.press("t").unwrap();
    let is_there = |text: &str| {
        let line = text.lines().find(|line| line.ends_with("select sleep(?)"));
        line.is_some_and(|line| line.trim_start().starts_with("3 "))
    };
    let shown = screen.wait_for("statements", SOON, is_there).unwrap();
    assert!(shown.contains("STATEMENT, last minute"), "{shown}");
    assert!(shown.contains(" SELECT c FROM sbtest1 WHERE id"), "{shown}");
    screen.press("l").unwrap();
    screen
        .wait_for("the slowest requests", SOON, |text| {
            text.contains(" SLOWEST MOSTLY ") && text.contains(" s ago ")
        })
        .unwrap();
    screen.press("?").unwrap();
    screen
        .wait_for("help", SOON, |text| {
            text.contains("end the trace; the report follows")
        })
        .unwrap();
    screen.press("?").unwrap();
    // A key that comes with a change of the size is read with the next key only.
    screen
        .wait_for("the overview", SOON, |text| text.contains("TIME OF"))
        .unwrap();
    screen.resize(50, 132).unwrap();
    let is_wide = |text: &str| {
        let right = text.lines().find_map(|line| line.find("ROOT CAUSES"));
        right.is_some_and(|at| at > 60) && text.lines().count() == 50
    };
    let wide = screen.wait_for("a wide screen", SOON, is_wide).unwrap();
    assert!(wide.lines().last().unwrap().starts_with("q end"), "{wide}");
    screen.resize(24, 80).unwrap();
    let is_small = |text: &str| text.lines().count() == 24;
    screen.wait_for("a small screen", SOON, is_small).unwrap();
}

/// While it happens, and no longer than it takes to be sure.
#[test]
fn the_verdict_is_on_top() {
    let server = server();
    let options = ["--blame", "--labels"];
    let mut screen = live(Path::new("mysql.toml"), server.pid(), &options, 40, 100);
    let has = |text: &str, words: &[&str]| {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        words.iter().all(|word| text.contains(word))
    };
    screen
        .wait_for("the overview", LONG, |text| text.contains("0 requests"))
        .unwrap();
    let update = "update d.t set n = n + 1 where id = ID";
    let mut clients = verdict::load(&server, How::Alone, update);
    let hold = "flush tables with read lock; do sleep(0.3); unlock tables;\n\\! sleep 0.6\n";
    let (mut holder, tid) = holder(&server, hold);
    let of_thread = format!("thread {tid}");
    let words = ["Verdict: slow `command`", "metadata lock", &of_thread];
    screen
        .wait_for("the verdict", LONG, |text| has(text, &words))
        .unwrap();
    // Who holds up whom, with the last statement of the one.
    screen
        .wait_for("who holds up whom", LONG, |text| {
            has(text, &["Now: update d.t", " waited ", "unlock tables"])
        })
        .unwrap();
    assert!(holder.wait(LIMIT).unwrap().success());
    clients.stop().unwrap();
    screen.press("q").unwrap();
    assert_eq!(screen.wait(LONG).unwrap().code(), Some(0));
    let bytes = screen.bytes();
    let (_, report) = bytes.rsplit_once("\u{1b}[?1049l").unwrap();
    assert!(has(report, &words), "{report}");
}

#[test]
fn the_terminal_is_left_as_it_was_however_it_ends() {
    let shop = Shop::open().unwrap();
    under_load(&shop, || {
        for end in ["q", "two Ctrl-C", "SIGTERM", "SIGHUP", "SIGKILL", "time"] {
            let more: &[&str] = if end == "time" { &["2"] } else { &[] };
            let mut screen = live(&shop::profile(), shop.pid(), more, 24, 80);
            screen
                .wait_for("the overview", LONG, |text| text.contains("> order"))
                .unwrap();
            assert!(screen.is_taken());
            match end {
                "q" => screen.press("q").unwrap(),
                "two Ctrl-C" => screen.press("\u{3}\u{3}").unwrap(),
                "SIGTERM" => screen.signal(libc::SIGTERM).unwrap(),
                "SIGHUP" => screen.signal(libc::SIGHUP).unwrap(),
                "SIGKILL" => screen.signal(libc::SIGKILL).unwrap(),
                _ => {}
            }
            let status = screen.wait(LONG).unwrap();
            let printed = screen.bytes();
            screen
                .is_restored()
                .map_err(|error| format!("{end}: {error:#}\n{printed}"))
                .unwrap();
            let has_report = printed.contains("Time of `order`");
            match end {
                "SIGKILL" => assert!(status.code().is_none() && !has_report, "{end}: {printed}"),
                // The second may come when the trace is over.
                "two Ctrl-C" => assert!(matches!(status.code(), Some(0 | 1)), "{end}: {printed}"),
                _ => assert!(status.code() == Some(0) && has_report, "{end}: {printed}"),
            }
        }
    });
}

/// The state of a process: `T` is stopped.
fn state(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(") ").next().unwrap().chars().next().unwrap()
}

/// A stopped tracer would leave its probes in place, and its ring fill up.
#[test]
fn in_the_background_it_goes_on_without_keys_and_comes_back() {
    let shop = Shop::open().unwrap();
    let script = "set -m; \"$@\"; kill -CONT %1; read -r line; echo \"read $line\"; fg %1 >/dev/null; \
                  echo \"ended $?\"";
    let mut command = Command::new(workspace::program("bash").unwrap());
    command.args(["-c", script, "shell"]);
    command.arg(workspace::reqtrace().unwrap());
    command.args(["--live", "--profile"]).arg(shop::profile());
    command.args(["-p", &shop.pid().to_string()]);
    let mut screen = Screen::start(command, 24, 80).unwrap();
    under_load(&shop, || {
        let is_shown = |text: &str| text.contains("> order");
        screen.wait_for("the overview", LONG, is_shown).unwrap();
        let children = format!("/proc/{0}/task/{0}/children", screen.pid());
        let children = std::fs::read_to_string(children).unwrap();
        let pid: u32 = children.trim().parse().unwrap();
        let send = |signal| {
            // SAFETY: no precondition; the shell has not waited for it.
            assert_eq!(unsafe { libc::kill(pid.cast_signed(), signal) }, 0);
        };
        send(libc::SIGSTOP);
        // The shell takes the terminal and lets it go on.
        screen
            .wait_for("another screen", LONG, |text| !is_shown(text))
            .unwrap();
        screen.press("word").unwrap();
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(50));
            assert_ne!(state(pid), 'T', "{}", screen.text());
        }
        // A shell that is no interactive one leaves the terminal as it is.
        screen.press("\n").unwrap();
        screen.wait_for("the overview", LONG, is_shown).unwrap();
        assert!(screen.bytes().contains("read word"), "{}", screen.bytes());
        screen.press("q").unwrap();
    });
    assert_eq!(screen.wait(LONG).unwrap().code(), Some(0));
    let printed = screen.bytes();
    assert!(
        printed.contains("ended 0") && printed.contains("Time of `order`"),
        "{printed}"
    );
}

#[test]
fn it_ends_with_its_target() {
    let shop = Shop::open().unwrap();
    let mut screen = live(&shop::profile(), shop.pid(), &[], 24, 80);
    screen
        .wait_for("the overview", LONG, |text| text.contains("RUNNING"))
        .unwrap();
    shop.close().unwrap();
    assert_eq!(screen.wait(LONG).unwrap().code(), Some(0));
    screen.is_restored().unwrap();
    assert!(
        screen.bytes().contains("target exited"),
        "{}",
        screen.bytes()
    );
}

#[test]
fn without_colours_there_are_none() {
    let shop = Shop::open().unwrap();
    let coloured = |no_color: Option<&str>| {
        let mut command = reqtrace::command(["--live", "--profile"]).unwrap();
        command
            .arg(shop::profile())
            .args(["-p", &shop.pid().to_string(), "3"]);
        command.env_remove("NO_COLOR");
        no_color.inspect(|value| {
            command.env("NO_COLOR", value);
        });
        let mut screen = Screen::start(command, 24, 80).unwrap();
        screen
            .wait_for("the overview", LONG, |text| text.contains("RUNNING"))
            .unwrap();
        screen.wait(LONG).unwrap();
        let bytes = screen.bytes();
        let codes = bytes.split("\u{1b}[").skip(1);
        let sets =
            codes.filter_map(|code| code.split_once('m').map(|(numbers, _)| numbers.to_owned()));
        let is_colour = |numbers: &String| {
            let mut numbers = numbers.split(';');
            numbers.any(|number| matches!(number.parse::<u32>(), Ok(30..=38 | 40..=48 | 90..=107)))
        };
        sets.filter(is_colour).count()
    };
    assert!(coloured(None) > 0);
    assert_eq!(coloured(Some("1")), 0);
}

#[test]
fn where_it_cannot_be_shown_it_is_refused() {
    let shop = Shop::open().unwrap();
    let pid = shop.pid().to_string();
    let refused = |more: &[&str]| {
        let mut command = reqtrace::command(["--live", "--profile"]).unwrap();
        command.arg(shop::profile()).args(more);
        let outcome = reqtrace::run(command).unwrap();
        assert_eq!(outcome.code, Some(2), "{}", outcome.printed());
        outcome.stderr
    };
    let printed = refused(&["-p", &pid, "1"]);
    assert!(
        printed.contains("--live needs a terminal, and standard input is none"),
        "{printed}"
    );
    assert!(printed.contains("ssh -t"), "{printed}");
    let printed = refused(&["-p", &pid, "--csv", "-", "1"]);
    assert!(
        printed.contains("draws on standard output, which another output takes"),
        "{printed}"
    );
    let printed = refused(&["--", "sleep", "1"]);
    assert!(
        printed.contains("the program behind -- writes to"),
        "{printed}"
    );
    let mut command = reqtrace::command(["--live", "--profile"]).unwrap();
    command.arg(shop::profile()).args(["-p", &pid, "1"]);
    let dumb = {
        let mut inside = Command::new("env");
        inside
            .arg("TERM=dumb")
            .arg(command.get_program())
            .args(command.get_args());
        let mut screen = Screen::start(inside, 24, 80).unwrap();
        assert_eq!(screen.wait(LONG).unwrap().code(), Some(2));
        screen.is_restored().unwrap();
        screen.bytes()
    };
    assert!(dumb.contains("TERM is `dumb`"), "{dumb}");
    let recording = workspace::root().join("reqtrace/tests/data/shop.rec");
    let arguments = ["report".into(), recording.into_os_string(), "--live".into()];
    let outcome = reqtrace::run(reqtrace::command(arguments).unwrap()).unwrap();
    assert_eq!(outcome.code, Some(2), "{}", outcome.printed());
    let printed = outcome.printed();
    assert!(
        printed.contains("a recording is over") && printed.contains("--html FILE"),
        "{printed}"
    );
}
