//! The registry: process ids in, out what the kernel programs need to unwind these processes.
//!
//! Tables are shared: a file that many processes map is compiled once, and so are copies of it
//! (containers). Every table gets a place in the two arrays that the kernel programs read. Where there is no room
//! left, the places of tables that nobody has mapped are used again ([`Registry::release`]).

mod compile;
mod mappings;
mod room;
mod upload;

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqtrace_common::unwind::{Mapping, Mappings, Row, WALK_BY_FRAME_POINTERS};

pub use compile::Progress;
pub use upload::Upload;

use super::object::{Object, ObjectError, Segment};
use super::process::{Backing, NoTable, Wanted, is_user_code};
use super::table::{Table, TableError};
use super::{MAX_INDEX, MAX_ROWS};
use crate::error::{Error, Result};
use crate::files::Files;
use crate::lazy::LazyFile;
use crate::maps::{self, FileKey, Mapped};
use compile::{Job, compile_all};
use mappings::{fit, mapping};
use room::Room;

/// What the tables of a trace came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegistryStats {
    /// Tables.
    pub objects: u64,
    /// Mappings, of all processes, that were served by a table that was there already.
    pub shared: u64,
    /// Functions with unwind information.
    pub functions: u64,
    /// Rows.
    pub rows: u64,
    /// Bytes of `.eh_frame` that were compiled.
    pub frame_bytes: u64,
    /// Bytes of rows and chunk indices in the kernel, without the arrays' unused part.
    pub table_bytes: u64,
    /// Rows that are not understood.
    pub unsupported_rows: u64,
    /// Bytes of code that these stand for.
    pub unsupported_bytes: u64,
    /// Bytes of code that have rows.
    pub covered_bytes: u64,
    /// Time of all threads for compiling.
    pub compile_time: Duration,
    /// Time that the caller waited, in all calls.
    pub waited: Duration,
}

/// An executable mapping without a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Without {
    /// What is mapped; empty for anonymous memory.
    pub name: PathBuf,
    /// Why it has none.
    pub cause: NoTable,
    /// Size of the mapping.
    pub bytes: u64,
}

/// What the kernel programs need to unwind one process.
#[derive(Clone, Debug)]
pub struct ProcessTables {
    /// Tables that no earlier call returned; to be uploaded before the mappings.
    pub uploads: Vec<Upload>,
    /// Its executable mappings, sorted.
    pub mappings: Box<Mappings>,
    /// Mappings at which a walk stops. Code generated at run time is in here as well.
    pub without: Vec<Without>,
}

/// Where a table stands in the arrays.
#[derive(Clone, Copy, Debug)]
struct Place {
    base: u64,
    index_start: u32,
    chunks: u32,
    rows_start: u32,
    rows: usize,
    frame_bytes: u64,
}

impl Place {
    /// Entries of the index.
    fn index(&self) -> usize {
        self.chunks as usize + 1
    }
}

/// Bytes of `.eh_frame` that are read between two releases. The largest browsers have 50 MiB; a process can load
/// new files for ever.
const MAX_FRAME_BYTES: u64 = 512 << 20;
/// Files that are known; beyond it those that nobody has mapped are forgotten.
const MAX_FILES: usize = 1 << 14;

/// What is known about an object.
#[derive(Clone, Debug)]
enum Known {
    Placed(Place, Arc<[Segment]>),
    Without(NoTable),
}

/// An object, and when a process was last known to have it mapped: after so many releases.
#[derive(Clone, Debug)]
struct Kept {
    known: Known,
    used: u64,
}

/// Objects are the same if this is: a keyed hash of build id, segments and `.eh_frame`. The build
/// id alone would do if nobody could write a file with the build id of another one.
type ContentKey = u64;

/// The tables of a trace.
pub struct Registry {
    files: HashMap<FileKey, Known>,
    open: Files,
    objects: HashMap<ContentKey, Kept>,
    hasher: RandomState,
    rows: Room,
    index: Room,
    /// Rows and index entries of the largest table that found no room.
    wanted: Option<[usize; 2]>,
    /// Objects whose tables found no room, up to [`MAX_FILES`].
    left_out: HashSet<ContentKey>,
    /// Releases so far.
    releases: u64,
    stats: RegistryStats,
    /// Bytes of `.eh_frame` that were read since the last release, and of the tables that it left.
    frame_bytes: u64,
    /// What a walk does at a mapping without a table.
    without_table: u32,
    progress: Option<Box<dyn Fn(Progress) + Send + Sync>>,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            files: HashMap::new(),
            open: Files::default(),
            objects: HashMap::new(),
            hasher: RandomState::new(),
            rows: Room::new(MAX_ROWS),
            index: Room::new(MAX_INDEX),
            wanted: None,
            left_out: HashSet::new(),
            releases: 0,
            stats: RegistryStats::default(),
            frame_bytes: 0,
            without_table: 0,
            progress: None,
        }
    }
}

