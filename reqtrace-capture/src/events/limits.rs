//! Limits of CPU time: a process in, the cgroup with the tightest limit above it out.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::kernel::processes::text_of;

/// For so long a process is taken to be where it was.
const PAUSE: Duration = Duration::from_secs(5);
/// Processes whose cgroup is kept.
const MAX_PROCESSES: usize = 1 << 10;
/// Where cgroups are.
const ROOT: &str = "/sys/fs/cgroup";

/// Cgroups by process.
#[derive(Debug, Default)]
pub(super) struct Limits {
    known: FxHashMap<u32, (String, Instant)>,
}

impl Limits {
    /// The cgroup that limits a process, by its path; empty when there is none, or it cannot be read.
    pub(super) fn of(&mut self, pid: u32) -> String {
        if let Some((cgroup, since)) = self.known.get(&pid)
            && since.elapsed() < PAUSE
        {
            return cgroup.clone();
        }
        if self.known.len() >= MAX_PROCESSES {
            self.known.clear();
        }
        let memberships = text_of(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let cgroup = tightest(Path::new(ROOT), &memberships).unwrap_or_default();
        self.known.insert(pid, (cgroup.clone(), Instant::now()));
        cgroup
    }

    /// Forgets processes that have left.
    pub(super) fn forget(&mut self, pids: &BTreeSet<u32>) {
        self.known.retain(|pid, _| !pids.contains(pid));
    }
}

/// Of the cgroups in a `/proc/PID/cgroup` and all above, the one that allows least.
fn tightest(root: &Path, memberships: &str) -> Option<String> {
    let mut limited: Vec<(f64, String)> = Vec::new();
    for line in memberships.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let has_cpu = controllers.split(',').any(|name| name == "cpu");
        if !controllers.is_empty() && !has_cpu {
            continue;
        }
        // Version 2 is mounted there alone, or beside version 1.
        let mounts = match controllers {
            "" => vec![root.to_owned(), root.join("unified")],
            _ => vec![root.join("cpu"), root.join(controllers)],
        };
        let path = Path::new(path.trim_start_matches('/'));
        // One that lies outside of what this process sees begins with `..`.
        if path.starts_with("..") {
            continue;
        }
        for mount in mounts {
            let above = path.ancestors().map(|above| (mount.join(above), above));
            limited.extend(above.filter_map(|(folder, above)| {
                Some((cpus(folder)?, format!("/{}", above.display())))
            }));
        }
    }
    let least = limited
        .into_iter()
        .min_by(|(one, _), (other, _)| one.total_cmp(other));
    least.map(|(_, cgroup)| cgroup)
}

/// How many CPUs a cgroup may use; `None` when it has no limit.
fn cpus(folder: PathBuf) -> Option<f64> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let (quota, period) = match read("cpu.max") {
        Some(text) => {
            let (quota, period) = text.trim().split_once(' ')?;
            (quota.to_owned(), period.to_owned())
        }
        None => (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?),
    };
    let number = |text: &str| {
        text.trim()
            .parse::<f64>()
            .ok()
            .filter(|number| *number > 0.0)
    };
    Some(number(&quota)? / number(&period)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_limit_above_a_process_is_found_in_both_versions() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(tightest(root.path(), "0::/a/b\n"), None);
        put("a/cpu.max", "20000 100000\n");
        put("a/b/cpu.max", "max 100000\n");
        put("c/cpu.max", "50000 100000\n");
        assert_eq!(tightest(root.path(), "0::/a/b\n"), Some("/a".to_owned()));
        assert_eq!(tightest(root.path(), "0::/c\n"), Some("/c".to_owned()));
        assert_eq!(tightest(root.path(), "0::/../a\n"), None);
        put("cpu/d/cpu.cfs_quota_us", "-1\n");
        put("cpu/d/cpu.cfs_period_us", "100000\n");
        put("cpu,cpuacct/d/e/cpu.cfs_quota_us", "10000\n");
        put("cpu,cpuacct/d/e/cpu.cfs_period_us", "100000\n");
        let both = "4:memory:/c\n3:cpu,cpuacct:/d/e\n0::/a\n";
        assert_eq!(tightest(root.path(), both), Some("/d/e".to_owned()));
        assert_eq!(tightest(root.path(), "3:cpu,cpuacct:/d\n"), None);
    }
}
