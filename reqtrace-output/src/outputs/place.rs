//! Where a file is written: a path in, a file beside it out, which gets its name when it is whole.
//!
//! reqtrace runs as root, and a folder of another user is that user's to change: a symbolic link there
//! would make root write anywhere. So every folder on the way, and every link, must belong to root or
//! to the user that runs reqtrace.

mod folder;
mod rolled;

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, openat, renameat, statat,
    unlinkat,
};
use rustix::io::Errno;

pub(super) use folder::Folder;
pub use rolled::{Keep, RECORDING, Removed, RolledFolder};

/// What a file is called until it is whole.
pub const PARTIAL: &str = ".partial";
/// For everybody to read; the umask takes from it.
const PUBLIC: u32 = 0o644;
/// For its owner only.
const PRIVATE: u32 = 0o600;

/// Why a file cannot be written at a place.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("{0} belongs to user {1}, who could make it lead elsewhere")]
    Foreign(String, u32),
    #[error("{0} can be changed by every user")]
    Open(String),
    #[error("it is a symbolic link, and links are not followed")]
    Link,
    #[error("it has another name, too, and what is written would be there")]
    Linked,
    #[error("another reqtrace writes it")]
    Busy,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<Errno> for Refused {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

impl Refused {
    /// What to do.
    pub(super) fn advice(&self) -> &'static str {
        match self {
            Self::Foreign(..) | Self::Open(_) => {
                "name a folder of your own or of root's; `--csv - > FILE` lets the shell open a file"
            }
            Self::Link => "name the file itself",
            Self::Linked => "name a file that is not there",
            Self::Busy => "give each trace a place of its own",
            Self::Io(_) => "name a file in a folder that you may write to",
        }
    }
}

/// A file that has its name when it is whole.
#[derive(Debug)]
pub(super) struct Partial {
    folder: OwnedFd,
    name: OsString,
    partial: OsString,
    /// Its place, for messages.
    pub(super) shown: String,
}

/// A place to write to.
#[derive(Debug)]
pub(super) enum Place {
    /// A file that gets its name at the end.
    File(Partial, File),
    /// A device or a pipe.
    Stream(File),
}

impl Place {
    /// Opens a place. `private`: for the owner's eyes only.
    pub(super) fn open(path: &Path, private: bool) -> Result<Self, Refused> {
        if is_of_kernel(path) {
            let file = OpenOptions::new().write(true).truncate(true).open(path)?;
            return Ok(Self::Stream(file));
        }
        let (folder, name) = split(path)?;
        let folder = folder.file;
        if look(&folder, &name)? == Found::Stream {
            let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
            let file = openat(&folder, &name, flags, Mode::empty())?;
            // It may have been replaced since.
            belongs(&fstat(&file)?, &name)?;
            return Ok(Self::Stream(file.into()));
        }
        let mut partial = name.clone();
        partial.push(PARTIAL);
        let file = create(&folder, &partial, private)?;
        let shown = path.display().to_string();
        Ok(Self::File(
            Partial {
                folder,
                name,
                partial,
                shown,
            },
            file,
        ))
    }
}

/// Whether a file could be written there; nothing is made.
pub(super) fn check_file(path: &Path) -> Result<(), Refused> {
    if is_of_kernel(path) {
        return Ok(());
    }
    let (folder, name) = split(path)?;
    match look(&folder.file, &name)? {
        Found::Nothing | Found::File => Ok(folder.is_writable()?),
        Found::Stream => Ok(()),
    }
}

/// Opens a file that has its name from the beginning, and that nobody else writes: a link there is not followed.
/// What is in it stays.
pub(super) fn open_now(path: &Path, private: bool) -> Result<File, Refused> {
    if is_of_kernel(path) {
        return Ok(OpenOptions::new().write(true).open(path)?);
    }
    let (folder, name) = split(path)?;
    look(&folder.file, &name)?;
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let make = flags | OFlags::CREATE | OFlags::EXCL;
    let file: File = match openat(&folder.file, &name, make, mode(private)) {
        Err(Errno::EXIST) => {
            let file = openat(&folder.file, &name, flags, Mode::empty())?;
            let status = fstat(&file)?;
            belongs(&status, &name)?;
            let is_file = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
            if is_file && status.st_nlink > 1 {
                return Err(Refused::Linked);
            }
            file.into()
        }
        other => other?.into(),
    };
    if file.metadata()?.is_file() {
        own(&file)?;
    }
    protect(&file, private)?;
    Ok(file)
}

