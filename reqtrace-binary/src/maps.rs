//! `/proc/PID/maps`: a process id in, what it has mapped, and the very files behind that, out.
//!
//! The parser is our own, because it reads what a stranger's process has a say in, as root: a file
//! name need not be UTF-8, and a line that is not understood must neither panic nor hide the others.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::debuginfo::Root;
use crate::procfs::{self, Entry};

/// What the kernel appends to the name of a file that was deleted or replaced.
const DELETED: &[u8] = b" (deleted)";

/// A mapping. Two are equal when they map the same part of the same thing at the same
/// place; whether its file has been deleted since makes no difference.
#[derive(Clone, Debug)]
pub struct Mapped {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Offset of `start` in the file.
    pub offset: u64,
    /// Device of the file, major and minor number.
    pub device: (u32, u32),
    /// Inode of the file; 0 when there is none.
    pub inode: u64,
    /// Path as the process sees it, `[vdso]` and the like, or empty. Without ` (deleted)`.
    pub name: OsString,
    /// Whether the file's path leads to it no more.
    pub deleted: bool,
}

/// What is behind a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind<'a> {
    /// A file.
    File,
    /// Something of the kernel: the name in brackets, without them, such as `vdso`.
    Special(&'a str),
    /// Memory without a file.
    Nothing,
}

/// What tells whether two mappings have the same file with the same contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The executable mappings of a process, in order of address; none when it has left its memory.
///
/// # Errors
///
/// When the process is gone, or not ours to look at.
pub fn executable(pid: u32) -> io::Result<Vec<Mapped>> {
    Ok(parse(&read(pid)?))
}

/// All mappings of a process, data too, in order of address; none when it has left its memory.
///
/// # Errors
///
/// As [`executable`].
pub fn all(pid: u32) -> io::Result<Vec<Mapped>> {
    Ok(all_of(&read(pid)?))
}

/// The text of `/proc/PID/maps`; empty when the process has left its memory.
///
/// # Errors
///
/// As [`executable`].
pub fn read(pid: u32) -> io::Result<Vec<u8>> {
    procfs::read_whole(procfs::open_else(pid, Entry::Maps, || text(pid))?)
}

/// The file with the text, of a thread that still has the memory.
pub(crate) fn text(pid: u32) -> io::Result<File> {
    let of_process = format!("/proc/{pid}/maps");
    if !is_empty(&of_process)? {
        return File::open(of_process);
    }
    // The first thread has ended: ask the others.
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = task?.path().join("maps");
        if !is_empty(&path).unwrap_or(true) {
            return File::open(path);
        }
    }
    File::open(of_process)
}

fn is_empty(path: impl AsRef<Path>) -> io::Result<bool> {
    Ok(File::open(path)?.read(&mut [0])? == 0)
}

/// All mappings from the text of the file.
pub(crate) fn all_of(maps: &[u8]) -> Vec<Mapped> {
    let lines = maps.split(|&byte| byte == b'\n');
    lines.filter_map(|line| parse_line(line, false)).collect()
}

/// The executable ones from the text of the file. Lines that are not understood are left out.
#[must_use]
pub fn parse(maps: &[u8]) -> Vec<Mapped> {
    maps.split(|&byte| byte == b'\n')
        .filter_map(|line| parse_line(line, true))
        .collect()
}

fn parse_line(line: &[u8], only_executable: bool) -> Option<Mapped> {
    let mut fields = line.splitn(6, |&byte| byte == b' ');
    let mut field = || std::str::from_utf8(fields.next()?).ok();
    let (start, end) = field()?.split_once('-')?;
    let is_executable = field()?.as_bytes().get(2) == Some(&b'x');
    if only_executable && !is_executable {
        return None;
    }
    let offset = field()?;
    let (major, minor) = field()?.split_once(':')?;
    let inode = field()?;
    let name = fields.next().unwrap_or_default().trim_ascii_start();
    let shown = name.strip_suffix(DELETED).unwrap_or(name);
    let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let short = |digits: &str| u32::from_str_radix(digits, 16).ok();
    Some(Mapped {
        start: hex(start)?,
        end: hex(end)?,
        offset: hex(offset)?,
        device: (short(major)?, short(minor)?),
        inode: inode.parse().ok()?,
        name: OsString::from_vec(unescape(shown)),
        deleted: shown.len() != name.len(),
    })
}

/// The kernel writes a line break in a name as `\012`, so that one mapping is one line.
fn unescape(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&first, tail)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(b"\\012") {
            out.push(b'\n');
            rest = after;
        } else {
            out.push(first);
            rest = tail;
        }
    }
    out
}

impl PartialEq for Mapped {
    fn eq(&self, other: &Self) -> bool {
        let place = |of: &Self| (of.start, of.end, of.offset, of.device, of.inode);
        place(self) == place(other) && self.name == other.name
    }
}

impl Eq for Mapped {}

