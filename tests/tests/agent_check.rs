//! `reqtrace agent --check` and `--print-effective-config`: what would be traced is printed, and nothing is.
//!
//! Needs root.

use std::process::Command;
use std::time::{Duration, Instant};

use reqtrace_tests::probed::is_as_in_its_files;
use reqtrace_tests::process::Child;
use reqtrace_tests::scraped::{Agent, configuration};
use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::{reqtrace, workspace};

use crate::agent::rule_of_shop;

#[test]
fn what_would_be_traced_is_reported_without_tracing() {
    let folder = workspace::scratch().unwrap();
    let program = folder.path().join("shop");
    workspace::copy_program(&workspace::shop().unwrap(), &program).unwrap();
    let shop = Shop::open_from(&program).unwrap();
    let file = folder.path().join("agent.toml");
    std::fs::write(&file, configuration(&rule_of_shop(&program))).unwrap();
    let config = file.display().to_string();
    let run = |option: &str| {
        let command = reqtrace::command(["agent", "--config", &config, option]).unwrap();
        let outcome = reqtrace::run(command).unwrap();
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        outcome.stdout
    };
    let check = run("--check");
    let line = check.lines().nth(1).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(
        words[..3],
        [&*shop.pid().to_string(), "shop", "shop"],
        "{check}"
    );
    assert!(line.contains("traced by the rule at line 6"), "{check}");
    assert!(check.contains("no rule matches"), "{check}");
    is_as_in_its_files(shop.pid()).unwrap();
    // Nothing is in the way here.
    assert!(!check.contains("missing: "), "{check}");
    assert!(!check.contains("other users"), "{check}");
    assert!(check.contains("the worker have no capabilities"), "{check}");
    let effective = run("--print-effective-config");
    assert!(effective.contains("memory = \"512MB\"\n"), "{effective}");
    assert!(effective.contains("blame = false\n"), "{effective}");

    // Another user sees his own processes only, and may not trace. The program may be in a folder that he may not enter.
    let binary = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(binary.path(), open).unwrap();
    for (from, to) in [
        (workspace::reqtrace().unwrap(), "reqtrace"),
        (file.clone(), "agent.toml"),
    ] {
        workspace::copy_program(&from, &binary.path().join(to)).unwrap();
    }
    let profile = shop::profile().display().to_string();
    let text = configuration(&rule_of_shop(&program)).replace(&profile, "redis");
    std::fs::write(binary.path().join("agent.toml"), text).unwrap();
    let as_nobody = |options: &[&str]| {
        let mut command = Command::new(workspace::program("setpriv").unwrap());
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .args([
                "--inh-caps=-all",
                "--",
                "./reqtrace",
                "agent",
                "--config",
                "agent.toml",
            ])
            .args(options)
            .current_dir(binary.path());
        reqtrace::run(command).unwrap()
    };
    let outcome = as_nobody(&["--check"]);
    let hint = "processes of other users were not looked at";
    assert!(
        outcome.code == Some(0) && outcome.stdout.contains(hint),
        "{outcome:?}"
    );
    assert!(
        !outcome.stdout.contains(&shop.pid().to_string()),
        "{outcome:?}"
    );
    let outcome = as_nobody(&[]);
    assert!(
        outcome.code == Some(3) && outcome.stderr.contains("CAP_BPF"),
        "{outcome:?}"
    );

    std::fs::write(&file, "[metrics]\nlisten = \"0.0.0.0:1\"\n").unwrap();
    let outcome =
        reqtrace::run(reqtrace::command(["agent", "--config", &config]).unwrap()).unwrap();
    assert_eq!(outcome.code, Some(2));
    assert!(
        outcome
            .stderr
            .contains("agent.toml:2: listen = \"0.0.0.0:1\""),
        "{}",
        outcome.stderr
    );
}

