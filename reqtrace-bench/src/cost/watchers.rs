//! Who watches a server: nobody, empty programs, reqtrace, and its peers.
//!
//! In: a server. Out: a watch that has attached; ended, what it used.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use reqtrace_tests::process::{Child, until};
use reqtrace_tests::reqtrace::{self, Trace};
use reqtrace_tests::workspace as programs;
use tempfile::TempDir;

use super::empty::{self, EmptyPrograms};
use super::loads::Server;
use super::programs::Holdings;
use xtask::workspace;

/// How long a peer may take to attach.
const LIMIT: Duration = Duration::from_secs(30);
/// A peer that has changed nothing for so long has attached: it does not say so.
const SETTLED: Duration = Duration::from_millis(200);
/// How long a peer may take for its report, where that is measured.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watcher {
    Nobody,
    Empty,
    Reqtrace,
    /// Because of whom: an event for each interval.
    Blame,
    /// What takes the CPU without a switch.
    Interrupts,
    /// One request in eight.
    Sampled,
    /// Fewer probes, where the profile can do with them.
    Cheap,
    /// User stacks by frame pointers.
    FramePointers,
    /// The end by a uretprobe.
    Uretprobe,
    /// Frame pointers, no requests, sums in the kernel.
    Offcputime,
    /// A script that knows requests.
    Bpftrace,
}

/// What every load is watched by.
pub(super) const WATCHERS: [Watcher; 8] = [
    Watcher::Nobody,
    Watcher::Empty,
    Watcher::Reqtrace,
    Watcher::Blame,
    Watcher::Sampled,
    Watcher::Cheap,
    Watcher::Offcputime,
    Watcher::Bpftrace,
];
/// What MariaDB is watched by besides, with `--variants`.
pub(super) const VARIANTS: [Watcher; 2] = [Watcher::FramePointers, Watcher::Uretprobe];

/// An option whose own cost has a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    Blame,
    Interrupts,
}

impl Added {
    pub(super) const fn watcher(self) -> Watcher {
        match self {
            Self::Blame => Watcher::Blame,
            Self::Interrupts => Watcher::Interrupts,
        }
    }

    /// Without its hyphens.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Blame => "blame",
            Self::Interrupts => "interrupts",
        }
    }
}

impl Watcher {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::Empty => "empty probes",
            Self::Reqtrace => "reqtrace",
            Self::Blame => "reqtrace --blame",
            Self::Interrupts => "reqtrace --interrupts",
            Self::Sampled => "reqtrace --sample 1/8",
            Self::Cheap => "reqtrace, :cheap",
            Self::FramePointers => "reqtrace --unwind fp",
            Self::Uretprobe => "reqtrace, uretprobe",
            Self::Offcputime => "offcputime",
            Self::Bpftrace => "bpftrace script",
        }
    }

    /// Whether it is another tool, which does not change with this one.
    pub(super) fn is_peer(self) -> bool {
        matches!(self, Self::Offcputime | Self::Bpftrace)
    }

    /// Begins to watch; returns when it has attached.
    pub(super) fn start(self, server: &Server<'_>) -> Result<Watch> {
        let pid = server.pid();
        let built_in = Path::new(server.profile());
        let trace =
            |profile: &Path, more: &[&str]| Trace::start(profile, pid, more).map(Watch::Trace);
        match self {
            Self::Nobody => Ok(Watch::Nobody),
            Self::Empty => Ok(Watch::Empty(EmptyPrograms::on_sites(&sites(server)?)?)),
            Self::Reqtrace => trace(built_in, &[]),
            Self::Blame => trace(built_in, &["--blame"]),
            Self::Interrupts => trace(built_in, &["--interrupts"]),
            Self::Sampled => trace(built_in, &["--sample", "1/8"]),
            Self::Cheap => {
                let cheap = format!("{}:cheap", server.profile());
                trace(Path::new(&cheap), &[])
            }
            Self::FramePointers => trace(built_in, &["--unwind", "fp"]),
            Self::Uretprobe => trace(&with_uretprobe(server.profile())?, &[]),
            Self::Offcputime => {
                let mut command = Command::new(programs::program("offcputime")?);
                Watch::peer(command.args(["-p", &pid.to_string(), "3600"]))
            }
            Self::Bpftrace => {
                let mut command = with_tracefs(&programs::program("bpftrace")?)?;
                Watch::peer(command.args(["-e", &script(server)?]))
            }
        }
        .with_context(|| format!("{} of {}", self.name(), server.profile()))
    }
}

/// Whether this build of reqtrace can sample requests.
pub(super) fn can_sample() -> Result<bool> {
    let outcome = reqtrace::run(reqtrace::command(["--help"])?)?;
    Ok(outcome.stdout.contains("--sample"))
}

