//! A target to which something happens in the middle of its requests: `tests/fixtures/faults.cpp`.
//!
//! In: what is to happen. Out: a process that works in rounds and counts its own requests.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::fixtures::{compile, write_profile};
use crate::process::{Child, Stream, run};
use crate::workspace;

const LIMIT: Duration = Duration::from_secs(120);

/// What it says of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Requests that it began.
    pub begun: u64,
    /// Of these, those that came back.
    pub ended: u64,
}

/// The running target.
#[derive(Debug)]
pub struct Faulty {
    child: Child,
    folder: TempDir,
    profile: PathBuf,
    rounds: u64,
}

impl Faulty {
    /// Compiles and starts it; the fixture says what `how` can be.
    ///
    /// # Errors
    ///
    /// When it does not compile or start.
    pub fn start(how: &str) -> Result<Self> {
        let folder = workspace::scratch()?;
        let program = compile("faults", folder.path())?;
        library(folder.path())?;
        let profile = folder.path().join("faults.toml");
        let is_library = matches!(how, "library" | "truncate");
        let begin = if is_library {
            r#"begin = { function = "in_library", object = "library.so" }"#
        } else {
            r#"begin = { function = "handle" }"#
        };
        write_profile(&profile, "work", "handle", "")?;
        let text = std::fs::read_to_string(&profile)?;
        std::fs::write(
            &profile,
            text.replace(r#"begin = { function = "handle" }"#, begin),
        )?;
        let mut command = Command::new(program);
        command.arg(how).arg(folder.path());
        let mut child = Child::start(command, folder.path(), "faults")?;
        child.wait_for_line(Stream::Out, "ready", LIMIT)?;
        Ok(Self {
            child,
            folder,
            profile,
            rounds: 0,
        })
    }

    /// A profile whose request `work` is what it does.
    #[must_use]
    pub fn profile(&self) -> &Path {
        &self.profile
    }

    /// A folder for the test's own files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its program.
    #[must_use]
    pub fn program(&self) -> PathBuf {
        self.folder.path().join("faults")
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Begins a round.
    ///
    /// # Errors
    ///
    /// When it has died.
    pub fn go(&mut self) -> Result<()> {
        self.rounds += 1;
        self.child.tell("go")
    }

    /// Waits for the end of the round that was begun last.
    ///
    /// # Errors
    ///
    /// When it dies, or takes too long.
    pub fn done(&mut self) -> Result<Round> {
        let start = format!("round {} ", self.rounds);
        let line = self.child.wait_for_line(Stream::Out, &start, LIMIT)?;
        let number = |after: &str| -> Result<u64> {
            let rest = line.split_once(after).context("no count")?.1;
            Ok(rest.split(' ').next().unwrap_or_default().parse()?)
        };
        Ok(Round {
            begun: number("begun ")?,
            ended: number("ended ")?,
        })
    }

    /// One round.
    ///
    /// # Errors
    ///
    /// When it dies, or takes too long.
    pub fn round(&mut self) -> Result<Round> {
        self.go()?;
        self.done()
    }

    /// Sends it a signal.
    ///
    /// # Errors
    ///
    /// When that fails.
    pub fn signal(&mut self, signal: libc::c_int) -> Result<()> {
        self.child.signal(signal)
    }

    /// Waits until it has died by itself.
    ///
    /// # Errors
    ///
    /// When it lives on.
    pub fn died(mut self) -> Result<ExitStatus> {
        self.child.wait(LIMIT)
    }

    /// Ends it.
    ///
    /// # Errors
    ///
    /// When it does not end by itself, and well.
    pub fn end(mut self) -> Result<()> {
        drop(self.child.stdin());
        let status = self.child.wait(LIMIT)?;
        ensure!(
            status.success(),
            "{status}: {}",
            self.child.output(Stream::Err)
        );
        Ok(())
    }
}

/// A library with one function.
fn library(folder: &Path) -> Result<()> {
    let source = folder.join("library.c");
    let text = "int in_library(void (*callback)(void)) { callback(); __asm__ volatile(\"\"); return 1; }\n";
    std::fs::write(&source, text)?;
    let mut compiler = Command::new(workspace::program("gcc")?);
    compiler.args(["-O1", "-shared", "-fPIC", "-o"]);
    run(compiler.arg(folder.join("library.so")).arg(source))?;
    Ok(())
}
