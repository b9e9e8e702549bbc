//! Opening files that another process names: a root and a path in, a regular file out.
//!
//! The path is followed inside the root and never out of it, whatever symbolic links stand there,
//! and nothing but a regular file is ever opened: opening a device can have effects, opening a
//! FIFO can hang.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

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
        for path in [format!("/proc/{pid}/root"), "/".to_owned()] {
            if let Ok(root) = Self::at(Path::new(&path))
                && roots.iter().all(|known: &Self| known.id != root.id)
            {
                roots.push(root);
            }
        }
        roots
    }

    /// A folder that is taken as root.
    ///
    /// # Errors
    ///
    /// When it cannot be opened.
    pub fn at(path: &Path) -> io::Result<Self> {
        let folder = File::options()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
            .open(path)?;
        let metadata = folder.metadata()?;
        Ok(Self {
            id: (metadata.dev(), metadata.ino()),
            folder,
        })
    }

    /// Opens a regular file below this root. Symbolic links are followed as a process with this
    /// root would follow them.
    ///
    /// # Errors
    ///
    /// When it is not there, is no regular file, or cannot be opened.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        reopen_regular(&self.handle(path, 0)?)
    }

    /// A handle that says what stands at a path, without opening it: a symbolic link there is not
    /// followed. To be opened by [`reopen_regular`].
    ///
    /// # Errors
    ///
    /// When there is nothing.
    pub fn look(&self, path: &Path) -> io::Result<File> {
        self.handle(path, libc::O_NOFOLLOW)
    }

    fn handle(&self, path: &Path, flags: i32) -> io::Result<File> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: all fields are numbers; zero is their default.
        let mut how: libc::open_how = unsafe { std::mem::zeroed() };
        how.flags = (libc::O_PATH | libc::O_CLOEXEC | flags) as u64;
        how.resolve = libc::RESOLVE_IN_ROOT;
        // SAFETY: the path ends with NUL, and the structure has the size that is said. Since 5.6.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_openat2,
                self.folder.as_raw_fd(),
                path.as_ptr(),
                &raw const how,
                size_of_val(&how),
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        Ok(unsafe { File::from_raw_fd(fd as i32) })
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
    File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}
