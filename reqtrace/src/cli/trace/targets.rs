//! Which processes: `-p` and `--comm` in, ids out.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use crate::cli::args::TraceOptions;
use crate::cli::users;
use reqtrace_base::error::{Error, Result};
use reqtrace_capture::kernel::processes::{all, comm, parent, user};

/// How often it is looked for a process that is waited for.
const LOOK: Duration = Duration::from_millis(10);
/// What it has mapped did not change for so long.
const SETTLED: Duration = Duration::from_millis(20);

/// The processes of `-p` and `--comm`, each once.
pub(super) fn pids(options: &TraceOptions) -> Result<Vec<u32>> {
    let mut pids = options.pids.clone();
    for comm in &options.comms {
        let mut found = by_comm(comm);
        if options.wait {
            found = wait_for(comm, found, options);
        }
        if let Some(wanted) = options.user {
            found.retain(|&pid| user(pid) == Some(wanted));
            if found.is_empty() {
                return Err(Error::usage(format!(
                    "no process of {} is named `{comm}`",
                    users::name(wanted)
                ))
                .next("ps -eo user,pid,comm lists all names with their users"));
            }
        }
        if found.is_empty() {
            return Err(Error::usage(format!("no process is named `{comm}`"))
                .next("ps -eo pid,comm lists all names; --wait waits for one to be started"));
        }
        let servers = servers(&found);
        of_one_user(comm, &servers)?;
        say_if_several(comm, &servers);
        // The server first, and not whoever has the lowest number: it gives the trace its name.
        for pid in servers.into_iter().chain(found) {
            if !pids.contains(&pid) {
                pids.push(pid);
            }
        }
    }
    Ok(pids)
}

/// Waits until a process has that name, of that user if there is one, and has loaded its libraries.
fn wait_for(comm: &str, mut found: Vec<u32>, options: &TraceOptions) -> Vec<u32> {
    let is_wanted = |pid: &u32| options.user.is_none_or(|wanted| user(*pid) == Some(wanted));
    found.retain(is_wanted);
    if !found.is_empty() {
        return found;
    }
    if !options.outputs.quiet {
        reqtrace_base::say!(
            "reqtrace: waiting for a process named `{comm}`; what it does before all probes are set is not \
             traced, and `-- PROGRAM` traces from the first call"
        );
    }
    while found.is_empty() {
        sleep(LOOK);
        found = by_comm(comm);
        found.retain(is_wanted);
    }
    let mapped = |found: &[u32]| -> Vec<usize> {
        let maps = found
            .iter()
            .map(|pid| std::fs::read(format!("/proc/{pid}/maps")));
        maps.map(|maps| maps.map_or(0, |maps| maps.len())).collect()
    };
    let mut before = Vec::new();
    loop {
        let now = mapped(&found);
        if now == before {
            return found;
        }
        before = now;
        sleep(SETTLED);
    }
}

/// Those that no other one of them has started.
fn servers(found: &[u32]) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = found
        .iter()
        .filter_map(|&pid| Some((pid, parent(pid)?)))
        .collect();
    roots(found, &parents)
}

/// Anybody can give a program any name: that of another user has to be asked for. A server's workers, as
/// those of nginx, belong to it whoever they run as.
fn of_one_user(comm: &str, servers: &[u32]) -> Result<()> {
    let mut users: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for &pid in servers {
        if let Some(user) = user(pid) {
            users.entry(user).or_default().push(pid.to_string());
        }
    }
    if users.len() <= 1 {
        return Ok(());
    }
    let of_user = |(user, pids): (&u32, &Vec<String>)| {
        format!("{} (pids {})", users::name(*user), pids.join(", "))
    };
    let named: Vec<String> = users.iter().map(of_user).collect();
    Err(Error::usage(format!(
        "processes of several users are named `{comm}`: {}",
        named.join("; ")
    ))
    .next(format!(
        "--comm {comm} --user USER takes those of one, and -p PID one process"
    )))
}

/// A name may be that of two servers: their requests are in one report.
fn say_if_several(comm: &str, servers: &[u32]) {
    if servers.len() > 1 {
        let pids: Vec<String> = servers.iter().map(u32::to_string).collect();
        reqtrace_base::say!(
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
