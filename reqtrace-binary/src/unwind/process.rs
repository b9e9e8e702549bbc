//! Processes: a process id in, its executable mappings and the files behind them out.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

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
            Self::NoRoom => "there is no room for its table",
            Self::TooManyMappings => "the process has too many executable mappings",
        }
    }
}

/// An executable mapping as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Offset in the file.
    pub(super) offset: u64,
    device: (u32, u32),
    inode: u64,
    /// Empty for anonymous memory.
    pub(super) name: PathBuf,
}

/// What tells whether two mappings have the same file with the same contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileKey {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// What is behind a mapping.
#[derive(Debug)]
pub(super) enum Backing {
    File(File, FileKey),
    /// An image that the kernel put into the process.
    Image(Vec<u8>),
}

/// Why nothing was opened; with the cause if there is one.
pub(super) type Unopened = (NoTable, Option<io::Error>);

impl Backing {
    /// A file that need not be mapped.
    ///
    /// # Errors
    ///
    /// When it cannot be opened.
    pub(super) fn of_file(path: &Path) -> Result<Self, Unopened> {
        open_regular(path)
            .map(|(file, key)| Self::File(file, key))
            .map_err(|error| (NoTable::Unreadable, Some(error)))
    }
}

/// Executable mappings of user code, in the kernel's order.
///
/// # Errors
///
/// When the process is gone, or not ours to look at.
pub(super) fn executable_mappings(pid: u32) -> io::Result<Vec<Line>> {
    let maps = fs::read(format!("/proc/{pid}/maps"))?;
    if !maps.is_empty() {
        return Ok(parse(&maps));
    }
    // The first thread has ended: ask the others.
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let maps = fs::read(task?.path().join("maps")).unwrap_or_default();
        if !maps.is_empty() {
            return Ok(parse(&maps));
        }
    }
    Ok(Vec::new())
}

fn parse(maps: &[u8]) -> Vec<Line> {
    maps.split(|&byte| byte == b'\n')
        .filter_map(parse_line)
        .filter(|line| {
            // Uprobes' own page holds the trampoline of return probes. It must not be a mapping:
            // the walk looks for the replaced return address where it finds none.
            line.start < USER_END && line.name != Path::new("[uprobes]")
        })
        .collect()
}

/// A line of `/proc/PID/maps`, if it is an executable mapping.
fn parse_line(line: &[u8]) -> Option<Line> {
    let mut fields = line.splitn(6, |&byte| byte == b' ');
    let mut field = || std::str::from_utf8(fields.next()?).ok();
    let (start, end) = field()?.split_once('-')?;
    if field()?.as_bytes().get(2) != Some(&b'x') {
        return None;
    }
    let offset = field()?;
    let (major, minor) = field()?.split_once(':')?;
    let inode = field()?;
    let name = fields.next().unwrap_or_default();
    let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let short = |digits: &str| u32::from_str_radix(digits, 16).ok();
    Some(Line {
        start: hex(start)?,
        end: hex(end)?,
        offset: hex(offset)?,
        device: (short(major)?, short(minor)?),
        inode: inode.parse().ok()?,
        name: PathBuf::from(std::ffi::OsStr::from_bytes(name.trim_ascii_start())),
    })
}

impl Line {
    /// Opens what is behind the mapping.
    ///
    /// # Errors
    ///
    /// When there is no file, or it cannot be opened; with the cause if there is one.
    pub(super) fn open(&self, pid: u32) -> Result<Backing, Unopened> {
        if self.name == Path::new("[vdso]") {
            return self
                .image(pid)
                .map(Backing::Image)
                .map_err(|error| (NoTable::Unreadable, Some(error)));
        }
        if self.inode == 0 {
            return Err((NoTable::Anonymous, None));
        }
        self.file(pid)
            .map(|(file, key)| Backing::File(file, key))
            .map_err(|error| (NoTable::Unreadable, Some(error)))
    }

    fn image(&self, pid: u32) -> io::Result<Vec<u8>> {
        let length = self.end.saturating_sub(self.start);
        if length > MAX_VDSO_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut image = vec![0; length as usize];
        File::open(format!("/proc/{pid}/mem"))?.read_exact_at(&mut image, self.start)?;
        Ok(image)
    }

    /// The mapped file itself, even when its path now leads elsewhere or nowhere. That takes
    /// CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE; without it the path has to do, if it still leads
    /// to the same file.
    fn file(&self, pid: u32) -> io::Result<(File, FileKey)> {
        let mapped = format!("/proc/{pid}/map_files/{:x}-{:x}", self.start, self.end);
        let denied = match open_regular(Path::new(&mapped)) {
            Ok(opened) => return Ok(opened),
            Err(error) => error,
        };
        let inside = self.name.strip_prefix("/").map_err(|_| denied)?;
        let (file, key) = open_regular(&Path::new(&format!("/proc/{pid}/root")).join(inside))?;
        if (libc::major(key.device), libc::minor(key.device), key.inode)
            != (self.device.0, self.device.1, self.inode)
        {
            return Err(io::Error::other("its path leads to another file now"));
        }
        Ok((file, key))
    }
}

/// Opens a regular file: opening a device could have effects, opening a FIFO could hang.
fn open_regular(path: &Path) -> io::Result<(File, FileKey)> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let key = FileKey {
        device: metadata.dev(),
        inode: metadata.ino(),
        size: metadata.size(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    };
    Ok((file, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_executable_mappings_of_user_code_are_taken() {
        let lines = parse(
            b"55d0-55e0 r--p 00000000 fe:01 42    /usr/bin/a b\n\
              55e0-5600 r-xp 00001000 fe:01 42      /usr/bin/a b (deleted)\n\
              6000-7000 rwxp 00000000 00:00 0 \n\
              7000-8000 r-xp 00000000 00:00 0       [vdso]\n\
              7fffffffe000-7ffffffff000 --xp 00000000 00:00 0     [uprobes]\n\
              ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]\n",
        );
        let names: Vec<_> = lines
            .iter()
            .map(|line| line.name.to_string_lossy())
            .collect();
        assert_eq!(names, ["/usr/bin/a b (deleted)", "", "[vdso]"]);
        assert_eq!(
            lines[0],
            Line {
                start: 0x55e0,
                end: 0x5600,
                offset: 0x1000,
                device: (0xfe, 1),
                inode: 42,
                name: "/usr/bin/a b (deleted)".into(),
            }
        );
    }

    #[test]
    fn nonsense_is_no_mapping() {
        assert_eq!(parse(b""), []);
        assert_eq!(parse(b"what\n\n1-2 r-xp\n1-2 r-xp zz 00:00 0\n"), []);
    }

    #[test]
    fn the_vdso_of_this_process_is_an_object() {
        let pid = std::process::id();
        let lines = executable_mappings(pid).unwrap();
        let vdso = lines
            .iter()
            .find(|line| line.name == Path::new("[vdso]"))
            .unwrap();
        let Backing::Image(image) = vdso.open(pid).unwrap() else {
            panic!("it has no file");
        };
        assert!(image.starts_with(b"\x7fELF"));
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        assert!(executable_mappings(u32::MAX / 4).is_err());
    }
}
