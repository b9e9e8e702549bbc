//! The traced processes: news of them in; who lives, under which name, in which generation and with what mapped,
//! out. Whoever wants to know what a process has mapped asks here: it is read once a change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::kernel::clock;
use crate::kernel::processes::{comm, is_alive, mapped_pages};
use reqtrace_base::frame::AddressSpace;
use reqtrace_binary::maps::{self, Mapped};

/// A look at what a process has mapped that takes longer than this is a long one: the process has
/// tens of thousands of mappings.
const LONG_LOOK: Duration = Duration::from_millis(5);
/// The pause after a long look is so many times as long, so that looking takes 5 % of a CPU.
const PAUSE_PER_LOOK: u32 = 20;

/// The address space of a process when tracing begins.
pub(super) fn first_space(pid: u32) -> AddressSpace {
    AddressSpace {
        tgid: pid,
        exec_generation: 0,
    }
}

/// What has mapped what, executable.
pub(super) type SpaceMaps = (AddressSpace, Arc<[Mapped]>);

/// What is known of each, from when it is traced until it has left and all that it did was read.
#[derive(Debug, Default)]
pub(super) struct Processes {
    known: BTreeMap<u32, Process>,
    alive: BTreeSet<u32>,
    /// Those that had left at the last look: their last records may still be in the ring.
    left: BTreeSet<u32>,
    /// Those whose records were all taken; sums of theirs may still be without names.
    unnamed: BTreeSet<u32>,
    /// When the first of these was put there.
    unnamed_since: Option<Instant>,
}

/// So many processes that have left may wait until the sums are named next.
const MOST_UNNAMED: usize = 1000;
/// And so long: names of what they had mapped keep files open.
const UNNAMED_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
struct Process {
    /// Empty when it left before it could be asked.
    name: String,
    exec_generation: u32,
    /// When its leader left, `CLOCK_MONOTONIC` ns.
    ended_ns: Option<u64>,
    /// When it was last looked at and ran, `CLOCK_MONOTONIC` ns.
    ran_ns: u64,
    /// What it had mapped, executable, at the last look.
    mapped: Arc<[Mapped]>,
    /// Pages of all that it had mapped then; `None` when that is not known.
    pages: Option<u64>,
    /// What it maps is not looked at before then, for the last look took long.
    rests_until: Option<Instant>,
}

/// A process that was known before, or is there since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// It is there already: what is known of what it has mapped holds.
    Before,
    /// Its parent, whose mappings it has, forked it.
    Fork(u32),
    /// It begins to run a program: nothing that was known of it, or of another with its number, holds.
    Program,
}

impl Processes {
    /// A process is traced from now on, or runs another program. Returns its name: one that has left by
    /// now had its parent's.
    pub(super) fn appear(&mut self, space: AddressSpace, since: Since) -> &str {
        let pid = space.tgid;
        let parent = match since {
            Since::Fork(parent) => self.known.get(&parent),
            Since::Before | Since::Program => None,
        };
        let parent = parent.map(|parent| (parent.name.clone(), Arc::clone(&parent.mapped)));
        self.alive.insert(pid);
        // Another one that had its number is replaced everywhere.
        self.unnamed.remove(&pid);
        let known = self.known.entry(pid).or_default();
        if since != Since::Before {
            let name = std::mem::take(&mut known.name);
            *known = Process {
                name,
                ..Process::default()
            };
        }
        known.exec_generation = space.exec_generation;
        let (inherited, mapped) = parent.unzip();
        if let Some(name) = comm(pid).or(inherited) {
            known.name = name;
        }
        if let Some(mapped) = mapped {
            known.mapped = mapped;
        }
        &known.name
    }

    /// The leader of a process has left.
    pub(super) fn ends(&mut self, pid: u32, at_ns: u64) {
        if let Some(known) = self.known.get_mut(&pid) {
            known.ended_ns = Some(at_ns);
        }
    }

    /// Whether a process of this number is known, or was a moment ago.
    pub(super) fn has_had(&self, pid: u32) -> bool {
        self.known.contains_key(&pid) || self.unnamed.contains(&pid)
    }

    /// These are traced from the start on. Returns what each has mapped, but for those that have left.
    pub(super) fn begin(&mut self, pids: &[u32]) -> Vec<SpaceMaps> {
        let of = |&pid: &u32| {
            self.known.entry(pid).or_default();
            Some((first_space(pid), self.newly_mapped(pid, true)?))
        };
        pids.iter().filter_map(of).collect()
    }

