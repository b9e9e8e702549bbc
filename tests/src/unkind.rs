//! A target that makes work for whoever traces it: `tests/fixtures/unkind.cpp`.
//!
//! In: how it is unkind. Out: a process that waits to be told to work, and works until it is told to end.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use tempfile::TempDir;

use crate::fixtures::{compile, write_profile};
use crate::process::{Child, Stream, run};
use crate::workspace;

const LIMIT: Duration = Duration::from_secs(60);

/// The running target.
#[derive(Debug)]
pub struct Unkind {
    child: Child,
    folder: TempDir,
    profile: PathBuf,
}

impl Unkind {
    /// Compiles and starts it; the fixture says what `how` can be.
    ///
    /// # Errors
    ///
    /// When it does not compile or start.
    pub fn start(how: &str) -> Result<Self> {
        let folder = workspace::scratch()?;
        let program = compile("unkind", folder.path())?;
        library(folder.path())?;
        let profile = folder.path().join("unkind.toml");
        write_profile(&profile, "work", "handle", "")?;
        let mut command = Command::new(program);
        command.arg(how).arg(folder.path());
        let mut child = Child::start(command, folder.path(), "unkind")?;
        child.wait_for_line(Stream::Out, "ready", LIMIT)?;
        Ok(Self {
            child,
            folder,
            profile,
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

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Lets it work.
    ///
    /// # Errors
    ///
    /// When it has died.
    pub fn go(&mut self) -> Result<()> {
        self.child.tell("go")
    }

    /// Ends it. It must be as well as before it was traced: it worked on, and ends by itself.
    ///
    /// # Errors
    ///
    /// When it is not.
    pub fn end(mut self) -> Result<()> {
        self.child.wait_for_line(Stream::Out, "busy", LIMIT)?;
        drop(self.child.stdin());
        self.child.wait_for_line(Stream::Out, "done 1", LIMIT)?;
        let status = self.child.wait(LIMIT)?;
        ensure!(status.success(), "{status}");
        Ok(())
    }
}

/// A library of 1 MB with two functions.
fn library(folder: &Path) -> Result<()> {
    let source = folder.join("library.c");
    let text = "const char padding[1000000] = {1};\n\
                void in_library(void (*callback)(void)) { callback(); __asm__ volatile(\"\"); }\n\
                void late(void (*callback)(void)) { callback(); __asm__ volatile(\"\"); }\n";
    std::fs::write(&source, text)?;
    let mut compiler = Command::new(workspace::program("gcc")?);
    compiler.args(["-O1", "-g", "-shared", "-fPIC", "-o"]);
    run(compiler.arg(folder.join("library.so")).arg(source))?;
    Ok(())
}
