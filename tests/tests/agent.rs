//! `reqtrace agent`: services come, go and are replaced under load; what `/metrics` counts is what they count themselves.
//!
//! Needs root, a kernel with BPF and g++.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use reqtrace_tests::probed::{Code, is_as_in_its_files};
use reqtrace_tests::process::{Child, Stream, until};
use reqtrace_tests::scraped::{Agent, Scrape, configuration, sums};
use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::{fixtures, workspace};

pub(crate) const LIMIT: Duration = Duration::from_secs(60);
pub(crate) const COUNT: &str =
    "reqtrace_request_duration_seconds_count{service=\"shop\",type=\"order\"}";
pub(crate) const TRACED: &str = "reqtrace_traced{service=\"shop\"}";

pub(crate) fn rule_of_shop(program: &Path) -> String {
    format!(
        "[[rule]]\nmatch = {{ exe = \"{}\", min-age = \"2s\" }}\nservice = \"shop\"\nprofile = \"{}\"\nslo = \"7ms\"\n",
        program.display(),
        shop::profile().display()
    )
}

/// Nothing that counts is less than before.
fn goes_on(before: &Scrape, after: &Scrape) {
    for (name, value) in before {
        let family = name.split('{').next().unwrap_or_default();
        let counts = ["_total", "_count", "_sum", "_bucket"];
        if counts.iter().any(|end| family.ends_with(end)) {
            assert!(
                after[name] >= *value,
                "{name}: {value}, then {}",
                after[name]
            );
        }
    }
}

/// Σ of what the shop's own clocks have around and inside of each order, s.
fn clocks(log: &str) -> [f64; 2] {
    let mut sums = [0.0; 2];
    for line in log.lines() {
        let fields: Vec<f64> = line
            .split(' ')
            .map(|field| field.parse().unwrap())
            .collect();
        sums[0] += (fields[4] - fields[3]) / 1e9;
        sums[1] += (fields[5] - fields[2]) / 1e9;
    }
    sums
}

/// A service that is restarted under the agent's eyes: each order of each of its processes is counted, from the first
/// instruction on, though its rule says that processes wait for two seconds, and the durations are those of its own clocks. Meanwhile the configuration is replaced by a bad one, and
/// the listener is given garbage.
#[test]
fn each_order_of_a_shop_that_is_restarted_is_counted() {
    const ORDERS: u64 = 300;
    const RESTARTS: u64 = 3;
    let folder = workspace::scratch().unwrap();
    let program = folder.path().join("shop");
    workspace::copy_program(&workspace::shop().unwrap(), &program).unwrap();
    let mut agent = Agent::start(folder.path(), &rule_of_shop(&program)).unwrap();
    let nothing = agent.wait_for(TRACED, 0.0).unwrap();
    assert!(!nothing.contains_key(COUNT), "nobody is traced");

    let mut shop = Shop::open_from(&program).unwrap();
    let mut before = agent.wait_for(TRACED, 1.0).unwrap();
    let (mut orders, mut inside, mut around) = (0, 0.0, 0.0);
    for restart in 0..=RESTARTS {
        orders += shop.load(4, ORDERS).unwrap();
        let seen = agent.wait_for(COUNT, orders as f64).unwrap();
        goes_on(&before, &seen);
        let [parts, durations] = sums(&seen, "shop", "order");
        assert!(
            (parts - durations).abs() <= 1e-6 * durations,
            "{parts} {durations}"
        );
        before = seen;
        let [least, most] = clocks(&shop.close().unwrap());
        (inside, around) = (inside + least, around + most);
        assert!(
            (inside..around).contains(&durations),
            "{inside} {durations} {around}"
        );
        match restart {
            0 => {
                agent.reload("[agent]\nwindw = \"1s\"\n").unwrap();
                let name = "reqtrace_config_last_reload_successful";
                agent.wait_for(name, 0.0).unwrap();
                let printed = agent.printed();
                assert!(
                    printed.contains("agent.toml:2: `windw` (= \"1s\")"),
                    "{printed}"
                );
                assert!(printed.contains("did you mean `window`?"), "{printed}");
            }
            1 => {
                for garbage in [b"\0\xff\r\n\r\n".as_slice(), &[b'a'; 200_000], b"GET /"] {
                    agent.ask(garbage).unwrap();
                }
                agent
                    .reload(&configuration(&rule_of_shop(&program)))
                    .unwrap();
                agent
                    .wait_for("reqtrace_config_last_reload_successful", 1.0)
                    .unwrap();
            }
            _ => {}
        }
        // Its orders come at once: nobody waits until it is found.
        shop = Shop::open_from(&program).unwrap();
    }
    orders += shop.load(4, ORDERS).unwrap();
    let seen = agent.wait_for(COUNT, orders as f64).unwrap();
    let slow = seen["reqtrace_slow_requests_total{service=\"shop\",type=\"order\"}"];
    let fast = seen
        .iter()
        .find(|(name, _)| name.contains("_bucket{") && name.contains("le=\"0.007\""));
    assert_eq!(slow + fast.unwrap().1, orders as f64);
    let lost = |(name, value): &(&String, &f64)| {
        // The kernel may hide switches from everybody.
        name.starts_with("reqtrace_lost_total")
            && !name.contains("switch_in_unseen")
            && **value > 0.0
    };
    assert!(!seen.iter().any(|one| lost(&one)), "{seen:#?}");
    let own = format!("\"{}\"", shop.pid());
    assert!(
        seen.keys().all(|name| !name.contains(&own)),
        "no number of a process is a label"
    );

    let (code, printed) = agent.end().unwrap();
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("all probes are out"), "{printed}");
    is_as_in_its_files(shop.pid()).unwrap();
    assert_eq!(shop.load(1, 5).unwrap(), 5);
}

