//! Processes: a process id in, its executable mappings and the files behind them out.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use crate::files::Files;
use crate::lazy::LazyFile;
use crate::maps::{FileKey, Mapped};
use crate::procfs;

/// The largest vdso that is read; they have two to four pages.
const MAX_VDSO_BYTES: u64 = 1 << 20;
/// From here on addresses belong to the kernel; the vsyscall page lies there.
const USER_END: u64 = 1 << 63;

/// Why there is no table for an executable mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NoTable {
    /// No file is behind it: code generated at run time, or copied to huge pages.
    Anonymous,
    /// The file behind it could not be opened or read.
    Unreadable,
    /// What is behind it is no ELF object for x86-64.
    NotElf,
    /// The object has no `.eh_frame`, or an empty one.
    NoFrames,
    /// The object contradicts itself.
    Malformed,
    /// There is no room left for the object's table.
    NoRoom,
    /// The process has more executable mappings than are kept; this one was left out.
    TooManyMappings,
}

impl NoTable {
    /// All reasons.
    pub const ALL: [Self; 7] = [
        Self::Anonymous,
        Self::Unreadable,
        Self::NotElf,
        Self::NoFrames,
        Self::Malformed,
        Self::NoRoom,
        Self::TooManyMappings,
    ];

    /// In words, for messages.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Anonymous => "no file is behind it (code generated at run time)",
            Self::Unreadable => "its file cannot be read",
            Self::NotElf => "it is no ELF object for x86-64",
            Self::NoFrames => "it has no .eh_frame",
            Self::Malformed => "its ELF headers or .eh_frame are malformed",
            Self::NoRoom => "there is no memory left for its table",
            Self::TooManyMappings => "the process has too many executable mappings",
        }
    }
}

/// Where a table is wanted for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted<'a> {
    /// A mapping of a process.
    Mapping(&'a Mapped, u32),
    /// A file that need not be mapped.
    File(&'a LazyFile),
}

impl<'a> Wanted<'a> {
    /// Its name, for messages.
    pub(super) fn name(self) -> &'a Path {
        match self {
            Self::Mapping(mapped, _) => Path::new(&mapped.name),
            Self::File(file) => file.path(),
        }
    }

    /// Which file it is; `None` when that shows when it is opened.
    pub(super) fn key(self) -> Option<FileKey> {
        match self {
            Self::Mapping(mapped, pid) => mapped.key(pid),
            Self::File(_) => None,
        }
    }

    /// What is behind it.
    ///
    /// # Errors
    ///
    /// When there is no file, or it cannot be opened.
    pub(super) fn open(self, files: &Files) -> Result<Backing, Unopened> {
        match self {
            Self::Mapping(mapped, pid) => Backing::of_mapping(mapped, pid, files),
            Self::File(file) => {
                let (file, key) = files.of(file).map_err(unreadable)?;
                Ok(Backing::File(file, key))
            }
        }
    }
}

/// What is behind a mapping.
#[derive(Debug)]
pub(super) enum Backing {
    File(Arc<File>, FileKey),
    /// An image that the kernel put into the process.
    Image(Vec<u8>),
}

/// Why nothing was opened; with the cause if there is one.
pub(super) type Unopened = (NoTable, Option<io::Error>);

impl Backing {
    /// What is behind a mapping of a process.
    ///
    /// # Errors
    ///
    /// When there is no file, or it cannot be opened.
    fn of_mapping(mapped: &Mapped, pid: u32, files: &Files) -> Result<Self, Unopened> {
        if mapped.name == "[vdso]" {
            return image(mapped, pid).map(Self::Image).map_err(unreadable);
        }
        if mapped.inode == 0 {
            return Err((NoTable::Anonymous, None));
        }
        let (file, key) = files.of_mapping(mapped, pid).map_err(unreadable)?;
        Ok(Self::File(file, key))
    }
}

fn unreadable(error: io::Error) -> Unopened {
    (NoTable::Unreadable, Some(error))
}

/// Uprobes' own page holds the trampoline of return probes. It must not be a mapping: the walk looks
/// for the replaced return address where it finds none.
pub(super) fn is_user_code(mapped: &Mapped) -> bool {
    mapped.start < USER_END && mapped.name != "[uprobes]"
}

fn image(mapped: &Mapped, pid: u32) -> io::Result<Vec<u8>> {
    let length = mapped.end.saturating_sub(mapped.start);
    if length > MAX_VDSO_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut image = vec![0; length as usize];
    procfs::memory(pid)?.read_exact_at(&mut image, mapped.start)?;
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps;

    #[test]
    fn only_user_code_is_taken() {
        let maps = maps::parse(
            b"7000-8000 r-xp 00000000 00:00 0       [vdso]\n\
              7fffffffe000-7ffffffff000 --xp 00000000 00:00 0     [uprobes]\n\
              ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]\n",
        );
        let taken: Vec<_> = maps.iter().map(is_user_code).collect();
        assert_eq!(taken, [true, false, false]);
    }

    #[test]
    fn the_vdso_of_this_process_is_an_object() {
        let pid = std::process::id();
        let maps = maps::executable(pid).unwrap();
        let vdso = maps.iter().find(|map| map.name == "[vdso]").unwrap();
        let Backing::Image(image) = Backing::of_mapping(vdso, pid, &Files::default()).unwrap()
        else {
            panic!("it has no file");
        };
        assert!(image.starts_with(b"\x7fELF"));
    }
}
