//! sysbench as a finite load: so many transactions, then it ends.
//!
//! In: a running [`MariaDb`]. Out: what sysbench says it did.

use std::process::Command;

use anyhow::{Context, Result};

use crate::mariadb::MariaDb;
use crate::process::{Child, run};
use crate::workspace;

/// Tables that are ready for a load.
#[derive(Debug)]
pub struct Sysbench<'a> {
    server: &'a MariaDb,
    tables: u32,
    rows: u32,
}

/// What sysbench says it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Transactions committed.
    pub transactions: u64,
    /// Statements.
    pub queries: u64,
    /// Transactions begun again, mostly after a deadlock.
    pub ignored_errors: u64,
    /// How long the load itself ran, µs.
    pub micros: u64,
}

impl<'a> Sysbench<'a> {
    /// Makes and fills the tables.
    ///
    /// # Errors
    ///
    /// When sysbench is not installed or fails.
    pub fn prepare(server: &'a MariaDb, tables: u32, rows: u32) -> Result<Self> {
        let sysbench = Self::of(server, tables, rows);
        sysbench.call("oltp_read_write", 1, &["prepare"])?;
        Ok(sysbench)
    }

    /// Of tables that were made before.
    #[must_use]
    pub fn of(server: &'a MariaDb, tables: u32, rows: u32) -> Self {
        Self {
            server,
            tables,
            rows,
        }
    }

    /// Starts a load at a given number of transactions in a second, which goes on until it is stopped.
    ///
    /// # Errors
    ///
    /// When sysbench is not installed.
    pub fn start_at_rate(&self, test: &str, threads: u32, rate: u32) -> Result<Child> {
        let rate = format!("--rate={rate}");
        let command = self.command(test, threads, &["--time=0", "--events=0", &rate, "run"])?;
        let folder = self.server.socket();
        let folder = folder.parent().context("a socket is in a folder")?;
        Child::start(command, folder, "sysbench")
    }

    /// Starts connections that run one statement again and again, so many times a second in all, until it is stopped. `ID` in
    /// it is the number of the connection, from 1 on, and `RANDOM` a number from 1 to 20,000.
    ///
    /// # Errors
    ///
    /// When sysbench is not installed.
    pub fn start_statement(
        server: &'a MariaDb,
        statement: &str,
        connections: u32,
        rate: u32,
    ) -> Result<Child> {
        let command = statement_at_rate(server, statement, connections, rate, 0)?;
        let folder = server.socket();
        let folder = folder.parent().context("a socket is in a folder")?;
        Child::start(command, folder, "sysbench")
    }

    /// The same, so many times in all.
    ///
    /// # Errors
    ///
    /// When sysbench fails or says something unexpected.
    pub fn run_statement(
        server: &'a MariaDb,
        statement: &str,
        connections: u32,
        rate: u32,
        events: u64,
    ) -> Result<Run> {
        let mut command = statement_at_rate(server, statement, connections, rate, events)?;
        parse(&run(&mut command)?)
    }

    /// Runs `events` transactions of `oltp_read_write` in `threads` connections, with prepared
    /// statements.
    ///
    /// # Errors
    ///
    /// When sysbench fails or says something unexpected.
    pub fn run(&self, threads: u32, events: u64) -> Result<Run> {
        self.run_test("oltp_read_write", threads, events)
    }

    /// The same with another of sysbench's loads, such as `oltp_write_only`.
    ///
    /// # Errors
    ///
    /// When sysbench fails or says something unexpected.
    pub fn run_test(&self, test: &str, threads: u32, events: u64) -> Result<Run> {
        let events = format!("--events={events}");
        parse(&self.call(test, threads, &["--time=0", &events, "run"])?)
    }

