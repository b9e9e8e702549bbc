//! Opening files that another process names: a root and a path in, a regular file out.
//!
//! The path is followed inside the root and never out of it, whatever symbolic links stand there,
//! and nothing but a regular file is ever opened: opening a device can have effects, opening a
//! FIFO can hang.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::procfs::{self, Entry};
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};

/// A root folder: that of a process, or ours.
#[derive(Debug)]
pub struct Root {
    folder: File,
    id: (u64, u64),
}

impl Root {
    /// The root of a process, and after it ours where that is another.
    #[must_use]
    pub fn of_process(pid: u32) -> Vec<Self> {
        let mut roots = Vec::new();
        let own = || Ok(Self::here(pid)?.folder);
        let of_process = procfs::open_else(pid, Entry::Root, own).and_then(Self::of);
        for root in [of_process, Self::at(Path::new("/"))] {
            if let Ok(root) = root
                && roots.iter().all(|known: &Self| known.id != root.id)
            {
                roots.push(root);
            }
        }
        roots
    }

    /// The root of a process, opened with this process's own privileges.
    pub(crate) fn here(pid: u32) -> io::Result<Self> {
        Self::at(Path::new(&format!("/proc/{pid}/root")))
    }

    /// A folder that is taken as root.
    ///
    /// # Errors
    ///
    /// When it cannot be opened.
    pub fn at(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self::of(File::from(open(path, flags, Mode::empty())?))
    }

    fn of(folder: File) -> io::Result<Self> {
        let metadata = folder.metadata()?;
        Ok(Self {
            id: (metadata.dev(), metadata.ino()),
            folder,
        })
    }

    /// The folder itself (`O_PATH`).
    pub(crate) fn into_folder(self) -> File {
        self.folder
    }

    /// Opens a regular file below this root. Symbolic links are followed as a process with this
    /// root would follow them.
    ///
    /// # Errors
    ///
    /// When it is not there, is no regular file, or cannot be opened.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        reopen_regular(&self.handle(path, OFlags::empty())?)
    }

    /// A handle that says what stands at a path, without opening it: a symbolic link there is not
    /// followed. To be opened by [`reopen_regular`].
    ///
    /// # Errors
    ///
    /// When there is nothing.
    pub fn look(&self, path: &Path) -> io::Result<File> {
        self.handle(path, OFlags::NOFOLLOW)
    }

    /// Since Linux 5.6.
    fn handle(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | flags;
        let within = ResolveFlags::IN_ROOT;
        Ok(openat2(&self.folder, path, flags, Mode::empty(), within)?.into())
    }
}

/// Opens what a handle (`O_PATH`) stands for, if it is a regular file.
///
/// # Errors
///
/// When it is none, or cannot be opened.
pub fn reopen_regular(handle: &File) -> io::Result<File> {
    if !handle.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(open(path, flags, Mode::empty())?.into())
}
