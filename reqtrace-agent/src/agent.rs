//! The agent: a configuration in; each second, the processes that its rules are about in sessions, out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{info, warn};
use reqtrace_base::error::{Error, Result};
use reqtrace_base::say;
use reqtrace_capture::kernel::memory::share_allocators;
use reqtrace_capture::kernel::privileges;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use crate::attaching::{Attaching, Started};
use crate::config::{Config, Profiles};
use crate::memory;
use crate::metrics::{Metrics, Target};
use crate::obstacles::obstacles;
use crate::processes::{Id, Processes, Seen};
use crate::rights::trace_without;
use crate::rules::{Verdict, verdict};
use crate::service::Service;
use crate::session::Spec;
use crate::sink::Outputs;
use crate::systemd;
use crate::user;
use crate::worker::Worker;

/// How often it looks who is there.
const LOOK: Duration = Duration::from_secs(1);

/// An agent that runs.
struct Agent<'a> {
    path: PathBuf,
    config: Config,
    profiles: Profiles<'a>,
    outputs: Outputs,
    worker: Worker,
    attaching: Attaching,
    processes: Processes,
    memory: memory::Watch,
    /// By name, as the metrics have them.
    services: BTreeMap<String, Service>,
}

/// What signals ask of an agent.
enum Told {
    Look,
    Reload,
    End,
    /// The worker has ended.
    Fail,
    /// What attaches has ended.
    NotAttaching,
}

/// With `hidepid` this process, which has no privileges any more, sees none of another user.
fn sees_others() -> Result<()> {
    let of_init = std::fs::read("/proc/1/stat");
    of_init.map(drop).map_err(|error| {
        Error::unsupported("the processes of other users are hidden: /proc is mounted with hidepid")
            .because(error)
            .next(
                "let the agent's group see them: mount -o remount,gid=reqtrace /proc; or write user = \"root\" into [agent]",
            )
    })
}

/// Arguments with which this program runs the other processes of an agent.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    /// Calls [`crate::worker`].
    pub worker: &'a [&'a str],
    /// Calls [`crate::attacher`].
    pub attacher: &'a [&'a str],
}

/// Runs an agent until SIGTERM or SIGINT; SIGHUP reads the configuration again.
///
/// # Errors
///
/// What is wrong with the configuration, when this process may not trace, when the metrics cannot be served, and when the
/// worker ends. What is wrong with a session is a metric and a line in the log, and is tried again.
pub fn run(path: &Path, profiles: Profiles<'_>, arguments: Arguments<'_>) -> Result<()> {
    share_allocators();
    let config = Config::read(path, profiles)?;
    privileges::check()?;
    let metrics = Arc::new(Metrics::default());
    // Both before there are other threads, and anything that they must not have.
    let attaching = Started::start(arguments.attacher)?;
    let pid = attaching.pid();
    let worker = Worker::start(&config, arguments.worker, &metrics, pid, trace_without)?;
    let attaching = attaching.attach_for_us()?;
    sees_others()?;
    let outputs = Outputs {
        metrics,
        rows: worker.rows.clone(),
        rollups: worker.rollups.clone(),
        spans: worker.spans.clone(),
        stacks: worker.stacks.clone(),
    };
    let memory = memory::Watch::new([attaching.pid, worker.pid]);
    let mut agent = Agent {
        path: path.to_owned(),
        config: config.clone(),
        profiles,
        outputs,
        worker,
        processes: Processes::seen_by(attaching.client.clone()),
        attaching,
        memory,
        services: BTreeMap::new(),
    };
    agent.take(config);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build();
    let cannot =
        |error: std::io::Error| Error::failed("the agent cannot wait for signals").because(error);
    let runtime = runtime.map_err(cannot)?;
    let _guard = runtime.enter();
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(cannot)?;
    let mut clock = interval(LOOK);
    // After a long start or stop of a session one look is enough.
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let rules = agent.config.rules.len();
    let at = agent.worker.at;
    say!("reqtrace agent: metrics at http://{at}/metrics; rules: {rules}");
    say!("reqtrace agent: {}", agent.worker.words);
    if let Some(rows) = &agent.config.rows {
        say!("reqtrace agent: {}", rows.words());
    }
    if let Some(otlp) = &agent.config.otlp {
        say!("reqtrace agent: {}", otlp.words());
    }
    if let Some(off_cpu) = &agent.config.off_cpu {
        say!("reqtrace agent: {}", off_cpu.words());
    }
    let has_ended = Arc::clone(&agent.worker.has_ended);
    let attacher_has_ended = Arc::clone(&agent.attaching.has_ended);
    systemd::ready();
    loop {
        let ended = runtime.block_on(async {
            tokio::select! {
                biased;
                () = attacher_has_ended.notified() => Told::NotAttaching,
                () = has_ended.notified() => Told::Fail,
                _ = terminate.recv() => Told::End,
                _ = interrupt.recv() => Told::End,
                _ = hangup.recv() => Told::Reload,
                _ = clock.tick() => Told::Look,
            }
        });
        match ended {
            Told::Look => {
                agent.look();
                agent.bound();
                let services = agent.services.values_mut();
                let traced = services.map(|of| usize::from(of.runs())).sum();
                systemd::alive(traced, agent.services.len());
            }
            Told::Reload => {
                systemd::reloading();
                agent.reload();
                systemd::ready();
            }
            Told::End => break,
            // All sessions end with the process: the kernel takes the probes out.
            Told::Fail => return Err(agent.worker.failure()),
            Told::NotAttaching => return Err(agent.attaching.failure()),
        }
    }
    systemd::stopping();
    agent.end()?;
    say!("reqtrace agent: ended; all probes are out");
    Ok(())
}

