//! What this process holds in the kernel and in its allocators: its open files in, bytes out.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs;

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

/// Bytes that the kernel keeps for the tables of kernel programs that this process has open.
#[must_use]
pub fn table_bytes() -> u64 {
    let Ok(files) = fs::read_dir("/proc/self/fd") else {
        return 0;
    };
    let mut seen = BTreeSet::new();
    let of = |file: fs::DirEntry| {
        let target = fs::read_link(file.path()).ok()?;
        if !target.to_str()?.contains("bpf-map") {
            return None;
        }
        let info = fd_info(file.file_name().to_str()?)?;
        seen.insert(number(&info, "map_id")?)
            .then(|| number(&info, "memlock"))?
    };
    files.flatten().filter_map(of).sum()
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
