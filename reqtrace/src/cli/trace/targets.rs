//! Which processes: `-p` and `--comm` in, ids out.

use crate::cli::args::TraceOptions;
use crate::error::{Error, Result};
use crate::kernel::processes::{all, comm, parent};

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

fn by_comm(wanted: &str) -> Vec<u32> {
    all()
        .into_iter()
        .filter(|&pid| comm(pid).as_deref() == Some(wanted))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_and_its_workers_are_one() {
        let parents = [(2, 1), (5, 2), (6, 2), (9, 1)];
        assert_eq!(roots(&[2, 5, 6], &parents), [2]);
        assert_eq!(roots(&[2, 5, 6, 9], &parents), [2, 9]);
        // Workers whose master has another name have one parent, which is not found here.
        assert_eq!(roots(&[5, 6], &parents), [5, 6]);
    }
}
