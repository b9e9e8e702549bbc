//! A MariaDB of our own: private folder, private socket, no network.
//!
//! In: nothing. Out: a running server, and its own counters.
//!
//! The counters cost commands too. [`Counters`] says which, and how to get from them to the
//! number of commands that a trace must have seen.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::process::{Child, is_root, run, until};
use crate::{prepared, workspace};

/// How long starting, stopping or one statement may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Commands outside of the trace that the difference of two [`Counters`] contains: the QUIT of the
/// client that read the first, and the SHOW of the client that read the second.
const READING: u64 = 2;

/// A running server.
#[derive(Debug)]
pub struct MariaDb {
    process: Child,
    program: PathBuf,
    options: Vec<String>,
    /// Of its own, in `/tmp`: the name of a socket must be short.
    socket: TempDir,
    /// Dropped last, when the server has ended.
    folder: TempDir,
}

/// The server's status counters, as far as they count commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commands, but without prepare and close of statements (and ping and statistics).
    pub questions: u64,
    /// Statements prepared.
    pub prepares: u64,
    /// Prepared statements executed: part of `questions`.
    pub executes: u64,
    /// Prepared statements closed.
    pub closes: u64,
    /// Commands, but without ping and statistics: a second count, kept apart from the others.
    pub queries: u64,
}

impl Counters {
    /// Commands between two readings, less those of the readings themselves: what a trace that
    /// began after `before` and ended ahead of `self` must have counted.
    ///
    /// Holds for loads that send no ping and no statistics command, prepare nothing by SQL text,
    /// and neither reset, fetch from, nor send long data to a statement.
    #[must_use]
    pub fn commands_since(&self, before: &Self) -> u64 {
        let counted = |c: &Self| c.questions + c.prepares + c.closes;
        (counted(self) - counted(before)).saturating_sub(READING)
    }

    /// The same from the server's other counter.
    #[must_use]
    pub fn queries_since(&self, before: &Self) -> u64 {
        (self.queries - before.queries).saturating_sub(READING)
    }
}

impl MariaDb {
    /// Makes a data folder, starts a server on it and creates the schema `sbtest`.
    ///
    /// # Errors
    ///
    /// When MariaDB is not installed or does not start.
    pub fn open() -> Result<Self> {
        Self::open_with(&[])
    }

    /// The same with further options, such as `--log-bin`.
    ///
    /// # Errors
    ///
    /// When MariaDB is not installed or does not start.
    pub fn open_with(options: &[&str]) -> Result<Self> {
        Self::open_program(&workspace::program("mariadbd")?, options)
    }

    /// The same of another copy of the server's program.
    ///
    /// # Errors
    ///
    /// When MariaDB is not installed or does not start.
    pub fn open_program(program: &Path, options: &[&str]) -> Result<Self> {
        workspace::program("mariadb")?;
        let folder = workspace::scratch()?;
        let socket = tempfile::tempdir()?;
        let installer = workspace::program("mariadb-install-db")?;
        prepared::copy(&installer, &folder.path().join("data"), |data| {
            install(&installer, data)
        })?;
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let process = start(program, &options, socket.path(), folder.path())?;
        let mut server = Self {
            process,
            program: program.to_owned(),
            options,
            socket,
            folder,
        };
        server.answers()?;
        Ok(server)
    }

    /// Tells it to end, whatever it does at that moment, and starts it again on its data. From the start on it has served
    /// one statement and the end of one connection.
    ///
    /// # Errors
    ///
    /// When it does not end, or does not start again.
    pub fn restart(&mut self) -> Result<()> {
        self.process.stop()?;
        let (socket, folder) = (self.socket.path(), self.folder.path());
        self.process = start(&self.program, &self.options, socket, folder)?;
        self.answers()
    }

