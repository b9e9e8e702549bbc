//! The four services: a rate in; rounds of load whose requests are counted by who makes them and by who serves them, out.
//!
//! A round is *still* at both ends: no request is in flight. In a steady round both counts are exact. In a round with a restart
//! in its midst requests are cut off; their number is bounded by that of the connections, or by what broke off.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use reqtrace_tests::workspace;

use super::databases::{Database, MariaDbLoad, PostgresLoad};
use super::web::{NginxLoad, PhpFpmLoad};

/// Connections of each load.
pub(super) const CONNECTIONS: u32 = 4;
/// Load before a restart.
pub(super) const BEFORE_RESTART: Duration = Duration::from_secs(2);

/// How many complete requests a tracer must have seen since the round before, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Round {
    /// By who makes the requests: the same in a steady round.
    pub(super) least: u64,
    pub(super) most: u64,
    /// By who serves them, where that can be read after the round.
    pub(super) served: Option<u64>,
    /// So many of `least` may be incomplete: their process was stopped when it had answered, and was not at the request's end.
    pub(super) cut_off: u64,
}

/// A service under load.
pub(super) trait Service: Send {
    /// Asks for so many requests at its rate, and waits until all are served.
    fn steady(&mut self, requests: u64) -> Result<Round>;

    /// Restarts it while it is under load, and waits until nothing is in flight.
    fn restart(&mut self) -> Result<Round>;

    /// Its process number now: that of the parent of all others.
    fn pid(&self) -> u32;
}

/// What the agent's rule of a service says, and what makes its load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) profile: &'static str,
    pub(super) of_type: &'static str,
    program: &'static str,
    /// Who counts.
    pub(super) counts: &'static str,
}

/// All four.
pub(super) const KINDS: [Kind; 4] = [
    Kind {
        name: "mariadb",
        profile: "mysql",
        of_type: "command",
        program: "mariadbd",
        counts: "sysbench's `queries`, `Questions` and the like of `SHOW STATUS`, rows that count their updates",
    },
    Kind {
        name: "postgresql",
        profile: "postgresql",
        of_type: "query",
        program: "postgres",
        counts: "pgbench's `transactions actually processed`, rows that count their updates",
    },
    Kind {
        name: "nginx",
        profile: "nginx",
        of_type: "request",
        program: "nginx",
        counts: "answers that its clients have read, lines of its access log",
    },
    Kind {
        name: "php-fpm",
        profile: "php-fpm",
        of_type: "script",
        program: "php-fpm8.2",
        counts: "answers that its clients have read, lines of its access log",
    },
];

impl Kind {
    /// Its program of our own: whoever else runs the same server on this machine is another file, and is not traced.
    fn copy(&self, folder: &Path) -> Result<PathBuf> {
        if self.name == "postgresql" {
            return reqtrace_tests::servers::copy_postgresql(folder);
        }
        let copy = folder.join(self.program);
        workspace::copy_program(&workspace::program(self.program)?, &copy)?;
        Ok(copy)
    }

    /// Starts it.
    fn start(&self, program: &Path, rate: u32) -> Result<Box<dyn Service>> {
        Ok(match self.name {
            "mariadb" => Box::new(Database::begin(MariaDbLoad::start(program, rate)?)?),
            "postgresql" => Box::new(Database::begin(PostgresLoad::start(program, rate)?)?),
            "nginx" => Box::new(NginxLoad::start(program, rate)?),
            _ => Box::new(PhpFpmLoad::start(program, rate)?),
        })
    }

    /// A rule of the agent.
    pub(super) fn rule(&self, program: &Path) -> String {
        format!(
            "[[rule]]\nmatch = {{ exe = \"{}\" }}\nservice = \"{}\"\nprofile = \"{}\"\nslo = \"5ms\"\n",
            program.display(),
            self.name,
            self.profile
        )
    }
}

/// Work of a service's thread.
type Job = Box<dyn FnOnce(&mut dyn Service) + Send>;

/// A service that runs, in a thread of its own: the kernel ends what a thread has started when that thread ends.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) kind: Kind,
    pub(super) program: PathBuf,
    jobs: Sender<Job>,
}

impl Running {
    /// Starts it from a program of our own in this folder.
    pub(super) fn start(kind: Kind, folder: &Path, rate: u32) -> Result<Self> {
        let program = kind.copy(folder)?;
        let (jobs, todo) = channel::<Job>();
        let (started, result) = channel();
        let of_thread = program.clone();
        thread::Builder::new()
            .name(kind.name.to_owned())
            .spawn(move || {
                let mut service = match kind.start(&of_thread, rate) {
                    Ok(service) => service,
                    // Who waits for it has not gone.
                    Err(error) => return drop(started.send(Err(error))),
                };
                let _ = started.send(Ok(()));
                while let Ok(job) = todo.recv() {
                    job(service.as_mut());
                }
            })?;
        result
            .recv()
            .with_context(|| format!("{}: its thread has ended", kind.name))??;
        Ok(Self {
            kind,
            program,
            jobs,
        })
    }

    /// Does something with it, and waits for that.
    pub(super) fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn Service) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (done, result) = channel();
        let job: Job = Box::new(move |service| drop(done.send(work(service))));
        let name = self.kind.name;
        self.jobs
            .send(job)
            .ok()
            .with_context(|| format!("{name}: its thread has ended"))?;
        let result = result
            .recv()
            .with_context(|| format!("{name}: its load panicked"))?;
        result.context(name)
    }
}

/// Does the same with all of them at a time.
pub(super) fn all<T: Send + 'static>(
    running: &[Running],
    work: impl Fn(&mut dyn Service) -> Result<T> + Clone + Send + 'static,
) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let threads = running.iter().map(|one| {
            let work = work.clone();
            scope.spawn(move || one.with(work))
        });
        let threads: Vec<_> = threads.collect();
        let results = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| bail!("a load panicked")));
        results.collect::<Vec<_>>().into_iter().collect()
    })
}
