//! What a process uses of BPF and of the machine, as the kernel says it.
//!
//! In: a process number. Out: its kernel programs with their time, the memory of its maps, its CPU
//! time and memory.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::model::Program;

/// Where the kernel's own clock for BPF programs is switched.
const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// The kernel's clock for BPF programs is on, or off, as long as this lives.
pub(crate) struct Stats {
    before: String,
}

impl Stats {
    pub(crate) fn set(on: bool) -> Result<Self> {
        let before = fs::read_to_string(STATS).context(STATS)?;
        fs::write(STATS, if on { "1" } else { "0" }).context(STATS)?;
        Ok(Self { before })
    }
}

impl Drop for Stats {
    fn drop(&mut self) {
        if let Err(error) = fs::write(STATS, self.before.trim()) {
            eprintln!(
                "bench: {STATS} is not {} again: {error}",
                self.before.trim()
            );
        }
    }
}

/// Descriptors of BPF that a process has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holdings {
    /// Programs by number: runs and ns.
    programs: BTreeMap<u32, [u64; 2]>,
    /// Maps by number: bytes.
    maps: BTreeMap<u32, u64>,
    /// What keeps programs in place.
    links: usize,
}

impl Holdings {
    /// Of a process.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let mut holdings = Self::default();
        let folder = format!("/proc/{pid}/fdinfo");
        for entry in fs::read_dir(&folder).with_context(|| folder.clone())? {
            let entry = entry?;
            // A descriptor may be closed meanwhile.
            if let Ok(text) = fs::read_to_string(entry.path()) {
                holdings.add(&text);
            }
            let target = fs::read_link(format!("/proc/{pid}/fd/{}", entry.file_name().display()));
            let target = target.unwrap_or_default();
            let target = target.to_string_lossy();
            holdings.links +=
                usize::from(target.contains("perf_event") || target.contains("bpf_link"));
        }
        Ok(holdings)
    }

    fn add(&mut self, text: &str) {
        let value = |key: &str| -> Option<u64> {
            let mut lines = text.lines().filter_map(|line| line.split_once(':'));
            let found = lines.find(|(name, _)| *name == key);
            found.and_then(|(_, value)| value.trim().parse().ok())
        };
        let number = |key: &str| value(key).and_then(|number| u32::try_from(number).ok());
        if let (Some(program), Some(runs)) = (number("prog_id"), value("run_cnt")) {
            let ns = value("run_time_ns").unwrap_or(0);
            self.programs.insert(program, [runs, ns]);
        } else if let (Some(map), Some(bytes)) = (number("map_id"), value("memlock")) {
            self.maps.insert(map, bytes);
        }
    }

    /// Whether anything is in place.
    pub(super) fn has_attached(&self) -> bool {
        !self.programs.is_empty() && self.links > 0
    }

    /// How many programs, and places of them.
    pub(super) fn count(&self) -> (usize, usize) {
        (self.programs.len(), self.links)
    }

    /// The same with the programs' times since `before`.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        for (number, sums) in &mut self.programs {
            let begun = before.programs.get(number).copied().unwrap_or_default();
            sums[0] = sums[0].saturating_sub(begun[0]);
            sums[1] = sums[1].saturating_sub(begun[1]);
        }
        self
    }

    /// Memory of its maps, bytes.
    pub(crate) fn map_bytes(&self) -> u64 {
        self.maps.values().sum()
    }

    /// Its programs by name, for `events` of the load.
    pub(crate) fn programs(&self, events: u64) -> Result<Vec<Program>> {
        let mut command = Command::new("bpftool");
        let output = command.args(["prog", "show", "--json"]).output()?;
        let all: Vec<Value> =
            serde_json::from_slice(&output.stdout).context("bpftool printed no JSON")?;
        let mut sums: BTreeMap<String, [u64; 2]> = BTreeMap::new();
        for (number, [runs, ns]) in &self.programs {
            let known = all.iter().find(|program| program["id"] == *number);
            let name = known.and_then(|program| program["name"].as_str());
            // Several probes of bpftrace have one name.
            let sum = sums
                .entry(name.unwrap_or("unnamed").to_owned())
                .or_default();
            sum[0] += runs;
            sum[1] += ns;
        }
        let programs = sums.into_iter().map(|(name, [runs, ns])| Program {
            name,
            runs,
            ns,
            events,
        });
        Ok(programs.collect())
    }
}

