//! What this process holds in the kernel and in its allocators: its open files in, bytes out.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

/// A number that the kernel shows about one of our own files.
pub(crate) fn fd_field(fd: i32, name: &str) -> Option<u64> {
    number(&fd_info(fd)?, name)
}

fn fd_info(fd: impl Display) -> Option<String> {
    fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()
}

fn number(info: &str, name: &str) -> Option<u64> {
    let mut lines = info.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value?.trim().parse().ok()
}

/// What this process holds by its open files, bytes. No other figure of the kernel about a process has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnFiles {
    /// Tables of kernel programs.
    pub tables: u64,
    /// Files in memory, such as copies of symbols: all of them, whether they are mapped or not.
    pub copies: u64,
}

/// `st_blocks` counts these, whatever the file system has.
const STAT_BLOCK: u64 = 512;

impl OwnFiles {
    /// Those of now; nothing where `/proc` does not tell.
    #[must_use]
    pub fn now() -> Self {
        let Ok(files) = fs::read_dir("/proc/self/fd") else {
            return Self::default();
        };
        let (mut tables, mut copies) = (BTreeMap::new(), BTreeMap::new());
        for file in files.flatten() {
            let _ = Self::count(&file, &mut tables, &mut copies);
        }
        Self {
            tables: tables.values().sum(),
            copies: copies.values().sum(),
        }
    }

    fn count(
        file: &fs::DirEntry,
        tables: &mut BTreeMap<u64, u64>,
        copies: &mut BTreeMap<u64, u64>,
    ) -> Option<()> {
        let target = fs::read_link(file.path()).ok()?;
        let target = target.to_str()?;
        if target.contains("bpf-map") {
            let info = fd_info(file.file_name().to_str()?)?;
            tables.insert(number(&info, "map_id")?, number(&info, "memlock")?);
        } else if target.starts_with("/memfd:") {
            let file = fs::metadata(file.path()).ok()?;
            copies.insert(file.ino(), file.blocks() * STAT_BLOCK);
        }
        Some(())
    }
}

/// Has all threads allocate from few places: what a thread of a start took is taken again by the next one. What is free at the end
/// of a place of its own nobody else gets, nor the kernel ([`give_memory_back`]).
pub fn share_allocators() {
    // SAFETY: no precondition.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, ALLOCATORS);
    }
}

/// So many.
#[cfg(target_env = "gnu")]
const ALLOCATORS: i32 = 2;

/// Gives memory back to the kernel that the allocators of all threads keep: compiling tables and reading types takes tens of MiB.
pub fn give_memory_back() {
    // SAFETY: no precondition.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn what_is_in_files_in_memory_is_counted_once() {
        let before = OwnFiles::now().copies;
        let file = memfd_create("copy", MemfdFlags::CLOEXEC).unwrap();
        let mut file = File::from(file);
        file.write_all(&vec![1; 3 << 20]).unwrap();
        let again = file.try_clone().unwrap();
        // Other tests may have some of their own.
        let now = OwnFiles::now().copies;
        assert!(
            (before + (3 << 20)..before + (5 << 20)).contains(&now),
            "{before} {now}"
        );
        drop((file, again));
    }
}
