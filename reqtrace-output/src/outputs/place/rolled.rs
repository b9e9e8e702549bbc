//! The folder of a recording of many files: times and numbers in; files that get their names when they are complete, and that go
//! when the folder would have too many, out.
//!
//! A name is `START-PID.NUMBER.BEGIN.rec`: when the trace began and its tracer's process, the number of the file in the
//! trace, and when the file begins, all in UTC. So names sort by time, and no trace has another one's.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use rustix::fs::{
    AtFlags, Dir, FlockOperation, Mode, OFlags, RenameFlags, flock, openat, renameat,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use super::{Folder, PARTIAL, Refused, mode, status};

/// What the name of a recording ends with.
pub const RECORDING: &str = ".rec";

/// What may stay in the folder, the file that is being written aside. The oldest files go first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// Files that were complete so long ago.
    pub age: Option<Duration>,
    /// Bytes of all files.
    pub bytes: Option<u64>,
}

/// The folder of a recording.
#[derive(Debug)]
pub struct RolledFolder {
    folder: OwnedFd,
    is_foreign: bool,
    private: bool,
    keep: Keep,
    /// The name that the file being written will have.
    name: OsString,
}

/// Files that were removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// How many.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A complete file.
struct Complete {
    name: OsString,
    bytes: u64,
    since: SystemTime,
}

