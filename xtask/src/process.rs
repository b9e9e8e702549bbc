//! Running other programs: to the end, for their output, or as children that cannot outlive us.

use std::{
    ffi::OsStr,
    io,
    os::unix::process::CommandExt as _,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

/// How often a waiting loop looks again.
const POLL: Duration = Duration::from_millis(20);
/// How long a child has to end after SIGTERM before it is killed.
const GRACE: Duration = Duration::from_secs(3);

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Makes Ctrl-C end the children, which get it from the terminal too, and lets us clean up after
/// them. A handler, unlike "ignore", is not inherited.
pub fn survive_interrupt() {
    extern "C" fn on_interrupt(_signal: libc::c_int) {
        INTERRUPTED.store(true, Ordering::Relaxed);
    }
    let handler: extern "C" fn(libc::c_int) = on_interrupt;
    // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
    unsafe { libc::signal(libc::SIGINT, handler as *const () as libc::sighandler_t) };
}

/// Whether Ctrl-C was pressed since `survive_interrupt`.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// The command as a person would type it.
pub fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Runs to the end with our own standard streams; an error if it fails.
pub fn run(command: &mut Command) -> Result<()> {
    let line = line(command);
    let status = command
        .status()
        .with_context(|| format!("`{line}` could not be started"))?;
    if !status.success() {
        bail!("`{line}` failed: {status}");
    }
    Ok(())
}

/// Standard output of a command that succeeded; `None` if it failed or does not exist.
pub fn output(command: &mut Command) -> Option<String> {
    let Output { status, stdout, .. } = command.stdin(Stdio::null()).output().ok()?;
    status
        .success()
        .then(|| String::from_utf8_lossy(&stdout).into_owned())
}

/// A child that ends when this guard is dropped, and with us if we are killed.
pub struct Guard {
    child: Child,
    name: String,
}

impl Guard {
    /// Starts a child.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        let name = line(command);
        // SAFETY: prctl is async-signal-safe and touches no memory of the parent.
        unsafe {
            command.pre_exec(|| {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == -1 {
                    return Err(io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command
            .spawn()
            .with_context(|| format!("`{name}` could not be started"))?;
        Ok(Self { child, name })
    }

    /// The child's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The child, to take its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Whether it has ended, and how.
    pub fn poll(&mut self) -> Result<Option<ExitStatus>> {
        self.child
            .try_wait()
            .with_context(|| format!("waiting for `{}`", self.name))
    }

    /// Waits until it ends, however long that takes.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        self.child
            .wait()
            .with_context(|| format!("waiting for `{}`", self.name))
    }

    /// Waits until it ends; `None` if it did not within `limit`.
    pub fn wait_for(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.poll()? {
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            thread::sleep(POLL);
        }
    }

    /// Waits until it ends by itself; an error if that takes longer than `limit` or it fails.
    pub fn finish(mut self, limit: Duration) -> Result<()> {
        match self.wait_for(limit)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("`{}` failed: {status}", self.name),
            None => bail!("`{}` did not end within {} s", self.name, limit.as_secs()),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        if let Ok(pid) = libc::pid_t::try_from(self.child.id()) {
            // SAFETY: plain system call; the child has not been reaped, so the id is still its own.
            unsafe { libc::kill(pid, libc::SIGTERM) };
        }
        if !matches!(self.wait_for(GRACE), Ok(Some(_))) {
            // Nothing is left to do if even that fails: the kernel ends it with us.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_guard_ends_its_child() {
        let guard = Guard::spawn(Command::new("sleep").arg("1000")).unwrap();
        let proc = format!("/proc/{}", guard.pid());
        assert!(std::path::Path::new(&proc).exists());
        drop(guard);
        assert!(!std::path::Path::new(&proc).exists());
    }

    #[test]
    fn finish_tells_failure_and_time_out() {
        let guard = Guard::spawn(&mut Command::new("false")).unwrap();
        let error = guard.finish(Duration::from_secs(10)).unwrap_err();
        assert!(error.to_string().contains("`false` failed"), "{error}");
        let guard = Guard::spawn(Command::new("sleep").arg("1000")).unwrap();
        let error = guard.finish(Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("did not end"), "{error}");
    }
}