impl Registry {
    /// A registry without tables.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens files with others who want them.
    #[must_use]
    pub fn with_files(mut self, files: Files) -> Self {
        self.open = files;
        self
    }

    /// Calls `progress` whenever an object is compiled, from the thread that did it.
    #[must_use]
    pub fn with_progress(mut self, progress: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Walks go by frame pointers through mappings without a table, and through code without rows in
    /// those that have one, instead of stopping there.
    #[must_use]
    pub fn with_frame_pointers(mut self) -> Self {
        self.without_table = WALK_BY_FRAME_POINTERS;
        self
    }

    /// Whether walks go through mappings without a table by frame pointers.
    #[must_use]
    pub fn frame_pointers(&self) -> bool {
        self.without_table == WALK_BY_FRAME_POINTERS
    }

    /// What the tables came to so far.
    #[must_use]
    pub fn stats(&self) -> RegistryStats {
        self.stats
    }

    /// The arrays have room for so many rows and index entries: from now on no table gets a place beyond.
    pub fn limit(&mut self, rows: u32, index: u32) {
        self.rows.limit(rows);
        self.index.limit(index);
    }

    /// Tables take so many bytes in the arrays at most.
    #[must_use]
    pub fn within(mut self, bytes: u64) -> Self {
        // Of programs of all sizes rows take some nine in ten bytes.
        let entries = |bytes: u64, size: usize| {
            let entries = bytes / size as u64;
            u32::try_from(entries).unwrap_or(u32::MAX)
        };
        let rows = entries(bytes / 8 * 7, size_of::<Row>());
        let index = entries(bytes / 8, size_of::<u32>());
        self.limit(rows.min(MAX_ROWS), index.min(MAX_INDEX));
        self
    }

    /// The most rows and index entries that get a place.
    #[must_use]
    pub fn most(&self) -> [u32; 2] {
        [self.rows.most(), self.index.most()]
    }

    /// Objects whose tables found no room, so that walks went by frame pointers through their code or stopped there.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out.len() as u64
    }

