//! The agent's folders of rows and roll-ups: which files are there in; those that wait, in the order in which they are sent, out.
//!
//! A failure of the other end and one of a single file look the same at first. So each file waits for itself after a failure,
//! the others go on, and one that fails again and again while others are accepted is given up.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::http::Retry;

/// A file that failed so often, and was passed by as many others since, is given up. An engine that fails every other time
/// gives up one file in a million by chance.
const PATIENCE: u32 = 20;

/// What the files of a folder are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Rows,
    Rollups,
}

impl What {
    /// Names of their files begin so.
    const fn start(self) -> &'static str {
        match self {
            Self::Rows => "rows-",
            Self::Rollups => "rollups-",
        }
    }
}

/// A file of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) what: What,
    /// It was handed over then.
    pub(super) modified: SystemTime,
    pub(super) bytes: u64,
    pub(super) path: PathBuf,
    /// Below the folder: `date=…/hour=…/service=…/NAME`.
    pub(super) place: String,
    /// No other file of any machine has it.
    pub(super) name: String,
}

/// All files that the agent has handed over, the oldest first.
///
/// # Errors
///
/// When a folder cannot be read; one that has gone in the meantime is none.
pub(super) fn found(dir: &Path, what: What) -> io::Result<Vec<Found>> {
    let mut all = Vec::new();
    let mut places = vec![(dir.to_owned(), String::new())];
    for start in ["date=", "hour=", "service="] {
        let mut below = Vec::new();
        for (folder, place) in &places {
            for entry in entries(folder, folder == dir)? {
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.starts_with(start) && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    below.push((entry.path(), format!("{place}{name}/")));
                }
            }
        }
        places = below;
    }
    for (folder, place) in &places {
        for entry in entries(folder, false)? {
            let name = entry.file_name().to_string_lossy().into_owned();
            // It does not follow a link.
            let metadata = entry.metadata().ok().filter(fs::Metadata::is_file);
            let is_one = name.starts_with(what.start()) && name.ends_with(".parquet");
            let Some(metadata) = metadata.filter(|_| is_one) else {
                continue;
            };
            all.push(Found {
                what,
                modified: metadata.modified()?,
                bytes: metadata.len(),
                path: entry.path(),
                place: format!("{place}{name}"),
                name,
            });
        }
    }
    all.sort_by(|a, b| (a.modified, &a.name).cmp(&(b.modified, &b.name)));
    Ok(all)
}

fn entries(folder: &Path, has_to_be_there: bool) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.collect(),
        Err(error) if error.kind() == ErrorKind::NotFound && !has_to_be_there => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Files that wait.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// By name.
    waiting: BTreeMap<String, Waiting>,
    /// Failures since the last file that was accepted.
    failures: u32,
    /// Nothing is sent before.
    not_before: Option<Instant>,
}

#[derive(Debug)]
struct Waiting {
    file: Found,
    failures: u32,
    /// Others that were accepted since its first failure.
    passed: u32,
    not_before: Option<Instant>,
}

impl Queue {
    /// These are there now.
    pub(super) fn look(&mut self, files: impl Iterator<Item = Found>) {
        let mut before = std::mem::take(&mut self.waiting);
        for file in files {
            let waiting = before.remove(&file.name).unwrap_or_else(|| Waiting {
                file: file.clone(),
                failures: 0,
                passed: 0,
                not_before: None,
            });
            self.waiting
                .insert(file.name.clone(), Waiting { file, ..waiting });
        }
    }

    /// The oldest that may be sent now; after a failure one that has failed least, which tells whose fault it was.
    pub(super) fn next(&self, now: Instant) -> Option<Found> {
        let is_over = |at: Option<Instant>| at.is_none_or(|at| at <= now);
        let due = self.waiting.values().filter(|one| is_over(one.not_before));
        let next = due.min_by_key(|one| {
            let failures = if self.failures > 0 { one.failures } else { 0 };
            (failures, one.file.modified, &one.file.name)
        });
        next.filter(|_| is_over(self.not_before))
            .map(|one| one.file.clone())
    }

