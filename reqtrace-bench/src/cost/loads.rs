//! The servers that are measured, and their loads.
//!
//! In: nothing. Out: servers that run until they are dropped, and loads of so many seconds: what the
//! generator counted in how long.

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use reqtrace_profile::builtin::{BuiltIn, built_in};
use reqtrace_tests::jobs::Running;
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::nginx::Nginx;
use reqtrace_tests::servers::Server as Process;
use reqtrace_tests::sysbench::Sysbench;
use reqtrace_tests::{goroutines, http, hyper};

/// Events that Redis is asked for the first time; later as many as fit into the time.
const FIRST_COMMANDS: u64 = 50_000;

/// What a generator says that it has done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Done {
    pub(crate) events: u64,
    pub(crate) seconds: f64,
}

/// A load of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    /// Its name in tables.
    pub(super) name: &'static str,
    /// The generator's command line, without how long.
    pub(super) command: &'static str,
    /// What the generator counts, in the singular.
    pub(super) unit: &'static str,
    /// Seconds of a run, of those that a `--seconds` of 1 gives.
    seconds: u32,
}

/// MariaDB's load, to which most targets refer.
pub(super) const MARIADB: Load = Load {
    name: "MariaDB oltp_read_write",
    command: "sysbench oltp_read_write --threads=16",
    unit: "statement",
    seconds: 2,
};
/// PostgreSQL's, of one statement each.
pub(super) const SELECT: Load = Load {
    name: "pgbench -S",
    command: "pgbench -n -S -c 8 -j 2",
    unit: "transaction",
    seconds: 1,
};
/// The same, prepared.
pub(super) const PREPARED: Load = Load {
    name: "pgbench -S -M prepared",
    command: "pgbench -n -S -M prepared -c 8 -j 2",
    unit: "transaction",
    seconds: 1,
};
/// Seven statements each, of which five change something.
pub(super) const TPCB: Load = Load {
    name: "pgbench tpcb-like",
    command: "pgbench -n -c 8 -j 2",
    unit: "transaction",
    seconds: 2,
};
/// The shortest requests there are.
pub(super) const REDIS: Load = Load {
    name: "Redis GET",
    command: "redis-benchmark -t get -c 20",
    unit: "command",
    seconds: 1,
};
/// A file of 4 KiB.
pub(super) const NGINX: Load = over_http("nginx");
/// A few bytes, by a task of tokio.
pub(super) const AXUM: Load = over_http("axum");
/// A few bytes, by a goroutine.
pub(super) const GO: Load = over_http("Go net/http");

const fn over_http(name: &'static str) -> Load {
    Load {
        name,
        command: "ab -k -c 8",
        unit: "request",
        seconds: 1,
    }
}

/// A server that runs.
pub(super) enum Server<'a> {
    MariaDb(&'a MariaDb, Sysbench<'a>),
    PostgreSql(Process),
    /// With the number of commands of its next load.
    Redis(Process, Cell<u64>),
    Nginx(Nginx),
    /// With its port.
    Axum(Running, u16),
    Go(Running, u16),
}

impl<'a> Server<'a> {
    /// MariaDB with the tables of sysbench.
    pub(super) fn mariadb(server: &'a MariaDb) -> Result<Self> {
        let sysbench = Sysbench::prepare(server, 4, 100_000)?;
        Ok(Self::MariaDb(server, sysbench))
    }

    /// PostgreSQL with more branches than connections, so that they are not one queue.
    pub(super) fn postgresql() -> Result<Self> {
        let server = Process::postgresql()?;
        server.run("pgbench", &["-i", "-q", "-s", "10"])?;
        Ok(Self::PostgreSql(server))
    }

    /// Redis in memory only.
    pub(super) fn redis() -> Result<Self> {
        let server = Process::redis_without_file()?;
        Ok(Self::Redis(server, Cell::new(FIRST_COMMANDS)))
    }

    /// nginx with two workers and one file.
    pub(super) fn nginx() -> Result<Self> {
        let server = Nginx::start(2)?;
        fs::write(server.documents().join("page"), [b'x'; 4096])?;
        Ok(Self::Nginx(server))
    }

    /// The example `web` on as many threads as there are CPUs.
    pub(super) fn axum() -> Result<Self> {
        let (server, address) = hyper::serve("axum", "multi")?;
        let port = address.rsplit(':').next().context("no port")?.parse()?;
        Ok(Self::Axum(server, port))
    }

    /// The example `goroutines` as a server.
    pub(super) fn go() -> Result<Self> {
        let (server, port) = goroutines::server(&goroutines::program()?)?;
        Ok(Self::Go(server, port))
    }

    /// Whether its requests are a runtime's, of which tracers of threads know nothing.
    pub(super) fn has_runtime(&self) -> bool {
        matches!(self, Self::Axum(..) | Self::Go(..))
    }

    /// Whether its profile can do with fewer probes.
    pub(super) fn can_be_cheap(&self) -> bool {
        let profile = built_in(self.profile()).and_then(BuiltIn::parse);
        profile.is_ok_and(|profile| profile.can_be_cheap())
    }