impl Agent<'_> {
    /// Looks which processes are there, and traces those that the rules name.
    fn look(&mut self) {
        let known = self.processes.look();
        let mut wanted: BTreeMap<&str, BTreeMap<Id, &Seen>> = BTreeMap::new();
        let mut targets: BTreeMap<Target, u64> = BTreeMap::new();
        for (id, seen) in known {
            let (rule, is_young) = match verdict(&self.config, seen) {
                Verdict::Traced(rule) => (rule, false),
                Verdict::TooYoung(rule, _) => (rule, true),
                Verdict::NotWanted(_) | Verdict::NoRule(_) => continue,
            };
            let traced = self
                .config
                .rules
                .get(rule)
                .and_then(|rule| rule.traced.as_ref());
            let Some(name) = traced.map(|traced| traced.service.as_str()) else {
                continue;
            };
            let is_armed = self
                .services
                .get(name)
                .is_some_and(|of| of.has_probes(seen));
            if is_young && !is_armed {
                *targets.entry(Target::Waiting).or_default() += 1;
            } else {
                wanted.entry(name).or_default().insert(*id, seen);
            }
        }
        let mut traced: BTreeMap<&str, u64> = BTreeMap::new();
        for (name, service) in &mut self.services {
            let wanted = wanted.remove(name.as_str()).unwrap_or_default();
            service.follow(&wanted, known, &self.outputs);
            for target in service.states(&wanted) {
                *targets.entry(target).or_default() += 1;
                *traced.entry(name).or_default() += u64::from(target == Target::Traced);
            }
        }
        self.outputs.metrics.targets(&traced, targets);
    }

    /// Holds no more than `memory` for long: the session that began last ends for it.
    fn bound(&mut self) {
        let bound = self.config.agent.memory;
        let Some(held) = self.memory.look(bound) else {
            return;
        };
        self.outputs.metrics.holds(held, bound);
        let one_ends = self.services.values().any(Service::gives_way);
        let now = Instant::now();
        if !self.memory.is_too_much(held, bound, one_ends, now) {
            return;
        }
        let sessions = self.services.values_mut();
        let running = sessions.filter_map(|service| service.runs().then_some(service));
        if let Some(last) = running.max_by_key(|service| service.begun()) {
            last.give_way(held, bound);
        }
    }

    /// Reads the configuration again. One that is refused changes nothing.
    fn reload(&mut self) {
        let now = self.attaching.read(&self.path, self.profiles);
        let now = now.and_then(|now| {
            let is_same =
                (now.listen, now.is_public) == (self.config.listen, self.config.is_public);
            let changed = |section: &str| {
                let what = format!("{}: {section} has changed", self.path.display());
                Err(Error::usage(what).next("restart the agent, or leave it as it was"))
            };
            match is_same {
                true if now.rows != self.config.rows => changed("[rows]"),
                true if now.otlp != self.config.otlp => changed("[otlp]"),
                true if now.agent.user != self.config.agent.user => changed("user of [agent]"),
                true if now.off_cpu != self.config.off_cpu => changed("[profiles]"),
                // It has its own copy.
                true => self.attaching.take().map(|()| now),
                false => Err(Error::usage(format!(
                    "{}: [metrics] has changed, from {} to {}",
                    self.path.display(),
                    self.config.listen,
                    now.listen
                ))
                .next("restart the agent, or leave it as it was")),
            }
        });
        self.outputs.metrics.reloaded(now.is_ok());
        match now {
            Ok(config) => {
                self.take(config);
                info!("the configuration was read again");
            }
            Err(error) => {
                let advice = error.advice().unwrap_or_default();
                warn!("the configuration stays what it was: {error}; {advice}");
            }
        }
    }

    /// Works by this configuration from now on: sessions that are as they were go on.
    fn take(&mut self, config: Config) {
        let (memory, window) = (config.memory_of_a_rule(), config.agent.window);
        let stacks_every = config.off_cpu.as_ref().map(|off_cpu| off_cpu.every);
        let specs = config.traced().map(|(_, rule, traced)| Spec {
            service: traced.service.clone(),
            profile: traced.profile.clone(),
            program: rule.matches.program().map(Path::to_owned),
            max_cost: traced.max_cost,
            blame: traced.blame,
            texts: traced.texts,
            groups: traced.groups.clone(),
            memory,
            window,
            stacks_every,
        });
        let specs: BTreeMap<String, Spec> =
            specs.map(|spec| (spec.service.clone(), spec)).collect();
        let slos = config
            .traced()
            .map(|(.., traced)| (traced.service.clone(), traced.slo));
        self.outputs.metrics.want(&slos.collect());
        let changed = self.services.extract_if(.., |name, service| {
            specs
                .get(name)
                .is_none_or(|spec| !spec.is_like(&service.spec))
        });
        end(changed.map(|(_, service)| service).collect());
        if gives_more_room(&config, &self.config) {
            self.services.values_mut().for_each(Service::may_begin);
        }
        for (name, spec) in specs {
            let memory = spec.memory;
            let service = self.services.entry(name);
            let service = service.or_insert_with(|| Service::new(spec));
            service.spec.memory = memory;
        }
        self.config = config;
    }

    /// Ends all sessions, and hands over their rows.
    fn end(self) -> Result<()> {
        end(self.services.into_values().collect());
        // All rows have come: what takes them ends when nobody has a way to it any more.
        drop(self.outputs);
        self.worker.end()
    }
}

