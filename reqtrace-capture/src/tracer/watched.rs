//! Programs whose processes are traced whoever starts them: their paths in; which files they are now, and who
//! runs them, out.
//!
//! The kernel knows these files by their inode numbers, and begins to trace a process at its exec of one of them.
//! Two files may have one number, and on some file systems (an overlay of several disks) the number that the
//! kernel has is not that of `stat`: so each process that the kernel tells of is looked at here, and now and
//! then all processes are.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

use super::resolved::Program;
use crate::attach::Identity;
use crate::kernel::processes::all;
use reqtrace_binary::procfs;

/// Looks between two at a process that has been there for longer than that: it rarely comes to run another program.
const LOOKS_PER_OLD: u32 = 64;

/// Programs by path.
#[derive(Debug, Default)]
pub(super) struct Watched {
    paths: Vec<PathBuf>,
    /// What is at the paths now.
    files: BTreeSet<Identity>,
    /// What was there before, which some process may still run.
    replaced: BTreeSet<Identity>,
    /// Processes that were there at the last look, and for how many looks they have been.
    seen: BTreeMap<u32, u32>,
}

impl Watched {
    /// Watches these paths.
    pub(super) fn new(paths: Vec<PathBuf>) -> Self {
        let files = files(&paths);
        Self {
            paths,
            files,
            ..Self::default()
        }
    }

    /// Whether nothing is watched: a trace then ends when its last process has left.
    pub(super) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// The files at the paths, at the last look.
    pub(super) fn files(&self) -> &BTreeSet<Identity> {
        &self.files
    }

    /// The name of a process that has left before it could be asked.
    pub(super) fn name(&self) -> String {
        let name = self.paths.first().and_then(|path| path.file_name());
        name.unwrap_or_default()
            .to_string_lossy()
            .chars()
            .take(15)
            .collect()
    }

    /// The files that are at the paths now, if they are others: a new version was installed. A path that leads
    /// nowhere at the moment keeps its file.
    pub(super) fn others(&self) -> Option<BTreeSet<Identity>> {
        let now = files(&self.paths);
        (now.len() == self.paths.len() && now != self.files).then_some(now)
    }

    /// Watches these from now on. Who had begun to run those of before must have been asked for with
    /// [`Self::is_run_by`].
    pub(super) fn replace(&mut self, now: BTreeSet<Identity>) {
        let before = std::mem::replace(&mut self.files, now);
        self.replaced.extend(before);
        self.replaced.retain(|file| !self.files.contains(file));
        self.seen.clear();
    }

    /// Files that were at the paths before, and that none of these processes runs: nobody will run them again. Each
    /// is given once.
    pub(super) fn over(&mut self, alive: &BTreeSet<u32>) -> Vec<Identity> {
        if self.replaced.is_empty() {
            return Vec::new();
        }
        let run: BTreeSet<Identity> = alive
            .iter()
            .filter_map(|&pid| Some(Program::of(pid)?.file))
            .collect();
        self.replaced
            .extract_if(.., |file| !run.contains(file))
            .collect()
    }

    /// Whether a process runs one of them; one that has left already did, as the kernel says.
    pub(super) fn is_run_by(&self, pid: u32) -> bool {
        match Program::look(pid) {
            Ok(program) => self.files.contains(&program.file),
            Err(error) => has_left(&error),
        }
    }

    /// Processes that run one of them, of those that are due: each when it comes, and then more and more rarely.
    pub(super) fn look(&mut self) -> Vec<u32> {
        let before = std::mem::take(&mut self.seen);
        let looks = |pid: u32| before.get(&pid).map_or(0, |looks| looks + 1);
        self.seen = all().into_iter().map(|pid| (pid, looks(pid))).collect();
        let due = self.seen.iter().filter(|(_, looks)| is_due(**looks));
        let runs = |pid: &u32| Program::of(*pid).is_some_and(|of| self.files.contains(&of.file));
        due.map(|(pid, _)| *pid).filter(runs).collect()
    }
}

/// Whether a process that has been there for so many looks is looked at.
fn is_due(looks: u32) -> bool {
    looks.is_power_of_two() || looks.is_multiple_of(LOOKS_PER_OLD)
}

fn files(paths: &[PathBuf]) -> BTreeSet<Identity> {
    let files = paths.iter().filter_map(|path| procfs::program(path).ok());
    files
        .map(|(device, inode)| Identity::Inode(device, inode))
        .collect()
}

/// Whether a process cannot be looked at because it is not there any more.
fn has_left(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_new_version_at_the_path_is_another_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sleep-for-a-test");
        let install = || {
            let new = folder.path().join("new");
            fs::copy("/bin/sleep", &new).unwrap();
            fs::rename(&new, &path).unwrap();
        };
        install();
        let mut watched = Watched::new(vec![path.clone()]);
        assert!(!watched.is_empty() && watched.others().is_none());
        assert_eq!(watched.look(), []);
        let mut first = Command::new(&path).arg("60").spawn().unwrap();
        // It is looked at more and more rarely.
        let looks = [(); 6].map(|()| watched.look().contains(&first.id()));
        assert_eq!(looks, [true, true, true, false, true, false]);
        assert!(watched.is_run_by(first.id()));
        install();
        let now = watched.others().unwrap();
        assert!(watched.is_run_by(first.id()), "until it is replaced");
        watched.replace(now);
        assert!(watched.others().is_none());
        let alive = BTreeSet::from([first.id()]);
        assert_eq!(watched.over(&alive), []);
        assert!(!watched.is_run_by(first.id()));
        assert!(watched.look().is_empty());
        fs::remove_file(&path).unwrap();
        assert!(watched.others().is_none(), "it is being replaced");
        first.kill().unwrap();
        first.wait().unwrap();
        assert!(watched.is_run_by(first.id()), "it did when the event came");
        assert_eq!(watched.over(&alive).len(), 1);
        assert_eq!(watched.over(&alive), []);
    }
}