    /// Whether it is time for [`Registry::release`]: a table found no room, or too much is known.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.wanted.is_some() || self.knows_too_much()
    }

    fn knows_too_much(&self) -> bool {
        self.frame_bytes >= MAX_FRAME_BYTES || self.files.len() >= MAX_FILES
    }

    /// Gives back places of tables but those whose index begins at one of these: those that were mapped last stay longest,
    /// and all do for which there is room. What is known of files without a table is forgotten. No walk may go by the
    /// others any more: no process has them in its mappings, and a grace period of the kernel is over since one had.
    pub fn release(&mut self, in_use: &HashSet<u32>) {
        let knows_too_much = self.knows_too_much();
        let wanted = self.wanted.take();
        self.releases += 1;
        let mut unused = Vec::new();
        self.objects.retain(|content, kept| match kept.known {
            Known::Placed(place, _) => {
                match in_use.contains(&place.index_start) {
                    true => kept.used = self.releases,
                    false => unused.push((kept.used, *content)),
                }
                true
            }
            Known::Without(_) => false,
        });
        unused.sort_unstable();
        for (_, content) in unused {
            let is_enough = wanted.is_none_or(|[rows, index]| {
                let fits = self.rows.fits(rows) && self.index.fits(index);
                fits || !self.rows.is_for(rows) || !self.index.is_for(index)
            });
            if is_enough && !knows_too_much {
                break;
            }
            if let Some(kept) = self.objects.remove(&content)
                && let Known::Placed(place, _) = kept.known
            {
                self.rows.give_back(place.rows_start, place.rows);
                self.index.give_back(place.index_start, place.index());
            }
        }
        let mut stays = HashSet::new();
        self.frame_bytes = 0;
        for kept in self.objects.values() {
            if let Known::Placed(place, _) = kept.known {
                self.frame_bytes += place.frame_bytes;
                stays.insert(place.index_start);
            }
        }
        self.files.retain(|_, known| matches!(known, Known::Placed(place, _) if stays.contains(&place.index_start)));
    }

    /// The executable mappings of a process as they are now, and the tables that are new. To be
    /// called again when the process may have mapped more.
    ///
    /// # Errors
    ///
    /// When the process is gone, or not ours to look at. An object without a table is no error.
    pub fn mappings(&mut self, pid: u32) -> Result<ProcessTables> {
        let lines = maps::executable(pid).map_err(|error| {
            Error::failed(format!("the mappings of process {pid} cannot be read")).because(error)
        })?;
        Ok(self.tables(pid, &lines))
    }

    /// The same of executable mappings that somebody has read.
    pub fn tables(&mut self, pid: u32, mapped: &[Mapped]) -> ProcessTables {
        let begun = Instant::now();
        let lines: Vec<&Mapped> = mapped.iter().filter(|line| is_user_code(line)).collect();
        let (found, jobs) = self.identify(lines.iter().map(|line| Wanted::Mapping(line, pid)));
        let uploads = self.compile(jobs);
        let mut entries = Vec::with_capacity(lines.len());
        let mut without = Vec::new();
        for (line, found) in lines.into_iter().zip(found) {
            let known = match found {
                Found::Known(known) => known,
                Found::Object(content, key) => {
                    let known = self
                        .objects
                        .get(&content)
                        .map_or(Known::Without(NoTable::Malformed), |kept| {
                            kept.known.clone()
                        });
                    if let Some(key) = key {
                        self.files.insert(key, known.clone());
                    }
                    known
                }
            };
            let mapping = match mapping(line, &known) {
                Ok(mapping) => mapping,
                Err(cause) => {
                    without.push(Without {
                        name: line.name.clone().into(),
                        cause,
                        bytes: line.end - line.start,
                    });
                    Mapping {
                        start: line.start,
                        end: line.end,
                        index_start: self.without_table,
                        ..Mapping::default()
                    }
                }
            };
            entries.push(mapping);
        }
        let mappings = fit(entries, &mut without);
        self.stats.waited += begun.elapsed();
        ProcessTables {
            uploads,
            mappings,
            without,
        }
    }

    /// Compiles files that a process will map, so that their tables are there when it does. Returns
    /// the tables that are new; what cannot be read is left for later.
    pub fn compile_ahead(&mut self, files: &[LazyFile]) -> Vec<Upload> {
        let begun = Instant::now();
        let (found, jobs) = self.identify(files.iter().map(Wanted::File));
        let uploads = self.compile(jobs);
        for found in found {
            if let Found::Object(content, Some(key)) = found
                && let Some(kept) = self.objects.get(&content)
            {
                self.files.insert(key, kept.known.clone());
            }
        }
        self.stats.waited += begun.elapsed();
        uploads
    }

    /// Says of each what is behind it, and which objects have to be compiled. A file that is known is not
    /// opened again.
    fn identify<'a>(&mut self, wanted: impl Iterator<Item = Wanted<'a>>) -> (Vec<Found>, Vec<Job>) {
        let mut jobs: Vec<Job> = Vec::new();
        // Two mappings of one file are common; its contents are read once.
        let mut read: HashMap<FileKey, ContentKey> = HashMap::new();
        let found = wanted
            .map(|wanted| {
                let name = wanted.name();
                if let Some(found) = wanted.key().and_then(|key| self.known(&key, &read)) {
                    return found;
                }
                let backing = match wanted.open(&self.open) {
                    Ok(backing) => backing,
                    Err((cause, error)) => {
                        if let Some(error) = error {
                            log::debug!("{}: {}: {error}", name.display(), cause.reason());
                        }
                        return Found::Known(Known::Without(cause));
                    }
                };
                let spent = self.frame_bytes >= MAX_FRAME_BYTES;
                let (object, key) = match &backing {
                    Backing::File(file, key) => {
                        if let Some(found) = self.known(key, &read) {
                            return found;
                        }
                        if spent {
                            log::debug!("{}: too much .eh_frame", name.display());
                            return Found::Known(Known::Without(NoTable::NoRoom));
                        }
                        (Object::read(&**file), Some(*key))
                    }
                    Backing::Image(image) => (Object::read(image.as_slice()), None),
                };
                let object = match object {
                    Ok(object) => object,
                    Err(error) => {
                        log::debug!("{}: {error}", name.display());
                        let known = Known::Without(cause_of(&error));
                        // A file that could not be read this time may be readable the next time.
                        if let (Some(key), false) = (key, matches!(error, ObjectError::Io(_))) {
                            self.files.insert(key, known.clone());
                        }
                        return Found::Known(known);
                    }
                };
                self.frame_bytes += object.frames.bytes.len() as u64;
                let content = self.hasher.hash_one(&object);
                if let Some(key) = key {
                    read.insert(key, content);
                }
                if self.objects.contains_key(&content) {
                    self.stats.shared += 1;
                } else if jobs.iter().all(|job| job.content != content) {
                    jobs.push(Job {
                        content,
                        name: name.to_owned(),
                        object,
                    });
                }
                Found::Object(content, key)
            })
            .collect();
        (found, jobs)
    }

    /// What is known of a file; `read` are those that have been read just now.
    fn known(&mut self, key: &FileKey, read: &HashMap<FileKey, ContentKey>) -> Option<Found> {
        if let Some(known) = self.files.get(key) {
            self.stats.shared += u64::from(matches!(known, Known::Placed(..)));
            return Some(Found::Known(known.clone()));
        }
        let content = *read.get(key)?;
        Some(Found::Object(content, None))
    }

    /// Compiles on several threads, then gives places in the order of the mappings.
    fn compile(&mut self, jobs: Vec<Job>) -> Vec<Upload> {
        let tables = compile_all(&jobs, self.progress.as_deref());
        let mut uploads = Vec::new();
        for (job, table) in jobs.into_iter().zip(tables) {
            let known = match table {
                Ok(table) => match self.place(&table) {
                    Some(upload) => {
                        let place = Place {
                            base: upload.table.base,
                            index_start: upload.index_start,
                            chunks: upload.table.chunks(),
                            rows_start: upload.rows_start,
                            rows: upload.table.rows.len(),
                            frame_bytes: job.object.frames.bytes.len() as u64,
                        };
                        uploads.push(upload);
                        Known::Placed(place, job.object.segments.into())
                    }
                    None => {
                        log::info!(
                            "{}: no memory for its {} unwind rows ({} of {} are taken) and {} index entries ({} of {})",
                            job.name.display(),
                            table.rows.len(),
                            self.rows.taken(),
                            self.rows.most(),
                            table.index.len(),
                            self.index.taken(),
                            self.index.most(),
                        );
                        let wanted = [table.rows.len(), table.index.len()];
                        self.wanted = self.wanted.max(Some(wanted));
                        if self.left_out.len() < MAX_FILES {
                            self.left_out.insert(job.content);
                        }
                        Known::Without(NoTable::NoRoom)
                    }
                },
                Err(TableError::TooManyRows) => {
                    log::info!("{}: {}", job.name.display(), TableError::TooManyRows);
                    if self.left_out.len() < MAX_FILES {
                        self.left_out.insert(job.content);
                    }
                    Known::Without(NoTable::NoRoom)
                }
                Err(error) => {
                    log::debug!("{}: {error}", job.name.display());
                    Known::Without(match error {
                        TableError::TooLarge(_) => NoTable::NoRoom,
                        _ => NoTable::NoFrames,
                    })
                }
            };
            let used = self.releases;
            self.objects.insert(job.content, Kept { known, used });
        }
        uploads
    }

    fn place(&mut self, table: &Arc<Table>) -> Option<Upload> {
        let rows_start = self.rows.take(table.rows.len())?;
        let Some(index_start) = self.index.take(table.index.len()) else {
            self.rows.give_back(rows_start, table.rows.len());
            return None;
        };
        let upload = Upload {
            rows_start,
            index_start,
            table: Arc::clone(table),
        };
        let (stats, unsupported) = (&table.stats, table.stats.all_unsupported());
        self.stats.objects += 1;
        self.stats.functions += stats.functions;
        self.stats.rows += table.rows.len() as u64;
        self.stats.frame_bytes += stats.frame_bytes;
        self.stats.table_bytes += table.bytes() as u64;
        self.stats.unsupported_rows += unsupported.rows;
        self.stats.unsupported_bytes += unsupported.bytes;
        self.stats.covered_bytes += stats.covered_bytes;
        self.stats.compile_time += stats.elapsed;
        Some(upload)
    }
}

/// What [`Registry::identify`] says about a mapping.
enum Found {
    Known(Known),
    /// An object by its contents, and the file to remember it by.
    Object(ContentKey, Option<FileKey>),
}

fn cause_of(error: &ObjectError) -> NoTable {
    match error {
        ObjectError::Io(_) => NoTable::Unreadable,
        ObjectError::NotElf | ObjectError::Machine { .. } => NoTable::NotElf,
        ObjectError::NoFrames => NoTable::NoFrames,
        ObjectError::TooLarge { .. } | ObjectError::Malformed(_) => NoTable::Malformed,
    }
}

#[cfg(test)]
mod tests;