/// CPU time of a process since it began, with all its threads, those that have ended too.
pub(crate) fn process_cpu(pid: u32) -> Result<Duration> {
    let pid = libc::pid_t::try_from(pid)?;
    let mut clock = 0;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: both calls write to the variable they are given, and to nothing else.
    let failed = unsafe {
        libc::clock_getcpuclockid(pid, &raw mut clock) != 0
            || libc::clock_gettime(clock, &raw mut time) != 0
    };
    anyhow::ensure!(!failed, "process {pid} has no CPU clock: it has ended");
    Ok(Duration::new(
        time.tv_sec.try_into()?,
        time.tv_nsec.try_into()?,
    ))
}

/// The same with its children, those that have ended too (to the kernel's 10 ms).
pub(crate) fn family_cpu(pid: u32) -> Result<Duration> {
    let mut sum = process_cpu(pid)?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let ended: u64 = [13, 14].iter().map(|at| field(&stat, *at)).sum();
    // SAFETY: no memory is involved.
    let ticks = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) })?;
    sum += Duration::from_millis(ended * 1000 / ticks.max(1));
    for child in children(pid)? {
        // It may end here: then it is counted the next time, as one that has ended.
        sum += process_cpu(child).unwrap_or_default();
    }
    Ok(sum)
}

/// Processes that a process has started and that have not ended.
pub(super) fn children(pid: u32) -> Result<Vec<u32>> {
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(child) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        if field(&stat, 1) == u64::from(pid) {
            children.push(child);
        }
    }
    Ok(children)
}

/// A number in `/proc/PID/stat`, counted from the state, which follows the name in brackets.
fn field(stat: &str, at: usize) -> u64 {
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let value = rest.split_ascii_whitespace().nth(at);
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// The most memory that a process has had, bytes.
pub(crate) fn peak_memory(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next());
    let kib: u64 = kib.context("no VmHWM")?.parse()?;
    Ok(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_told_apart() {
        let mut holdings = Holdings::default();
        holdings.add(
            "pos:\t0\nprog_type:\t26\nmemlock:\t4096\nprog_id:\t7\nrun_time_ns:\t90\nrun_cnt:\t3\n",
        );
        holdings.add("map_type:\t2\nmemlock:\t8192\nmap_id:\t4\n");
        holdings.add("link_type:\ttracing\nprog_id:\t7\n");
        holdings.add("pos:\t0\n");
        assert_eq!(holdings.programs[&7], [3, 90]);
        assert_eq!(holdings.map_bytes(), 8192);
        assert!(!holdings.has_attached());
    }

    #[test]
    fn the_fields_of_a_process_are_found_behind_its_name() {
        let stat = "12 (a) b) S 7 12 12 0 -1 4194304 1 2 3 4 50 60 70 80 20";
        assert_eq!(field(stat, 1), 7);
        assert_eq!([11, 12, 13, 14].map(|at| field(stat, at)), [50, 60, 70, 80]);
        assert_eq!(field("", 1), 0);
    }

    #[test]
    fn work_shows_in_the_cpu_time() {
        let own = std::process::id();
        let before = family_cpu(own).unwrap();
        let mut sum = 0_u64;
        while process_cpu(own).unwrap() < before + Duration::from_millis(20) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(family_cpu(own).unwrap() >= before + Duration::from_millis(20));
        assert!(peak_memory(own).unwrap() > 1 << 20);
    }
}
