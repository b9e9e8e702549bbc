//! Processes as rules see them: `/proc` in; who runs which program since when, and where, out. What does not change is
//! read once a process.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqtrace_capture::kernel::processes::{all, text_of};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Looks between two at whether numbers are still those of the same processes.
const LOOKS_PER_ALL: u64 = 10;
/// Looks between two at which all that is known of a process is read again: it may have been moved to another group.
const LOOKS_PER_WHOLE: u64 = 60;
/// Processes of this machine of which it is known that they are.
const MOST_KNOWN: usize = 50_000;
/// A process that nobody has looked at for so long has left.
const GONE: Duration = Duration::from_secs(60);
/// An older process rarely comes to run another program: it is looked at then only.
const SETTLED: Duration = Duration::from_secs(60);

/// `PF_KTHREAD`: it runs no program.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// A process, of which a number and a start are one for all time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id {
    pub(crate) pid: u32,
    /// Clock ticks since boot.
    pub(crate) start: u64,
}

/// A file, by device and inode.
pub(crate) type File = (u64, u64);

/// What a rule looks at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// Path of the executable, as the process sees it.
    pub(crate) exe: String,
    /// What is there.
    pub(crate) file: File,
    pub(crate) comm: String,
    /// Path of its control group.
    pub(crate) cgroup: String,
    /// The process that started it.
    pub(crate) parent: u32,
    /// It runs this machine's file of that path: mounts of its own, as systemd gives most services, make no container. See
    /// [`Host::has`].
    pub(crate) is_host: bool,
    /// Since its start.
    pub(crate) age: Duration,
}

/// Whoever runs this machine's file runs it on when another one was put at its path, which then leads to another file.
///
/// The path alone says nothing: whoever may mount something in a namespace of his own may take a file away under it as well.
#[derive(Debug, Default)]
pub(crate) struct OfHost(BTreeMap<(Id, File), (String, Instant)>);

impl OfHost {
    /// How rules see a process that was looked at now.
    pub(crate) fn with(&mut self, id: Id, seen: Seen, now: Instant) -> Seen {
        let key = (id, seen.file);
        let known = self.0.get_mut(&key);
        match known.filter(|(exe, _)| *exe == seen.exe) {
            Some((_, since)) => *since = now,
            None if seen.is_host => self.remember(key, &seen.exe, now),
            None => return seen,
        }
        Seen {
            is_host: true,
            ..seen
        }
    }

    fn remember(&mut self, key: (Id, File), exe: &str, now: Instant) {
        if self.0.len() >= MOST_KNOWN {
            let is_there = |since: &Instant| now.saturating_duration_since(*since) < GONE;
            self.0.retain(|_, (_, since)| is_there(since));
        }
        if self.0.len() < MOST_KNOWN {
            self.0.insert(key, (exe.to_owned(), now));
        }
    }
}

/// Who may look at the processes of other users.
pub(crate) trait Sees: Debug + Send + Sync {
    /// How rules see a process; `None` when it is none of theirs to see.
    ///
    /// # Errors
    ///
    /// When there is no answer.
    fn see(&self, pid: u32) -> io::Result<Option<Seen>>;
}

/// All that run a program.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    known: BTreeMap<Id, Seen>,
    /// Numbers of kernel threads: a machine has more of them for each of its CPUs.
    kernel_threads: BTreeSet<u32>,
    looks: u64,
    /// Who looks at them; `None`: this process itself.
    others: Option<Arc<dyn Sees>>,
}

impl Seen {
    /// The systemd unit that it is in; empty when it is in none.
    pub(crate) fn unit(&self) -> &str {
        let mut parts = self.cgroup.rsplit('/');
        let is_unit = |part: &&str| part.ends_with(".service") || part.ends_with(".scope");
        parts.find(is_unit).unwrap_or_default()
    }
}

impl Processes {
    /// Those that another process has to look at.
    pub(crate) fn seen_by(others: Arc<dyn Sees>) -> Self {
        Self {
            others: Some(others),
            ..Self::default()
        }
    }

