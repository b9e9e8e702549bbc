//! PostgreSQL, Redis and nginx of our own: private folders, private sockets, no network but the
//! loopback.
//!
//! In: nothing. Out: a running server, stopped when dropped.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;

use crate::process::{Child, Stream, is_root, run, until};
use crate::{prepared, workspace};

/// How long starting may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Where Debian keeps PostgreSQL's programs, which are not in `PATH`.
const POSTGRESQL: &str = "usr/lib/postgresql/15/bin";
/// What its server looks for beside them.
const LIBRARIES: &str = "usr/lib/postgresql/15/lib";
const SHARE: &str = "usr/share/postgresql/15";
/// The folder of its data.
const DATA: &str = "data";
/// PostgreSQL refuses to run as root: this is `nobody`.
const NOBODY: u32 = 65534;

/// A running server.
#[derive(Debug)]
pub struct Server {
    process: Child,
    program: PathBuf,
    /// In `/tmp`: the name of a socket must be short. Dropped last.
    folder: TempDir,
}

impl Server {
    /// PostgreSQL: its postmaster.
    ///
    /// # Errors
    ///
    /// When it is not installed or does not start.
    pub fn postgresql() -> Result<Self> {
        Self::postgresql_program(&postgresql("postgres")?)
    }

    /// The same of another copy of its program, as [`copy_postgresql`] makes one.
    ///
    /// # Errors
    ///
    /// When it is not installed or does not start.
    pub fn postgresql_program(program: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        if is_root() {
            std::os::unix::fs::chown(folder.path(), Some(NOBODY), Some(NOBODY))?;
        }
        prepared::copy(&postgresql("initdb")?, &folder.path().join(DATA), |data| {
            let mut initdb = as_nobody(&postgresql("initdb")?)?;
            initdb.args(["-N", "-U", "postgres", "-A", "trust", "--no-locale", "-D"]);
            run(initdb.arg(data)).map(drop)
        })?;
        let process = start_postgresql(program, folder.path())?;
        let server = Self {
            process,
            program: program.to_owned(),
            folder,
        };
        server.answers()?;
        Ok(server)
    }

    /// Ends all connections of PostgreSQL and itself, whatever they do at that moment, and starts it again on its data. From
    /// the start on it has served one query.
    ///
    /// # Errors
    ///
    /// When it does not end, or does not start again.
    pub fn restart_postgresql(&mut self) -> Result<()> {
        // SIGTERM would wait until the clients leave.
        self.process.signal(libc::SIGINT)?;
        self.process.wait(LIMIT)?;
        self.process = start_postgresql(&self.program, self.folder.path())?;
        self.answers()
    }

    fn answers(&self) -> Result<()> {
        until(LIMIT, "PostgreSQL to answer", || {
            Ok(run(&mut self.client("psql", &["-c", "select 1"])?).ok())
        })
        .map(drop)
    }

    /// Redis with an append-only file, synced at every write.
    ///
    /// # Errors
    ///
    /// When it is not installed or does not start.
    pub fn redis() -> Result<Self> {
        Self::redis_with(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// Redis that keeps everything in memory only.
    ///
    /// # Errors
    ///
    /// When it is not installed or does not start.
    pub fn redis_without_file() -> Result<Self> {
        Self::redis_with(&[])
    }

    fn redis_with(options: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let program = workspace::program("redis-server")?;
        let mut command = Command::new(&program);
        command.args(["--port", "0", "--save", ""]).args(options);
        command.arg("--unixsocket");
        command.arg(folder.path().join("s"));
        command.arg("--dir").arg(folder.path());
        let process = Child::start(command, folder.path(), "redis")?;
        let server = Self {
            process,
            program,
            folder,
        };
        until(LIMIT, "Redis to listen", || {
            Ok(server.socket().exists().then_some(()))
        })?;
        Ok(server)
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Redis's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    /// Runs one of PostgreSQL's clients.
    ///
    /// # Errors
    ///
    /// When it fails; the error has what it printed.
    pub fn run(&self, client: &str, args: &[&str]) -> Result<String> {
        run(&mut self.client(client, args)?)
    }

    /// Runs `redis-benchmark`.
    ///
    /// # Errors
    ///
    /// When it fails.
    pub fn redis_benchmark(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(workspace::program("redis-benchmark")?);
        run(command.arg("-s").arg(self.socket()).args(args))
    }

    /// A session of `psql` that stays open: it runs what it is told, and prints bare values.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn session(&self, name: &str) -> Result<Child> {
        let mut session = Child::start(self.client("psql", &["-qAt"])?, self.folder.path(), name)?;
        session.tell("select 'connected';")?;
        session.wait_for_line(Stream::Out, "connected", LIMIT)?;
        Ok(session)
    }

    /// One of PostgreSQL's clients, to be started otherwise than by [`Server::run`].
    ///
    /// # Errors
    ///
    /// When it is not installed.
    pub fn client(&self, client: &str, args: &[&str]) -> Result<Command> {
        let mut command = Command::new(postgresql(client)?);
        command.arg("-h").arg(self.folder.path());
        command.args(["-U", "postgres"]).args(args).arg("postgres");
        Ok(command)
    }
}

/// One of PostgreSQL's programs.
///
/// # Errors
///
/// When it is not installed; the message says how to install it.
pub fn postgresql(program: &str) -> Result<PathBuf> {
    workspace::file(&format!("{POSTGRESQL}/{program}"))
}

/// A copy of PostgreSQL's server below a folder, which finds what belongs to it; the program's path.
///
/// # Errors
///
/// When it is not installed, or cannot be copied.
pub fn copy_postgresql(to: &Path) -> Result<PathBuf> {
    let program = postgresql("postgres")?;
    let copy = to.join(POSTGRESQL).join("postgres");
    let bin = copy.parent().unwrap_or(to);
    std::fs::create_dir_all(bin)?;
    std::fs::create_dir_all(to.join(SHARE).parent().unwrap_or(to))?;
    let root = program.ancestors().nth(6).unwrap_or(&program);
    symlink(root.join(LIBRARIES), to.join(LIBRARIES))?;
    symlink(root.join(SHARE), to.join(SHARE))?;
    workspace::copy_program(&program, &copy)?;
    Ok(copy)
}

fn start_postgresql(program: &Path, folder: &Path) -> Result<Child> {
    let mut command = as_nobody(program)?;
    command.args(["-c", "listen_addresses=", "-c", "shared_buffers=32MB"]);
    command
        .arg("-D")
        .arg(folder.join(DATA))
        .arg("-k")
        .arg(folder);
    Child::start(command, folder, "postgres")
}

fn as_nobody(program: &Path) -> Result<Command> {
    if !is_root() {
        return Ok(Command::new(program));
    }
    let id = NOBODY.to_string();
    let mut command = Command::new(workspace::program("setpriv")?);
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]);
    command.arg(program).current_dir("/");
    Ok(command)
}
