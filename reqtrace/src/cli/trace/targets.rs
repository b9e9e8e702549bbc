//! Which processes.

use std::fs;

use crate::cli::args::TraceOptions;
use crate::cli::running::{all, parent};
use crate::error::{Error, Result};

/// The processes of `-p` and `--comm`, each once.
pub(super) fn pids(options: &TraceOptions) -> Result<Vec<u32>> {
    let mut pids = options.pids.clone();
    for comm in &options.comms {
        let found = by_comm(comm);
        if found.is_empty() {
            return Err(Error::usage(format!("no process is named `{comm}`"))
                .next("ps -eo pid,comm lists all names; a name has at most 15 characters"));
        }
        say_if_several(comm, &found);
        for pid in found {
            if !pids.contains(&pid) {
                pids.push(pid);
            }
        }
    }
    Ok(pids)
}

/// A name may be that of two servers: their requests are in one report.
fn say_if_several(comm: &str, found: &[u32]) {
    let parents: Vec<(u32, u32)> = found
        .iter()
        .filter_map(|&pid| Some((pid, parent(pid)?)))
        .collect();
    let servers = roots(found, &parents);
    if servers.len() > 1 {
        let pids: Vec<String> = servers.iter().map(u32::to_string).collect();
        crate::say!(
            "reqtrace: {} processes are named `{comm}` (pids {}); all are traced, and the report does \
             not tell them apart. -p PID takes one",
            servers.len(),
            pids.join(", ")
        );
    }
}

/// Those that are no child of another one of them.
fn roots(found: &[u32], parents: &[(u32, u32)]) -> Vec<u32> {
    let parent_of = |pid| parents.iter().find(|(child, _)| *child == pid);
    let is_root = |pid: &&u32| parent_of(**pid).is_none_or(|(_, parent)| !found.contains(parent));
    found.iter().filter(is_root).copied().collect()
}

/// All processes that descend from these and run now, without these themselves.
pub(in crate::cli) fn descendants(of: &[u32]) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = all()
        .into_iter()
        .filter_map(|pid| Some((pid, parent(pid)?)))
        .collect();
    below(of, &parents)
}

/// The same in a list of processes with their parents.
fn below(of: &[u32], parents: &[(u32, u32)]) -> Vec<u32> {
    let mut found: Vec<u32> = of.to_vec();
    let mut looked_at = 0;
    while let Some(&parent) = found.get(looked_at) {
        looked_at += 1;
        for (pid, _) in parents.iter().filter(|(_, of)| *of == parent) {
            if !found.contains(pid) {
                found.push(*pid);
            }
        }
    }
    found.split_off(of.len())
}

fn by_comm(wanted: &str) -> Vec<u32> {
    all()
        .into_iter()
        .filter(|&pid| comm(pid).as_deref() == Some(wanted))
        .collect()
}

/// Name of a process; `None` when it has left.
pub(super) fn comm(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end_matches('\n').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_of_children_are_found_each_once() {
        let parents = [(9, 5), (2, 1), (5, 2), (7, 3), (1, 0), (6, 2)];
        assert_eq!(below(&[2], &parents), [5, 6, 9]);
        assert_eq!(below(&[2, 5], &parents), [6, 9]);
        assert_eq!(below(&[7], &parents), Vec::<u32>::new());
    }

    #[test]
    fn a_server_and_its_workers_are_one() {
        let parents = [(2, 1), (5, 2), (6, 2), (9, 1)];
        assert_eq!(roots(&[2, 5, 6], &parents), [2]);
        assert_eq!(roots(&[2, 5, 6, 9], &parents), [2, 9]);
        // Workers whose master has another name have one parent, which is not found here.
        assert_eq!(roots(&[5, 6], &parents), [5, 6]);
    }
}