    /// Looks who is there now.
    pub(crate) fn look(&mut self) -> &BTreeMap<Id, Seen> {
        self.looks += 1;
        let is_of_all = self.looks.is_multiple_of(LOOKS_PER_ALL);
        let is_whole = self.looks.is_multiple_of(LOOKS_PER_WHOLE);
        let now = uptime();
        let host = Host::new();
        let before = std::mem::take(&mut self.known);
        let kernel_threads = std::mem::take(&mut self.kernel_threads);
        for pid in all() {
            if kernel_threads.contains(&pid) && !is_of_all {
                self.kernel_threads.insert(pid);
                continue;
            }
            let first = Id { pid, start: 0 };
            let known = before.range(first..).next();
            let known = known.filter(|(id, _)| id.pid == pid && !is_whole);
            let is_settled = |(_, seen): &(&Id, &Seen)| seen.age >= SETTLED && !is_of_all;
            if let Some((id, seen)) = known.filter(is_settled) {
                let age = now.saturating_sub(ticks(id.start));
                let now = Seen {
                    age,
                    ..seen.clone()
                };
                self.known.insert(*id, now);
                continue;
            }
            let Stat {
                comm,
                start,
                parent,
            } = match Runs::of(pid) {
                Some(Runs::Program(stat)) => stat,
                Some(Runs::Kernel) => {
                    self.kernel_threads.insert(pid);
                    continue;
                }
                None => continue,
            };
            let (id, age) = (Id { pid, start }, now.saturating_sub(ticks(start)));
            let is_same = |(known, seen): &(&Id, &Seen)| **known == id && seen.comm == comm;
            let seen = match known.filter(is_same) {
                Some((_, seen)) => Some(seen.clone()),
                None => match &self.others {
                    // Without an answer it is what it was.
                    Some(others) => others.see(pid).unwrap_or_else(|_| before.get(&id).cloned()),
                    None => read(pid, comm, &host),
                },
            };
            if let Some(seen) = seen {
                let now = Seen {
                    parent,
                    age,
                    ..seen
                };
                self.known.insert(id, now);
            }
        }
        &self.known
    }
}

/// What a process runs.
pub(crate) fn executable_of(pid: u32) -> Option<File> {
    file(format!("/proc/{pid}/exe"))
}

/// The number and the start of a process; `None` when it has left.
pub(crate) fn id_of(pid: u32) -> Option<Id> {
    let Stat { start, .. } = Stat::of(pid)?;
    Some(Id { pid, start })
}

/// One process, as it is now. `None` for kernel threads, and when it has left or is not ours to look at.
pub(crate) fn see(pid: u32) -> Option<(Id, Seen)> {
    let Stat {
        comm,
        start,
        parent,
    } = Stat::of(pid)?;
    let age = uptime().saturating_sub(ticks(start));
    let seen = Seen {
        parent,
        age,
        ..read(pid, comm, &Host::new())?
    };
    Some((Id { pid, start }, seen))
}

