//! The three processes of `reqtrace agent`: which privileges, users and descriptors each has while it works; what is left
//! when one is killed, and when the worker asks for what it may not have.
//!
//! Needs root, a kernel with BPF, and the user `nobody`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use reqtrace_tests::probed::is_as_in_its_files;
use reqtrace_tests::process::until;
use reqtrace_tests::scraped::{Agent, configuration, files_in};
use reqtrace_tests::shop::Shop;
use reqtrace_tests::{reqtrace, workspace};

use crate::agent::rule_of_shop;
use crate::agent_rows::all_of;

/// After one process is killed.
const SOON: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(60);
const COUNT: &str = "reqtrace_request_duration_seconds_count{service=\"shop\",type=\"order\"}";
const TRACED: &str = "reqtrace_traced{service=\"shop\"}";
/// Each Debian has this user.
const NOBODY: u32 = 65_534;

/// The shop, and an agent whose worker is `nobody`, with rows.
fn begin(folder: &Path) -> (Shop, Agent, PathBuf) {
    let program = folder.join("shop");
    workspace::copy_program(&workspace::shop().unwrap(), &program).unwrap();
    let dir = folder.join("rows");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o750)).unwrap();
    chown(&dir, Some(NOBODY), None).unwrap();
    let rules = format!(
        "{}one-in = 1\n{}",
        files_in("rows", &dir),
        rule_of_shop(&program)
    );
    let shop = Shop::open_from(&program).unwrap();
    let agent = Agent::start_with(folder, &as_nobody(&rules)).unwrap();
    agent.wait_for(TRACED, 1.0).unwrap();
    (shop, agent, dir)
}

fn as_nobody(rules: &str) -> String {
    configuration(rules).replace("[agent]\n", "[agent]\nuser = \"nobody\"\n")
}

/// The child of an agent that has this name.
fn child_of(agent: u32, name: &str) -> u32 {
    let status = |pid: u32| fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let its = pids.filter(|&pid| field(&status(pid), "PPid") == agent.to_string());
    let its: Vec<u32> = its.collect();
    assert_eq!(its.len(), 2, "{its:?}");
    let named = its.iter().find(|pid| status_of(**pid, "Name") == name);
    *named.unwrap()
}

/// The one that writes and listens.
fn worker_of(agent: u32) -> u32 {
    child_of(agent, "reqtrace-worker")
}

/// The one that attaches.
fn attacher_of(agent: u32) -> u32 {
    child_of(agent, "reqtrace-attach")
}

fn field(status: &str, name: &str) -> String {
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_default().trim().to_owned()
}

fn status_of(pid: u32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    field(&text, name)
}

/// What its descriptors are.
fn descriptors(pid: u32) -> BTreeSet<String> {
    let all = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let links = all.filter_map(|entry| fs::read_link(entry.path()).ok());
    links.map(|link| link.display().to_string()).collect()
}

/// The socket that listens at this port, as descriptors show it.
fn listener_at(address: &str) -> String {
    let port: u16 = address.rsplit_once(':').unwrap().1.parse().unwrap();
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let mut lines = table.lines().skip(1).map(|line| line.split_whitespace());
    let inode = lines.find_map(|line| {
        let fields: Vec<&str> = line.collect();
        // 0A: it listens.
        let is_it = fields[1].ends_with(&format!(":{port:04X}")) && fields[3] == "0A";
        is_it.then(|| fields[9].to_owned())
    });
    format!("socket:[{}]", inode.unwrap())
}

/// Nothing is left of the agent in the shop, which goes on.
fn is_left_alone(shop: &Shop) {
    until(SOON, "the probes to go", || {
        Ok(is_as_in_its_files(shop.pid()).is_ok().then_some(()))
    })
    .unwrap();
    assert_eq!(shop.load(1, 5).unwrap(), 5);
}

fn has_ended(pid: u32) {
    until(SOON, "the other process to end", || {
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        Ok((state.is_empty() || state.contains(") Z ")).then_some(()))
    })
    .unwrap();
}

fn kill(pid: u32, signal: libc::c_int) {
    // SAFETY: plain numbers; the worker of this test's agent, which has not been waited for.
    assert_eq!(unsafe { libc::kill(pid.cast_signed(), signal) }, 0);
}