/// As systemd runs most services: this machine's files, some mounted otherwise.
const SERVICE: &str = "mount -t tmpfs none /mnt; exec /usr/bin/sleep 61";
/// As a container has them: another root, and in it the same path.
const CONTAINER: &str = "mount -t tmpfs none /mnt; cd /mnt; mkdir usr old; mount --bind /usr usr; \
                         ln -s usr/lib usr/lib64 .; /usr/sbin/pivot_root . old; exec /usr/bin/sleep 62";

/// Another program at that path, as whoever may mount something can have it.
const IMPOSTOR: &str =
    "mount --bind /usr/bin/tail /usr/bin/sleep; exec /usr/bin/sleep -f /dev/null";

const FOREIGN: &str = "in a container, of which the rule at line 1 names neither";

#[test]
fn mounts_of_its_own_make_no_container_and_another_root_does() {
    let folder = workspace::scratch().unwrap();
    let start = |script: &str, name: &str| {
        let mut command = Command::new(workspace::program("unshare").unwrap());
        command.args(["--mount", "--", "sh", "-c", script]);
        Child::start(command, folder.path(), name).unwrap()
    };
    let (service, container) = (start(SERVICE, "service"), start(CONTAINER, "container"));
    let impostor = start(IMPOSTOR, "impostor");
    let file = folder.path().join("agent.toml");
    let rule = "[[rule]]\nmatch = { exe = \"/usr/bin/sleep\", min-age = \"0s\" }\nservice = \"a\"\nprofile = \"redis\"\n";
    std::fs::write(&file, rule).unwrap();
    let config = file.display().to_string();
    let since = Instant::now();
    loop {
        let command = reqtrace::command(["agent", "--config", &config, "--check"]).unwrap();
        let outcome = reqtrace::run(command).unwrap();
        let of = |child: &Child| {
            let pid = child.pid().to_string();
            let mut lines = outcome.stdout.lines();
            let line = lines.find(|line| line.split_whitespace().next() == Some(&pid));
            line.unwrap_or_default().to_owned()
        };
        let (one, other, third) = (of(&service), of(&container), of(&impostor));
        if one.contains("traced by the rule at line 1")
            && other.contains(FOREIGN)
            && third.contains(FOREIGN)
        {
            break;
        }
        assert!(
            since.elapsed() < Duration::from_secs(20),
            "{}",
            outcome.stdout
        );
    }
}

#[test]
fn what_is_in_the_way_on_this_machine_is_named() {
    let folder = workspace::scratch().unwrap();
    let file = folder.path().join("agent.toml");
    let rules = configuration(&rule_of_shop(&folder.path().join("shop")));
    std::fs::write(&file, &rules).unwrap();
    let config = file.display().to_string();
    let check = |command: &mut Command| {
        command.args(["agent", "--config", &config, "--check"]);
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{errors}");
        String::from_utf8(output.stdout).unwrap()
    };
    let binary = workspace::reqtrace().unwrap();
    let printed = check(Command::new(&binary).env("REQTRACE_BTF", "/nonexistent"));
    assert!(printed.contains("missing: type information: "), "{printed}");
    assert!(printed.contains("  next: unset REQTRACE_BTF"), "{printed}");
    let unshare = workspace::program("unshare").unwrap();
    let printed = check(
        Command::new(unshare)
            .args(["--pid", "--fork", "--mount-proc"])
            .arg(&binary),
    );
    assert!(printed.contains("missing: PID namespace: "), "{printed}");
    // One of several hierarchies, or the only one.
    let is_old = !std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let printed = check(&mut Command::new(&binary));
    let names_old = printed.contains("degraded: control groups: of version 1");
    assert_eq!(names_old, is_old, "{printed}");
    let agent = Agent::start_with(folder.path(), &rules).unwrap();
    let printed = check(&mut Command::new(&binary));
    assert!(
        printed.contains("degraded: another reqtrace: process "),
        "{printed}"
    );
    agent.end().unwrap();
}
