//! What works on this machine: `/proc`, `/sys` and this process in, one [`Finding`] a subject out.
//! Nothing is loaded here.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

use super::finding::Finding;
use super::{Features, btf_path, look, privileges, release};
use reqtrace_base::error::Error;
use reqtrace_binary::symbolize::kernel::KernelSymbols;

/// Free memory below which loading the maps may fail, MiB: they take some 60.
const LEAST_MEMORY: u64 = 128;

/// Frames of a stack; the kernel cuts its own stacks at `kernel.perf_event_max_stack`.
const FRAMES: u64 = 127;

/// Looks at everything that can be seen without loading a program.
#[must_use]
pub fn examine() -> Vec<Finding> {
    let mut findings = vec![architecture(), Finding::of("kernel", release())];
    // Not known without type information, which is printed already.
    let path = btf_path();
    let looked = release().and_then(|release| look(&path, &release));
    let features = looked.as_ref().map(|(_, features)| features);
    let features = features.map_or_else(|_| Vec::new(), |it| it.findings(&Features::FOUND));
    let seen = looked.map(|_| path.display().to_string());
    findings.push(Finding::of("type information", seen));
    findings.extend(features);
    findings.extend([
        uprobes(),
        Finding::of("capabilities", privileges::capabilities()),
        Finding::of("PID namespace", privileges::pid_namespace()),
        perf_event_paranoid(),
        Finding::of("lockdown", privileges::lockdown()),
        seccomp(),
        kernel_symbols(&KernelSymbols::read()),
        stack_depth(&read("/proc/sys/kernel/perf_event_max_stack")),
        jit(&read("/proc/sys/net/core/bpf_jit_enable")),
        memory(&read("/proc/meminfo")),
        memory_lock(),
    ]);
    findings
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn architecture() -> Finding {
    let seen = std::env::consts::ARCH;
    if cfg!(target_arch = "x86_64") {
        return Finding::ok("architecture", seen);
    }
    let error = Error::unsupported(format!("{seen}: only x86-64 is known"));
    Finding::missing("architecture", &error)
}

fn uprobes() -> Finding {
    let subject = "uprobes";
    let folder = Path::new("/sys/bus/event_source/devices/uprobe");
    let Ok(kind) = fs::read_to_string(folder.join("type")) else {
        let error = Error::unsupported(format!("{} is not there", folder.display())).next(
            "use a kernel with CONFIG_UPROBE_EVENTS=y; in a container, mount sysfs: mount -t \
             sysfs sysfs /sys",
        );
        return Finding::missing(subject, &error);
    };
    if !folder.join("format/ref_ctr_offset").exists() {
        return Finding::degraded(
            subject,
            "without reference counters: USDT probes with a semaphore cannot be traced",
            "use Linux 4.20 or later, or a distribution's kernel that has them",
        );
    }
    Finding::ok(
        subject,
        format!("perf event type {}, with USDT semaphores", kind.trim()),
    )
}

fn perf_event_paranoid() -> Finding {
    let subject = "perf_event_paranoid";
    let Some(level) = read("/proc/sys/kernel/perf_event_paranoid") else {
        let error = Error::unsupported("/proc/sys/kernel/perf_event_paranoid is not there")
            .next("use a kernel with CONFIG_PERF_EVENTS=y");
        return Finding::missing(subject, &error);
    };
    let level = level.trim();
    if privileges::may_use_perf() {
        return Finding::ok(subject, format!("{level} (no matter with CAP_PERFMON)"));
    }
    let error = Error::unsupported(format!("{level}, and CAP_PERFMON is missing"))
        .next("run it as root: sudo reqtrace …");
    Finding::missing(subject, &error)
}

fn seccomp() -> Finding {
    let subject = "seccomp";
    match privileges::seccomp_mode("self") {
        Some(2) => Finding::degraded(
            subject,
            "this process is under a filter, which may forbid bpf() and perf_event_open()",
            "if loading fails below: in a container, --security-opt seccomp=unconfined",
        ),
        _ => Finding::ok(subject, "no filter on this process"),
    }
}

fn kernel_symbols(symbols: &KernelSymbols) -> Finding {
    let subject = "kernel symbols";
    if !symbols.hidden() {
        return Finding::ok(subject, "/proc/kallsyms shows addresses");
    }
    let restrict = read("/proc/sys/kernel/kptr_restrict").unwrap_or_default();
    let next = if restrict.trim() == "2" {
        "sysctl kernel.kptr_restrict=1, and run as root (or with CAP_SYSLOG)"
    } else {
        "run it as root, or with CAP_SYSLOG (kernel.kptr_restrict lets that see addresses)"
    };
    Finding::degraded(
        subject,
        format!(
            "/proc/kallsyms hides addresses (kernel.kptr_restrict is {}): kernel frames have no \
             names, and blocked time is classed by system call only",
            restrict.trim()
        ),
        next,
    )
}

fn stack_depth(text: &Option<String>) -> Finding {
    let subject = "stack depth";
    let Some(depth) = text
        .as_ref()
        .and_then(|text| text.trim().parse::<u64>().ok())
    else {
        return Finding::ok(subject, "the kernel's default");
    };
    if depth >= FRAMES {
        return Finding::ok(subject, format!("{depth} frames of the kernel"));
    }
    Finding::degraded(
        subject,
        format!("kernel stacks are cut at {depth} frames"),
        format!("sysctl kernel.perf_event_max_stack={FRAMES}"),
    )
}

fn jit(text: &Option<String>) -> Finding {
    let subject = "JIT compiler";
    match text.as_deref().map(str::trim) {
        Some("0") => Finding::degraded(
            subject,
            "off: kernel programs are interpreted, and several times slower",
            "sysctl net.core.bpf_jit_enable=1",
        ),
        Some(_) => Finding::ok(subject, "on"),
        None => Finding::ok(subject, "always on, or not shown to this user"),
    }
}

fn memory(text: &Option<String>) -> Finding {
    let subject = "memory";
    let available = text.as_ref().and_then(|text| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("MemAvailable:"))?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(kib / 1024)
    });
    match available {
        Some(mib) if mib < LEAST_MEMORY => Finding::degraded(
            subject,
            format!("{mib} MiB are available; the kernel's maps take some 60"),
            "free some memory, or stop tracing again soon",
        ),
        Some(mib) => Finding::ok(subject, format!("{mib} MiB are available")),
        None => Finding::ok(subject, "not known"),
    }
}