/// Whether a path leads to what is the kernel's: a device, or, as `/dev/stdout`, what this process has open.
fn is_of_kernel(path: &Path) -> bool {
    if path.components().any(|part| part == Component::ParentDir) {
        return false;
    }
    // Every user makes files there.
    let is_shared = path.starts_with("/dev/shm") || path.starts_with("/dev/mqueue");
    let mut parts = path.iter().skip(1);
    let is_open = parts.next() == Some("proc".as_ref()) && parts.nth(1) == Some("fd".as_ref());
    is_open || path.starts_with("/dev") && !is_shared
}

/// What has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    File,
    /// A pipe or a device, of a user who is trusted.
    Stream,
}

/// What is there; refused is what is not written to.
fn look(folder: &OwnedFd, name: &OsStr) -> Result<Found, Refused> {
    let Some(status) = status(folder, name)? else {
        return Ok(Found::Nothing);
    };
    match FileType::from_raw_mode(status.st_mode) {
        FileType::Symlink => Err(Refused::Link),
        FileType::Directory => Err(Errno::ISDIR.into()),
        FileType::RegularFile => Ok(Found::File),
        _ => belongs(&status, name).map(|()| Found::Stream),
    }
}

/// Refuses what another user has made: it is theirs to read what is written.
fn belongs(status: &Stat, name: &OsStr) -> Result<(), Refused> {
    match folder::trusted().contains(&status.st_uid) {
        true => Ok(()),
        false => Err(Refused::Foreign(name.display().to_string(), status.st_uid)),
    }
}

/// Nobody else writes to it from now on. Not every filesystem has locks; without one two traces may write to one place.
fn own(file: &impl AsFd) -> Result<(), Refused> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(Refused::Busy),
        _ => Ok(()),
    }
}

impl Partial {
    /// It is whole: it gets its name, and what had that name before is gone.
    pub(super) fn commit(self) -> io::Result<()> {
        Ok(renameat(
            &self.folder,
            &self.partial,
            &self.folder,
            &self.name,
        )?)
    }

    /// Nothing was written: it goes.
    pub(super) fn remove(self) {
        // It may be gone with its folder.
        let _ = unlinkat(&self.folder, &self.partial, AtFlags::empty());
    }
}

fn split(path: &Path) -> Result<(Folder, OsString), Refused> {
    // What looks like a link there leads to where another process is.
    if path.starts_with("/proc") {
        return Err(Refused::Link);
    }
    let name = path.file_name().ok_or(Errno::ISDIR)?.to_owned();
    let parent = path.parent().unwrap_or(Path::new(""));
    let folder = Folder::reach(parent, false)?;
    if folder.is_there() {
        Ok((folder, name))
    } else {
        Err(Errno::NOENT.into())
    }
}

/// What is there; links are not followed.
fn status(folder: &OwnedFd, name: &OsStr) -> io::Result<Option<Stat>> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(status) => Ok(Some(status)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A new file. One that a killed trace has left is replaced; one that is being written is not.
fn create(folder: &OwnedFd, name: &OsStr, private: bool) -> Result<File, Refused> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let make = || {
        openat(
            folder,
            name,
            flags | OFlags::CREATE | OFlags::EXCL,
            mode(private),
        )
    };
    let file = match make() {
        Err(Errno::EXIST) => {
            let old = openat(folder, name, flags | OFlags::NONBLOCK, Mode::empty());
            if let Ok(old) = &old {
                own(old)?;
            }
            unlinkat(folder, name, AtFlags::empty())?;
            make()?
        }
        other => other?,
    };
    own(&file)?;
    Ok(file.into())
}

/// A file that was there keeps its mode when it is opened.
fn protect(file: &File, private: bool) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    if private && file.metadata()?.is_file() {
        file.set_permissions(std::fs::Permissions::from_mode(PRIVATE))?;
    }
    Ok(())
}