/// `20261123T113240Z`.
fn stamp(unix_ns: u64) -> String {
    let time = Timestamp::from_nanosecond(unix_ns.into()).unwrap_or(Timestamp::UNIX_EPOCH);
    time.strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// Whether a file with this name was made here.
fn is_ours(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_stamp = |text: &str| {
        let (date, time) = text.split_once('T').unwrap_or_default();
        is_number(date) && time.strip_suffix('Z').is_some_and(is_number)
    };
    let parts: Vec<&str> = name.split('.').collect();
    let [trace, number, begin, "rec"] = parts[..] else {
        return false;
    };
    let is_trace = |(start, pid)| is_stamp(start) && is_number(pid);
    trace.split_once('-').is_some_and(is_trace) && is_number(number) && is_stamp(begin)
}

impl RolledFolder {
    pub(in crate::outputs) fn open(
        path: &Path,
        private: bool,
        keep: Keep,
    ) -> Result<Self, Refused> {
        let folder = Folder::reach(path, true)?;
        folder.is_writable()?;
        let status = rustix::fs::fstat(&folder.file)?;
        let own = rustix::process::geteuid().as_raw();
        Ok(Self {
            folder: folder.file,
            is_foreign: status.st_uid != own && status.st_mode & 0o002 == 0,
            private,
            keep,
            name: OsString::new(),
        })
    }

    /// Whether a right to write in folders of others is needed to make files in it.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    fn partial(&self) -> OsString {
        let mut partial = self.name.clone();
        partial.push(PARTIAL);
        partial
    }

    /// Whether nothing has the name.
    fn is_free(&self) -> io::Result<bool> {
        Ok(status(&self.folder, &self.name)?.is_none())
    }

    /// Gives the file its name, unless another one has it.
    fn rename(&self) -> io::Result<()> {
        let (folder, partial) = (&self.folder, self.partial());
        let no_replace = RenameFlags::NOREPLACE;
        match renameat_with(folder, &partial, folder, &self.name, no_replace) {
            // Not every filesystem can do that.
            Err(Errno::INVAL | Errno::NOSYS) => match self.is_free()? {
                true => Ok(renameat(folder, &partial, folder, &self.name)?),
                false => Err(Errno::EXIST.into()),
            },
            other => Ok(other?),
        }
    }

    /// Complete files of this and of earlier traces, the oldest first.
    fn complete_files(&self) -> io::Result<Vec<Complete>> {
        let mut files = Vec::new();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        for entry in Dir::new(openat(&self.folder, ".", flags, Mode::empty())?)? {
            let entry = entry?;
            let name = entry.file_name();
            if !name.to_str().is_ok_and(is_ours) {
                continue;
            }
            let status = match statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(status) => status,
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error.into()),
            };
            let seconds = u64::try_from(status.st_mtime).unwrap_or_default();
            files.push(Complete {
                name: OsString::from(name.to_string_lossy().into_owned()),
                bytes: u64::try_from(status.st_size).unwrap_or_default(),
                since: UNIX_EPOCH + Duration::from_secs(seconds),
            });
        }
        files.sort_by(|one, other| (one.since, &one.name).cmp(&(other.since, &other.name)));
        Ok(files)
    }

    /// Removes what is not to be kept.
    fn keep_to(&self, now: SystemTime) -> io::Result<Removed> {
        let mut removed = Removed::default();
        if self.keep == Keep::default() {
            return Ok(removed);
        }
        let files = self.complete_files()?;
        let mut all: u64 = files.iter().map(|file| file.bytes).sum();
        for file in files {
            let age = now.duration_since(file.since).unwrap_or_default();
            let is_old = self.keep.age.is_some_and(|longest| age > longest);
            let is_much = self.keep.bytes.is_some_and(|most| all > most);
            // What was just written stays.
            if file.name == self.name || !(is_old || is_much) {
                continue;
            }
            all -= file.bytes;
            match unlinkat(&self.folder, &file.name, AtFlags::empty()) {
                Ok(()) => {
                    removed.files += 1;
                    removed.bytes += file.bytes;
                }
                // Another trace or a user was faster.
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(removed)
    }
}

impl RolledFolder {
    /// Makes a file of a trace that began at `trace_ns`, its `number`th, which begins at `begin_ns`: Unix ns. It is not
    /// complete yet.
    ///
    /// # Errors
    ///
    /// When it cannot be made, or is there already.
    pub fn begin(&mut self, trace_ns: u64, number: u32, begin_ns: u64) -> io::Result<File> {
        self.name = OsString::from(format!(
            "{}-{}.{number:06}.{}{RECORDING}",
            stamp(trace_ns),
            std::process::id(),
            stamp(begin_ns)
        ));
        if !self.is_free()? {
            return Err(Errno::EXIST.into());
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let flags = flags | OFlags::CLOEXEC;
        let file = openat(&self.folder, self.partial(), flags, mode(self.private))?;
        // Not every filesystem has locks.
        let _ = flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive);
        Ok(file.into())
    }

    /// The file that was made last is complete, and gets its name. Returns what had to go.
    ///
    /// # Errors
    ///
    /// When another file has its name, or what is to go cannot be removed.
    pub fn complete(&mut self, file: &File) -> io::Result<Removed> {
        // Its name says that it is complete: also after the machine has lost its power.
        let synced = file.sync_data();
        self.rename()?;
        let removed = self.keep_to(SystemTime::now())?;
        synced?;
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use super::*;

    const TRACE_NS: u64 = 1_700_000_065_000_000_000;

    fn begun(folder: &mut RolledFolder, number: u32) -> io::Result<File> {
        let since_ns = u64::from(number - 1) * 60_000_000_000;
        folder.begin(TRACE_NS, number, TRACE_NS + since_ns)
    }

    fn names(folder: &Path) -> Vec<String> {
        let files = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn written(folder: &mut RolledFolder, number: u32, bytes: usize) -> Removed {
        let mut file = begun(folder, number).unwrap();
        file.write_all(&vec![0; bytes]).unwrap();
        folder.complete(&file).unwrap()
    }

    #[test]
    fn a_file_has_its_name_when_it_is_complete_and_keeps_it() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("made/here");
        let mut folder = RolledFolder::open(&path, true, Keep::default()).unwrap();
        let file = begun(&mut folder, 1).unwrap();
        let name = format!(
            "20231114T221425Z-{}.000001.20231114T221425Z.rec",
            std::process::id()
        );
        assert!(is_ours(&name));
        assert_eq!(names(&path), [format!("{name}.partial")]);
        // Another trace of the same name neither writes nor replaces it.
        let mut other = RolledFolder::open(&path, true, Keep::default()).unwrap();
        let refused = begun(&mut other, 1).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        fs::write(path.join(&name), "of another").unwrap();
        let refused = folder.complete(&file).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(path.join(&name)).unwrap(), "of another");
        written(&mut folder, 2, 3);
        let all = names(&path);
        assert_eq!(all.len(), 3);
        assert!(all[2].contains(".000002.20231114T221525Z.rec"), "{all:?}");
    }

    #[test]
    fn the_oldest_go_first_and_only_files_of_recordings() {
        let outer = tempfile::tempdir().unwrap();
        let keep = Keep {
            bytes: Some(250),
            age: None,
        };
        let mut folder = RolledFolder::open(outer.path(), false, keep).unwrap();
        for name in ["a.rec", "20231114T221425Z-1.000001.rec", "notes.txt"] {
            fs::write(outer.path().join(name), vec![0; 1000]).unwrap();
        }
        let mut removed = Removed::default();
        for number in 1..=5 {
            let gone = written(&mut folder, number, 100);
            removed.files += gone.files;
            removed.bytes += gone.bytes;
        }
        assert_eq!((removed.files, removed.bytes), (3, 300));
        let left = names(outer.path());
        let ours: Vec<_> = left.iter().filter(|name| is_ours(name)).collect();
        assert!(ours.len() == 2 && ours[0].contains(".000004."), "{left:?}");
        assert_eq!(left.len(), 5);
        // One that is larger than all that may stay is the last that stays.
        let gone = written(&mut folder, 6, 1000);
        assert_eq!((gone.files, gone.bytes), (2, 200));

        folder.keep = Keep {
            age: Some(Duration::from_secs(3600)),
            bytes: None,
        };
        assert_eq!(written(&mut folder, 7, 1), Removed::default());
        let later = SystemTime::now() + Duration::from_secs(7200);
        assert_eq!(folder.keep_to(later).unwrap().files, 1);
    }
}
