//! Processes as `/proc` shows them now: ids in, parents, names and descendants out.

use std::path::Path;
use std::{fs, io};

use reqtrace_binary::procfs;
use reqtrace_binary::status::Status;

/// All processes, in order of their ids.
#[must_use]
pub fn all() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut pids: Vec<u32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    pids
}

/// The process that started this one; `None` when it has left.
#[must_use]
pub fn parent(pid: u32) -> Option<u32> {
    Status::of(pid).ok()?.parent()
}

/// The user that a process runs as, by number; `None` when it has left.
#[must_use]
pub fn user(pid: u32) -> Option<u32> {
    // Real, effective, saved and file system's.
    Status::of(pid).ok()?.users().get(1).copied()
}

/// The text of a file in `/proc` that has names in it, of threads, sockets or cgroups: these may have any bytes, and what is
/// not UTF-8 is replaced.
///
/// # Errors
///
/// When it cannot be read.
pub fn text_of(file: impl AsRef<Path>) -> io::Result<String> {
    let bytes = procfs::read(file)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Name of a process; `None` when it has left.
#[must_use]
pub fn comm(pid: u32) -> Option<String> {
    name_in(format!("/proc/{pid}/comm"))
}

/// Name that a thread has now; `None` when it has left.
pub(crate) fn thread_name(tgid: u32, tid: u32) -> Option<String> {
    name_in(format!("/proc/{tgid}/task/{tid}/comm"))
}

fn name_in(file: String) -> Option<String> {
    let name = text_of(file).ok()?;
    Some(name.trim_end_matches('\n').to_owned())
}

/// Pages of all that a process has mapped: it changes when something is mapped or unmapped. `None` when it has
/// left, or its first thread has.
pub(crate) fn mapped_pages(pid: u32) -> Option<u64> {
    let statm = text_of(format!("/proc/{pid}/statm")).ok()?;
    let pages = statm.split_ascii_whitespace().next()?.parse().ok()?;
    (pages > 0).then_some(pages)
}

/// Whether a process runs: there, and not only waiting to be reaped. One whose first thread has left
/// looks as if, but for its other threads.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    let runs = |stat: String| {
        let state = stat
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.chars().next());
        !matches!(state, Some('Z' | 'X') | None)
    };
    let threads = || fs::read_dir(format!("/proc/{pid}/task"));
    match text_of(format!("/proc/{pid}/stat")) {
        Ok(stat) => runs(stat) || threads().is_ok_and(|threads| threads.count() > 1),
        // What cannot be looked at for want of a descriptor runs on.
        Err(error) => matches!(
            error.raw_os_error(),
            Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)
        ),
    }
}

/// All processes that descend from these and run now, without these themselves.
#[must_use]
pub fn descendants(of: &[u32]) -> Vec<u32> {
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn children_of_children_are_found_each_once() {
        let parents = [(9, 5), (2, 1), (5, 2), (7, 3), (1, 0), (6, 2)];
        assert_eq!(below(&[2], &parents), [5, 6, 9]);
        assert_eq!(below(&[2, 5], &parents), [6, 9]);
        assert_eq!(below(&[7], &parents), Vec::<u32>::new());
    }

    #[test]
    fn this_process_runs_and_has_a_name() {
        let own = std::process::id();
        assert!(is_alive(own) && comm(own).is_some() && all().contains(&own));
        assert!(parent(own).is_some_and(|parent| descendants(&[parent]).contains(&own)));
        assert!(!is_alive(u32::MAX) && comm(u32::MAX).is_none());
    }

    #[test]
    fn who_has_a_name_that_is_cut_within_a_character_is_alive() {
        let folder = tempfile::tempdir().unwrap();
        // The kernel keeps 15 bytes: of the last character the first one.
        let program = folder.path().join("fourteen-bytes\u{e9}");
        symlink("/bin/sleep", &program).unwrap();
        let mut child = Command::new(&program);
        let mut child = child.arg0("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let (alive, name, of_thread) = (is_alive(pid), comm(pid), thread_name(pid, pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(alive);
        assert_eq!(name.as_deref(), Some("fourteen-bytes\u{fffd}"));
        assert_eq!(of_thread, name);
        assert!(!is_alive(pid));
    }
}