/// Root causes come twenty seconds later, and add up to what was waited for. An agent that is killed leaves no probe.
#[test]
fn root_causes_add_up_to_what_was_waited_for() {
    const ORDERS: u64 = 300;
    let folder = workspace::scratch().unwrap();
    let program = folder.path().join("shop");
    workspace::copy_program(&workspace::shop().unwrap(), &program).unwrap();
    let shop = Shop::open_from(&program).unwrap();
    let rule = format!("{}blame = true\n", rule_of_shop(&program));
    let agent = Agent::start(folder.path(), &rule).unwrap();
    agent.wait_for(TRACED, 1.0).unwrap();
    shop.load(4, ORDERS).unwrap();
    let seen = agent.wait_for(COUNT, ORDERS as f64).unwrap();
    let sum = |start: &str| -> f64 {
        let all = seen.iter().filter(|(name, _)| name.starts_with(start));
        all.map(|(_, value)| value).sum()
    };
    let part = |part: &str| {
        sum(&format!(
            "reqtrace_request_part_seconds_total{{service=\"shop\",type=\"order\",part=\"{part}\""
        ))
    };
    let ran = part("on_cpu") + part("run_queue") + part("preempted");
    let waited = sum("reqtrace_request_part_seconds_total") - ran;
    let causes = sum("reqtrace_root_cause_seconds_total");
    assert!(waited > 0.1, "{seen:#?}");
    assert!(
        (causes - waited).abs() <= 1e-6 * waited,
        "{causes} {waited}"
    );
    let unknown = seen["reqtrace_root_cause_seconds_total{service=\"shop\",type=\"order\",cause=\"unknown\"}"];
    assert!(unknown < 0.5 * waited, "{unknown} of {waited}");
    agent.kill().unwrap();
    until(LIMIT, "the probes to go", || {
        Ok(is_as_in_its_files(shop.pid()).is_ok().then_some(()))
    })
    .unwrap();
    assert_eq!(shop.load(1, 5).unwrap(), 5);
}

/// A service of a fixture that does what it is asked to.
struct Asked {
    process: Child,
    calls: u64,
}

impl Asked {
    fn start(program: &Path) -> Self {
        let mut command = Command::new(program);
        command.arg("asked");
        let name = program.file_name().unwrap().to_string_lossy().into_owned();
        let mut process = Child::start(command, program.parent().unwrap(), &name).unwrap();
        process.wait_for_line(Stream::Out, "ready", LIMIT).unwrap();
        Self { process, calls: 0 }
    }

    fn serve(&mut self, requests: u64) {
        self.process.tell(&requests.to_string()).unwrap();
        self.calls += requests;
        let done = format!("done {}", self.calls);
        self.process
            .wait_for_line(Stream::Out, &done, LIMIT)
            .unwrap();
    }

    fn is_probed(&self) -> bool {
        Code::of_function(self.process.pid(), "work")
            .unwrap()
            .is_probed()
            .unwrap()
    }
}

