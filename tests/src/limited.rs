//! Limits of CPU time and of a disk: a process in, held back by a cgroup, what the kernel counts of it out.
//!
//! Needs root and the controllers of CPU time and of block devices (cgroup, either version).

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

/// Cgroups that this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A cgroup, taken away at the end.
#[derive(Debug)]
struct Group {
    folder: PathBuf,
    path: String,
    is_old: bool,
}

impl Group {
    /// A new one, of the first version's controller or of the second's.
    fn of(old: &str, new: &str) -> Result<Self> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = format!("/reqtrace-{}-{number}", std::process::id());
        let old = Path::new("/sys/fs/cgroup").join(old);
        let is_old = old.is_dir();
        let root = if is_old {
            old
        } else {
            let root = PathBuf::from("/sys/fs/cgroup");
            fs::write(root.join("cgroup.subtree_control"), format!("+{new}"))
                .with_context(|| format!("this machine has no controller `{new}`"))?;
            root
        };
        let folder = root.join(&path[1..]);
        fs::create_dir(&folder)?;
        Ok(Self {
            folder,
            path,
            is_old,
        })
    }

    fn set(&self, file: &str, value: &str) -> Result<()> {
        let file = self.folder.join(file);
        fs::write(&file, value).with_context(|| file.display().to_string())
    }

    fn take(&self, pid: u32) -> Result<()> {
        self.set("cgroup.procs", &pid.to_string())
    }
}

impl Drop for Group {
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

/// Microseconds in which a limit of CPU time is given out, and the least that a limit may be.
const PERIOD_US: u32 = 100_000;
const LEAST_US: u32 = 1_000;

/// How long it is watched whether a limit holds its processes back: ten periods.
const WATCHED: Duration = Duration::from_secs(1);

/// A limit of CPU time.
#[derive(Debug)]
pub struct Limited(Group);

impl Limited {
    /// A whole CPU, until it is tightened.
    ///
    /// # Errors
    ///
    /// As [`Limited::to`].
    pub fn loose() -> Result<Self> {
        Self::to(PERIOD_US)
    }

    /// One whose processes have so many microseconds of CPU in each 100,000.
    ///
    /// # Errors
    ///
    /// When this machine has no controller of CPU time, or refuses the limit.
    pub fn to(quota_us: u32) -> Result<Self> {
        let group = Group::of("cpu", "cpu")?;
        if group.is_old {
            group.set("cpu.cfs_period_us", &PERIOD_US.to_string())?;
        }
        let limited = Self(group);
        limited.set(quota_us)?;
        Ok(limited)
    }

    fn set(&self, quota_us: u32) -> Result<()> {
        if self.0.is_old {
            self.0.set("cpu.cfs_quota_us", &quota_us.to_string())
        } else {
            self.0.set("cpu.max", &format!("{quota_us} {PERIOD_US}"))
        }
    }

    /// Makes the limit a clear one for the load that its processes are under: what a load takes of a CPU differs between
    /// machines, and from hour to hour. Returns the microseconds that are left to them.
    ///
    /// # Errors
    ///
    /// When the least that a limit may be holds them back in few of its periods.
    pub fn tighten(&self) -> Result<u32> {
        let mut quota_us = PERIOD_US / 5;
        loop {
            self.set(quota_us)?;
            let (periods, held_back) = (self.stat("nr_periods")?, self.stat("nr_throttled")?);
            std::thread::sleep(WATCHED);
            let periods = self.stat("nr_periods")? - periods;
            let held_back = self.stat("nr_throttled")? - held_back;
            // Not in most, but in nearly all: clients that have just connected take more than later.
            if 4 * held_back > 3 * periods {
                return Ok(quota_us);
            }
            ensure!(
                quota_us > LEAST_US,
                "held back in {held_back} of {periods} periods by {LEAST_US} µs of {PERIOD_US}: the load takes less"
            );
            quota_us = (quota_us / 2).max(LEAST_US);
        }
    }

    /// Its name, as `/proc/PID/cgroup` has it.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// Puts a process into it, with all its threads; processes that it starts from now on are in it, too.
    ///
    /// # Errors
    ///
    /// When the process is gone.
    pub fn take(&self, pid: u32) -> Result<()> {
        self.0.take(pid)
    }

    /// Nanoseconds for which the kernel held its threads back.
    ///
    /// # Errors
    ///
    /// When the kernel does not say.
    pub fn throttled_ns(&self) -> Result<u64> {
        let in_us = self.stat("throttled_usec").map(|us| us * 1_000);
        in_us.or_else(|_| self.stat("throttled_time"))
    }

    /// A count of the kernel's.
    fn stat(&self, name: &str) -> Result<u64> {
        let stat = fs::read_to_string(self.0.folder.join("cpu.stat"))?;
        let line = stat.lines().find_map(|line| line.strip_prefix(name));
        let value = line.and_then(|value| value.trim().parse().ok());
        value.with_context(|| format!("no `{name}` in {stat}"))
    }
}

/// Writes to a disk that stall.
#[derive(Debug)]
pub struct Stalling {
    group: Group,
    device: String,
}

impl Stalling {
    /// Those of one process, to the disk that this folder is on.
    ///
    /// # Errors
    ///
    /// When this machine has no controller of block devices, or the folder is on none.
    pub fn writes_of(pid: u32, folder: &Path) -> Result<Self> {
        let device = fs::metadata(folder)?.dev();
        let device = format!("{}:{}", libc::major(device), libc::minor(device));
        let entry = fs::canonicalize(format!("/sys/dev/block/{device}"))
            .with_context(|| format!("{} is on no block device", folder.display()))?;
        // Limits are of whole disks.
        let device = match entry.join("partition").exists() {
            true => fs::read_to_string(entry.join("../dev"))?.trim().to_owned(),
            false => device,
        };
        let group = Group::of("blkio", "io")?;
        group.take(pid)?;
        Ok(Self { group, device })
    }

    /// From now on there are two writes a second, or as many as the disk takes.
    ///
    /// # Errors
    ///
    /// When the kernel refuses the limit.
    pub fn stall(&self, stalls: bool) -> Result<()> {
        self.limit("write", stalls.then_some(2))
    }

    /// From now on there are so many reads a second.
    ///
    /// # Errors
    ///
    /// As [`Stalling::stall`].
    pub fn slow_reads(&self, a_second: u32) -> Result<()> {
        self.limit("read", Some(a_second))
    }

    fn limit(&self, what: &str, most: Option<u32>) -> Result<()> {
        let Self { group, device } = self;
        if group.is_old {
            let file = format!("blkio.throttle.{what}_iops_device");
            return group.set(&file, &format!("{device} {}", most.unwrap_or(0)));
        }
        let most = most.map_or_else(|| "max".to_owned(), |most| most.to_string());
        group.set("io.max", &format!("{device} {}iops={most}", &what[..1]))
    }
}