/// A watch that goes on.
pub(super) enum Watch {
    Nobody,
    Empty(#[allow(dead_code, reason = "keeps the programs in place")] EmptyPrograms),
    Trace(Trace),
    Peer(
        Child,
        #[allow(dead_code, reason = "holds the child's output")] TempDir,
    ),
}

impl Watch {
    fn peer(command: &mut Command) -> Result<Self> {
        let folder = programs::scratch()?;
        let moved = std::mem::replace(command, Command::new(""));
        let mut child = Child::start(moved, folder.path(), "peer")?;
        let mut last = ((0, 0), Instant::now());
        until(LIMIT, "a peer to attach", || {
            if let Some(status) = child.status()? {
                let printed = child.output(reqtrace_tests::process::Stream::Err);
                anyhow::bail!("it ended with {status}: {printed}");
            }
            let now = Holdings::of(child.pid())?;
            if now.count() != last.0 {
                last = (now.count(), Instant::now());
            }
            Ok((now.has_attached() && last.1.elapsed() >= SETTLED).then_some(()))
        })?;
        Ok(Self::Peer(child, folder))
    }

    /// Process number of a tracer that is a process.
    pub(super) fn pid(&self) -> Option<u32> {
        match self {
            Self::Nobody | Self::Empty(_) => None,
            Self::Trace(trace) => Some(trace.pid()),
            Self::Peer(child, _) => Some(child.pid()),
        }
    }

    /// What it has of BPF.
    pub(super) fn holdings(&self) -> Result<Holdings> {
        match self {
            Self::Nobody => Ok(Holdings::default()),
            Self::Empty(_) => Holdings::of(std::process::id()),
            Self::Trace(trace) => Holdings::of(trace.pid()),
            Self::Peer(child, _) => Holdings::of(child.pid()),
        }
    }

    /// Ends it. Returns the seconds to its report: of a trace always, of a peer only where that is
    /// asked for, as it may take minutes; then at most a minute.
    pub(super) fn end(self, with_report: bool) -> Result<Option<f64>> {
        let begin = Instant::now();
        match self {
            Self::Nobody | Self::Empty(_) => Ok(None),
            Self::Trace(trace) => {
                let outcome = trace.finish()?;
                let took = begin.elapsed().as_secs_f64();
                ensure!(outcome.code == Some(0), "{}", outcome.printed());
                Ok(Some(took))
            }
            Self::Peer(mut child, _) => {
                let mut took = None;
                if with_report {
                    child.signal(libc::SIGINT)?;
                    // Whoever is not done then gets what has been waited for.
                    let _ = child.wait(PATIENCE);
                    took = Some(begin.elapsed().as_secs_f64());
                }
                child.signal(libc::SIGKILL)?;
                child.wait(LIMIT)?;
                Ok(took)
            }
        }
    }
}

/// A program that finds tracefs, which bpftrace needs, where it is not mounted: in a mount namespace of
/// its own, so that nobody else finds it.
fn with_tracefs(program: &Path) -> Result<Command> {
    if Path::new("/sys/kernel/tracing/events").exists() {
        return Ok(Command::new(program));
    }
    let mut command = Command::new(programs::program("unshare")?);
    let script = "mount -t tracefs tracefs /sys/kernel/tracing && exec \"$0\" \"$@\"";
    command.args(["--mount", "sh", "-c", script]).arg(program);
    Ok(command)
}

/// Where reqtrace would set its probes.
fn sites(server: &Server<'_>) -> Result<Vec<empty::Site>> {
    let pid = server.pid().to_string();
    let command = reqtrace::command([
        "check",
        "--sites",
        "--profile",
        server.profile(),
        "-p",
        &pid,
    ])?;
    let outcome = reqtrace::run(command)?;
    ensure!(outcome.code == Some(0), "{}", outcome.printed());
    empty::parse_sites(&outcome.stdout)
}

/// A built-in profile with its ends probed by uretprobes.
fn with_uretprobe(name: &str) -> Result<PathBuf> {
    let text = fs::read_to_string(workspace::root().join(format!("profiles/{name}.toml")))?;
    let text = text.replace(
        "[[request]]\n",
        "[[request]]\nreturn-probe = \"uretprobe\"\n",
    );
    let path = workspace::target_dir().join(format!("{name}-uretprobe.toml"));
    fs::write(&path, text).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// What anybody would write who wants off-CPU time in requests only.
fn script(server: &Server<'_>) -> Result<String> {
    let file = server.executable()?;
    let file = file.display();
    let symbols = server.symbols();
    let [begin, end] = symbols.context("its requests are no calls on one thread")?;
    let mut text = String::new();
    writeln!(text, "uprobe:{file}:{begin} {{ @begin[tid] = nsecs; }}")?;
    writeln!(
        text,
        "uretprobe:{file}:{end} /@begin[tid]/ {{ \
         @latency_us = hist((nsecs - @begin[tid]) / 1000); delete(@begin[tid]); }}"
    )?;
    writeln!(
        text,
        "tracepoint:sched:sched_switch /@begin[args->prev_pid]/ {{ \
         @out[args->prev_pid] = nsecs; @kernel[args->prev_pid] = kstack; \
         @user[args->prev_pid] = ustack; }}"
    )?;
    writeln!(
        text,
        "tracepoint:sched:sched_switch /@out[args->next_pid]/ {{ \
         @off_cpu_ns[@kernel[args->next_pid], @user[args->next_pid]] = \
         sum(nsecs - @out[args->next_pid]); delete(@out[args->next_pid]); }}"
    )?;
    Ok(text)
}