/// Programs by a glob, of which an earlier rule leaves one out: processes of another file join a session that runs. A rule
/// that is taken out takes the probes with it, and the sessions of others go on.
#[test]
fn rules_decide_who_joins_and_who_is_left_out() {
    let folder = workspace::scratch().unwrap();
    let first = fixtures::compile("workers", folder.path()).unwrap();
    let copy = |name: &str| {
        let to = folder.path().join(name);
        std::fs::copy(&first, &to).unwrap();
        to
    };
    let (second, third) = (copy("workers-too"), copy("workers-not"));
    let profile = folder.path().join("workers.toml");
    fixtures::write_profile(&profile, "work", "work", "").unwrap();
    let rule = |service: &str, exe: &Path| {
        format!(
            "[[rule]]\nmatch = {{ exe = \"{}\", min-age = \"0s\" }}\nservice = \"{service}\"\nprofile = \"{}\"\n",
            exe.display(),
            profile.display()
        )
    };
    let left_out = "[[rule]]\nmatch = { comm = \"workers-not\" }\ntrace = false\n";
    let all = rule("workers", &folder.path().join("workers*"));
    let mut one = Asked::start(&first);
    let mut not = Asked::start(&third);
    let mut agent = Agent::start(folder.path(), &format!("{left_out}{all}")).unwrap();
    let traced = "reqtrace_traced{service=\"workers\"}";
    let count = "reqtrace_request_duration_seconds_count{service=\"workers\",type=\"work\"}";
    agent.wait_for(traced, 1.0).unwrap();
    one.serve(50);
    not.serve(50);
    agent.wait_for(count, 50.0).unwrap();

    let mut two = Asked::start(&second);
    agent.wait_for(traced, 2.0).unwrap();
    until(LIMIT, "probes", || Ok(two.is_probed().then_some(()))).unwrap();
    // The first hit may come before all of them are set.
    thread::sleep(Duration::from_millis(500));
    two.serve(50);
    agent.wait_for(count, 100.0).unwrap();
    assert!(!not.is_probed());
    not.serve(50);

    // What is open now alerts, though nothing ends.
    one.process.tell("20000").unwrap();
    agent
        .wait_for("reqtrace_requests_open{service=\"workers\"}", 1.0)
        .unwrap();

    // One that was left out is a service of its own from now on, and the other is none.
    let rules = rule("not", &third);
    agent.reload(&configuration(&rules)).unwrap();
    agent
        .wait_for("reqtrace_traced{service=\"not\"}", 1.0)
        .unwrap();
    let of_not = "reqtrace_request_duration_seconds_count{service=\"not\",type=\"work\"}";
    not.serve(50);
    let seen = agent.wait_for(of_not, 50.0).unwrap();
    assert!(!seen.contains_key(traced), "{seen:#?}");
    assert!(!one.is_probed() && !two.is_probed() && not.is_probed());

    // Another rule beside it changes nothing for it.
    agent
        .reload(&configuration(&format!("{rules}{all}")))
        .unwrap();
    agent
        .wait_for("reqtrace_config_reloads_total{result=\"accepted\"}", 2.0)
        .unwrap();
    not.serve(50);
    agent.wait_for(of_not, 100.0).unwrap();
    let (code, printed) = agent.end().unwrap();
    assert_eq!(code, Some(0), "{printed}");
    assert!(!one.is_probed() && !not.is_probed());
}

/// Workers that are replaced after some requests each, many a second: children of a traced process are traced from their
/// first instruction on, and leave nothing behind.
#[test]
fn workers_that_are_recycled_are_counted() {
    const REPLACED: u64 = 400;
    let folder = workspace::scratch().unwrap();
    let program = fixtures::compile("workers", folder.path()).unwrap();
    let profile = folder.path().join("workers.toml");
    fixtures::write_profile(&profile, "work", "work", "").unwrap();
    let mut command = Command::new(&program);
    command.args(["8", &REPLACED.to_string(), "20"]);
    let mut service = Child::start(command, folder.path(), "workers").unwrap();
    service.wait_for_line(Stream::Out, "ready", LIMIT).unwrap();
    let rule = format!(
        "[[rule]]\nmatch = {{ comm = \"workers\", exe = \"{}/*\", min-age = \"1s\" }}\nservice = \"pool\"\nprofile = \"{}\"\n",
        folder.path().display(),
        profile.display()
    );
    let agent = Agent::start(folder.path(), &rule).unwrap();
    let traced = "reqtrace_traced{service=\"pool\"}";
    until(LIMIT, "the pool", || {
        Ok((agent
            .scrape()?
            .get(traced)
            .is_some_and(|traced| *traced >= 1.0))
        .then_some(()))
    })
    .unwrap();
    service.tell("go").unwrap();
    let count = "reqtrace_request_duration_seconds_count{service=\"pool\",type=\"work\"}";
    let seen = agent.wait_for(count, (20 * REPLACED) as f64).unwrap();
    let [parts, durations] = sums(&seen, "pool", "work");
    assert!(
        (parts - durations).abs() <= 1e-6 * durations,
        "{parts} {durations}"
    );
    service.wait_for_line(Stream::Out, "done", LIMIT).unwrap();
    drop(service.stdin());
    assert!(service.wait(LIMIT).unwrap().success());
    agent.wait_for(traced, 0.0).unwrap();
    assert_eq!(
        agent.scrape().unwrap()["reqtrace_targets{state=\"refused\"}"],
        0.0
    );
    assert_eq!(agent.end().unwrap().0, Some(0));
}

