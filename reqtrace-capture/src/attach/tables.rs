//! Unwind tables in the kernel: tables and what processes have mapped in, filled maps out.

use std::collections::{BTreeSet, HashMap as StdHashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aya::maps::{Array, HashMap, Map, MapData};
use log::{debug, info, warn};
use reqtrace_common::limits::MAX_ADDRESS_SPACES;
use reqtrace_common::unwind::{BLOCK, Mapping, Mappings, Row};

use super::grace::GracePeriod;
use super::maps::map_error;
use reqtrace_base::error::{Error, Result};
use reqtrace_base::frame::AddressSpace;
use reqtrace_binary::lazy::LazyFile;
use reqtrace_binary::maps::Mapped;
use reqtrace_binary::unwind::{NoTable, ProcessTables, Registry, Upload};

/// Room for what a process maps while it is traced: rows beyond those of its start.
const SPARE_ROWS: u32 = 256 << 10;
/// The same for index entries.
const SPARE_INDEX: u32 = 64 << 10;
/// Mappings without a table that are known as warned of; beyond it all are warned of again.
const MAX_WARNED: usize = 1 << 12;
/// How often at most room is looked for: all that is mapped is looked at then, and what is not known to be
/// mapped is compiled again when it is.
const RELEASE_PAUSE: Duration = Duration::from_secs(10);

/// Tables of the processes that are traced from the start, compiled before loading, so that the
/// kernel's arrays have the size they need.
pub struct Compiled {
    registry: Registry,
    processes: Vec<(AddressSpace, ProcessTables)>,
    /// Tables of files that no process has mapped yet.
    ahead: Vec<Upload>,
    warned: HashSet<(PathBuf, NoTable)>,
}

impl Compiled {
    /// Compiles the tables of files that a process will map once it begins.
    #[must_use]
    pub fn ahead_of(mut registry: Registry, files: &[LazyFile]) -> Self {
        let ahead = registry.compile_ahead(files);
        Self {
            registry,
            processes: Vec::new(),
            ahead,
            warned: HashSet::new(),
        }
    }

    /// Compiles the tables of what processes have mapped; `registry` reports progress.
    #[must_use]
    pub fn of(mut registry: Registry, mapped: &[(AddressSpace, Arc<[Mapped]>)]) -> Self {
        let tables = |(space, mapped): &(AddressSpace, Arc<[Mapped]>)| {
            (*space, registry.tables(space.tgid, mapped))
        };
        let processes: Vec<_> = mapped.iter().map(tables).collect();
        let stats = registry.stats();
        info!(
            "unwind tables: {} objects, {} functions, {} rows, {} KiB from {} KiB of .eh_frame \
             in {:.0?}",
            stats.objects,
            stats.functions,
            stats.rows,
            stats.table_bytes / 1024,
            stats.frame_bytes / 1024,
            stats.waited
        );
        if stats.unsupported_rows > 0 {
            debug!("{} unwind rows are not understood", stats.unsupported_rows);
        }
        let mut warned = HashSet::new();
        for (_, tables) in &processes {
            warn_without(&registry, tables, &mut warned);
        }
        Self {
            registry,
            processes,
            ahead: Vec::new(),
            warned,
        }
    }

    /// Whether walks go by frame pointers through code that the tables have no rows for.
    pub(super) fn frame_pointers(&self) -> bool {
        self.registry.frame_pointers()
    }

    /// Blocks of rows to make room for.
    pub(super) fn row_blocks(&self) -> u32 {
        blocks(
            self.end(|upload| upload.rows_start, |upload| upload.table.rows.len()),
            SPARE_ROWS,
        )
        .min(self.registry.most()[0].div_ceil(BLOCK as u32))
        .max(1)
    }

    /// Blocks of index entries to make room for.
    pub(super) fn index_blocks(&self) -> u32 {
        blocks(
            self.end(
                |upload| upload.index_start,
                |upload| upload.table.index.len(),
            ),
            SPARE_INDEX,
        )
        .min(self.registry.most()[1].div_ceil(BLOCK as u32))
        .max(1)
    }

    fn end(&self, start: fn(&Upload) -> u32, len: fn(&Upload) -> usize) -> u32 {
        let uploads = self
            .processes
            .iter()
            .flat_map(|(_, tables)| &tables.uploads);
        uploads
            .chain(&self.ahead)
            .map(|upload| start(upload) + len(upload) as u32)
            .max()
            .unwrap_or(0)
    }
}

fn blocks(used: u32, spare: u32) -> u32 {
    (used + spare).div_ceil(BLOCK as u32)
}

/// The kernel's unwind maps.
pub(super) struct UnwindTables {
    registry: Registry,
    /// When it last gave room back.
    released: Option<Instant>,
    rows: Array<MapData, [Row; BLOCK]>,
    index: Array<MapData, [u32; BLOCK]>,
    mappings: HashMap<MapData, u64, Mappings>,
    /// What was stored, to see changes and to give to children.
    stored: StdHashMap<AddressSpace, Box<Mappings>>,
    /// Of the mappings that were stored last.
    generation: u32,
    full: bool,
    warned: HashSet<(PathBuf, NoTable)>,
}

impl UnwindTables {
    pub(super) fn new(compiled: Compiled, rows: Map, index: Map, mappings: Map) -> Result<Self> {
        let mut tables = Self {
            registry: compiled.registry,
            released: None,
            rows: Array::try_from(rows).map_err(map_error)?,
            index: Array::try_from(index).map_err(map_error)?,
            mappings: HashMap::try_from(mappings).map_err(map_error)?,
            stored: StdHashMap::new(),
            generation: 0,
            full: false,
            warned: compiled.warned,
        };
        // The arrays were made before they were known to be enough.
        let room = |blocks: u32| blocks.saturating_mul(BLOCK as u32);
        let (rows, index) = (room(tables.rows.len()), room(tables.index.len()));
        tables.registry.limit(rows, index);
        for upload in &compiled.ahead {
            tables.upload(upload)?;
        }
        for (space, process) in compiled.processes {
            tables.store(space, process)?;
        }
        Ok(tables)
    }

    /// A process has mapped this: stores it, with the tables that are new.
    pub(super) fn map(
        &mut self,
        space: AddressSpace,
        mapped: &[Mapped],
        grace: &GracePeriod,
    ) -> Result<()> {
        let mut process = self.registry.tables(space.tgid, mapped);
        if self.registry.is_full() && self.make_room(grace)? {
            process = self.registry.tables(space.tgid, mapped);
        }
        warn_without(&self.registry, &process, &mut self.warned);
        self.store(space, process)
    }

    /// Files whose tables found no room.
    pub(super) fn left_out(&self) -> u64 {
        self.registry.left_out()
    }

    /// Gives the room of tables that no process has mapped to others, unless that was done just now.
    fn make_room(&mut self, grace: &GracePeriod) -> Result<bool> {
        let rests = |released: Instant| released.elapsed() < RELEASE_PAUSE;
        if self.released.is_some_and(rests) {
            return Ok(false);
        }
        let entries = self.stored.values().flat_map(|stored| used(stored));
        let with_table = entries.filter(|mapping| mapping.chunks > 0);
        let in_use = with_table.map(|mapping| mapping.index_start).collect();
        // A walk may have found a mapping that was taken out just now.
        grace.wait()?;
        self.registry.release(&in_use);
        self.warned.clear();
        self.released = Some(Instant::now());
        Ok(true)
    }

    /// A child begins with its parent's mappings.
    pub(super) fn inherit(&mut self, child: AddressSpace, parent: AddressSpace) -> Result<()> {
        let Some(mappings) = self.stored.get(&parent).cloned() else {
            return Ok(());
        };
        self.put(child, mappings)
    }

    /// Frees the mappings of processes that have left.
    pub(super) fn forget(&mut self, pids: &BTreeSet<u32>) {
        self.free(|space| pids.contains(&space.tgid));
    }

    fn free(&mut self, is_over: impl Fn(&AddressSpace) -> bool) {
        for (space, _) in self.stored.extract_if(|space, _| is_over(space)) {
            // It was stored under this key.
            let _ = self.mappings.remove(&key(space));
        }
    }

    fn store(&mut self, space: AddressSpace, process: ProcessTables) -> Result<()> {
        for upload in &process.uploads {
            self.upload(upload)?;
        }
        let known = self.stored.get(&space);
        if known.is_some_and(|known| used(known) == used(&process.mappings)) {
            return Ok(());
        }
        self.put(space, process.mappings)
    }

    fn put(&mut self, space: AddressSpace, mut mappings: Box<Mappings>) -> Result<()> {
        if space.exec_generation > 0 && !self.stored.contains_key(&space) {
            // What it had mapped before its exec is gone with that.
            self.free(|other| other.tgid == space.tgid);
        }
        if self.stored.len() >= MAX_ADDRESS_SPACES as usize && !self.stored.contains_key(&space) {
            if !self.full {
                warn!(
                    "more than {MAX_ADDRESS_SPACES} processes at once: stacks of further ones are walked \
                     by frame pointers"
                );
            }
            self.full = true;
            return Ok(());
        }
        self.generation = self.generation.wrapping_add(1);
        mappings.generation = self.generation;
        self.mappings
            .insert(key(space), *mappings, 0)
            .map_err(map_error)?;
        self.stored.insert(space, mappings);
        Ok(())
    }

    /// Stores a table.
    fn upload(&mut self, upload: &Upload) -> Result<()> {
        let failed = |error| Error::failed("an unwind table could not be stored").because(error);
        for (number, block) in upload.row_blocks() {
            self.rows
                .set(number, block, 0)
                .map_err(|error| failed(map_error(error)))?;
        }
        for (number, block) in upload.index_blocks() {
            self.index
                .set(number, block, 0)
                .map_err(|error| failed(map_error(error)))?;
        }
        Ok(())
    }
}

/// Says once of each mapping that has no table, why, and how it is walked.
fn warn_without(
    registry: &Registry,
    tables: &ProcessTables,
    warned: &mut HashSet<(PathBuf, NoTable)>,
) {
    let how = if registry.frame_pointers() {
        "walked by frame pointers"
    } else {
        "stacks stop there"
    };
    if warned.len() >= MAX_WARNED {
        warned.clear();
    }
    for without in &tables.without {
        if warned.insert((without.name.clone(), without.cause)) {
            let name = match without.name.to_string_lossy() {
                name if name.is_empty() => "anonymous memory".into(),
                name => name,
            };
            info!("no unwind table: {name}: {}; {how}", without.cause.reason());
        }
    }
}

/// Under which the kernel finds the mappings of an address space.
fn key(space: AddressSpace) -> u64 {
    u64::from(space.tgid) << 32 | u64::from(space.exec_generation)
}

fn used(mappings: &Mappings) -> &[Mapping] {
    &mappings.entries[..(mappings.len as usize).min(mappings.entries.len())]
}
