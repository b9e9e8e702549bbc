//! Which processes the kernel programs trace: processes and files in, the kernel's tables of them out.

use std::collections::BTreeSet;

use aya::maps::{HashMap, MapData, MapError};
use aya_obj::generated::{BPF_EXIST, BPF_NOEXIST};
use reqtrace_common::config::{Process, follow};

use super::batch;
use super::identity::Identity;
use super::maps::{Maps, map_error};
use reqtrace_base::error::{Error, Result};

/// Names the processes to trace; `children` are bits of [`reqtrace_common::config::follow`].
///
/// # Errors
///
/// When the kernel's table cannot take them.
pub(super) fn trace_processes(maps: &mut Maps, pids: &[u32], children: u32) -> Result<()> {
    let mut processes: HashMap<&mut MapData, u32, Process> =
        HashMap::try_from(maps.map_mut("PROCESSES")?).map_err(map_error)?;
    for &pid in pids {
        let process = Process {
            exec_generation: 0,
            follow: children,
            inherited: 0,
            asked_ns: 0,
            ended_ns: 0,
        };
        match processes.insert(pid, process, u64::from(BPF_NOEXIST)) {
            Ok(()) => {}
            // The kernel has seen it begin, and may have seen it run another program since.
            Err(error) if is_errno(&error, libc::EEXIST) => {}
            Err(error) => {
                let what = format!("process {pid} has no room in the table");
                return Err(Error::failed(what)
                    .because(error)
                    .next("give the kernel's tables more memory (--memory)"));
            }
        }
    }
    Ok(())
}

/// The processes that the kernel traces, each with how often it has called exec.
///
/// # Errors
///
/// When the kernel's table cannot be read.
pub(super) fn traced(maps: &Maps) -> Result<Vec<(u32, u32)>> {
    let mut all = Vec::new();
    batch::entries(maps.map("PROCESSES")?, |pid: &u32, process: &Process| {
        all.push((*pid, process.exec_generation));
    })?;
    Ok(all)
}

fn is_errno(error: &MapError, wanted: i32) -> bool {
    matches!(error, MapError::SyscallError(error) if error.io_error.raw_os_error() == Some(wanted))
}

/// Lets the kernel trace every process that begins to run one of these files, with these bits of
/// [`reqtrace_common::config::follow`], and no others.
///
/// # Errors
///
/// When the kernel's table cannot take them.
pub(super) fn watch_programs(maps: &mut Maps, files: &BTreeSet<Identity>, bits: u32) -> Result<()> {
    let number = |file: &Identity| match file {
        Identity::Inode(_, number) => Some(*number),
        Identity::Path(_) => None,
    };
    let numbers: BTreeSet<u64> = files.iter().filter_map(number).collect();
    let mut watched: HashMap<&mut MapData, u64, u32> =
        HashMap::try_from(maps.map_mut("WATCHED")?).map_err(map_error)?;
    let known: Vec<u64> = watched.keys().flatten().collect();
    for gone in known.iter().filter(|known| !numbers.contains(known)) {
        // It was there.
        let _ = watched.remove(gone);
    }
    for number in numbers {
        watched.insert(number, bits, 0).map_err(|error| {
            Error::failed("a program has no room in the table of those that are watched")
                .because(error)
        })?;
    }
    Ok(())
}

/// Children of these processes get their probes late from now on.
///
/// # Errors
///
/// When the kernel's table cannot be used.
pub(super) fn children_are_late(maps: &mut Maps, pids: &BTreeSet<u32>) -> Result<()> {
    let mut processes: HashMap<&mut MapData, u32, Process> =
        HashMap::try_from(maps.map_mut("PROCESSES")?).map_err(map_error)?;
    for pid in pids {
        // It may have left.
        if let Ok(mut process) = processes.get(pid, 0) {
            process.follow |= follow::LATE;
            let _ = processes.insert(pid, process, u64::from(BPF_EXIST));
        }
    }
    Ok(())
}

/// CPU time of a process's threads that have ended while it was traced, ns; none when it has no entry.
pub(super) fn ended_ns(maps: &Maps, pid: u32) -> Option<u64> {
    let processes: HashMap<&MapData, u32, Process> =
        HashMap::try_from(maps.map("PROCESSES").ok()?).ok()?;
    processes.get(&pid, 0).ok().map(|process| process.ended_ns)
}

/// Gives the room of processes that have left to others.
pub(super) fn forget_processes(maps: &mut Maps, pids: &BTreeSet<u32>) -> Result<()> {
    let mut processes: HashMap<&mut MapData, u32, Process> =
        HashMap::try_from(maps.map_mut("PROCESSES")?).map_err(map_error)?;
    for pid in pids {
        // A child that could not be stored is not there.
        let _ = processes.remove(pid);
    }
    Ok(())
}
