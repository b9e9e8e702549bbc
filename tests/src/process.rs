//! Child processes that cannot outlive their test.
//!
//! In: a [`Command`]. Out: a [`Child`] in its own process group, killed by the kernel when the
//! starting thread dies, with its output in files.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How often something is looked at while waiting for it.
const GLANCE: Duration = Duration::from_millis(10);

/// How long a child may take to end after SIGTERM before it gets SIGKILL.
const PATIENCE: Duration = Duration::from_secs(20);

/// One of a child's two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// A running or ended child process. Dropping it stops it.
#[derive(Debug)]
pub struct Child {
    name: String,
    process: std::process::Child,
    ended: Option<ExitStatus>,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Child {
    /// Starts `command` with its output in `folder/name.out` and `folder/name.err`, and a pipe as
    /// its standard input.
    ///
    /// # Errors
    ///
    /// When it cannot be started or the files cannot be written.
    pub fn start(mut command: Command, folder: &Path, name: &str) -> Result<Self> {
        let stdout = folder.join(format!("{name}.out"));
        let stderr = folder.join(format!("{name}.err"));
        command
            .stdin(Stdio::piped())
            .stdout(File::create(&stdout)?)
            .stderr(File::create(&stderr)?)
            .process_group(0);
        // SAFETY: prctl is async-signal-safe and touches no memory of the parent.
        unsafe {
            command.pre_exec(|| {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0 {
                    Ok(())
                } else {
                    Err(std::io::Error::last_os_error())
                }
            });
        }
        let process = command
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Self {
            name: name.to_owned(),
            process,
            ended: None,
            stdout,
            stderr,
        })
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What it has written so far.
    #[must_use]
    pub fn output(&self, stream: Stream) -> String {
        let path = match stream {
            Stream::Out => &self.stdout,
            Stream::Err => &self.stderr,
        };
        let bytes = std::fs::read(path).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Its standard input, once.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.process.stdin.take()
    }

    /// Writes one line to its standard input, which stays open.
    ///
    /// # Errors
    ///
    /// When it does not read any more.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        let stdin = self.process.stdin.as_mut().context("its input is closed")?;
        writeln!(stdin, "{line}")?;
        Ok(stdin.flush()?)
    }

    /// Sends it a signal; nothing happens when it has ended.
    ///
    /// # Errors
    ///
    /// When the signal cannot be sent.
    pub fn signal(&mut self, signal: libc::c_int) -> Result<()> {
        if self.status()?.is_some() {
            return Ok(());
        }
        let pid = libc::pid_t::try_from(self.pid())?;
        // SAFETY: it has not been waited for, so the number is still this child's.
        if unsafe { libc::kill(pid, signal) } != 0 {
            bail!("cannot signal {}: {}", self.name, last_error());
        }
        Ok(())
    }

    /// Its exit status if it has ended.
    ///
    /// # Errors
    ///
    /// When the kernel does not say.
    pub fn status(&mut self) -> Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.process.try_wait()?;
        }
        Ok(self.ended)
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    ///
    /// When it has not ended after `limit`; it is left running.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let what = format!("{} to end", self.name);
        until(limit, &what, || self.status())
            .with_context(|| format!("its errors: {}", self.output(Stream::Err)))
    }

    /// Waits for a line of `stream` that starts with `start`, and gives that line.
    ///
    /// # Errors
    ///
    /// When the child ends first, or `limit` is over.
    pub fn wait_for_line(
        &mut self,
        stream: Stream,
        start: &str,
        limit: Duration,
    ) -> Result<String> {
        let what = format!("{} to print {start:?}", self.name);
        until(limit, &what, || {
            // In this order: what it printed before it ended is then in the file.
            let ended = self.status()?;
            let output = self.output(stream);
            let complete = output.split_inclusive('\n').filter(|l| l.ends_with('\n'));
            let found = complete.map(str::trim_end).find(|l| l.starts_with(start));
            match (found, ended) {
                (Some(line), _) => Ok(Some(line.to_owned())),
                (None, None) => Ok(None),
                (None, Some(status)) => bail!("{} ended ({status}) without that", self.name),
            }
        })
        .with_context(|| {
            let (out, err) = (self.output(Stream::Out), self.output(Stream::Err));
            format!("its output: {out:?}\nits errors: {err}")
        })
    }

    /// Ends it with SIGTERM, and with SIGKILL if it takes longer than 20 s.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        self.signal(libc::SIGTERM)?;
        if let Ok(status) = self.wait(PATIENCE) {
            return Ok(status);
        }
        self.process.kill()?;
        Ok(self.process.wait()?)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // A test may be failing already: there is nobody to tell.
        let _ = self.stop();
    }
}