fn mode(private: bool) -> Mode {
    Mode::from_raw_mode(if private { PRIVATE } else { PUBLIC })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    fn written(path: &Path, private: bool, text: &str) -> Partial {
        match Place::open(path, private).unwrap() {
            Place::File(partial, mut file) => {
                file.write_all(text.as_bytes()).unwrap();
                partial
            }
            Place::Stream(_) => panic!("it is a file"),
        }
    }

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn yesterdays_file_stays_until_todays_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        fs::write(&path, "yesterday").unwrap();
        let partial = written(&path, false, "today");
        assert_eq!(fs::read_to_string(&path).unwrap(), "yesterday");
        partial.commit().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "today");
        written(&path, true, "").remove();
        assert_eq!(fs::read_to_string(&path).unwrap(), "today");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        written(&path, true, "secret").commit().unwrap();
        assert_eq!(mode_of(&path), 0o600);
    }

    #[test]
    fn what_a_killed_trace_has_left_is_replaced_and_a_running_one_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        fs::write(folder.path().join("rows.csv.partial"), "killed").unwrap();
        let Place::File(partial, file) = Place::open(&path, false).unwrap() else {
            panic!("it is a file");
        };
        assert!(matches!(Place::open(&path, false), Err(Refused::Busy)));
        drop(file);
        partial.commit().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
    }

    #[test]
    fn a_link_at_the_place_is_neither_followed_nor_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        fs::write(&victim, "x").unwrap();
        let path = folder.path().join("rows.csv");
        symlink(&victim, &path).unwrap();
        assert!(matches!(Place::open(&path, false), Err(Refused::Link)));
        assert!(matches!(check_file(&path), Err(Refused::Link)));
        assert!(matches!(open_now(&path, false), Err(Refused::Link)));
        assert_eq!(fs::read_to_string(&victim).unwrap(), "x");
        let partial = folder.path().join("rows2.csv.partial");
        symlink(&victim, &partial).unwrap();
        written(&folder.path().join("rows2.csv"), false, "y")
            .commit()
            .unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "x");
    }

    #[test]
    fn own_links_to_folders_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        symlink("a/b", folder.path().join("link")).unwrap();
        symlink(folder.path().join("link/.."), folder.path().join("up")).unwrap();
        written(&folder.path().join("up/b/x"), false, "x")
            .commit()
            .unwrap();
        assert!(folder.path().join("a/b/x").is_file());
        symlink("loop", folder.path().join("loop")).unwrap();
        assert!(Folder::reach(&folder.path().join("loop/x"), true).is_err());
    }

    /// Owners can be changed by root only.
    #[test]
    fn folders_and_links_of_other_users_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let theirs = folder.path().join("theirs");
        fs::create_dir(&theirs).unwrap();
        if chown(&theirs, Some(4711), None).is_err() {
            return;
        }
        let inside = theirs.join("mine");
        fs::create_dir(&inside).unwrap();
        for path in [&theirs, &inside] {
            let refused = Folder::reach(path, false).unwrap_err();
            assert!(matches!(refused, Refused::Foreign(_, 4711)), "{refused}");
        }
        let link = folder.path().join("link");
        symlink("/etc", &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(4711), None).unwrap();
        let refused = Place::open(&link.join("x"), false).unwrap_err();
        assert!(matches!(refused, Refused::Foreign(_, 4711)), "{refused}");
        let open = folder.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(Folder::reach(&open, false), Err(Refused::Open(_))));
        fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(Folder::reach(&open, false).is_ok());
    }

    #[test]
    fn devices_are_written_straight() {
        let place = Place::open(Path::new("/dev/null"), false).unwrap();
        assert!(matches!(place, Place::Stream(_)));
        for path in ["/dev/fd/3", "/proc/self/fd/1", "/proc/1/fd/1"] {
            assert!(is_of_kernel(Path::new(path)), "{path}");
        }
        for path in ["/dev/shm/x", "/dev/fd/../../tmp/x", "/proc/1/root/x"] {
            assert!(!is_of_kernel(Path::new(path)), "{path}");
        }
        let elsewhere = check_file(Path::new("/proc/self/root/tmp/x"));
        assert!(matches!(elsewhere, Err(Refused::Link)));
    }

    #[test]
    fn a_recording_of_another_trace_is_neither_emptied_nor_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.rec");
        fs::write(&path, "yesterday").unwrap();
        let first = open_now(&path, true).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "yesterday");
        assert_eq!(mode_of(&path), 0o600);
        assert!(matches!(open_now(&path, true), Err(Refused::Busy)));
        drop(first);
        fs::hard_link(&path, folder.path().join("other name")).unwrap();
        assert!(matches!(open_now(&path, true), Err(Refused::Linked)));
    }

    /// Owners can be changed by root only.
    #[test]
    fn pipes_and_files_of_other_users_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        assert!(check_file(&pipe).is_ok());
        let file = folder.path().join("x.rec");
        fs::write(&file, "theirs").unwrap();
        if chown(&pipe, Some(4711), None).is_err() {
            return;
        }
        chown(&file, Some(4711), None).unwrap();
        for refused in [
            check_file(&pipe).unwrap_err(),
            Place::open(&pipe, true).unwrap_err(),
            open_now(&pipe, true).unwrap_err(),
            open_now(&file, true).unwrap_err(),
        ] {
            assert!(matches!(refused, Refused::Foreign(_, 4711)), "{refused}");
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "theirs");
    }
}
