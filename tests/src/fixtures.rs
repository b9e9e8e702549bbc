//! Small C++ programs that are unkind to tracers, and the profiles for them.
//!
//! In: the name of a file in `tests/fixtures`. Out: a program that waits to be told `go`, prints
//! its results, and waits to be told to end.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::process::{Child, Stream, run};
use crate::reqtrace::{Outcome, Trace};
use crate::workspace;

/// How long compiling or working may take.
const LIMIT: Duration = Duration::from_secs(120);

/// A running fixture.
#[derive(Debug)]
pub struct Fixture {
    process: Child,
    folder: TempDir,
    ready: String,
}

impl Fixture {
    /// Compiles `tests/fixtures/NAME.cpp` as a distribution would (`-O2`, no debug information,
    /// exported names) and starts it. It does nothing before [`Fixture::work`].
    ///
    /// # Errors
    ///
    /// When it does not compile or start.
    pub fn start(name: &str, args: &[&str]) -> Result<Self> {
        let folder = workspace::scratch()?;
        let mut command = Command::new(compile(name, folder.path())?);
        command.args(args);
        let mut process = Child::start(command, folder.path(), name)?;
        let ready = process.wait_for_line(Stream::Out, "ready", LIMIT)?;
        Ok(Self {
            process,
            folder,
            ready,
        })
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// What it printed behind `ready`: process numbers of its children.
    #[must_use]
    pub fn more(&self) -> Vec<&str> {
        self.ready.split(' ').skip(1).collect()
    }

    /// Writes a profile with the one request type `work`.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn profile(&self, function: &str, reentry: &str) -> Result<PathBuf> {
        let path = self.folder.path().join(format!("{reentry}.toml"));
        write_profile(
            &path,
            "work",
            function,
            &format!("reentry = \"{reentry}\"\n"),
        )?;
        Ok(path)
    }

    /// Lets it work and gives its results; it stays alive.
    ///
    /// # Errors
    ///
    /// When it dies or takes too long.
    pub fn work(&mut self) -> Result<String> {
        self.process.tell("go")?;
        self.process.wait_for_line(Stream::Out, "done", LIMIT)
    }

    /// Gives it an order, and its answer: the first line that starts with `answer`, which no answer before did.
    ///
    /// # Errors
    ///
    /// When it dies or takes too long.
    pub fn ask(&mut self, order: &str, answer: &str) -> Result<String> {
        self.process.tell(order)?;
        self.process.wait_for_line(Stream::Out, answer, LIMIT)
    }

    /// Traces all its work, from before it begins until it has ended. Gives what came of that and its
    /// results.
    ///
    /// # Errors
    ///
    /// When one of both does not start, dies or takes too long.
    pub fn traced(mut self, profile: &Path, options: &[&str]) -> Result<(Outcome, String)> {
        let trace = Trace::start(profile, self.pid(), options)?;
        let results = self.work()?;
        self.end()?;
        Ok((trace.wait()?, results))
    }

    /// Lets it end.
    ///
    /// # Errors
    ///
    /// When its exit code is not 0.
    pub fn end(mut self) -> Result<()> {
        drop(self.process.stdin());
        let status = self.process.wait(LIMIT)?;
        if !status.success() {
            bail!("{status}: {}", self.process.output(Stream::Err));
        }
        Ok(())
    }
}

/// Writes a profile with the one request type `request` that begins at `function`; `more` is added
/// to the request.
///
/// # Errors
///
/// When it cannot be written.
pub fn write_profile(path: &Path, request: &str, function: &str, more: &str) -> Result<()> {
    let text = format!(
        "[profile]\nname = \"fixture\"\n\n[[request]]\nname = \"{request}\"\n\
         begin = {{ function = \"{function}\" }}\n{more}"
    );
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

/// Compiles a fixture into `folder`.
///
/// # Errors
///
/// When there is no compiler or it is not content.
pub fn compile(name: &str, folder: &Path) -> Result<PathBuf> {
    let source = workspace::root().join(format!("tests/fixtures/{name}.cpp"));
    let binary = folder.join(name);
    let standard = match name {
        "coroutines" => "-std=c++20",
        _ => "-std=c++17",
    };
    let mut command = Command::new(workspace::program("g++")?);
    command
        .args([standard, "-O2", "-g0", "-rdynamic", "-pthread", "-o"])
        .args([&binary, &source]);
    run(&mut command)?;
    Ok(binary)
}
