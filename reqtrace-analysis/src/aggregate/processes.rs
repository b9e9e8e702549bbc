//! The traced processes: their events in; their names, and a list for the report, out.
//!
//! A server that forks for each connection has any number of them. So the names of those that have left
//! are given up, the longest ago first, once their sums have been named; and the list has an end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use reqtrace_base::plain::Plain;
use reqtrace_recording::{Comm, Process, ProcessChange};
use rustc_hash::FxHashMap;

/// Processes that have left and whose names are kept: about 2 MiB.
const MAX_LEFT: usize = 1 << 14;
/// Processes that a report lists.
const MAX_LISTED: usize = 10_000;

/// What is known of them.
#[derive(Debug, Default)]
pub(super) struct Processes {
    known: FxHashMap<u32, Known>,
    /// Those that have left, the longest ago first, each with the number of its leaving.
    left: VecDeque<(u32, u64)>,
    leavings: u64,
    /// By id, for the report.
    listed: BTreeMap<u32, Plain>,
    /// Their ids as they came: those that the user named first.
    order: Vec<u32>,
    unlisted: u64,
}

#[derive(Debug, Default)]
struct Known {
    name: Option<Plain>,
    /// Name of any of its threads, where it has none itself.
    any_thread: Option<Plain>,
    /// The number of its leaving; `None` while it runs. Another process may get its id.
    left: Option<u64>,
}

impl Processes {
    /// Takes a change.
    pub(super) fn change(&mut self, process: &Process) {
        let pid = process.space.tgid;
        let known = self.known.entry(pid).or_default();
        let name = (!process.name.is_empty()).then(|| Plain::of(&process.name));
        if name.is_some() {
            known.name.clone_from(&name);
        }
        if process.change == ProcessChange::Exit {
            self.leavings += 1;
            known.left = Some(self.leavings);
            self.left.push_back((pid, self.leavings));
            return;
        }
        known.left = None;
        self.list(pid, name, process.change);
    }

    fn list(&mut self, pid: u32, name: Option<Plain>, change: ProcessChange) {
        if let Some(listed) = self.listed.get_mut(&pid) {
            if let Some(name) = name {
                *listed = name;
            }
        } else if self.listed.len() < MAX_LISTED {
            let name = name.unwrap_or_else(|| Plain::of("?"));
            self.listed.insert(pid, name);
            self.order.push(pid);
        } else {
            self.unlisted += u64::from(change != ProcessChange::Exec);
        }
    }

    /// Takes the name of a thread of a process.
    pub(super) fn any_thread(&mut self, pid: u32, comm: Comm) {
        if comm.is_empty() {
            return;
        }
        let known = self.known.entry(pid).or_default();
        if known.name.is_none() && known.any_thread.is_none() {
            known.any_thread = Some(comm.text());
        }
    }

    /// Name of a process: its own, or one of its threads'.
    pub(super) fn comm(&self, pid: u32) -> Plain {
        let known = self.known.get(&pid);
        let name = known.and_then(|known| known.name.as_ref().or(known.any_thread.as_ref()));
        name.cloned()
            .unwrap_or_else(|| Plain::of(&format!("pid {pid}")))
    }

    /// Whether so many have left that some are to be forgotten.
    pub(super) fn is_full(&self) -> bool {
        self.left.len() >= MAX_LEFT
    }

    /// Forgets the names of the half that left first, but for those that are `wanted`. To be called when
    /// sums of theirs have been named: the others have left so long ago that no more come.
    pub(super) fn forget(&mut self, wanted: &BTreeSet<u32>) {
        let newest = self.left.split_off(self.left.len() / 2);
        let oldest = std::mem::replace(&mut self.left, newest);
        for (pid, leaving) in oldest {
            let is_it = |known: &Known| known.left == Some(leaving);
            if !self.known.get(&pid).is_some_and(is_it) {
                continue;
            }
            if wanted.contains(&pid) {
                self.left.push_back((pid, leaving));
            } else {
                self.known.remove(&pid);
            }
        }
    }

    /// Processes of which something is kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.known.len()
    }

    /// For the report: id and name.
    pub(super) fn listed(&self) -> Vec<(u32, Plain)> {
        let name = |pid: &u32| Some((*pid, self.listed.get(pid)?.clone()));
        self.order.iter().filter_map(name).collect()
    }

    /// Those that the list has no room for.
    pub(super) fn unlisted(&self) -> u64 {
        self.unlisted
    }
}

#[cfg(test)]
mod tests {
    use reqtrace_recording::AddressSpace;

    use super::*;

    fn change(pid: u32, change: ProcessChange, name: &str) -> Process {
        Process {
            space: AddressSpace {
                tgid: pid,
                exec_generation: 0,
            },
            change,
            parent: 0,
            time_ns: 0,
            name: name.to_owned(),
        }
    }

    #[test]
    fn names_of_those_that_left_first_go_and_of_those_that_run_stay() {
        const ALL: u32 = 10 * MAX_LEFT as u32;
        let mut processes = Processes::default();
        processes.change(&change(1, ProcessChange::Start, "server"));
        let wanted = BTreeSet::from([2]);
        for pid in 2..2 + ALL {
            processes.change(&change(pid, ProcessChange::Fork, "worker"));
            processes.change(&change(pid, ProcessChange::Exit, ""));
            assert_eq!(processes.comm(pid).as_str(), "worker");
            if processes.is_full() {
                processes.forget(&wanted);
            }
            assert!(processes.known.len() <= MAX_LEFT + 2);
        }
        let comm = |pid| processes.comm(pid).as_str().to_owned();
        assert_eq!(comm(1), "server");
        assert_eq!(comm(2), "worker");
        assert_eq!(comm(3), "pid 3");
        assert_eq!(comm(1 + ALL), "worker");
        assert_eq!(processes.listed().len(), MAX_LISTED);
        let all = processes.listed().len() as u64 + processes.unlisted();
        assert_eq!(all, u64::from(ALL) + 1);
    }

    #[test]
    fn a_number_that_is_given_again_is_another_process() {
        let mut processes = Processes::default();
        processes.change(&change(7, ProcessChange::Fork, "old"));
        processes.change(&change(7, ProcessChange::Exit, ""));
        processes.change(&change(7, ProcessChange::Fork, "new"));
        for pid in 10..10 + 2 * MAX_LEFT as u32 {
            processes.change(&change(pid, ProcessChange::Exit, ""));
        }
        processes.forget(&BTreeSet::new());
        assert_eq!(processes.comm(7).as_str(), "new");
        assert_eq!(processes.listed(), [(7, Plain::of("new"))]);
    }

    #[test]
    fn a_process_without_a_name_has_that_of_a_thread() {
        let mut processes = Processes::default();
        processes.change(&change(7, ProcessChange::Start, ""));
        assert_eq!(processes.comm(7).as_str(), "pid 7");
        processes.any_thread(7, Comm::from("first"));
        processes.any_thread(7, Comm::from("second"));
        assert_eq!(processes.comm(7).as_str(), "first");
        processes.change(&change(7, ProcessChange::Exec, "own"));
        assert_eq!(processes.comm(7).as_str(), "own");
        assert_eq!(processes.listed(), [(7, Plain::of("own"))]);
    }
}