    pub(super) fn loads(&self) -> &'static [Load] {
        match self {
            Self::MariaDb(..) => &[MARIADB],
            Self::PostgreSql(_) => &[SELECT, PREPARED, TPCB],
            Self::Redis(..) => &[REDIS],
            Self::Nginx(_) => &[NGINX],
            Self::Axum(..) => &[AXUM],
            Self::Go(..) => &[GO],
        }
    }

    /// The process to name to a tracer.
    pub(super) fn pid(&self) -> u32 {
        match self {
            Self::MariaDb(server, _) => server.pid(),
            Self::PostgreSql(server) | Self::Redis(server, _) => server.pid(),
            Self::Nginx(server) => server.pid(),
            Self::Axum(server, _) | Self::Go(server, _) => server.pid(),
        }
    }

    /// The built-in profile.
    pub(super) fn profile(&self) -> &'static str {
        match self {
            Self::MariaDb(..) => "mysql",
            Self::PostgreSql(_) => "postgresql",
            Self::Redis(..) => "redis",
            Self::Nginx(_) => "nginx",
            Self::Axum(..) => "axum",
            Self::Go(..) => "go-http",
        }
    }

    /// Symbols of the functions where a request begins and where it returns, for a tracer that knows
    /// no profile; of a runtime's there are none.
    pub(super) fn symbols(&self) -> Option<[&'static str; 2]> {
        Some(match self {
            Self::MariaDb(..) => ["_Z16dispatch_command19enum_server_commandP3THDPcjb"; 2],
            Self::PostgreSql(_) => ["pq_getmessage", "ReadyForQuery"],
            Self::Redis(..) => ["call"; 2],
            Self::Nginx(_) => ["ngx_http_process_request"; 2],
            Self::Axum(..) | Self::Go(..) => return None,
        })
    }

    /// The file of its program.
    pub(super) fn executable(&self) -> Result<PathBuf> {
        let link = format!("/proc/{}/exe", self.pid());
        fs::read_link(&link).context(link)
    }

    /// Runs a load. Its connections have ended when this returns, but for those that a server closes
    /// in its own time.
    pub(super) fn run(&self, load: &Load, scale: u32) -> Result<Done> {
        let seconds = load.seconds * scale;
        match self {
            Self::MariaDb(server, sysbench) => {
                let run = sysbench.run_seconds("oltp_read_write", 16, seconds)?;
                server.wait_until_alone()?;
                Ok(Done {
                    events: run.queries,
                    seconds: run.micros as f64 / 1e6,
                })
            }
            Self::PostgreSql(server) => {
                let time = seconds.to_string();
                let own: Vec<&str> = load
                    .command
                    .split(' ')
                    .skip(1)
                    .chain(["-T", &time])
                    .collect();
                pgbench(&server.run("pgbench", &own)?)
            }
            Self::Redis(server, commands) => {
                let number = commands.get().to_string();
                let own = load.command.split(' ').skip(1);
                let own: Vec<&str> = own.chain(["-q", "-n", &number]).collect();
                let done = redis(&server.redis_benchmark(&own)?, commands.get())?;
                // Only ever more: the slower run of a watcher must not shorten the others'.
                let fits = done.events as f64 / done.seconds * f64::from(seconds);
                commands.set(commands.get().max(fits as u64));
                Ok(done)
            }
            Self::Nginx(server) => ab(server.port(), "/page", seconds),
            Self::Axum(_, port) => ab(*port, "/", seconds),
            Self::Go(_, port) => ab(*port, "/0", seconds),
        }
    }
}

/// The load of [`over_http`].
fn ab(port: u16, path: &str, seconds: u32) -> Result<Done> {
    let (events, seconds) = http::ab_seconds(port, path, 8, seconds)?;
    Ok(Done { events, seconds })
}

/// pgbench's number and rate; the rate is without the time to connect.
pub(crate) fn pgbench(printed: &str) -> Result<Done> {
    let value = |name: &str| -> Result<f64> {
        let value = printed.lines().find_map(|line| line.strip_prefix(name));
        let value = value.and_then(|value| value.split([' ', '/']).next());
        let value =
            value.with_context(|| format!("pgbench says nothing of {name:?}: {printed}"))?;
        Ok(value.parse()?)
    };
    let events = value("number of transactions actually processed: ")?;
    Ok(Done {
        events: events as u64,
        seconds: events / value("tps = ")?,
    })
}

/// redis-benchmark's `GET: 98765.43 requests per second, p50=0.1 msec`, after what it says meanwhile.
fn redis(printed: &str, events: u64) -> Result<Done> {
    let lines = printed.split(['\r', '\n']);
    let mut rates = lines.filter_map(|line| {
        let (rate, _) = line.split_once(" requests per second")?;
        rate.rsplit(' ').next()?.parse::<f64>().ok()
    });
    let rate = rates.next_back();
    let rate = rate.with_context(|| format!("redis-benchmark gives no rate: {printed}"))?;
    Ok(Done {
        events,
        seconds: events as f64 / rate,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generators_say_what_they_have_done() {
        let printed = "number of transactions actually processed: 1000/1000\n\
            initial connection time = 9.1 ms\ntps = 500.000000 (without initial connection time)\n";
        let done = pgbench(printed).unwrap();
        assert_eq!((done.events, done.seconds), (1000, 2.0));
        assert!(pgbench("nothing").is_err());
        let printed =
            "GET: rps=0.0 (overall: 0.0)\rGET: 400.00 requests per second, p50=0.1 msec\n\n";
        let done = redis(printed, 800).unwrap();
        assert_eq!((done.events, done.seconds), (800, 2.0));
        assert!(redis("Could not connect", 1).is_err());
    }
}