    /// Until one may be sent; `None`: there is none.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let first = self.waiting.values().map(|one| one.not_before).min()?;
        let at = first.max(self.not_before);
        Some(at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now)))
    }

    /// Nothing more is to be done with this one; `is_accepted`: the other end works.
    pub(super) fn done(&mut self, name: &str, is_accepted: bool) {
        self.waiting.remove(name);
        if is_accepted {
            (self.failures, self.not_before) = (0, None);
            let failed = self.waiting.values_mut().filter(|one| one.failures > 0);
            failed.for_each(|one| one.passed += 1);
        }
    }

    /// It failed; whether it is given up. `draw` is of 0 to 1.
    pub(super) fn failed(&mut self, name: &str, retry: Retry, now: Instant, draw: f64) -> bool {
        self.failures += 1;
        self.not_before = Some(now + retry.after(self.failures, draw));
        let Some(one) = self.waiting.get_mut(name) else {
            return false;
        };
        one.failures += 1;
        one.not_before = Some(now + retry.after(one.failures, draw));
        one.failures >= PATIENCE && one.passed >= PATIENCE
    }

    /// Files, their bytes, and when the oldest was handed over.
    pub(super) fn figures(&self) -> (u64, u64, Option<SystemTime>) {
        let all = || self.waiting.values().map(|one| &one.file);
        let bytes = all().map(|file| file.bytes).sum();
        (
            self.waiting.len() as u64,
            bytes,
            all().map(|file| file.modified).min(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: Retry = Retry {
        first: Duration::from_secs(1),
        longest: Duration::from_secs(120),
    };

    fn file(number: u64) -> Found {
        Found {
            what: What::Rows,
            modified: SystemTime::UNIX_EPOCH + Duration::from_secs(number),
            bytes: 10,
            path: PathBuf::new(),
            place: String::new(),
            name: format!("rows-{number}"),
        }
    }

    #[test]
    fn the_oldest_goes_first_and_one_that_failed_lets_the_others_go() {
        let mut queue = Queue::default();
        queue.look([file(3), file(1), file(2)].into_iter());
        let now = Instant::now();
        let next = |queue: &Queue, at| queue.next(at).map(|file| file.name);
        assert_eq!(next(&queue, now).as_deref(), Some("rows-1"));
        assert!(!queue.failed("rows-1", RETRY, now, 1.0));
        // Nothing before the end of the wait: it may be the other end that fails.
        assert_eq!(next(&queue, now), None);
        assert_eq!(queue.wait(now), Some(Duration::from_secs(1)));
        let later = now + Duration::from_secs(1);
        assert!(!queue.failed("rows-1", RETRY, later, 1.0));
        let later = later + Duration::from_millis(1999);
        assert_eq!(next(&queue, later), None);
        let later = later + Duration::from_millis(1);
        assert_eq!(next(&queue, later).as_deref(), Some("rows-2"));
        queue.done("rows-2", true);
        assert_eq!(next(&queue, later).as_deref(), Some("rows-1"));
        // What has gone is forgotten.
        queue.look([file(3)].into_iter());
        assert_eq!(next(&queue, later).as_deref(), Some("rows-3"));
        assert_eq!(queue.figures(), (1, 10, Some(file(3).modified)));
        queue.done("rows-3", true);
        assert_eq!(queue.wait(later), None);
    }

    #[test]
    fn a_file_is_given_up_only_when_others_are_accepted_meanwhile() {
        let mut queue = Queue::default();
        queue.look((0..=100).map(file));
        let now = Instant::now();
        let fail = |queue: &mut Queue| queue.failed("rows-0", RETRY, now, 0.0);
        // The other end is away: each fails.
        for _ in 0..50 {
            assert!(!fail(&mut queue));
        }
        for number in 1..u64::from(PATIENCE) {
            queue.done(&file(number).name, true);
            assert!(!fail(&mut queue));
        }
        queue.done(&file(PATIENCE.into()).name, true);
        assert!(fail(&mut queue));
    }
}
