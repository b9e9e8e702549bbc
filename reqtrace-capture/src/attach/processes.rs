//! Which processes the kernel programs trace: processes and files in, the kernel's tables of them out.

use std::collections::BTreeSet;
use std::io::Read as _;

use aya::Ebpf;
use aya::maps::{HashMap, MapData};
use aya::programs::Iter;
use reqtrace_common::config::Process;

use super::named::{map_error, map_mut, program};
use super::probes::Identity;
use super::refused::chain;
use crate::kernel::features::WATCH_THREADS;
use reqtrace_base::error::{Error, Result};

/// Names the processes to trace; `children` are bits of [`reqtrace_common::config::follow`].
///
/// # Errors
///
/// When the kernel's table cannot take them.
pub(super) fn trace_processes(ebpf: &mut Ebpf, pids: &[u32], children: u32) -> Result<()> {
    let mut processes: HashMap<&mut MapData, u32, Process> =
        HashMap::try_from(map_mut(ebpf, "PROCESSES")?).map_err(map_error)?;
    for &pid in pids {
        let process = Process {
            exec_generation: 0,
            follow: children,
            inherited: 0,
            asked_ns: 0,
            ended_ns: 0,
        };
        processes.insert(pid, process, 0).map_err(|error| {
            Error::failed(format!("process {pid} has no room in the table")).because(error)
        })?;
    }
    Ok(())
}

/// Lets the kernel watch all threads that traced processes have, from now on. Without blame nothing is done.
///
/// # Errors
///
/// When the program cannot be run.
pub(super) fn watch_threads(ebpf: &mut Ebpf) -> Result<()> {
    let program: &mut Iter = program(ebpf, WATCH_THREADS)?;
    if program.fd().is_err() {
        return Ok(());
    }
    let failed = || Error::failed("the threads of the traced processes could not be looked at");
    let link = program.attach().and_then(|link| program.take_link(link));
    let link = link.map_err(|error| failed().because(chain(&error)))?;
    let mut threads = link
        .into_file()
        .map_err(|error| failed().because(chain(&error)))?;
    // It has no output; reading runs it for each thread.
    threads
        .read_to_end(&mut Vec::new())
        .map_err(|error| failed().because(error))?;
    Ok(())
}

/// Lets the kernel trace every process that begins to run one of these files, with these bits of
/// [`reqtrace_common::config::follow`], and no others.
///
/// # Errors
///
/// When the kernel's table cannot take them.
pub(super) fn watch_programs(ebpf: &mut Ebpf, files: &BTreeSet<Identity>, bits: u32) -> Result<()> {
    let number = |file: &Identity| match file {
        Identity::Inode(_, number) => Some(*number),
        Identity::Path(_) => None,
    };
    let numbers: BTreeSet<u64> = files.iter().filter_map(number).collect();
    let mut watched: HashMap<&mut MapData, u64, u32> =
        HashMap::try_from(map_mut(ebpf, "WATCHED")?).map_err(map_error)?;
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

/// CPU time of a process's threads that have ended while it was traced, ns; none when it has no entry.
pub(super) fn ended_ns(ebpf: &Ebpf, pid: u32) -> Option<u64> {
    let processes: HashMap<&MapData, u32, Process> =
        HashMap::try_from(ebpf.map("PROCESSES")?).ok()?;
    processes.get(&pid, 0).ok().map(|process| process.ended_ns)
}

/// Gives the room of processes that have left to others.
pub(super) fn forget_processes(ebpf: &mut Ebpf, pids: &BTreeSet<u32>) -> Result<()> {
    let mut processes: HashMap<&mut MapData, u32, Process> =
        HashMap::try_from(map_mut(ebpf, "PROCESSES")?).map_err(map_error)?;
    for pid in pids {
        // A child that could not be stored is not there.
        let _ = processes.remove(pid);
    }
    Ok(())
}
