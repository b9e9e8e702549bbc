//! Files that are opened when they are first needed: where one is in; the file, open as long as somebody refers to it, out.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::fstatfs;

use crate::maps::{self, FileKey, Mapped};
use crate::procfs::{self, Entry};

/// A file. Clones are the same one: it is opened once, and closed with the last of them.
#[derive(Clone, Debug)]
pub struct LazyFile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    from: From,
    /// For people.
    path: PathBuf,
    file: OnceLock<Arc<File>>,
}

/// Where it is.
#[derive(Debug)]
enum From {
    /// By its path, or it was open before.
    Path,
    /// What a process runs.
    Executable(u32),
    /// What a process has mapped.
    Mapping(u32, Mapped),
}

impl LazyFile {
    fn of(from: From, path: PathBuf) -> Self {
        Self(Arc::new(Inner {
            from,
            path,
            file: OnceLock::new(),
        }))
    }

    /// A file by its path.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self::of(From::Path, path.into())
    }

    /// What a process runs.
    #[must_use]
    pub fn executable_of(pid: u32) -> Self {
        Self::of(From::Executable(pid), procfs::executable_path(pid))
    }

    /// What a process has mapped.
    #[must_use]
    pub fn of_mapping(pid: u32, mapped: Mapped) -> Self {
        let path = PathBuf::from(&mapped.name);
        Self::of(From::Mapping(pid, mapped), path)
    }

    /// A file that is open.
    #[must_use]
    pub fn opened(file: File) -> Self {
        let path = procfs::path_of(&file).unwrap_or_default();
        let opened = Self::of(From::Path, path);
        // Nobody else has it yet.
        let _ = opened.0.file.set(Arc::new(file));
        opened
    }

    /// The file; it is opened by the first who asks.
    ///
    /// # Errors
    ///
    /// When it is no regular file, or cannot be opened.
    pub fn open(&self) -> io::Result<Arc<File>> {
        if let Some(file) = self.0.file.get() {
            return Ok(Arc::clone(file));
        }
        let file = match &self.0.from {
            From::Path => maps::open_file(&self.0.path)?.0,
            From::Executable(pid) => {
                procfs::open_else(*pid, Entry::Executable, || maps::executable_here(*pid))?
            }
            From::Mapping(pid, mapped) => mapped.open(*pid)?.0,
        };
        Ok(Arc::clone(self.0.file.get_or_init(|| Arc::new(file))))
    }

    /// What tells it from others.
    ///
    /// # Errors
    ///
    /// As [`LazyFile::open`].
    pub fn key(&self) -> io::Result<FileKey> {
        Ok(FileKey::of(&self.open()?.metadata()?))
    }

    /// Its device and inode.
    ///
    /// # Errors
    ///
    /// As [`LazyFile::open`].
    pub fn inode(&self) -> io::Result<(u64, u64)> {
        let metadata = self.open()?.metadata()?;
        Ok((metadata.dev(), metadata.ino()))
    }

    /// What tells it from other files that probes are set in: as [`LazyFile::inode`], but one for all containers of an image.
    ///
    /// # Errors
    ///
    /// As [`LazyFile::open`].
    pub fn probed(&self) -> io::Result<(u64, u64)> {
        let file = self.open()?;
        Ok(procfs::probed(&file.metadata()?, || fstatfs(&*file)))
    }

    /// Where it is, for people.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }
}

impl fmt::Display for LazyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path().display().fmt(f)
    }
}

/// By where it is; nothing is opened for it.
impl PartialEq for LazyFile {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0.from, &other.0.from) {
            (From::Path, From::Path) => self.path() == other.path(),
            (From::Executable(one), From::Executable(other)) => one == other,
            (From::Mapping(one, of_one), From::Mapping(other, of_other)) => {
                one == other && of_one.is_of_same_file(of_other)
            }
            _ => false,
        }
    }
}

impl Eq for LazyFile {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_stays_the_one_that_was_opened_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("library");
        std::fs::write(&path, "one").unwrap();
        let file = LazyFile::at(&path);
        let (other, inode) = (file.clone(), file.inode().unwrap());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(other.inode().unwrap(), inode);
        assert!(LazyFile::at(&path).open().is_err());
        assert_eq!(file, LazyFile::at(&path), "by where it is");
        assert!(LazyFile::at(folder.path()).open().is_err());
    }

    #[test]
    fn a_mapping_of_the_executable_is_the_executable() {
        let pid = std::process::id();
        let own = LazyFile::executable_of(pid);
        let mapped = maps::executable(pid).unwrap();
        let name = std::env::current_exe().unwrap();
        let code = mapped.into_iter().find(|map| map.name == name).unwrap();
        let code = LazyFile::of_mapping(pid, code);
        assert_eq!(code.inode().unwrap(), own.inode().unwrap());
        assert_eq!(code.path(), name);
        assert_ne!(code, own);
    }
}
