//! An nginx of our own: private folder, a port of the loopback that nobody had.
//!
//! In: how many workers. Out: a running server, stopped when dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;

use crate::http;
use crate::process::{Child, run};
use crate::workspace;

/// How long starting may take.
const LIMIT: Duration = Duration::from_secs(30);

/// A running server.
#[derive(Debug)]
pub struct Nginx {
    process: Child,
    program: PathBuf,
    port: u16,
    folder: TempDir,
}

impl Nginx {
    /// Starts the master and its workers.
    ///
    /// # Errors
    ///
    /// When it is not installed or does not start.
    pub fn start(workers: u32) -> Result<Self> {
        Self::start_with(workers, "", "")
    }

    /// The same with more lines in the section `http` of its configuration, and in its server.
    ///
    /// # Errors
    ///
    /// When it is not installed or does not start.
    pub fn start_with(workers: u32, http: &str, server: &str) -> Result<Self> {
        Self::start_program(&workspace::program("nginx")?, workers, http, server)
    }

    /// The same of another copy of its program.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn start_program(program: &Path, workers: u32, http: &str, server: &str) -> Result<Self> {
        let folder = workspace::scratch()?;
        let port = http::free_port()?;
        fs::create_dir(folder.path().join("html"))?;
        let config = folder.path().join("nginx.conf");
        fs::write(&config, configuration(workers, port, http, server))?;
        let process = start(program, folder.path())?;
        http::listens(port, LIMIT)?;
        Ok(Self {
            process,
            program: program.to_owned(),
            port,
            folder,
        })
    }

    /// Tells it to end at once, whatever it does at that moment, and starts it again at its port.
    ///
    /// # Errors
    ///
    /// When it does not end, or does not start again.
    pub fn restart(&mut self) -> Result<()> {
        self.process.stop()?;
        self.process = start(&self.program, self.folder.path())?;
        http::listens(self.port, LIMIT)
    }

    /// Process number of its master.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its port of the loopback.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where the files are that it serves.
    #[must_use]
    pub fn documents(&self) -> PathBuf {
        self.folder.path().join("html")
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

    /// Makes exactly `requests` requests for `path` over `clients` connections at a time.
    ///
    /// # Errors
    ///
    /// When they were not all answered.
    pub fn ab(&self, path: &str, requests: u64, clients: u32, more: &[&str]) -> Result<()> {
        http::ab(self.port, path, requests, clients, more)
    }

    /// Asks for `path` over `clients` connections at a time for so many seconds.
    ///
    /// # Errors
    ///
    /// When `wrk` is not installed or fails.
    pub fn wrk(&self, path: &str, clients: u32, seconds: u32) -> Result<()> {
        let mut command = Command::new(workspace::program("wrk")?);
        let (clients, seconds) = (clients.to_string(), seconds.to_string());
        command.args(["-t", "2", "-c", &clients, "-d", &seconds]);
        command.arg(format!("http://127.0.0.1:{}{path}", self.port));
        run(&mut command)?;
        Ok(())
    }
}

fn start(program: &Path, folder: &Path) -> Result<Child> {
    let mut command = Command::new(program);
    command.arg("-p").arg(folder).arg("-c");
    command.arg(folder.join("nginx.conf"));
    command.args(["-e", "stderr"]);
    Child::start(command, folder, "nginx")
}

fn configuration(workers: u32, port: u16, http: &str, server: &str) -> String {
    let own_folders: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("    {name}_temp_path {name}_temp;\n"))
        .concat();
    // As root its workers would become nobody, who cannot enter our folder.
    format!(
        "daemon off;\nuser root;\nworker_processes {workers};\npid nginx.pid;\n\
         error_log stderr;\nevents {{ worker_connections 256; }}\n\
         http {{\n    access_log access.log;\n    sendfile on;\n{own_folders}    \
         {http}\n    server {{ listen 127.0.0.1:{port}; root html;\n{server} }}\n}}\n"
    )
}
