//! An Apache of our own: private folder, a port of the loopback that nobody had.
//!
//! In: which MPM. Out: a running server, stopped when dropped.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::http;
use crate::process::{Child, Stream};
use crate::workspace;

/// How long starting may take.
const LIMIT: Duration = Duration::from_secs(30);
/// Where Debian keeps its modules.
const MODULES: &str = "usr/lib/apache2/modules";

/// A running server.
#[derive(Debug)]
pub struct Apache {
    process: Child,
    port: u16,
    folder: TempDir,
}

impl Apache {
    /// Starts the first process and its workers, with the MPM `event` or `prefork`.
    ///
    /// # Errors
    ///
    /// When it is not installed or does not start.
    pub fn start(mpm: &str) -> Result<Self> {
        Self::start_with(mpm, &[], "")
    }

    /// The same with more modules, without `mod_` and `.so`, and more lines of its configuration.
    ///
    /// # Errors
    ///
    /// When it is not installed or does not start.
    pub fn start_with(mpm: &str, modules: &[&str], more: &str) -> Result<Self> {
        // In `/tmp`: Apache's workers are `nobody`, who may not enter every checkout.
        let folder = tempfile::tempdir()?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let port = http::free_port()?;
        fs::create_dir(folder.path().join("documents"))?;
        let config = folder.path().join("apache.conf");
        fs::write(
            &config,
            configuration(folder.path(), mpm, port, modules)? + more,
        )?;
        let mut command = Command::new(workspace::program("apache2")?);
        command.arg("-d").arg(folder.path()).arg("-f").arg(&config);
        command.arg("-DFOREGROUND");
        let process = Child::start(command, folder.path(), "apache")?;
        http::listens(port, LIMIT).with_context(|| process.output(Stream::Err))?;
        Ok(Self {
            process,
            port,
            folder,
        })
    }

    /// Number of its first process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where the files are that it serves.
    #[must_use]
    pub fn documents(&self) -> PathBuf {
        self.folder.path().join("documents")
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
}

fn configuration(folder: &Path, mpm: &str, port: u16, more: &[&str]) -> Result<String> {
    let roots = ["/", workspace::UNPACKED].map(|root| Path::new(root).join(MODULES));
    let modules = roots.iter().find(|folder| folder.is_dir());
    let modules = modules.with_context(|| format!("no /{MODULES}; run: cargo xtask setup"))?;
    let mut text = format!(
        "ServerName localhost\nListen 127.0.0.1:{port}\nPidFile apache.pid\nUser #65534\nGroup #65534\n\
         DocumentRoot {}\nErrorLog error.log\nLogFormat \"%U %s\" short\n\
         CustomLog access.log short\n",
        folder.join("documents").display()
    );
    for name in [&format!("mpm_{mpm}"), "authz_core"].iter().chain(more) {
        let file = modules.join(format!("mod_{name}.so"));
        writeln!(text, "LoadModule {name}_module {}", file.display())?;
    }
    Ok(text)
}