/// `None` for kernel threads, and when it has left or is not ours to look at.
fn read(pid: u32, comm: String, host: &Host) -> Option<Seen> {
    let exe = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let cgroup = text_of(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let path = exe.to_string_lossy();
    Some(Seen {
        // The old version runs on when another one was installed.
        exe: path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned(),
        file: executable_of(pid)?,
        comm,
        cgroup: group(&cgroup).to_owned(),
        parent: 0,
        is_host: host.has(pid, &exe),
        age: Duration::ZERO,
    })
}

/// What is known of this machine, to tell its processes from those of containers.
struct Host {
    root: Option<File>,
    /// Those of this process and of init: the agent may have mounts of its own, too.
    mounts: [Option<PathBuf>; 2],
}

impl Host {
    fn new() -> Self {
        let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
        Self {
            root: file("/proc/self/root"),
            mounts: [of("self"), of("1")],
        }
    }

    /// Whether a process has this machine's root, and either its mounts or this machine's file for its program: whoever
    /// may mount something in a namespace of his own may give any program any path there.
    fn has(&self, pid: u32, exe: &Path) -> bool {
        let root = file(format!("/proc/{pid}/root"));
        let mounts = fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
        let has_mounts = || mounts.is_some() && self.mounts.contains(&mounts);
        let has_file = || {
            let program = executable_of(pid);
            program.is_some() && program == file(exe)
        };
        root.is_some() && root == self.root && (has_mounts() || has_file())
    }
}

/// What a path leads to.
fn file(path: impl AsRef<Path>) -> Option<File> {
    let file = fs::metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

/// The path in the unified hierarchy; before there was one, that of systemd.
fn group(text: &str) -> &str {
    let path = |prefix: &str| text.lines().find_map(|line| line.strip_prefix(prefix));
    let of_systemd = || {
        let lines = text.lines();
        lines
            .filter_map(|line| line.split_once(":name=systemd:"))
            .map(|(_, path)| path)
            .next()
    };
    path("0::")
        .filter(|path| *path != "/")
        .or_else(of_systemd)
        .unwrap_or("/")
}

/// What a thread that has not ended runs.
#[derive(Debug)]
enum Runs {
    Program(Stat),
    /// A part of the kernel.
    Kernel,
}

/// What `/proc/PID/stat` has.
#[derive(Debug)]
struct Stat {
    comm: String,
    start: u64,
    parent: u32,
}

impl Stat {
    /// `None` when it has left, or has ended and waits to be reaped, and for kernel threads.
    fn of(pid: u32) -> Option<Self> {
        match Runs::of(pid)? {
            Runs::Program(stat) => Some(stat),
            Runs::Kernel => None,
        }
    }
}

impl Runs {
    /// `None` when it has left, or has ended and waits to be reaped.
    fn of(pid: u32) -> Option<Self> {
        Self::parse(&text_of(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        // A name may have any characters, parentheses too.
        let (before, rest) = text.rsplit_once(") ")?;
        let (_, comm) = before.split_once(" (")?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        // The ninth and the 22nd field, where the parent is the fourth.
        let flags: u64 = fields.nth(4)?.parse().ok()?;
        let start = fields.nth(12)?.parse().ok()?;
        if matches!(state, "Z" | "X") {
            return None;
        }
        if flags & KERNEL_THREAD != 0 {
            return Some(Self::Kernel);
        }
        Some(Self::Program(Stat {
            comm: comm.to_owned(),
            start,
            parent,
        }))
    }
}

fn ticks(count: u64) -> Duration {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_millis(count.saturating_mul(1000) / per_second)
}

/// Since boot.
fn uptime() -> Duration {
    clock_gettime(ClockId::Boottime)
        .try_into()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen_as_it_is() {
        let mut processes = Processes::default();
        let own = std::process::id();
        let exe = std::env::current_exe().unwrap();
        for _ in 0..2 {
            let known = processes.look();
            let (id, seen) = known.iter().find(|(id, _)| id.pid == own).unwrap();
            assert_eq!(Path::new(&seen.exe), exe);
            assert!(seen.is_host && id.start > 0);
            assert!(seen.age < Duration::from_secs(3_600), "{seen:?}");
            // Kernel threads run no program.
            assert!(known.keys().all(|id| id.pid != 2) || !known.is_empty());
        }
    }

    #[test]
    fn whoever_runs_a_file_that_was_replaced_is_of_this_machine_on() {
        let id = |pid| Id { pid, start: 7 };
        let seen = |exe: &str, file: File, is_host| Seen {
            exe: exe.to_owned(),
            file,
            comm: String::new(),
            cgroup: String::new(),
            parent: 1,
            is_host,
            age: Duration::ZERO,
        };
        let (exe, now) = ("/usr/sbin/mariadbd", Instant::now());
        let mut of_host = OfHost::default();
        let mut is_host = |pid, exe, file, is_host, seconds| {
            let now = now + Duration::from_secs(seconds);
            of_host.with(id(pid), seen(exe, file, is_host), now).is_host
        };
        // One of a container, and one of this machine.
        assert!(!is_host(1, exe, (1, 2), false, 0));
        assert!(is_host(2, exe, (1, 2), true, 0));
        // Another file is at the path by now.
        assert!(is_host(2, exe, (1, 2), false, 1) && !is_host(1, exe, (1, 2), false, 1));
        // It runs what is nothing of this machine's, or has moved its file to where that of another is.
        assert!(!is_host(2, exe, (3, 4), false, 2));
        assert!(!is_host(2, "/usr/sbin/sshd", (1, 2), false, 2));
        let pids = 3..u32::try_from(MOST_KNOWN).unwrap() + 3;
        for pid in pids {
            is_host(pid, "/bin/true", (5, 6), true, 30);
        }
        // Those that are there keep what they have.
        assert!(is_host(2, exe, (1, 2), false, 31));
        assert!(is_host(1, "/bin/true", (5, 6), true, 91));
        assert!(is_host(1, "/bin/true", (5, 6), false, 92));
        assert!(!is_host(3, "/bin/true", (5, 6), false, 92));
    }

    #[test]
    fn names_with_parentheses_and_zombies() {
        let tail = "3 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 1";
        let Some(Runs::Program(stat)) = Runs::parse(&format!("7 (a) R (b) S {tail}")) else {
            panic!("it runs a program");
        };
        assert_eq!((stat.comm.as_str(), stat.start), ("a) R (b", 4711));
        assert_eq!(stat.parent, 3);
        assert!(Runs::parse(&format!("7 (a) Z {tail}")).is_none());
        assert!(Runs::parse("7 (a) S 1 1").is_none());
        let kernel = tail.replace("4194560", &(KERNEL_THREAD | 0x40).to_string());
        assert!(matches!(
            Runs::parse(&format!("2 (kthreadd) S {kernel}")),
            Some(Runs::Kernel)
        ));
    }

    #[test]
    fn groups_and_units() {
        assert_eq!(
            group("0::/system.slice/a.service\n"),
            "/system.slice/a.service"
        );
        let both = "12:pids:/x\n1:name=systemd:/system.slice/b.service\n0::/\n";
        assert_eq!(group(both), "/system.slice/b.service");
        assert_eq!(group(""), "/");
        let seen = |cgroup: &str| Seen {
            exe: String::new(),
            file: (0, 0),
            comm: String::new(),
            cgroup: cgroup.to_owned(),
            parent: 1,
            is_host: true,
            age: Duration::ZERO,
        };
        let unit = |cgroup: &str| seen(cgroup).unit().to_owned();
        assert_eq!(unit("/system.slice/a.service/sub"), "a.service");
        assert_eq!(
            unit("/user.slice/user@0.service/app.slice/b.scope"),
            "b.scope"
        );
        assert_eq!(unit("/"), "");
    }
}