impl Mapped {
    /// Whether the address is in it.
    #[must_use]
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Its name as text; what is not UTF-8 is replaced.
    #[must_use]
    pub fn path(&self) -> Cow<'_, str> {
        self.name.to_string_lossy()
    }

    /// Its name under `/proc/PID/map_files`.
    #[must_use]
    pub fn range(&self) -> String {
        format!("{:x}-{:x}", self.start, self.end)
    }

    /// What is behind it.
    #[must_use]
    pub fn behind(&self) -> Behind<'_> {
        let name = self.name.as_bytes();
        if name.is_empty() || name.starts_with(b"[anon") {
            return Behind::Nothing;
        }
        match name.strip_prefix(b"[") {
            Some(special) => {
                let special = special.strip_suffix(b"]").unwrap_or(special);
                Behind::Special(std::str::from_utf8(special).unwrap_or_default())
            }
            None => Behind::File,
        }
    }

    /// Whether another mapping, of the same process, has the same file.
    #[must_use]
    pub(crate) fn is_of_same_file(&self, other: &Self) -> bool {
        let file = |of: &Self| (of.device, of.inode, of.deleted);
        file(self) == file(other) && self.name == other.name
    }

    /// What [`Mapped::open`] would open, without opening it; `None` when that is not known.
    #[must_use]
    pub fn key(&self, pid: u32) -> Option<FileKey> {
        if self.inode == 0 || procfs::opener().is_some() {
            return None;
        }
        let mapped = format!("/proc/{pid}/map_files/{}", self.range());
        let metadata = fs::metadata(mapped).ok()?;
        Some(FileKey::of(&metadata))
    }

    /// Opens the mapped file itself, even when its path now leads elsewhere or nowhere. That takes
    /// CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE; without it the path has to do, if it still leads to
    /// the same file.
    ///
    /// # Errors
    ///
    /// When it is no regular file, or cannot be opened.
    pub fn open(&self, pid: u32) -> io::Result<(File, FileKey)> {
        match procfs::opener() {
            Some(opener) => keyed(opener.open(pid, Entry::Mapping(self.start, self.end))?),
            None => self.open_here(pid),
        }
    }

    /// The same with this process's own privileges.
    pub(crate) fn open_here(&self, pid: u32) -> io::Result<(File, FileKey)> {
        let mapped = format!("/proc/{pid}/map_files/{}", self.range());
        let denied = match open_file(Path::new(&mapped)) {
            Ok(opened) => return Ok(opened),
            Err(error) => error,
        };
        let path = Path::new(&self.name);
        if !path.is_absolute() {
            return Err(denied);
        }
        let root = Root::here(pid)?;
        let (file, key) = keyed(root.open(path)?)?;
        // On some filesystems (btrfs, overlay) the device of a mapping is not that of its file.
        if key.inode != self.inode {
            return Err(io::Error::other("its path leads to another file now"));
        }
        Ok((file, key))
    }
}

/// Opens a regular file: opening a device could have effects, opening a FIFO could hang.
///
/// # Errors
///
/// When it is no regular file, or cannot be opened.
pub fn open_file(path: &Path) -> io::Result<(File, FileKey)> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    keyed(File::open(path)?)
}

/// Opens what a process runs, with this process's own privileges.
pub(crate) fn executable_here(pid: u32) -> io::Result<File> {
    Ok(open_file(&procfs::executable_path(pid))?.0)
}

fn keyed(file: File) -> io::Result<(File, FileKey)> {
    let key = FileKey::of(&file.metadata()?);
    Ok((file, key))
}

impl FileKey {
    /// That of a file.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_mappings_are_taken() {
        let maps = parse(
            b"55d0-55e0 r--p 00000000 fe:01 42    /usr/bin/a b\n\
              55e0-5600 r-xp 00001000 fe:01 42      /usr/bin/a b (deleted)\n\
              6000-7000 rwxp 00000000 00:00 0 \n\
              7000-8000 r-xp 00000000 00:00 0       [vdso]\n\
              00408000-00409000 r-xp 00000000 00:00 0       [anon:code]\n\
              9000-a000 r-xp 00000000 fe:00 7       /tmp/two\\012lines\n",
        );
        let behind: Vec<_> = maps.iter().map(Mapped::behind).collect();
        let special = Behind::Special("vdso");
        let nothing = Behind::Nothing;
        assert_eq!(
            behind,
            [Behind::File, nothing, special, nothing, Behind::File]
        );
        let file = Mapped {
            start: 0x55e0,
            end: 0x5600,
            offset: 0x1000,
            device: (0xfe, 1),
            inode: 42,
            name: "/usr/bin/a b".into(),
            deleted: false,
        };
        assert_eq!(maps[0], file);
        assert!(maps[0].deleted);
        assert!(file.contains(0x55ff) && !file.contains(0x5600));
        assert_eq!(maps[3].range(), "408000-409000");
        assert_eq!(maps[4].path(), "/tmp/two\nlines");
    }

    /// Names that a process can choose: none panics, none hides the other lines.
    #[test]
    fn hostile_names_are_names() {
        for name in [&b"/SYSVx"[..], b"[stack:]", b"[", b"\xff\xfe", b"\\01"] {
            let text = [b"1-2 r-xp 0 0:0 1 ", name, b"\n3-4 r-xp 0 0:0 1 /b\n"].concat();
            let maps = parse(&text);
            assert_eq!(maps.len(), 2, "{name:?}");
            assert_eq!(maps[0].name.as_bytes(), name);
            assert_ne!(maps[0].behind(), Behind::Nothing);
        }
    }

    #[test]
    fn nonsense_is_no_mapping() {
        assert_eq!(parse(b""), []);
        assert_eq!(parse(b"what\n\n1-2 r-xp\n1-2 r-xp zz 00:00 0\n"), []);
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        assert!(executable(u32::MAX / 4).is_err());
    }

    #[test]
    fn a_mapped_file_is_opened_although_it_is_gone() {
        let pid = std::process::id();
        let maps = executable(pid).unwrap();
        let program = std::env::current_exe().unwrap();
        let own = maps.iter().find(|map| Path::new(&map.name) == program);
        let (file, key) = own.unwrap().open(pid).unwrap();
        assert_eq!(key, keyed(file).unwrap().1);
        let vdso = maps.iter().find(|map| map.name == "[vdso]").unwrap();
        assert!(vdso.open(pid).is_err());
    }
}
