//! A limit of CPU time: a cgroup in, its processes held back, what the kernel counts of it out.
//!
//! Needs root and a controller of CPU time (cgroup, either version).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};

/// Cgroups that this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A cgroup with a limit, taken away at the end.
#[derive(Debug)]
pub struct Limited {
    folder: PathBuf,
    path: String,
}

impl Limited {
    /// One whose processes have so many microseconds of CPU in each 100,000.
    ///
    /// # Errors
    ///
    /// When this machine has no controller of CPU time, or refuses the limit.
    pub fn to(quota_us: u32) -> Result<Self> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = format!("/reqtrace-{}-{number}", std::process::id());
        let old = Path::new("/sys/fs/cgroup/cpu");
        let root = if old.is_dir() {
            old
        } else {
            Path::new("/sys/fs/cgroup")
        };
        let folder = root.join(&path[1..]);
        if root != old {
            fs::write(root.join("cgroup.subtree_control"), "+cpu")
                .context("this machine has no controller of CPU time")?;
        }
        fs::create_dir(&folder)?;
        let limited = Self { folder, path };
        if root == old {
            limited.set("cpu.cfs_period_us", "100000")?;
            limited.set("cpu.cfs_quota_us", &quota_us.to_string())?;
        } else {
            limited.set("cpu.max", &format!("{quota_us} 100000"))?;
        }
        Ok(limited)
    }

    fn set(&self, file: &str, value: &str) -> Result<()> {
        let file = self.folder.join(file);
        fs::write(&file, value).with_context(|| file.display().to_string())
    }

    /// Its name, as `/proc/PID/cgroup` has it.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Puts a process into it, with all its threads; processes that it starts from now on are in it, too.
    ///
    /// # Errors
    ///
    /// When the process is gone.
    pub fn take(&self, pid: u32) -> Result<()> {
        self.set("cgroup.procs", &pid.to_string())
    }

    /// Nanoseconds for which the kernel held its threads back.
    ///
    /// # Errors
    ///
    /// When the kernel does not say.
    pub fn throttled_ns(&self) -> Result<u64> {
        let stat = fs::read_to_string(self.folder.join("cpu.stat"))?;
        let value = |name: &str| {
            let line = stat.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.trim().parse::<u64>().ok())
        };
        let in_us = value("throttled_usec").map(|us| us * 1_000);
        in_us
            .or_else(|| value("throttled_time"))
            .with_context(|| stat.clone())
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let root = self.folder.parent().map(|root| root.join("cgroup.procs"));
        let procs = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        for (pid, root) in procs.lines().zip(root.iter().cycle()) {
            // One that ends meanwhile needs no other place.
            let _ = fs::write(root, pid);
        }
        let _ = fs::remove_dir(&self.folder);
    }
}
