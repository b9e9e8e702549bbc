//! The spool: names of files that are made, and whole files, in; whole files in their partitions, and room for them, out.
//!
//! A file is made in the spool as `NAME.part`, synced, and renamed to its place: at no time does the target have a
//! part of a file, and a name is given once. What a killed agent has left half-made is removed at the next start, but for files
//! with a journal (`NAME.journal`), from which they are made again.

#![cfg_attr(
    not(feature = "parquet"),
    allow(dead_code, reason = "rows have journals, and profiles have none")
)]

pub(crate) mod paths;

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use reqtrace_base::error::{Error, Result};
use rustix::fs::{FlockOperation, flock, statvfs};

use crate::ids::Machine;
use paths::{escaped, file, folders, make, make_shared, partition, plain, sync};

const PART: &str = ".part";
const JOURNAL: &str = ".journal";
/// The number of the next file.
const NEXT: &str = "next";
const LOCK: &str = "lock";
/// How long it is waited for.
const PATIENCE: Duration = Duration::from_secs(3);
const TRIAL: &str = ".reqtrace-trial";

/// What files are of.
#[derive(Debug)]
pub(crate) struct Kind {
    /// The section of the configuration.
    pub(crate) section: &'static str,
    /// Names of files begin so, with a `-` behind it.
    pub(crate) start: &'static str,
    /// They end so.
    pub(crate) end: &'static str,
    /// What is in a whole file; `None`: it cannot be read.
    pub(crate) contents: fn(&Path) -> Option<Gone>,
}

/// Where files are made and handed over, and how much room they have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Folders<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) spool: &'a Path,
    /// Bytes of all files of this machine in both.
    pub(crate) max: u64,
    /// The part of the file system that is left free: up to 1.
    pub(crate) keep_free: f64,
}

/// Both folders.
#[derive(Debug)]
pub(crate) struct Spool {
    kind: &'static Kind,
    dir: PathBuf,
    spool: PathBuf,
    /// Held as long as the agent lives.
    _lock: File,
    pub(crate) host: String,
    /// `START-HOST-`, and with the boot.
    of_host: String,
    prefix: String,
    next: u64,
    max: u64,
    keep_free: f64,
    /// Files that were handed over and are still there, the oldest first.
    kept: VecDeque<Kept>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kept {
    /// `date=…/hour=…`
    hour: PathBuf,
    modified: SystemTime,
    path: PathBuf,
    bytes: u64,
}

/// A file that was removed to make room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gone {
    /// What stands in it: rows, or one profile.
    pub(crate) count: u64,
    /// The time in which these ended.
    pub(crate) span_ns: u64,
}

impl Spool {
    /// Opens both folders, makes them where they are not there, and removes half-made files; how many these were. Files are
    /// named by the machine.
    ///
    /// # Errors
    ///
    /// Usage errors: they are on two file systems, cannot be written, or another agent has them.
    pub(crate) fn open(
        kind: &'static Kind,
        folders: Folders<'_>,
        machine: &Machine,
    ) -> Result<(Self, u64)> {
        let Folders { dir, spool, .. } = folders;
        let section = kind.section;
        for folder in [dir, spool] {
            make(folder).map_err(|error| {
                Error::usage(format!("{section}: {} cannot be made", folder.display()))
                    .because(error)
                    .next(format!(
                        "give a folder that the agent may write: dir = \"/var/lib/reqtrace/{}\"",
                        kind.start
                    ))
            })?;
        }
        let cannot = |error: io::Error| {
            Error::usage(format!(
                "{section}: the spool {} cannot be written",
                spool.display()
            ))
            .because(error)
            .next("give a folder that the agent may write: spool = \"/var/lib/reqtrace/spool\"")
        };
        let lock = file(&spool.join(LOCK), false).map_err(cannot)?;
        lock_it(&lock).map_err(|error| {
            Error::usage(format!(
                "{section}: another agent has the spool {}",
                spool.display()
            ))
            .because(error)
            .next("give each agent a spool and a dir of its own, or end the other one")
        })?;
        rename_works(section, dir, spool)?;
        let Machine { host, boot } = machine.clone();
        let of_host = format!("{}-{}-", kind.start, plain(&host));
        let mut own = Self {
            kind,
            dir: dir.to_owned(),
            spool: spool.to_owned(),
            _lock: lock,
            host,
            prefix: format!("{of_host}{boot}-"),
            of_host,
            next: 0,
            max: folders.max,
            keep_free: folders.keep_free,
            kept: VecDeque::new(),
        };
        own.look();
        own.next = own.first_number();
        let half_made = own.remove_half_made().map_err(cannot)?;
        Ok((own, half_made))
    }

