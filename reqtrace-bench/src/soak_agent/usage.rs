//! What a process holds, by the kernel's own count: `/proc` in; memory, kernel tables, descriptors, probes and CPU time out. And
//! whether that grows.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

/// At one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    /// Seconds since the run began.
    pub(super) at: f64,
    /// Which agent, from 0 on.
    pub(super) life: usize,
    /// Its memory, bytes: without pages of files, which the kernel takes back, and of the rings, which are the kernel's.
    pub(super) own: u64,
    /// With these.
    pub(super) resident: u64,
    /// What the kernel keeps for its maps, bytes.
    pub(super) tables: u64,
    pub(super) descriptors: u64,
    /// Those of links and events, by which programs are attached.
    pub(super) probes: u64,
}

impl Sample {
    pub(super) fn memory(&self) -> u64 {
        self.own + self.tables
    }

    /// Looks at a process and all below it.
    pub(super) fn of(pid: u32, life: usize, at: f64) -> Result<Self> {
        let mut sample = Self {
            at,
            life,
            ..Self::default()
        };
        let mut maps = BTreeSet::new();
        for (number, pid) in family(pid).into_iter().enumerate() {
            match sample.add(pid, &mut maps) {
                Err(error) if number == 0 => return Err(error),
                // A child may have left meanwhile.
                _ => {}
            }
        }
        Ok(sample)
    }

    fn add(&mut self, pid: u32, maps: &mut BTreeSet<u64>) -> Result<()> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let value = |name: &str| -> Result<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.context("it has left")?.trim().trim_end_matches(" kB");
            Ok(kib.parse::<u64>()? << 10)
        };
        self.resident += value("VmRSS:")?;
        self.own += value("RssAnon:")? + value("RssShmem:")?;
        for entry in fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
            self.descriptors += 1;
            let Ok(target) = fs::read_link(entry.path()) else {
                // It was closed meanwhile.
                continue;
            };
            let target = target.to_string_lossy();
            let is_probe = ["bpf_link", "bpf-link", "perf_event"]
                .iter()
                .any(|kind| target.contains(kind));
            self.probes += u64::from(is_probe);
            if !target.contains("bpf-map") {
                continue;
            }
            let number = entry.file_name();
            let info = format!("/proc/{pid}/fdinfo/{}", number.to_string_lossy());
            let info = fs::read_to_string(info).unwrap_or_default();
            let value = |name: &str| -> Option<u64> {
                let line = info.lines().find_map(|line| line.strip_prefix(name))?;
                line.trim_start_matches(':').trim().parse().ok()
            };
            if let (Some(id), Some(bytes)) = (value("map_id"), value("memlock"))
                && maps.insert(id)
            {
                self.tables += bytes;
            }
        }
        Ok(())
    }
}

/// A process and all below it that live.
fn family(pid: u32) -> Vec<u32> {
    let (mut all, mut at) = (vec![pid], 0);
    while let Some(pid) = all.get(at) {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        all.extend(
            children
                .split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
        at += 1;
    }
    all
}

/// CPU time of a process and all below it, those that have ended, too.
pub(super) fn cpu(pid: u32) -> Result<Duration> {
    let mut ticks = 0;
    for (number, pid) in family(pid).into_iter().enumerate() {
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            ensure!(number > 0, "process {pid} has left");
            continue;
        };
        let (_, fields) = stat.rsplit_once(") ").context("no name")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        // utime, stime, and those of children that were waited for.
        for at in 11..15 {
            ticks += fields.get(at).context("a short line")?.parse::<u64>()?;
        }
    }
    // SAFETY: no arguments that could be wrong.
    let hertz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Ok(Duration::from_secs_f64(ticks as f64 / hertz.max(1) as f64))
}

/// A straight line through points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line {
    /// An hour, as a share of the mean.
    pub(super) slope: f64,
    /// Twice its standard error.
    pub(super) error: f64,
    pub(super) points: usize,
}

/// The line of least squares through the means of blocks of so many seconds of (seconds, value): neighbours of one block go
/// together, means of blocks hardly. Those of the first half minute are left out: tables of names grow then.
pub(super) fn line(values: &[(f64, f64)], block: f64) -> Option<Line> {
    let first = values.first()?.0 + 30.0;
    let mut blocks: Vec<Vec<(f64, f64)>> = Vec::new();
    for &(at, value) in values.iter().filter(|(at, _)| *at >= first) {
        let number = ((at - first) / block) as usize;
        blocks.resize(blocks.len().max(number + 1), Vec::new());
        blocks[number].push((at, value));
    }
    blocks.retain(|block| !block.is_empty());
    let mean = |of: &[(f64, f64)], which: fn(&(f64, f64)) -> f64| {
        of.iter().map(which).sum::<f64>() / of.len() as f64
    };
    let points: Vec<(f64, f64)> = blocks
        .iter()
        .map(|block| (mean(block, |point| point.0), mean(block, |point| point.1)))
        .collect();
    if points.len() < 4 {
        return None;
    }
    let (x, y) = (
        mean(&points, |point| point.0),
        mean(&points, |point| point.1),
    );
    let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    let slope = points
        .iter()
        .map(|point| (point.0 - x) * (point.1 - y))
        .sum::<f64>()
        / spread;
    let left: f64 = points
        .iter()
        .map(|point| (point.1 - y - slope * (point.0 - x)).powi(2))
        .sum();
    let error = (left / (points.len() - 2) as f64 / spread).sqrt();
    Some(Line {
        slope: slope * 3_600.0 / y,
        error: 2.0 * error * 3_600.0 / y,
        points: points.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_again() {
        // 1 % an hour, and a wave.
        let value = |at: f64| 100.0 * (1.0 + 0.01 * at / 3_600.0) + (at * 3.7).sin();
        let values: Vec<(f64, f64)> = (0..3_600)
            .map(|at| (f64::from(at), value(f64::from(at))))
            .collect();
        let line = line(&values, 60.0).unwrap();
        assert!((line.slope - 0.01).abs() < line.error.max(1e-3), "{line:?}");
        assert!(line.error < 0.002, "{line:?}");
        assert_eq!(super::line(&values[..100], 60.0), None);
    }

    #[test]
    fn our_own_process_holds_something() {
        let own = Sample::of(std::process::id(), 0, 0.0).unwrap();
        assert!(own.resident > 1 << 20 && own.descriptors >= 3, "{own:?}");
        let before = cpu(std::process::id()).unwrap();
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_millis(100) {
            std::hint::spin_loop();
        }
        assert!(cpu(std::process::id()).unwrap() > before);
    }
}