    /// The same at a given number of transactions in a second, so that connections are idle in
    /// between, as those of most applications are.
    ///
    /// # Errors
    ///
    /// When sysbench fails or says something unexpected.
    pub fn run_at_rate(&self, test: &str, threads: u32, events: u64, rate: u32) -> Result<Run> {
        let (events, rate) = (format!("--events={events}"), format!("--rate={rate}"));
        parse(&self.call(test, threads, &["--time=0", &events, &rate, "run"])?)
    }

    /// Runs a load for so many seconds.
    ///
    /// # Errors
    ///
    /// When sysbench fails or says something unexpected.
    pub fn run_seconds(&self, test: &str, threads: u32, seconds: u32) -> Result<Run> {
        let time = format!("--time={seconds}");
        parse(&self.call(test, threads, &[&time, "run"])?)
    }

    fn call(&self, test: &str, threads: u32, more: &[&str]) -> Result<String> {
        run(&mut self.command(test, threads, more)?)
    }

    fn command(&self, test: &str, threads: u32, more: &[&str]) -> Result<Command> {
        let mut command = connected(self.server, test, threads)?;
        command
            .arg(format!("--tables={}", self.tables))
            .arg(format!("--table-size={}", self.rows))
            .args(more);
        Ok(command)
    }
}

/// One statement again and again; `events`: how often in all, 0: until it is stopped.
fn statement_at_rate(
    server: &MariaDb,
    statement: &str,
    connections: u32,
    rate: u32,
    events: u64,
) -> Result<Command> {
    let script = workspace::root().join("tests/fixtures/statement.lua");
    let script = script.to_str().context("a path in UTF-8")?;
    let mut command = connected(server, script, connections)?;
    command.args([
        &format!("--statement={statement}"),
        "--time=0",
        &format!("--events={events}"),
        &format!("--rate={rate}"),
        "run",
    ]);
    Ok(command)
}

/// A script of sysbench that is connected to a server.
fn connected(server: &MariaDb, script: &str, threads: u32) -> Result<Command> {
    let mut command = Command::new(workspace::program("sysbench")?);
    command
        .args([script, "--db-driver=mysql", "--mysql-user=root"])
        .args(["--mysql-db=sbtest", "--mysql-host=localhost"])
        .arg(format!("--mysql-socket={}", server.socket().display()))
        .arg(format!("--threads={threads}"));
    Ok(command)
}

fn parse(text: &str) -> Result<Run> {
    let number = |name: &str| -> Result<u64> {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name));
        let value = line.and_then(|line| line.split_ascii_whitespace().next());
        let value = value.with_context(|| format!("no {name:?} in what sysbench says: {text}"))?;
        Ok(value.parse()?)
    };
    Ok(Run {
        transactions: number("transactions:")?,
        queries: number("queries:")?,
        ignored_errors: number("ignored errors:")?,
        micros: micros(text)?,
    })
}

/// sysbench's `total time: 2.0013s`.
fn micros(text: &str) -> Result<u64> {
    let mut lines = text.lines().map(str::trim);
    let value = lines.find_map(|line| line.strip_prefix("total time:"));
    let seconds = value.and_then(|value| value.trim().strip_suffix('s'));
    let seconds =
        seconds.with_context(|| format!("no total time in what sysbench says: {text}"))?;
    Ok((seconds.parse::<f64>()? * 1e6).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::{Run, parse};

    #[test]
    fn its_report_is_understood() {
        let text = "SQL statistics:\n    queries performed:\n        read:       7000\n\
            \x20       total:                           10000\n\
            \x20   transactions:                        500    (2398.94 per sec.)\n\
            \x20   queries:                             10000  (47978.78 per sec.)\n\
            \x20   ignored errors:                      3      (0.00 per sec.)\n\
            \x20   total time:                          0.2084s\n";
        let run = parse(text).unwrap();
        let expected = Run {
            transactions: 500,
            queries: 10_000,
            ignored_errors: 3,
            micros: 208_400,
        };
        assert_eq!(run, expected);
        assert!(parse("FATAL: no\n").is_err());
    }
}
