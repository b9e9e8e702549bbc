//! Opening for others: a process and what of it in, a file that is opened with this process's own privileges out.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::debuginfo::Root;
use crate::maps;
use crate::procfs::{self, Entry};
use crate::symbolize::perf_map;

/// Opens something of a process, whoever else opens for this one.
///
/// # Errors
///
/// When it is not there, or may not be opened.
pub fn open(pid: u32, entry: Entry) -> io::Result<File> {
    match entry {
        Entry::Executable => maps::executable_here(pid),
        Entry::Maps => maps::text(pid),
        Entry::Memory => procfs::memory_here(pid),
        Entry::Mapping(start, end) => mapping(pid, start, end),
        Entry::Root => Ok(Root::here(pid)?.into_folder()),
        Entry::PerfMap => perf_map::open_file(pid).map_err(io::Error::other),
    }
}

fn mapping(pid: u32, start: u64, end: u64) -> io::Result<File> {
    let path = format!("/proc/{pid}/map_files/{start:x}-{end:x}");
    if let Ok((file, _)) = maps::open_file(Path::new(&path)) {
        return Ok(file);
    }
    // Some kernels want a capability more for that: then the path has to do.
    let all = maps::all_of(&procfs::read_whole(maps::text(pid)?)?);
    let mapped = all
        .iter()
        .find(|mapped| (mapped.start, mapped.end) == (start, end));
    let mapped = mapped.ok_or(io::ErrorKind::NotFound)?;
    Ok(mapped.open_here(pid)?.0)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn what_is_opened_of_this_process_is_its_own() {
        let pid = std::process::id();
        let own = std::env::current_exe().unwrap();
        let file = open(pid, Entry::Executable).unwrap();
        assert_eq!(procfs::path_of(&file).unwrap(), own);
        assert_eq!(procfs::executable(pid).unwrap().0, own);
        let inode = |file: &File| file.metadata().unwrap().ino();
        let mapped = maps::executable(pid).unwrap();
        let code = mapped.iter().find(|map| map.name == own).unwrap();
        let by_mapping = open(pid, Entry::Mapping(code.start, code.end)).unwrap();
        assert_eq!(inode(&by_mapping), inode(&file));
        assert!(open(pid, Entry::Mapping(code.start + 1, code.end)).is_err());
        let root = open(pid, Entry::Root).unwrap();
        assert_eq!(inode(&root), fs::metadata("/").unwrap().ino());
        assert!(open(pid, Entry::Memory).is_ok());
        assert!(open(pid, Entry::PerfMap).is_err());
        assert!(open(u32::MAX / 4, Entry::Executable).is_err());
    }
}
