//! Which processes: `-p`, `--comm` and `--exe` in, ids out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use crate::cli::options::TraceOptions;
use crate::cli::users;
use reqtrace_base::error::{Error, Result};
use reqtrace_binary::procfs::executable_path;
use reqtrace_capture::attach::Identity;
use reqtrace_capture::kernel::processes::{all, comm, parent, user};

/// How often it is looked for a process that is waited for.
const LOOK: Duration = Duration::from_millis(10);
/// What it has mapped did not change for so long.
const SETTLED: Duration = Duration::from_millis(20);

/// The processes of `-p`, `--comm` and `--exe`, each once.
pub(super) fn pids(options: &TraceOptions) -> Result<Vec<u32>> {
    let mut pids = options.pids.clone();
    for comm in &options.comms {
        let is_wanted = |pid: &u32| options.user.is_none_or(|wanted| user(*pid) == Some(wanted));
        let find = || -> Vec<u32> { by_comm(comm).into_iter().filter(is_wanted).collect() };
        let found = found(find, &format!("named `{comm}`"), options);
        if found.is_empty() {
            let Some(user) = options.user else {
                return Err(Error::usage(format!("no process is named `{comm}`"))
                    .next("ps -eo pid,comm lists all names; --wait waits for one to be started"));
            };
            return Err(Error::usage(format!(
                "no process of {} is named `{comm}`",
                users::name(user)
            ))
            .next("ps -eo user,pid,comm lists all names with their users"));
        }
        let servers = servers(&found);
        of_one_user(comm, &servers)?;
        say_if_several(&format!("are named `{comm}`"), &servers);
        add(&mut pids, servers, found);
    }
    for program in &options.programs {
        let shown = program.display();
        is_a_program(program)?;
        let find = || by_program(program);
        let found = found(find, &format!("that runs {shown}"), options);
        if found.is_empty() {
            return Err(Error::usage(format!("no process runs {shown}"))
                .next("start it, or add --wait, which waits until it is started"));
        }
        let servers = servers(&found);
        say_if_several(&format!("run {shown}"), &servers);
        add(&mut pids, servers, found);
    }
    Ok(pids)
}

/// Adds processes, each once: the server first, and not whoever has the lowest number. It gives the trace its
/// name.
fn add(pids: &mut Vec<u32>, servers: Vec<u32>, found: Vec<u32>) {
    for pid in servers.into_iter().chain(found) {
        if !pids.contains(&pid) {
            pids.push(pid);
        }
    }
}

/// Where programs are: a path that no process can run is a mistake, not a program to wait for.
fn is_a_program(path: &Path) -> Result<()> {
    let shown = path.display();
    let metadata = fs::metadata(path).map_err(|error| {
        Error::usage(format!("--exe {shown} cannot be looked at"))
            .because(error)
            .next("give the program's path, as `readlink /proc/PID/exe` shows it")
    })?;
    if metadata.is_file() {
        return Ok(());
    }
    Err(Error::usage(format!("--exe {shown} is no file"))
        .next("give the program's path, as `readlink /proc/PID/exe` shows it"))
}

/// The processes that are wanted; with `--wait` not before there is one that has loaded its libraries.
fn found(find: impl Fn() -> Vec<u32>, what: &str, options: &TraceOptions) -> Vec<u32> {
    let mut found = find();
    if !found.is_empty() || !options.wait {
        return found;
    }
    if !options.outputs.quiet {
        reqtrace_base::say!(
            "reqtrace: waiting for a process {what}; what it does before all probes are set is not \
             traced, and `-- PROGRAM` traces from the first call"
        );
    }
    while found.is_empty() {
        sleep(LOOK);
        found = find();
    }
    let mapped = |found: &[u32]| -> Vec<usize> {
        let maps = found
            .iter()
            .map(|pid| fs::read(format!("/proc/{pid}/maps")));
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

/// A name or program may be that of two servers: their requests are in one report.
fn say_if_several(what: &str, servers: &[u32]) {
    if servers.len() > 1 {
        let pids: Vec<String> = servers.iter().map(u32::to_string).collect();
        reqtrace_base::say!(
            "reqtrace: {} processes {what} (pids {}); all are traced, and the report does \
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

/// Processes that run the file at a path: by the file, not by its name.
fn by_program(path: &Path) -> Vec<u32> {
    let wanted = Identity::at(path);
    let runs = |pid: &u32| Identity::at(&executable_path(*pid)) == wanted;
    all().into_iter().filter(runs).collect()
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