    /// Above all that were given: those of files that a reader has taken away are in the spool's own.
    fn first_number(&self) -> u64 {
        let written = fs::read_to_string(self.spool.join(NEXT)).ok();
        let written = written.and_then(|text| text.trim().parse::<u64>().ok());
        let there = self.kept.iter().filter_map(|kept| {
            let name = kept
                .path
                .file_name()?
                .to_str()?
                .strip_prefix(&self.prefix)?;
            let number = name.split(['-', '.']).next();
            number?.parse::<u64>().ok()
        });
        let beyond = there.max().map_or(1, |number| number + 1);
        written.unwrap_or(1).max(beyond)
    }

    fn remove_half_made(&self) -> io::Result<u64> {
        let mut removed = 0;
        for entry in fs::read_dir(&self.spool)? {
            let path = entry?.path();
            let is_half_made = path.extension().is_some_and(|end| end == &PART[1..]);
            if is_half_made && !path.with_extension(&JOURNAL[1..]).exists() {
                fs::remove_file(path)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// A file to be made, and its name, which no other gets. It ends with `what`, before what the names of all end with.
    pub(crate) fn begin(&mut self, what: &str) -> io::Result<(String, File)> {
        let number = self.next;
        let next = self.spool.join(NEXT);
        let new = self.spool.join("next.new");
        let mut to = file(&new, true)?;
        write!(to, "{}", number + 1)?;
        to.sync_all()?;
        fs::rename(&new, &next)?;
        sync(&self.spool)?;
        self.next += 1;
        let (prefix, end) = (&self.prefix, self.kind.end);
        let name = format!("{prefix}{number:08}{what}{end}");
        let made = file(&self.part(&name), true)?;
        Ok((name, made))
    }

    /// Where the journal of a file is.
    pub(crate) fn journal(&self, name: &str) -> PathBuf {
        self.spool.join(format!("{name}{JOURNAL}"))
    }

    /// Names of files that have a journal, in their order.
    pub(crate) fn journals(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.spool)? {
            let name = entry?.file_name();
            let name = name.to_str().and_then(|name| name.strip_suffix(JOURNAL));
            names.extend(name.map(str::to_owned));
        }
        names.sort();
        Ok(names)
    }

    /// A file of this name to be made again.
    pub(crate) fn begin_again(&self, name: &str) -> io::Result<File> {
        file(&self.part(name), true)
    }

    /// A file that was not handed over, if it is there.
    pub(crate) fn made(&self, name: &str) -> io::Result<Option<File>> {
        match File::open(self.part(name)) {
            Ok(made) => Ok(Some(made)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn part(&self, name: &str) -> PathBuf {
        self.spool.join(format!("{name}{PART}"))
    }

    /// Nothing becomes of it.
    pub(crate) fn abandon(&self, name: &str) {
        // If it cannot be removed now, the next start does.
        let _ = fs::remove_file(self.part(name));
    }

    /// Hands a whole file over: it is in its partition, or not at all. Gives its bytes.
    pub(crate) fn hand_over(
        &mut self,
        name: &str,
        made: &File,
        service: &str,
        hour: u64,
    ) -> io::Result<u64> {
        made.sync_all()?;
        let bytes = made.metadata()?.len();
        sync(&self.spool)?;
        let hour = partition(hour);
        let folder = self
            .dir
            .join(&hour)
            .join(format!("service={}", escaped(service)));
        let path = folder.join(name);
        let rename = || {
            make_shared(&folder)?;
            fs::rename(self.part(name), &path)
        };
        // Who cleans up may take an empty folder away in between.
        rename().or_else(|error| match error.kind() {
            ErrorKind::NotFound => rename(),
            _ => Err(error),
        })?;
        sync(&folder)?;
        self.kept.push_back(Kept {
            hour,
            modified: SystemTime::now(),
            path,
            bytes,
        });
        Ok(bytes)
    }

    /// Bytes of files that were handed over and are still there.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.kept.iter().map(|kept| kept.bytes).sum()
    }

    /// Looks which files are there: readers take some away, and cannot take the folders.
    pub(crate) fn look(&mut self) {
        let mut kept = Vec::new();
        for date in folders(&self.dir, "date=") {
            for hour in folders(&date, "hour=") {
                for service in folders(&hour, "service=") {
                    kept.extend(self.files(&service, &hour));
                    // One with files stays, and so do those above.
                    let _ = fs::remove_dir(&service);
                }
                let _ = fs::remove_dir(&hour);
            }
            let _ = fs::remove_dir(&date);
        }
        kept.sort();
        self.kept = kept.into();
    }

    fn files(&self, folder: &Path, hour: &Path) -> Vec<Kept> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let own = entries.filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with(&self.of_host) && name.ends_with(self.kind.end)
        });
        let kept = own.filter_map(|entry| {
            let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some(Kept {
                hour: hour.strip_prefix(&self.dir).ok()?.to_owned(),
                modified: metadata.modified().ok()?,
                path: entry.path(),
                bytes: metadata.len(),
            })
        });
        kept.collect()
    }

    /// Whether there is room beside `open` bytes of files that are being made. The oldest files go for it.
    pub(crate) fn make_room(&mut self, open: u64) -> (bool, Vec<Gone>) {
        let mut gone = Vec::new();
        if self.has_room(open) {
            return (true, gone);
        }
        self.look();
        while !self.has_room(open) {
            let Some(oldest) = self.kept.pop_front() else {
                return (false, gone);
            };
            gone.extend(remove(self.kind, &oldest.path));
        }
        (true, gone)
    }

    fn has_room(&self, open: u64) -> bool {
        self.kept_bytes() + open <= self.max && self.is_free()
    }

    fn is_free(&self) -> bool {
        // What cannot be asked is found out by writing.
        statvfs(&self.dir)
            .is_ok_and(|all| all.f_bavail as f64 >= self.keep_free * all.f_blocks as f64)
    }
}

/// Removes a file and folders that are empty then; what was in it.
fn remove(kind: &Kind, path: &Path) -> Option<Gone> {
    let contents = (kind.contents)(path);
    fs::remove_file(path).ok()?;
    for folder in path.ancestors().skip(1).take(3) {
        // Those with other files stay.
        let _ = fs::remove_dir(folder);
    }
    Some(contents.unwrap_or_default())
}

/// An agent that was killed a moment ago has it until the kernel has taken it apart.
pub(crate) fn lock_it(lock: &File) -> rustix::io::Result<()> {
    let since = Instant::now();
    loop {
        match flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) if since.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(100));
            }
            result => return result,
        }
    }
}

