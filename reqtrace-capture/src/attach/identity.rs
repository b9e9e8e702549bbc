//! Which file: a path, or a file that is open, in; what tells it from others out.

use std::path::{Path, PathBuf};

use reqtrace_binary::lazy::LazyFile;
use reqtrace_binary::procfs;

/// What makes two paths one file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// Device and inode, by which the kernel sets probes; see [`LazyFile::probed`].
    Inode(u64, u64),
    /// A file that cannot be looked at; attaching will say why.
    Path(PathBuf),
}

impl Identity {
    /// That of a file.
    #[must_use]
    pub fn of(file: &LazyFile) -> Self {
        file.probed().map_or_else(
            |_| Self::Path(file.path().to_owned()),
            |(device, inode)| Self::Inode(device, inode),
        )
    }

    /// That of the file which a path opens.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        procfs::program_here(path).map_or_else(
            |_| Self::Path(path.to_owned()),
            |(device, inode)| Self::Inode(device, inode),
        )
    }
}