#[test]
fn only_the_process_that_attaches_has_privileges_and_only_the_worker_listens() {
    const ORDERS: u64 = 500;
    let folder = workspace::scratch().unwrap();
    // What the agent's starter has left open is not the worker's.
    let (shop, agent, dir) = begin(folder.path());
    assert_eq!(shop.load(4, ORDERS).unwrap(), ORDERS);
    let seen = agent.wait_for(COUNT, ORDERS as f64).unwrap();
    let (tracing, worker) = (agent.pid(), worker_of(agent.pid()));
    let attacher = attacher_of(agent.pid());

    let nobody = ["65534"; 4].join("\t");
    for process in [tracing, worker] {
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(status_of(process, set), "0000000000000000", "{set}");
        }
        for ids in ["Uid", "Gid"] {
            assert_eq!(status_of(process, ids), nobody);
        }
        assert_eq!(status_of(process, "Groups"), "");
    }
    for process in [tracing, worker, attacher] {
        assert_eq!(status_of(process, "NoNewPrivs"), "1");
    }
    // Of what attaches neither what the agent needed to begin, nor what would make it root again.
    let left = u64::from_str_radix(&status_of(attacher, "CapPrm"), 16).unwrap();
    let (dac_override, kill, setgid, setuid, net_admin, sys_rawio) = (1, 5, 6, 7, 12, 17);
    for bit in [dac_override, kill, setgid, setuid, net_admin, sys_rawio] {
        assert_eq!(left >> bit & 1, 0, "capability {bit}");
    }

    let listener = listener_at(agent.address());
    let (of_tracing, of_worker) = (descriptors(tracing), descriptors(worker));
    assert!(
        of_tracing.iter().any(|of| of.contains("bpf")),
        "{of_tracing:?}"
    );
    assert!(!of_tracing.contains(&listener), "{of_tracing:?}");
    // It has no program of the kernel's, and nothing that is attached.
    let is_program = |of: &&String| of.contains("bpf-prog") || of.contains("bpf_link");
    let programs: Vec<&String> = of_tracing.iter().filter(is_program).collect();
    assert!(programs.is_empty(), "{programs:?}");
    let of_attacher = descriptors(attacher);
    assert!(
        of_attacher.iter().any(|of| is_program(&of)),
        "{of_attacher:?}"
    );
    let listens = |of: &&String| *of == &listener || of.contains(&*dir.to_string_lossy());
    assert_eq!(of_attacher.iter().find(listens), None);
    assert!(of_worker.contains(&listener), "{of_worker:?}");
    let may_have = |of: &&String| {
        let kinds = ["socket:[", "pipe:[", "anon_inode:[event", "/dev/null"];
        kinds.iter().any(|kind| of.starts_with(kind))
            || of.starts_with(&*dir.to_string_lossy())
            || of.ends_with("/agent.err")
    };
    let others: Vec<&String> = of_worker.iter().filter(|of| !may_have(of)).collect();
    assert!(others.is_empty(), "{others:?}");

    // The metrics say the same of all.
    let of = |process: &str| {
        let start = format!("reqtrace_agent_process{{process=\"{process}\"");
        let mut names = seen.keys().filter(|name| name.starts_with(&start));
        names.next().unwrap().clone()
    };
    let end = "user_id=\"65534\",capabilities=\"\",no_new_privileges=\"yes\"}";
    for process in ["worker", "tracing"] {
        assert!(of(process).ends_with(end), "{}", of(process));
    }
    for name in ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE"] {
        assert!(of("attaching").contains(name), "{}", of("attaching"));
    }

    let (code, printed) = agent.end().unwrap();
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("the rights of nobody"), "{printed}");
    has_ended(worker);
    has_ended(attacher);
    let rows = all_of(&dir);
    assert_eq!(rows.len() as u64, ORDERS);
    let owners = fs::read_dir(dir.join(".spool")).unwrap().flatten();
    for file in owners {
        assert_eq!(file.metadata().unwrap().uid(), NOBODY, "{file:?}");
    }
}

/// Signals that are for the agent do nothing to its worker; the agent's reload shows in what the worker serves.
#[test]
fn signals_reach_the_agent_and_not_its_worker() {
    let folder = workspace::scratch().unwrap();
    let (shop, mut agent, dir) = begin(folder.path());
    let worker = worker_of(agent.pid());
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
        kill(worker, signal);
    }
    let config = fs::read_to_string(folder.path().join("agent.toml")).unwrap();
    agent.reload(&config.replace("7ms", "9ms")).unwrap();
    let slo = "reqtrace_slo_seconds{service=\"shop\"}";
    agent.wait_for(slo, 0.009).unwrap();
    agent.reload(&config.replace("nobody", "daemon")).unwrap();
    let refused = "reqtrace_config_reloads_total{result=\"refused\"}";
    agent.wait_for(refused, 1.0).unwrap();
    assert_eq!(shop.load(2, 50).unwrap(), 50);
    agent.wait_for(COUNT, 50.0).unwrap();
    assert_eq!(worker_of(agent.pid()), worker);
    let (code, printed) = agent.end().unwrap();
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("user of [agent] has changed"), "{printed}");
    assert_eq!(all_of(&dir).len(), 50);
}

