//! Which processes, and files that only `trace` opens.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use crate::cli::args::TraceOptions;
use crate::error::{Error, Result};
use crate::profile::{Origin, Profile, builtin};

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

fn by_comm(wanted: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut pids: Vec<u32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&pid: &u32| comm(pid).as_deref() == Some(wanted))
        .collect();
    pids.sort_unstable();
    pids
}

/// Name of a process; `None` when it has left.
pub(super) fn comm(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end_matches('\n').to_owned())
}

/// Opens a file for writing, before tracing.
pub(super) fn create(path: &Path) -> Result<File> {
    File::create(path).map_err(|error| {
        Error::usage(format!("{} cannot be written", path.display())).because(error)
    })
}

/// Writes the whole text.
pub(super) fn write(mut file: File, text: &str) -> Result<()> {
    file.write_all(text.as_bytes())
        .map_err(|error| Error::failed("the recording could not be written").because(error))
}

/// The text that a profile was read from.
pub(super) fn profile_text(profile: &Profile) -> Result<String> {
    match &profile.origin {
        Origin::BuiltIn => Ok(builtin::built_in(&profile.name)?.text.to_owned()),
        Origin::File(path) => fs::read_to_string(path).map_err(|error| {
            Error::failed(format!("{} cannot be read again", path.display())).because(error)
        }),
    }
}