fn memory_lock() -> Finding {
    let seen = getrlimit(Resource::Memlock).current.map_or_else(
        || "no limit".to_owned(),
        |limit| format!("{} KiB", limit / 1024),
    );
    Finding::ok(
        "memlock",
        format!("{seen} (no matter since Linux 5.11: maps count in the memory cgroup)"),
    )
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn what_degrades_says_what_to_do() {
        for (finding, word) in [
            (stack_depth(&text("64\n")), "perf_event_max_stack=127"),
            (jit(&text("0\n")), "bpf_jit_enable=1"),
            (
                memory(&text("MemTotal: 9 kB\nMemAvailable:   60000 kB\n")),
                "memory",
            ),
            (kernel_symbols(&KernelSymbols::parse("")), "kptr_restrict"),
        ] {
            assert_eq!(finding.state, State::Degraded, "{finding:?}");
            assert!(finding.next.unwrap().contains(word));
        }
        assert_eq!(stack_depth(&text("127\n")).state, State::Ok);
        assert_eq!(jit(&text("1\n")).state, State::Ok);
        let memory = memory(&text("MemAvailable:  2048000 kB\n"));
        assert_eq!(
            (memory.state, memory.seen.as_str()),
            (State::Ok, "2000 MiB are available")
        );
    }

    #[test]
    fn every_subject_stands_once() {
        let subjects: Vec<_> = examine().into_iter().map(|found| found.subject).collect();
        let mut unique = subjects.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), subjects.len());
    }
}