#[test]
fn an_agent_whose_worker_is_killed_ends_and_leaves_no_probe() {
    let folder = workspace::scratch().unwrap();
    let (shop, agent, _) = begin(folder.path());
    let (tracing, worker) = (agent.pid(), worker_of(agent.pid()));
    assert!(is_as_in_its_files(shop.pid()).is_err(), "it is probed");
    kill(worker, libc::SIGKILL);
    has_ended(tracing);
    is_left_alone(&shop);
    let (code, printed) = agent.end().unwrap();
    assert_eq!(code, Some(1), "{printed}");
    assert!(
        printed.contains("the worker has ended: signal: 9"),
        "{printed}"
    );
}

#[test]
fn an_agent_whose_attacher_is_killed_ends_and_leaves_no_probe() {
    let folder = workspace::scratch().unwrap();
    let (shop, agent, _) = begin(folder.path());
    let (tracing, worker) = (agent.pid(), worker_of(agent.pid()));
    kill(attacher_of(agent.pid()), libc::SIGKILL);
    has_ended(tracing);
    is_left_alone(&shop);
    has_ended(worker);
    let (code, printed) = agent.end().unwrap();
    assert_eq!(code, Some(1), "{printed}");
    let why = "the process that attaches has ended: signal: 9";
    assert!(printed.contains(why), "{printed}");
}

#[test]
fn an_agent_whose_worker_hangs_ends_and_leaves_no_probe() {
    let folder = workspace::scratch().unwrap();
    let (shop, agent, _) = begin(folder.path());
    let (tracing, worker) = (agent.pid(), worker_of(agent.pid()));
    kill(worker, libc::SIGSTOP);
    // It says each 5 s that it works, and may be silent for 30.
    let state = || fs::read_to_string(format!("/proc/{tracing}/stat")).unwrap_or_default();
    until(Duration::from_secs(60), "the agent to end", || {
        Ok(state().contains(") Z ").then_some(()))
    })
    .unwrap();
    kill(worker, libc::SIGKILL);
    is_left_alone(&shop);
    let (code, printed) = agent.end().unwrap();
    assert_eq!(code, Some(1), "{printed}");
    assert!(
        printed.contains("the worker has answered nothing"),
        "{printed}"
    );
}

/// At no time is a row lost that was a second old, and none is there twice.
#[test]
fn rows_are_there_once_whenever_the_worker_is_killed() {
    const DEATHS: u64 = 4;
    let folder = workspace::scratch().unwrap();
    let (shop, mut agent, dir) = begin(folder.path());
    let config = fs::read_to_string(folder.path().join("agent.toml")).unwrap();
    let load = shop.start_load_for(2, 60, 2).unwrap();
    let count = |agent: &Agent| agent.scrape().ok()?.get(COUNT).copied();
    let mut least = 0.0;
    for death in 0..DEATHS {
        let counted = until(LIMIT, "orders", || {
            Ok(count(&agent).filter(|counted| *counted >= 100.0))
        });
        counted.unwrap();
        // Anywhere between two batches, files and looks.
        sleep(Duration::from_millis(410 * death));
        least += count(&agent).unwrap();
        // Half a second until a batch is handed over.
        sleep(Duration::from_millis(1_000));
        kill(worker_of(agent.pid()), libc::SIGKILL);
        has_ended(agent.pid());
        let (code, printed) = agent.end().unwrap();
        assert_eq!(code, Some(1), "{printed}");
        agent = Agent::start_with(folder.path(), &config).unwrap();
        agent.wait_for(TRACED, 1.0).unwrap();
    }
    let orders = load.finish().unwrap();
    let seen = agent.scrape().unwrap();
    assert!(seen["reqtrace_rows_made_again_total"] > 0.0, "{seen:#?}");
    let (code, printed) = agent.end().unwrap();
    assert_eq!(code, Some(0), "{printed}");
    let rows = all_of(&dir);
    let different: BTreeSet<_> = rows.iter().map(|row| row.begin).collect();
    assert_eq!(different.len(), rows.len(), "a row is there twice");
    let rows = rows.len() as u64;
    assert!(
        rows >= least as u64 && rows <= orders,
        "{least} {rows} {orders}"
    );
    let left: Vec<_> = fs::read_dir(dir.join(".spool"))
        .unwrap()
        .flatten()
        .collect();
    let names = left.iter().map(fs::DirEntry::file_name);
    let names: Vec<_> = names.map(|name| name.display().to_string()).collect();
    let is_left = |name: &String| name.ends_with(".journal") || name.ends_with(".part");
    assert!(!names.iter().any(is_left), "{names:?}");
}

