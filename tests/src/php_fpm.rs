//! A PHP-FPM of our own on a private socket, and a small client of its protocol.
//!
//! In: scripts. Out: a running server, stopped when dropped, and its answers.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::process::{Child, until};
use crate::workspace;

/// How long starting may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Where Debian keeps the extensions of PHP 8.2.
const EXTENSIONS: &str = "usr/lib/php/20220829";
/// Extensions to speak to MySQL and MariaDB.
pub const MYSQLI: &[&str] = &["mysqlnd.so", "mysqli.so"];

/// The file of its configuration.
const CONFIG: &str = "fpm.conf";

/// Kinds of records of FastCGI 1.0.
const BEGIN: u8 = 1;
const END: u8 = 3;
const PARAMETERS: u8 = 4;
const INPUT: u8 = 5;
const OUTPUT: u8 = 6;

/// A running server.
#[derive(Debug)]
pub struct PhpFpm {
    process: Child,
    program: PathBuf,
    options: Vec<String>,
    /// In `/tmp`: the name of a socket must be short.
    folder: TempDir,
}

impl PhpFpm {
    /// Starts the master and so many workers, without any configuration of the machine.
    ///
    /// # Errors
    ///
    /// When it is not installed or does not start.
    pub fn start(workers: u32) -> Result<Self> {
        Self::start_with(workers, &[])
    }

    /// The same with extensions, such as [`MYSQLI`].
    ///
    /// # Errors
    ///
    /// When it or one of them is not installed, or it does not start.
    pub fn start_with(workers: u32, extensions: &[&str]) -> Result<Self> {
        let program = workspace::program("php-fpm8.2")?;
        let options = extensions.iter().flat_map(|&extension| {
            let file = workspace::file(&format!("{EXTENSIONS}/{extension}"));
            let option = file.map(|file| format!("extension={}", file.display()));
            [Ok("-d".to_owned()), option]
        });
        Self::start_as(&program, workers, "", options.collect::<Result<_>>()?)
    }

    /// Another copy of its program, with more lines in the section of its pool. It logs each request.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn start_program(program: &Path, workers: u32, pool: &str) -> Result<Self> {
        Self::start_as(program, workers, pool, Vec::new())
    }

    fn start_as(program: &Path, workers: u32, pool: &str, options: Vec<String>) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let here = folder.path().display();
        let text = format!(
            "[global]\nerror_log = {here}/error.log\ndaemonize = no\n[www]\nlisten = {here}/s\n\
             access.log = {here}/access.log\npm = static\npm.max_children = {workers}\nuser = root\ngroup = root\n{pool}\n"
        );
        fs::write(folder.path().join(CONFIG), text)?;
        let process = start(program, &options, folder.path())?;
        let server = Self {
            process,
            program: program.to_owned(),
            options,
            folder,
        };
        server.listens()?;
        Ok(server)
    }

    /// Tells it to end at once, whatever it does at that moment, and starts it again at its socket.
    ///
    /// # Errors
    ///
    /// When it does not end, or does not start again.
    pub fn restart(&mut self) -> Result<()> {
        self.process.stop()?;
        self.process = start(&self.program, &self.options, self.folder.path())?;
        self.listens()
    }

    fn listens(&self) -> Result<()> {
        until(LIMIT, "PHP-FPM to listen", || {
            Ok(UnixStream::connect(self.socket()).ok())
        })
        .map(drop)
    }

    /// Lines of its access log.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn logged(&self) -> Result<u64> {
        let text = fs::read_to_string(self.folder.path().join("access.log"))?;
        Ok(text.lines().count() as u64)
    }

    /// Process number of its master.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Writes a script and gives its path.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn script(&self, name: &str, code: &str) -> Result<PathBuf> {
        let path = self.folder.path().join(name);
        fs::write(&path, format!("<?php {code}"))?;
        Ok(path)
    }

    /// Asks for a script, on a connection of its own, and gives the whole answer with its header.
    ///
    /// # Errors
    ///
    /// When there is no answer.
    pub fn get(&self, script: &str) -> Result<String> {
        ask(&UnixStream::connect(self.socket())?, script)
    }

    /// Waits until all workers wait for a client: who has its answer has it before the request's end.
    ///
    /// # Errors
    ///
    /// When one works on.
    pub fn idle(&self) -> Result<()> {
        let master = self.pid();
        let workers = fs::read_to_string(format!("/proc/{master}/task/{master}/children"))?;
        let accept = libc::SYS_accept.to_string();
        until(LIMIT, "PHP-FPM's workers to wait", || {
            for worker in workers.split_whitespace() {
                let call = fs::read_to_string(format!("/proc/{worker}/syscall"))?;
                if call.split(' ').next() != Some(accept.as_str()) {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })
    }

    /// Its socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }
}

fn start(program: &Path, options: &[String], folder: &Path) -> Result<Child> {
    let mut command = Command::new(program);
    command.args(["-R", "-n", "-F", "-y"]);
    command.arg(folder.join(CONFIG)).args(options);
    Child::start(command, folder, "php-fpm")
}

/// Asks for a script on a new connection, and gives the whole answer with its header.
///
/// # Errors
///
/// When there is no answer.
pub fn ask(mut stream: &UnixStream, script: &str) -> Result<String> {
    stream.set_read_timeout(Some(LIMIT))?;
    let mut parameters = Vec::new();
    for (name, value) in [("SCRIPT_FILENAME", script), ("REQUEST_METHOD", "GET")] {
        // A length above 127 has four bytes, the first with its highest bit set.
        parameters.push(u8::try_from(name.len())?);
        parameters.extend((u32::try_from(value.len())? | 1 << 31).to_be_bytes());
        parameters.extend_from_slice(name.as_bytes());
        parameters.extend_from_slice(value.as_bytes());
    }
    let mut message = Vec::new();
    // The role of a responder, for one request.
    record(&mut message, BEGIN, &[0, 1, 0, 0, 0, 0, 0, 0])?;
    record(&mut message, PARAMETERS, &parameters)?;
    record(&mut message, PARAMETERS, &[])?;
    record(&mut message, INPUT, &[])?;
    stream.write_all(&message)?;
    let mut answer = Vec::new();
    loop {
        let mut header = [0; 8];
        stream.read_exact(&mut header).context("no whole answer")?;
        let [_, kind, _, _, high, low, padding, _] = header;
        let length = usize::from(u16::from_be_bytes([high, low]));
        let mut content = vec![0; length + usize::from(padding)];
        stream.read_exact(&mut content)?;
        match kind {
            OUTPUT => answer.extend_from_slice(&content[..length]),
            END => {
                ensure!(content.get(4) == Some(&0), "the request was refused");
                return Ok(String::from_utf8_lossy(&answer).into_owned());
            }
            _ => {}
        }
    }
}

/// Appends a record of request 1.
fn record(message: &mut Vec<u8>, kind: u8, content: &[u8]) -> Result<()> {
    message.extend([1, kind, 0, 1]);
    message.extend(u16::try_from(content.len())?.to_be_bytes());
    message.extend([0, 0]);
    message.extend_from_slice(content);
    Ok(())
}
