//! Which processes, and files that only `trace` opens.

use std::fs::{self, File};
use std::path::Path;

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
        for pid in found {
            if !pids.contains(&pid) {
                pids.push(pid);
            }
        }
    }
    Ok(pids)
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

/// Opens the file of `--record`, before tracing.
pub(super) fn create(path: &Path) -> Result<File> {
    File::create(path).map_err(|error| {
        Error::usage(format!("--record {} cannot be written", path.display()))
            .because(error)
            .next("name a file in a folder that you may write to")
    })
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
}