/// The rows that it was given are handed over, as it outlasts the other one.
#[test]
fn a_worker_whose_agent_is_killed_hands_over_what_it_has_and_ends() {
    const ORDERS: u64 = 300;
    let folder = workspace::scratch().unwrap();
    let (shop, agent, dir) = begin(folder.path());
    assert_eq!(shop.load(2, ORDERS).unwrap(), ORDERS);
    agent.wait_for(COUNT, ORDERS as f64).unwrap();
    // Rows are on their way for half a second.
    sleep(Duration::from_secs(2));
    let (worker, attacher) = (worker_of(agent.pid()), attacher_of(agent.pid()));
    let log = folder.path().join("agent.err");
    agent.kill().unwrap();
    is_left_alone(&shop);
    has_ended(worker);
    has_ended(attacher);
    assert_eq!(all_of(&dir).len() as u64, ORDERS);
    let printed = fs::read_to_string(log).unwrap();
    let why = "the tracing process has ended without a word";
    assert!(printed.contains(why), "{printed}");
}

/// Takes the end of the control socket that a worker has.
fn control_of(worker: u32) -> File {
    let fd = |result: libc::c_long| {
        assert!(result >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: the kernel has just made it, for nobody else.
        unsafe { OwnedFd::from_raw_fd(i32::try_from(result).unwrap()) }
    };
    // SAFETY: plain numbers.
    let process = fd(unsafe { libc::syscall(libc::SYS_pidfd_open, worker, 0) });
    // SAFETY: plain numbers.
    let control = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), 0, 0) };
    File::from(fd(control))
}

/// A worker that was taken over can ask for the metrics, and for nothing else: no path, no process.
#[test]
fn a_hostile_worker_gets_nothing_and_ends_the_agent() {
    for request in ["/etc/shadow", "/proc/1/mem", "attach 1 0x401000"] {
        let folder = workspace::scratch().unwrap();
        let (shop, agent, _) = begin(folder.path());
        let (tracing, worker) = (agent.pid(), worker_of(agent.pid()));
        let before = descriptors(worker);
        let mut control = control_of(worker);
        let length = u32::try_from(request.len()).unwrap().to_le_bytes();
        control.write_all(&length).unwrap();
        control.write_all(request.as_bytes()).unwrap();
        has_ended(tracing);
        is_left_alone(&shop);
        let after: BTreeSet<String> = match Path::new(&format!("/proc/{worker}/fd")).exists() {
            true => descriptors(worker),
            false => BTreeSet::new(),
        };
        let new: Vec<&String> = after.difference(&before).collect();
        assert!(
            new.iter()
                .all(|of| !of.contains("shadow") && !of.contains("mem")),
            "{new:?}"
        );
        drop(control);
        has_ended(worker);
        let (code, printed) = agent.end().unwrap();
        assert_eq!(code, Some(1), "{printed}");
    }
}

#[test]
fn what_is_wrong_with_the_worker_is_reported() {
    let folder = workspace::scratch().unwrap();
    let file = folder.path().join("agent.toml");
    let program = folder.path().join("shop");
    let rule = rule_of_shop(&program);
    let run = |text: &str, more: &[&str]| {
        fs::write(&file, text).unwrap();
        let config = file.display().to_string();
        let mut command = reqtrace::command(["agent", "--config", &config]).unwrap();
        command.args(more);
        let outcome = reqtrace::run(command).unwrap();
        assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
        outcome.stderr
    };
    let unknown = as_nobody(&rule).replace("nobody", "no-such-user");
    for more in [&[][..], &["--check"]] {
        let printed = run(&unknown, more);
        assert!(printed.contains("user = \"no-such-user\""), "{printed}");
        assert!(printed.contains("systemd-sysusers"), "{printed}");
    }
    // Root's folder is not the worker's.
    let dir = folder.path().join("rows");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o750)).unwrap();
    let rows = format!("[rows]\ndir = \"{}\"\n", dir.display());
    let printed = run(&as_nobody(&format!("{rows}{rule}")), &[]);
    assert!(printed.contains(&dir.display().to_string()), "{printed}");
    assert!(printed.contains("nobody"), "{printed}");
    assert!(printed.contains("Permission denied"), "{printed}");

    let config = file.display().to_string();
    for part in [
        &["agent-worker"][..],
        &["agent-attacher", "--config", &config],
    ] {
        let mut alone = reqtrace::command(part).unwrap();
        alone.env_clear();
        let outcome = reqtrace::run(alone).unwrap();
        assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
        let printed = outcome.stderr;
        assert!(printed.contains("a part of `reqtrace agent`"), "{printed}");
    }
}