    fn answers(&mut self) -> Result<()> {
        until(LIMIT, "MariaDB to answer", || {
            if self.process.status()?.is_some() {
                let log = self.process.output(crate::process::Stream::Err);
                bail!("MariaDB ended: {log}");
            }
            Ok(self.sql("create database if not exists sbtest").ok())
        })
        .map(drop)
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.socket.path().join("s")
    }

    /// Runs SQL over a connection of its own, and gives its rows, tabs between columns.
    ///
    /// # Errors
    ///
    /// When the server refuses it.
    pub fn sql(&self, sql: &str) -> Result<String> {
        run(&mut self.client(sql)?)
    }

    /// The same as a user that has no password.
    ///
    /// # Errors
    ///
    /// When the server refuses it.
    pub fn sql_as(&self, user: &str, sql: &str) -> Result<String> {
        let mut command = self.client(sql)?;
        run(command.arg(format!("--user={user}")))
    }

    /// Starts SQL over a connection of its own, and does not wait for it. `name` is one that no
    /// other has.
    ///
    /// # Errors
    ///
    /// When the client cannot be started.
    pub fn start_sql(&self, name: &str, sql: &str) -> Result<Child> {
        Child::start(self.client(sql)?, self.socket.path(), name)
    }

    /// A command line that runs SQL.
    ///
    /// # Errors
    ///
    /// When the client is not installed.
    pub fn client(&self, sql: &str) -> Result<Command> {
        let mut command = Command::new(workspace::program("mariadb")?);
        command
            .args(["--no-defaults", "--user=root", "--skip-column-names"])
            .arg(format!("--socket={}", self.socket().display()))
            .args(["--execute", sql]);
        Ok(command)
    }

    /// Waits until some connection runs a statement that contains `text`, in a state that
    /// contains `state`.
    ///
    /// # Errors
    ///
    /// When none does within two minutes.
    pub fn wait_for_statement(&self, text: &str, state: &str) -> Result<()> {
        let sql = format!(
            "select count(*) from information_schema.processlist \
             where info like '{text}%' and state like '%{state}%'"
        );
        until(LIMIT, "a statement to run", || {
            Ok((self.sql(&sql)?.trim() != "0").then_some(()))
        })
    }

    /// Reads the counters over a connection of its own, once all other connections have ended;
    /// returns when this one has ended too, so that its QUIT is not in a trace started afterwards.
    ///
    /// # Errors
    ///
    /// When the server does not answer.
    pub fn counters(&self) -> Result<Counters> {
        self.wait_until_alone()?;
        let text = self.sql("show global status")?;
        self.wait_until_alone()?;
        let value = |name: &str| -> Result<u64> {
            let mut pairs = text.lines().filter_map(|line| line.split_once('\t'));
            let found = pairs.find(|(key, _)| *key == name);
            let (_, value) = found.with_context(|| format!("the server has no {name}"))?;
            Ok(value.parse()?)
        };
        Ok(Counters {
            questions: value("Questions")?,
            prepares: value("Com_stmt_prepare")?,
            executes: value("Com_stmt_execute")?,
            closes: value("Com_stmt_close")?,
            queries: value("Queries")?,
        })
    }

    /// Waits until the server has closed all connections: then all their commands are done, the
    /// QUIT too.
    ///
    /// # Errors
    ///
    /// When connections remain.
    pub fn wait_until_alone(&self) -> Result<()> {
        let socket = self.socket().display().to_string();
        until(LIMIT, "MariaDB's connections to end", || {
            let table = std::fs::read_to_string("/proc/net/unix")?;
            Ok((connections(&table, &socket) == 0).then_some(()))
        })
    }

    /// Stops it.
    ///
    /// # Errors
    ///
    /// When it does not end well: tracing must not break a server.
    pub fn close(mut self) -> Result<()> {
        let status = self.process.stop()?;
        if !status.success() {
            let log = self.process.output(crate::process::Stream::Err);
            bail!("MariaDB ended with {status}: {log}");
        }
        Ok(())
    }
}