    /// What a process has mapped, executable, if that is another than at the last look. Without `is_asked` it is
    /// read only when the process has mapped more or less since.
    pub(super) fn newly_mapped(&mut self, pid: u32, is_asked: bool) -> Option<Arc<[Mapped]>> {
        let begun = Instant::now();
        let known = self.known.get_mut(&pid)?;
        if known.rests_until.is_some_and(|until| begun < until) {
            return None;
        }
        let pages = mapped_pages(pid);
        if !is_asked && pages.is_some() && pages == known.pages {
            return None;
        }
        let mapped = maps::executable(pid)
            .ok()
            .filter(|mapped| !mapped.is_empty())?;
        known.pages = pages;
        let took = begun.elapsed();
        known.rests_until = (took > LONG_LOOK).then(|| begun + took * PAUSE_PER_LOOK);
        if *known.mapped == *mapped {
            return None;
        }
        known.mapped = mapped.into();
        Some(Arc::clone(&known.mapped))
    }

    /// The address space that a process has now.
    pub(super) fn space(&self, pid: u32) -> AddressSpace {
        AddressSpace {
            tgid: pid,
            exec_generation: self
                .known
                .get(&pid)
                .map_or(0, |known| known.exec_generation),
        }
    }

    /// Those that run.
    pub(super) fn alive(&self) -> &BTreeSet<u32> {
        &self.alive
    }

    /// Those that had left at the last look and are not yet forgotten.
    pub(super) fn leaving(&self) -> &BTreeSet<u32> {
        &self.left
    }

    /// Looks who has left: of all, or only of those whose leader left by a record of the kernel. Returns those that had left at the
    /// look before, and are forgotten here: all their records have been taken meanwhile.
    pub(super) fn let_go(&mut self, of_all: bool) -> BTreeMap<u32, Option<u64>> {
        let mut left = BTreeSet::new();
        let now_ns = clock::monotonic_ns();
        self.alive.retain(|&pid| {
            let mut known = self.known.get_mut(&pid);
            if !of_all && known.as_ref().is_some_and(|known| known.ended_ns.is_none()) {
                return true;
            }
            let alive = is_alive(pid);
            if let Some(known) = &mut known {
                if alive {
                    known.ran_ns = now_ns;
                } else {
                    // Of one that ran after its leader had left other threads have lived on.
                    let ran_ns = known.ran_ns;
                    known.ended_ns = known.ended_ns.filter(|ended_ns| *ended_ns >= ran_ns);
                }
            }
            if !alive {
                left.insert(pid);
            }
            alive
        });
        let mut gone = std::mem::replace(&mut self.left, left);
        // Another process may have got the number meanwhile.
        gone.retain(|pid| !self.alive.contains(pid) && !is_alive(*pid));
        let known = gone.iter().map(|&pid| {
            let known = self.known.remove(&pid);
            (pid, known.and_then(|known| known.ended_ns))
        });
        let ended: BTreeMap<u32, Option<u64>> = known.collect();
        if !gone.is_empty() {
            self.unnamed_since.get_or_insert_with(Instant::now);
        }
        self.unnamed.extend(&gone);
        ended
    }

    /// A process that lives is traced no longer; all its records were taken.
    pub(super) fn forget(&mut self, pid: u32) {
        self.alive.remove(&pid);
        self.known.remove(&pid);
        self.unnamed.insert(pid);
        self.unnamed_since.get_or_insert_with(Instant::now);
    }

    /// Whether so many have left, or for so long, that their names are to be forgotten now.
    pub(super) fn names_are_due(&self) -> bool {
        let is_long = |since: Instant| since.elapsed() >= UNNAMED_PAUSE;
        self.unnamed.len() >= MOST_UNNAMED || self.unnamed_since.is_some_and(is_long)
    }

