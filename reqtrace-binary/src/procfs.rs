//! What of a process only the privileged may open: a process and what of it in, an open file out.
//!
//! A process that has given its privileges up says once who opens for it ([`let_open`]); what others may read of a process
//! too is read without that.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{StatFs, major, statfs};
use serde::{Deserialize, Serialize};

/// What most files of `/proc` have room in, bytes.
const PAGE: usize = 4096;

/// What of a process is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// The file that it runs.
    Executable,
    /// The text of what it has mapped.
    Maps,
    /// Its memory, for reading.
    Memory,
    /// The file that it has mapped from one address to another.
    Mapping(u64, u64),
    /// Its root folder, to open files below it (`O_PATH`).
    Root,
    /// The names that it has written for code which it generates: `/tmp/perf-PID.map`.
    PerfMap,
}

/// Opens for a process that may not.
pub trait Opener: Send + Sync {
    /// Something of a process.
    ///
    /// # Errors
    ///
    /// When it is not there or may not be opened.
    fn open(&self, pid: u32, entry: Entry) -> io::Result<File>;

    /// What a process runs: its path, and device and inode.
    ///
    /// # Errors
    ///
    /// As [`Opener::open`].
    fn executable(&self, pid: u32) -> io::Result<(PathBuf, (u64, u64))>;

    /// Device and inode of a program that is watched for, whoever runs it.
    ///
    /// # Errors
    ///
    /// As [`Opener::open`].
    fn program(&self, path: &Path) -> io::Result<(u64, u64)>;

    /// `/proc/kallsyms` with addresses.
    ///
    /// # Errors
    ///
    /// As [`Opener::open`].
    fn kernel_symbols(&self) -> io::Result<File>;
}

static OPENER: OnceLock<Box<dyn Opener>> = OnceLock::new();

/// From now on this process opens nothing of others by itself. The first who is named does it for ever.
pub fn let_open(opener: impl Opener + 'static) {
    let _ = OPENER.set(Box::new(opener));
}

/// Who opens for this process; `None`: it does itself.
pub(crate) fn opener() -> Option<&'static dyn Opener> {
    OPENER.get().map(Box::as_ref)
}

/// Whether another process, with the privileges that this one has given up, opens for it.
#[must_use]
pub fn is_opened_by_another() -> bool {
    opener().is_some()
}

/// Opens something of a process: who opens for this process does, or `own` with its own privileges.
pub(crate) fn open_else(
    pid: u32,
    entry: Entry,
    own: impl FnOnce() -> io::Result<File>,
) -> io::Result<File> {
    match opener() {
        Some(opener) => opener.open(pid, entry),
        None => own(),
    }
}

/// Opens the memory of a process, for reading.
///
/// # Errors
///
/// When it has left, or its memory may not be read.
pub fn memory(pid: u32) -> io::Result<File> {
    open_else(pid, Entry::Memory, || memory_here(pid))
}

/// The same with this process's own privileges.
pub(crate) fn memory_here(pid: u32) -> io::Result<File> {
    File::open(format!("/proc/{pid}/mem"))
}

/// The kernel's symbols: `/proc/kallsyms`.
///
/// # Errors
///
/// When it may not be opened.
pub fn kernel_symbols() -> io::Result<File> {
    match opener() {
        Some(opener) => opener.kernel_symbols(),
        None => kernel_symbols_here(),
    }
}

/// The same with this process's own privileges.
///
/// # Errors
///
/// As [`kernel_symbols`].
pub fn kernel_symbols_here() -> io::Result<File> {
    File::open("/proc/kallsyms")
}

/// Device and inode of a program that is watched for, whoever runs it.
///
/// # Errors
///
/// When there is none, or that may not be seen.
pub fn program(path: &Path) -> io::Result<(u64, u64)> {
    match opener() {
        Some(opener) => opener.program(path),
        None => program_here(path),
    }
}

/// The same with this process's own privileges.
///
/// # Errors
///
/// As [`program`].
pub fn program_here(path: &Path) -> io::Result<(u64, u64)> {
    Ok(probed(&fs::metadata(path)?, || statfs(path)))
}

/// Device and inode by which a file is known that probes are set in.
///
/// Each mount of an overlay has a device of its own, but the kernel sets a probe in the file below, which all containers of one
/// image share: by its device a probe would be set, and hit, once for each of them. So the file of an overlay has, instead of a
/// device, a hash of what `stat` passes on from the file below. A copy in the upper layer was changed later than that.
pub(crate) fn probed(
    metadata: &fs::Metadata,
    file_system: impl FnOnce() -> rustix::io::Result<StatFs>,
) -> (u64, u64) {
    let (device, inode) = (metadata.dev(), metadata.ino());
    let is_overlay = || file_system().is_ok_and(|of| of.f_type as u64 == OVERLAY);
    // Only file systems without a device have numbers below.
    if major(device) != 0 || !is_overlay() {
        return (device, inode);
    }
    let changed = (metadata.ctime(), metadata.ctime_nsec());
    let modified = (metadata.mtime(), metadata.mtime_nsec());
    let mut hasher = DefaultHasher::new();
    (inode, metadata.size(), modified, changed).hash(&mut hasher);
    // No device has the first bit.
    (1 << 63 | hasher.finish(), inode)
}

/// `OVERLAYFS_SUPER_MAGIC` of `linux/magic.h`.
const OVERLAY: u64 = 0x794c_7630;

/// The path by which the executable of a process is opened, by who may.
#[must_use]
pub fn executable_path(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/exe"))
}

/// What a process runs: the path of the file, ` (deleted)` behind it left out, and its device and inode.
///
/// # Errors
///
/// When it has left, or that may not be seen.
pub fn executable(pid: u32) -> io::Result<(PathBuf, (u64, u64))> {
    match opener() {
        Some(opener) => opener.executable(pid),
        None => executable_here(pid),
    }
}

/// The same with this process's own privileges.
///
/// # Errors
///
/// As [`executable`].
pub fn executable_here(pid: u32) -> io::Result<(PathBuf, (u64, u64))> {
    let link = executable_path(pid);
    let path = without_deleted(fs::read_link(&link)?);
    Ok((path, program_here(&link)?))
}

/// The path of a file that is open, as the kernel knows it; ` (deleted)` behind it is left out.
///
/// # Errors
///
/// When `/proc` is not there.
pub fn path_of(file: &File) -> io::Result<PathBuf> {
    Ok(without_deleted(fs::read_link(descriptor(file))?))
}

fn without_deleted(path: PathBuf) -> PathBuf {
    let before = path.as_os_str().as_bytes().strip_suffix(b" (deleted)");
    before.map_or_else(|| path.clone(), |before| OsStr::from_bytes(before).into())
}

/// A path by which the kernel finds a file that is open, as long as it is.
#[must_use]
pub fn descriptor(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// All of a file in `/proc` that this process may read.
///
/// # Errors
///
/// When it cannot be read.
pub fn read(file: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    read_whole(File::open(file)?)
}

/// All of a file that is read once. Those in `/proc` have no size: reading that asks for one goes on in pieces of 32, 64 and more
/// bytes, each of which is a call. `Take` asks for none.
pub(crate) fn read_whole(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(PAGE);
    file.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}