/// Ends that a server holds of connections to its socket, in the text of `/proc/net/unix`.
fn connections(table: &str, socket: &str) -> usize {
    // Num RefCount Protocol Flags Type St Inode Path; the listening end has state 01.
    let lines = table.lines().map(|line| line.split_ascii_whitespace());
    lines
        .filter(|fields| fields.clone().nth(7) == Some(socket))
        .filter(|fields| fields.clone().nth(5) != Some("01"))
        .count()
}

fn start(program: &Path, options: &[String], socket: &Path, folder: &Path) -> Result<Child> {
    let mut command = Command::new(program);
    command
        .arg("--no-defaults")
        .args(user())
        .arg(format!("--datadir={}", folder.join("data").display()))
        .arg(format!("--socket={}", socket.join("s").display()))
        .arg(format!("--pid-file={}", folder.join("pid").display()))
        .args(["--skip-networking", "--innodb-buffer-pool-size=64M"])
        .args(options);
    // A server that starts removes temporary tables of others from the folder it is given.
    command.env("TMPDIR", folder);
    Child::start(command, folder, "mariadbd")
}

/// MariaDB refuses to run as root unless told that it is meant.
fn user() -> Option<&'static str> {
    is_root().then_some("--user=root")
}

fn install(program: &Path, data: &Path) -> Result<()> {
    let mut command = Command::new(program);
    command
        .args(["--no-defaults", "--skip-test-db", "--skip-name-resolve"])
        .arg("--auth-root-authentication-method=normal")
        .arg(format!("--datadir={}", data.display()))
        .args(user())
        .env("TMPDIR", data.parent().unwrap_or(data));
    run(&mut command)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listening_end_is_no_connection() {
        let table = "Num RefCount Protocol Flags Type St Inode Path\n\
            0: 00000002 00000000 00010000 0001 01 11 /tmp/a/s\n\
            0: 00000003 00000000 00000000 0001 03 12 /tmp/a/s\n\
            0: 00000003 00000000 00000000 0001 03 13 /tmp/b/s\n\
            0: 00000003 00000000 00000000 0001 03 14\n";
        assert_eq!(connections(table, "/tmp/a/s"), 1);
    }

    #[test]
    fn the_measured_numbers_fit_the_formula() {
        // bpftrace counted 10168 calls of dispatch_command, of which 4 belonged to the two
        // clients that read the counters; the trace must see the other 10164.
        let before = Counters::default();
        let after = Counters {
            questions: 10_006,
            prepares: 80,
            executes: 10_000,
            closes: 80,
            queries: 10_166,
        };
        assert_eq!(after.commands_since(&before), 10_164);
        assert_eq!(after.queries_since(&before), 10_164);
    }

    /// Needs no tracing: the relations between the counters, and what reading them costs.
    #[test]
    fn reading_the_counters_costs_two_commands_and_a_load_what_it_says() {
        let server = MariaDb::open().unwrap();
        let sysbench = crate::sysbench::Sysbench::prepare(&server, 2, 1000).unwrap();
        let first = server.counters().unwrap();
        let second = server.counters().unwrap();
        assert_eq!(second.commands_since(&first), 0);
        assert_eq!(second.queries_since(&first), 0);

        let run = sysbench.run(4, 100).unwrap();
        let third = server.counters().unwrap();
        assert_eq!(third.commands_since(&second), third.queries_since(&second));
        assert_eq!(run.transactions, 100);
        let executes = third.executes - second.executes;
        let prepares = third.prepares - second.prepares;
        assert_eq!(third.closes - second.closes, prepares);
        // Each thread says QUIT once.
        let quits = 4;
        let commands = third.commands_since(&second);
        assert_eq!(commands, executes + 2 * prepares + quits);
        if run.ignored_errors == 0 {
            assert_eq!(executes, run.queries);
        }
        server.close().unwrap();
    }
}