    /// Those that have left and of which no record is to come. Once their sums are named too, nothing
    /// asks for them again.
    pub(super) fn take_unnamed(&mut self) -> BTreeSet<u32> {
        self.unnamed_since = None;
        std::mem::take(&mut self.unnamed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_is_known_until_it_has_left() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let (pid, own) = (child.id(), std::process::id());
        let mut processes = Processes::default();
        processes.appear(first_space(own), Since::Before);
        let space = AddressSpace {
            tgid: pid,
            exec_generation: 3,
        };
        processes.appear(space, Since::Fork(own));
        assert_eq!(processes.space(pid), space);
        assert!(processes.let_go(true).is_empty());
        assert_eq!(processes.alive(), &BTreeSet::from([pid, own]));
        child.kill().unwrap();
        child.wait().unwrap();
        // No record of the kernel has come.
        assert!(processes.let_go(false).is_empty());
        assert_eq!(processes.alive(), &BTreeSet::from([pid, own]));
        assert!(processes.let_go(true).is_empty());
        assert_eq!(processes.alive(), &BTreeSet::from([own]));
        assert_eq!(processes.let_go(true), BTreeMap::from([(pid, None)]));
        assert_eq!(processes.known.len(), 1);
        assert!(processes.let_go(true).is_empty());
        assert!(processes.has_had(pid));
        assert_eq!(processes.take_unnamed(), BTreeSet::from([pid]));
        assert!(!processes.has_had(pid));
        assert!(processes.take_unnamed().is_empty());
    }

    #[test]
    fn who_has_left_by_a_record_of_the_kernel_is_looked_at_by_itself() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id();
        let mut processes = Processes::default();
        processes.appear(first_space(pid), Since::Before);
        child.wait().unwrap();
        // The record waits in the ring at a look that does not look at this process.
        let ended_ns = clock::monotonic_ns();
        assert!(processes.let_go(false).is_empty());
        processes.ends(pid, ended_ns);
        assert!(processes.let_go(false).is_empty() && processes.alive().is_empty());
        assert_eq!(
            processes.let_go(false),
            BTreeMap::from([(pid, Some(ended_ns))])
        );
    }

    #[test]
    fn who_has_left_at_once_had_its_parents_name() {
        let mut processes = Processes::default();
        let own = std::process::id();
        let name = processes.appear(first_space(own), Since::Before).to_owned();
        assert_eq!(Some(&name), comm(own).as_ref());
        let gone = first_space(u32::MAX);
        assert_eq!(processes.appear(gone, Since::Fork(own)), name);
        let other = first_space(u32::MAX - 1);
        assert_eq!(processes.appear(other, Since::Fork(1)), "");
    }

    #[test]
    fn what_is_mapped_is_read_once_a_change() {
        let own = std::process::id();
        let mut processes = Processes::default();
        processes.appear(first_space(own), Since::Before);
        let first = processes.newly_mapped(own, false).unwrap();
        let here = what_is_mapped_is_read_once_a_change as *const () as u64;
        assert!(first.iter().any(|mapping| mapping.contains(here)));
        assert!(processes.newly_mapped(own, true).is_none());

        // A child has its parent's, and is asked for what it has itself.
        let mut child = Command::new("cat");
        let child = child.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        // It has mapped all that it will when it answers.
        let mut byte = [1];
        child.stdin.as_mut().unwrap().write_all(&byte).unwrap();
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut byte)
            .unwrap();
        let space = first_space(child.id());
        processes.appear(space, Since::Fork(own));
        assert!(Arc::ptr_eq(&processes.known[&space.tgid].mapped, &first));
        let of_child = processes.newly_mapped(space.tgid, true).unwrap();
        assert!(!of_child.iter().any(|mapping| mapping.contains(here)));
        // Nothing is read before it maps more, unless it is asked for.
        let known = processes.known.get_mut(&space.tgid).unwrap();
        assert!(known.pages.is_some());
        known.mapped = Arc::new([]);
        assert!(processes.newly_mapped(space.tgid, false).is_none());
        assert_eq!(
            processes.newly_mapped(space.tgid, true),
            Some(of_child.clone())
        );
        let known = processes.known.get_mut(&space.tgid).unwrap();
        known.mapped = Arc::new([]);
        known.pages = known.pages.map(|pages| pages + 1);
        assert_eq!(
            processes.newly_mapped(space.tgid, false),
            Some(of_child.clone())
        );
        // One that runs another program, or is another one with that number, has nothing of that.
        processes.appear(space, Since::Program);
        assert_eq!(processes.newly_mapped(space.tgid, false), Some(of_child));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(processes.newly_mapped(space.tgid, true).is_none());
    }
}