/// Whether a service that was too much for `memory` may find room by this configuration, where it did not by the one of before.
fn gives_more_room(config: &Config, before: &Config) -> bool {
    let rules = |config: &Config| config.traced().count();
    config.agent.memory > before.agent.memory || rules(config) < rules(before)
}

/// Ends sessions, all at a time.
fn end(mut services: Vec<Service>) {
    services.iter_mut().for_each(Service::stop);
    services.into_iter().for_each(Service::wait);
}

/// What the agent would do now: a line for each process, those that it traces first; and what on this machine is in its way.
///
/// # Errors
///
/// What is wrong with the configuration.
pub fn check(path: &Path, profiles: Profiles<'_>) -> Result<String> {
    let config = Config::read(path, profiles)?;
    let worker = user::words(&config)?;
    let mut processes = Processes::default();
    let known = processes.look();
    let mut table = crate::check::table(&config, known);
    table.push_str(&obstacles(known));
    if privileges::capabilities().is_err() {
        table.push_str("processes of other users were not looked at: run it as root to see all\n");
    }
    let rows = config
        .rows
        .as_ref()
        .map(|rows| format!("{}\n", rows.words()));
    table.push_str(&rows.unwrap_or_default());
    let otlp = config
        .otlp
        .as_ref()
        .map(|otlp| format!("{}\n", otlp.words()));
    table.push_str(&otlp.unwrap_or_default());
    let off_cpu = config
        .off_cpu
        .as_ref()
        .map(|off_cpu| format!("{}\n", off_cpu.words()));
    table.push_str(&off_cpu.unwrap_or_default());
    table.push_str(&format!("{worker}\n"));
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::parsed;

    #[test]
    fn a_larger_memory_or_fewer_rules_give_more_room() {
        let of = |memory: &str, rules: &[&str]| {
            let rule = |name: &&str| {
                format!(
                    "[[rule]]\nmatch = {{ comm = \"{name}\" }}\nservice = \"{name}\"\nprofile = \"mysql\"\n"
                )
            };
            let rules: String = rules.iter().map(rule).collect();
            parsed(&format!("[agent]\nmemory = \"{memory}\"\n{rules}"))
        };
        let before = of("400MB", &["a", "b"]);
        let gives = |memory, rules: &[&str]| gives_more_room(&of(memory, rules), &before);
        assert!(gives("500MB", &["a", "b"]) && gives("400MB", &["b"]) && gives("300MB", &["c"]));
        assert!(!gives("400MB", &["a", "c"]) && !gives("300MB", &["a", "b", "c"]));
        // A rule that traces nothing has no share.
        let without = parsed(
            "[agent]\nmemory = \"400MB\"\n[[rule]]\nmatch = { comm = \"b\" }\ntrace = false\n\
             [[rule]]\nmatch = { comm = \"a\" }\nservice = \"a\"\nprofile = \"mysql\"\n",
        );
        assert!(gives_more_room(&without, &before));
    }
}
