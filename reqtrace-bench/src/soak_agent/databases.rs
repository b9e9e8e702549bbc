//! MariaDB under sysbench and PostgreSQL under pgbench, one UPDATE an event, each connection on a row of its own that counts
//! them: what is committed can be read also after a restart that nobody could count in.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use reqtrace_tests::mariadb::{Counters, MariaDb};
use reqtrace_tests::process::Child;
use reqtrace_tests::servers::Server;
use reqtrace_tests::sysbench::Sysbench;

use super::service::{BEFORE_RESTART, CONNECTIONS, Round, Service};

/// A database server with its load generator.
pub(super) trait Load: Send {
    /// Requests of reading, and of the first answer after a start.
    const READING: u64;
    const STARTING: u64;
    /// Requests of a connection's end.
    const LEAVING: u64;

    fn run(&mut self, events: u64) -> Result<u64>;
    fn begin(&self) -> Result<Child>;
    fn restart(&mut self) -> Result<()>;
    /// Σ of the rows; a reading takes [`Self::READING`] requests.
    fn read(&mut self) -> Result<u64>;
    /// Requests since the reading before, by the server's own counters, if it has such.
    fn served(&self) -> Option<u64>;
    fn pid(&self) -> u32;
}

/// One that was read.
pub(super) struct Database<L> {
    load: L,
    sum: u64,
}

impl<L: Load> Database<L> {
    pub(super) fn begin(mut load: L) -> Result<Self> {
        let sum = load.read()?;
        Ok(Self { load, sum })
    }

    /// Events since the last time.
    fn events(&mut self) -> Result<u64> {
        let before = std::mem::replace(&mut self.sum, self.load.read()?);
        self.sum.checked_sub(before).context("updates were lost")
    }
}

impl<L: Load> Service for Database<L> {
    fn steady(&mut self, requests: u64) -> Result<Round> {
        let made = self.load.run(requests)?;
        let events = self.events()?;
        ensure!(
            made == events,
            "{made} updates were made, {events} are there"
        );
        let all = made + L::LEAVING * u64::from(CONNECTIONS) + L::READING;
        let served = self.load.served();
        let served = served.unwrap_or(events + L::LEAVING * u64::from(CONNECTIONS) + L::READING);
        Ok(Round {
            least: all,
            most: all,
            served: Some(served),
            cut_off: 0,
        })
    }

    fn restart(&mut self) -> Result<Round> {
        let mut load = self.load.begin()?;
        thread::sleep(BEFORE_RESTART);
        ensure!(load.status()?.is_none(), "the load has ended by itself");
        self.load.restart()?;
        // It has lost its connections, or does so now.
        load.stop()?;
        let events = self.events()?;
        let own = L::READING + L::STARTING;
        let connections = u64::from(CONNECTIONS);
        Ok(Round {
            // What was committed may have been cut off before its end; what ended may have failed.
            least: (events + own).saturating_sub(connections),
            most: events + own + connections * (1 + L::LEAVING),
            served: None,
            cut_off: 0,
        })
    }

    fn pid(&self) -> u32 {
        self.load.pid()
    }
}

/// MariaDB.
pub(super) struct MariaDbLoad {
    server: MariaDb,
    rate: u32,
    counters: [Counters; 2],
}

const UPDATE: &str = "update sbtest.soak set v = v + 1 where id = ID";

impl MariaDbLoad {
    pub(super) fn start(program: &Path, rate: u32) -> Result<Self> {
        let server = MariaDb::open_program(program, &[])?;
        let rows: Vec<String> = (1..=CONNECTIONS).map(|id| format!("({id}, 0)")).collect();
        server.sql(&format!(
            "create table sbtest.soak (id int primary key, v bigint) engine=innodb; insert into sbtest.soak values {}",
            rows.join(", ")
        ))?;
        Ok(Self {
            server,
            rate,
            counters: [Counters::default(); 2],
        })
    }
}

impl Load for MariaDbLoad {
    /// Two connections, each a statement and its end.
    const READING: u64 = 4;
    const STARTING: u64 = 2;
    const LEAVING: u64 = 1;

    fn run(&mut self, events: u64) -> Result<u64> {
        let run = Sysbench::run_statement(&self.server, UPDATE, CONNECTIONS, self.rate, events)?;
        ensure!(run.ignored_errors == 0, "{run:?}");
        Ok(run.queries)
    }

    fn begin(&self) -> Result<Child> {
        Sysbench::start_statement(&self.server, UPDATE, CONNECTIONS, self.rate)
    }

    fn restart(&mut self) -> Result<()> {
        self.server.restart()
    }

    fn read(&mut self) -> Result<u64> {
        let sum = self.server.sql("select sum(v) from sbtest.soak")?;
        self.counters = [self.counters[1], self.server.counters()?];
        Ok(sum.trim().parse()?)
    }

    fn served(&self) -> Option<u64> {
        let [before, now] = &self.counters;
        // With what the reading itself takes.
        Some(now.commands_since(before) + 2)
    }

    fn pid(&self) -> u32 {
        self.server.pid()
    }
}

/// PostgreSQL.
pub(super) struct PostgresLoad {
    server: Server,
    rate: u32,
    script: PathBuf,
    folder: tempfile::TempDir,
}

impl PostgresLoad {
    pub(super) fn start(program: &Path, rate: u32) -> Result<Self> {
        let server = Server::postgresql_program(program)?;
        let sql = format!(
            "create table soak (id int primary key, v bigint) with (fillfactor = 10); insert into soak select i, 0 from generate_series(0, {}) i",
            CONNECTIONS - 1
        );
        server.run("psql", &["-q", "-c", &sql])?;
        let folder = tempfile::tempdir()?;
        let script = folder.path().join("update.sql");
        fs::write(
            &script,
            "update soak set v = v + 1 where id = :client_id;\n",
        )?;
        Ok(Self {
            server,
            rate,
            script,
            folder,
        })
    }

    fn pgbench(&self, transactions: u64) -> Vec<String> {
        let script = self.script.display();
        let line = format!(
            "-n -c {CONNECTIONS} -R {} -t {transactions} -f {script}",
            self.rate
        );
        line.split(' ').map(str::to_owned).collect()
    }
}

fn borrowed(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

impl Load for PostgresLoad {
    const READING: u64 = 1;
    const STARTING: u64 = 1;
    /// A client's good-bye has no answer: it is an incomplete request.
    const LEAVING: u64 = 0;

    fn run(&mut self, events: u64) -> Result<u64> {
        let words = self.pgbench(events.div_ceil(u64::from(CONNECTIONS)));
        let printed = self.server.run("pgbench", &borrowed(&words))?;
        let start = "number of transactions actually processed: ";
        let line = printed.lines().find_map(|line| line.strip_prefix(start));
        let line = line.with_context(|| format!("pgbench says nothing of it: {printed}"))?;
        let (made, _) = line.split_once('/').unwrap_or((line, ""));
        Ok(made.parse()?)
    }

    fn begin(&self) -> Result<Child> {
        let words = self.pgbench(1_000_000);
        let command = self.server.client("pgbench", &borrowed(&words))?;
        Child::start(command, self.folder.path(), "pgbench")
    }

    fn restart(&mut self) -> Result<()> {
        self.server.restart_postgresql()
    }

    fn read(&mut self) -> Result<u64> {
        let sum = self
            .server
            .run("psql", &["-qAt", "-c", "select sum(v) from soak"])?;
        Ok(sum.trim().parse()?)
    }

    fn served(&self) -> Option<u64> {
        None
    }

    fn pid(&self) -> u32 {
        self.server.pid()
    }
}
