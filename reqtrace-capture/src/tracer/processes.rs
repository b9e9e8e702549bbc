//! The traced processes: news of them in; who lives, under which name and in which generation, out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::kernel::processes::{comm, is_alive};
use reqtrace_base::frame::AddressSpace;

/// The address space of a process when tracing begins.
pub(super) fn first_space(pid: u32) -> AddressSpace {
    AddressSpace {
        tgid: pid,
        exec_generation: 0,
    }
}

/// What is known of each, from when it is traced until it has left and all that it did was read.
#[derive(Debug, Default)]
pub(super) struct Processes {
    known: BTreeMap<u32, Known>,
    alive: BTreeSet<u32>,
    /// Those that had left at the last look: their last records may still be in the ring.
    left: BTreeSet<u32>,
    /// Those whose records were all taken; sums of theirs may still be without names.
    unnamed: BTreeSet<u32>,
}

/// So many processes that have left may wait until the sums are named next.
const MOST_UNNAMED: usize = 1000;

#[derive(Debug, Default)]
struct Known {
    /// Empty when it left before it could be asked.
    name: String,
    exec_generation: u32,
    /// What it maps is not looked at before then, for the last look took long.
    rests_until: Option<Instant>,
}

impl Processes {
    /// A process is traced from now on, or runs another program. Returns its name: one that has left by
    /// now had its parent's.
    pub(super) fn appear(&mut self, space: AddressSpace, parent: u32) -> &str {
        let pid = space.tgid;
        let inherited = || self.known.get(&parent).map(|parent| parent.name.clone());
        let name = comm(pid).or_else(inherited);
        self.alive.insert(pid);
        // Another one that had its number is replaced everywhere.
        self.unnamed.remove(&pid);
        let known = self.known.entry(pid).or_default();
        known.exec_generation = space.exec_generation;
        if let Some(name) = name {
            known.name = name;
        }
        &known.name
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

    /// Whether what it maps is not to be looked at now.
    pub(super) fn rests(&self, pid: u32) -> bool {
        let until = self.known.get(&pid).and_then(|known| known.rests_until);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Does not look at what it maps before then.
    pub(super) fn rest(&mut self, pid: u32, until: Instant) {
        if let Some(known) = self.known.get_mut(&pid) {
            known.rests_until = Some(until);
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

    /// Looks who has left. Returns those that had left at the look before, and are forgotten here: all
    /// their records have been taken meanwhile.
    pub(super) fn let_go(&mut self) -> BTreeSet<u32> {
        let mut left = BTreeSet::new();
        self.alive.retain(|&pid| {
            let alive = is_alive(pid);
            if !alive {
                left.insert(pid);
            }
            alive
        });
        let mut gone = std::mem::replace(&mut self.left, left);
        // Another process may have got the number meanwhile.
        gone.retain(|pid| !self.alive.contains(pid) && !is_alive(*pid));
        for pid in &gone {
            self.known.remove(pid);
        }
        self.unnamed.extend(&gone);
        gone
    }

    /// Whether so many have left that their names are to be forgotten soon.
    pub(super) fn many_have_left(&self) -> bool {
        self.unnamed.len() >= MOST_UNNAMED
    }

    /// Those that have left and of which no record is to come. Once their sums are named too, nothing
    /// asks for them again.
    pub(super) fn take_unnamed(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.unnamed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_known_until_it_has_left() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let (pid, own) = (child.id(), std::process::id());
        let mut processes = Processes::default();
        processes.appear(first_space(own), 0);
        let space = AddressSpace {
            tgid: pid,
            exec_generation: 3,
        };
        processes.appear(space, own);
        assert_eq!(processes.space(pid), space);
        assert!(processes.let_go().is_empty());
        assert_eq!(processes.alive(), &BTreeSet::from([pid, own]));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(processes.let_go().is_empty());
        assert_eq!(processes.alive(), &BTreeSet::from([own]));
        assert_eq!(processes.let_go(), BTreeSet::from([pid]));
        assert_eq!(processes.known.len(), 1);
        assert!(processes.let_go().is_empty());
        assert_eq!(processes.take_unnamed(), BTreeSet::from([pid]));
        assert!(processes.take_unnamed().is_empty());
    }

    #[test]
    fn who_has_left_at_once_had_its_parents_name() {
        let mut processes = Processes::default();
        let own = std::process::id();
        let name = processes.appear(first_space(own), 0).to_owned();
        assert_eq!(Some(&name), comm(own).as_ref());
        assert_eq!(processes.appear(first_space(u32::MAX), own), name);
        assert_eq!(processes.appear(first_space(u32::MAX - 1), 1), "");
    }
}