/// What a process holds now.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Open descriptors.
    pub descriptors: usize,
    /// Mappings.
    pub mappings: usize,
    /// Memory that is there, KiB.
    pub resident_kib: u64,
}

impl Held {
    /// Looks at a process.
    ///
    /// # Errors
    ///
    /// When it has left.
    pub fn by(pid: u32) -> Result<Self> {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}"));
        let status = read("status")?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.context("it has left")?;
        Ok(Self {
            descriptors: std::fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
            mappings: read("maps")?.lines().count(),
            resident_kib: resident.trim().trim_end_matches(" kB").parse()?,
        })
    }
}

/// Runs a command to its end and gives what it printed.
///
/// # Errors
///
/// When it cannot be started, or does not end with 0: the error has both its outputs.
pub fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| {
        format!("cannot run {command:?}; `cargo xtask setup` says what to install")
    })?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?}: {}\n{printed}{errors}", output.status);
    }
    Ok(printed)
}

/// Whether this is root: some servers refuse to be, others must be told that it is meant.
#[must_use]
pub fn is_root() -> bool {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Asks `ready` again and again until it gives something.
///
/// # Errors
///
/// What `ready` fails with, or that `limit` is over.
pub fn until<T>(
    limit: Duration,
    what: &str,
    mut ready: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(value) = ready()? {
            return Ok(value);
        }
        if start.elapsed() > limit {
            bail!("waited {limit:?} for {what}");
        }
        std::thread::sleep(GLANCE);
    }
}

fn last_error() -> std::io::Error {
    std::io::Error::last_os_error()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, folder: &Path) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Child::start(command, folder, "sh").unwrap()
    }

    #[test]
    fn output_and_status_arrive() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = shell("read a; echo got $a; echo bad >&2; exit 7", folder.path());
        child.tell("this").unwrap();
        let line = child
            .wait_for_line(Stream::Out, "got", Duration::from_secs(10))
            .unwrap();
        assert_eq!(line, "got this");
        let status = child.wait(Duration::from_secs(10)).unwrap();
        assert_eq!(status.code(), Some(7));
        assert_eq!(child.output(Stream::Err), "bad\n");
    }

    #[test]
    fn what_fails_says_all_that_it_printed() {
        let shell = |script| run(Command::new("sh").args(["-c", script]));
        assert_eq!(shell("echo out; echo err >&2").unwrap(), "out\n");
        let error = shell("echo out; echo err >&2; exit 3")
            .unwrap_err()
            .to_string();
        assert!(error.contains("exit status: 3\nout\nerr"), "{error}");
    }

    #[test]
    fn an_early_end_is_noticed_while_waiting_for_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = shell("echo other", folder.path());
        let error = child
            .wait_for_line(Stream::Out, "never", Duration::from_secs(10))
            .unwrap_err();
        assert!(format!("{error:#}").contains("ended"), "{error:#}");
    }

    #[test]
    fn a_dropped_child_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let child = shell("exec sleep 1000", folder.path());
        let proc = PathBuf::from(format!("/proc/{}", child.pid()));
        assert!(proc.exists());
        drop(child);
        assert!(!proc.exists());
    }
}