/// A rename from one folder to the other has to be one step.
fn rename_works(section: &str, dir: &Path, spool: &Path) -> Result<()> {
    let (from, to) = (spool.join(TRIAL), dir.join(TRIAL));
    let result = file(&from, true).and_then(|_| fs::rename(&from, &to));
    let _ = fs::remove_file(&from);
    let _ = fs::remove_file(&to);
    let refused = match result {
        Ok(()) => return Ok(()),
        // It gets room, or rows are dropped and counted.
        Err(error) if is_full(&error) => return Ok(()),
        Err(error) => error,
    };
    let what = match refused.kind() {
        ErrorKind::CrossesDevices => format!(
            "{section}: spool {} and dir {} are on two file systems: a file could not be handed over in one step",
            spool.display(),
            dir.display()
        ),
        _ => format!(
            "{section}: no file can be moved from the spool {} to {}",
            spool.display(),
            dir.display()
        ),
    };
    Err(Error::usage(what).because(refused).next(
        "leave spool out, or give a folder on the file system of dir that the agent may write",
    ))
}

/// Whether there is no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind {
        section: "[rows]",
        start: "rows",
        end: ".parquet",
        contents: |_| None,
    };

    #[test]
    fn folders_whose_files_were_taken_go() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("rows");
        let folders = Folders {
            spool: &dir.join(".spool"),
            dir: &dir,
            max: 2 << 20,
            keep_free: 0.00001,
        };
        let machine = Machine::own().unwrap();
        let (mut spool, _) = Spool::open(&KIND, folders, &machine).unwrap();
        for (hour, service) in [(1, "a"), (1, "b"), (2, "a"), (24, "a")] {
            let (name, made) = spool.begin("").unwrap();
            spool.hand_over(&name, &made, service, hour).unwrap();
        }
        let taken = |at: usize| fs::remove_file(&spool.kept[at].path).unwrap();
        [1, 2, 3].into_iter().for_each(taken);
        spool.look();
        assert_eq!(spool.kept.len(), 1);
        let there = |place: &str| dir.join(place).exists();
        assert!(there("date=1970-01-01/hour=01/service=a"));
        let gone = [
            "date=1970-01-01/hour=01/service=b",
            "date=1970-01-01/hour=02",
            "date=1970-01-02",
        ];
        assert_eq!(gone.map(there), [false; 3]);
    }
}