/// A process of no rule that runs the traced program pays for its probes: only until that is more than little.
#[test]
fn others_that_run_the_same_program_do_not_pay_for_long() {
    const ORDERS: u64 = 300;
    let folder = workspace::scratch().unwrap();
    let (program, other) = (folder.path().join("shop"), folder.path().join("other"));
    workspace::copy_program(&workspace::shop().unwrap(), &program).unwrap();
    std::os::unix::fs::symlink(&program, &other).unwrap();
    let shop = Shop::open_from(&program).unwrap();
    let foreign = Shop::open_from(&other).unwrap();
    let rule = rule_of_shop(&program).replace("match = {", "match = { comm = \"shop\",");
    let agent = Agent::start(folder.path(), &rule).unwrap();
    agent
        .wait_for("reqtrace_traced{service=\"shop\"}", 1.0)
        .unwrap();
    assert_eq!(shop.load(2, ORDERS).unwrap(), ORDERS);
    let count = "reqtrace_request_duration_seconds_count{service=\"shop\",type=\"order\"}";
    agent.wait_for(count, ORDERS as f64).unwrap();
    assert!(is_as_in_its_files(foreign.pid()).is_err(), "it is probed");

    let busy = foreign.start_load_for(4, 60, 0).unwrap();
    until(LIMIT, "its probes to go", || {
        Ok(is_as_in_its_files(foreign.pid()).is_ok().then_some(()))
    })
    .unwrap();
    until(LIMIT, "those of the traced one to come back", || {
        Ok(is_as_in_its_files(shop.pid()).is_err().then_some(()))
    })
    .unwrap();
    // All of them.
    thread::sleep(Duration::from_secs(1));
    assert_eq!(shop.load(2, ORDERS).unwrap(), ORDERS);
    agent.wait_for(count, 2.0 * ORDERS as f64).unwrap();
    is_as_in_its_files(foreign.pid()).unwrap();
    // A process that comes later has its own.
    drop(shop);
    let again = Shop::open_from(&program).unwrap();
    until(LIMIT, "its probes", || {
        Ok(is_as_in_its_files(again.pid()).is_err().then_some(()))
    })
    .unwrap();
    thread::sleep(Duration::from_secs(1));
    assert_eq!(again.load(2, ORDERS).unwrap(), ORDERS);
    agent.wait_for(count, 3.0 * ORDERS as f64).unwrap();
    is_as_in_its_files(foreign.pid()).unwrap();
    drop(busy);
    let (code, printed) = agent.end().unwrap();
    assert_eq!(code, Some(0), "{printed}");
}

/// A service with mounts of its own, as systemd starts most, whose file an upgrade replaces while it runs.
#[test]
fn whoever_runs_a_file_that_was_replaced_is_traced_on() {
    let folder = workspace::scratch().unwrap();
    let (program, new) = (folder.path().join("shop"), folder.path().join("new"));
    workspace::copy_program(&workspace::shop().unwrap(), &program).unwrap();
    let mut command = Command::new(workspace::program("unshare").unwrap());
    command
        .args(["--mount", "--propagation", "private"])
        .arg(&program)
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(folder.path().join("data"))
        .arg("--log")
        .arg(folder.path().join("log"));
    let mut service = Child::start(command, folder.path(), "service").unwrap();
    service
        .wait_for_line(Stream::Out, "listening on ", LIMIT)
        .unwrap();
    let mut agent = Agent::start(folder.path(), &rule_of_shop(&program)).unwrap();
    agent.wait_for(TRACED, 1.0).unwrap();
    workspace::copy_program(&workspace::shop().unwrap(), &new).unwrap();
    std::fs::rename(&new, &program).unwrap();
    for _ in 0..2 {
        // All that is known of processes is read again each ten looks.
        thread::sleep(Duration::from_secs(12));
        agent.wait_for(TRACED, 1.0).unwrap();
        let printed = agent.printed();
        assert!(!printed.contains("is not traced any more"), "{printed}");
        agent
            .reload(&configuration(&rule_of_shop(&program)))
            .unwrap();
    }
    assert_eq!(agent.end().unwrap().0, Some(0));
}
