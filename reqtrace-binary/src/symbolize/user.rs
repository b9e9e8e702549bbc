//! User addresses: a snapshot of each process's mappings in, frames out.
//!
//! Mappings are read when a process is first seen and whenever it maps something new, and the
//! mapped files are kept open: a process that has left by the time of the report still gets its
//! names. Code generated at run time is named by the process's perf map.

mod place;
mod room;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::copy::Room;
use super::elf::Module;
use super::names::clean;
use super::perf_map::{Budget, NoMap, PerfMap};
use super::{AddressSpace, Frame, UNKNOWN};
use crate::debuginfo::Root;
use crate::files::Files;
use crate::maps::{self, Behind, Mapped};
pub use place::{InFile, ObjectKey, Place};

/// How often at most an address outside all known mappings makes them be read again.
const REFRESH_PAUSE: Duration = Duration::from_millis(200);

/// Addresses kept named; beyond it the cache is emptied (about 100 bytes each).
const MAX_CACHED: usize = 1 << 17;

/// Name of executable memory that nothing is known about, as far as is known now.
pub const ANONYMOUS: &str = "[anonymous]";

/// Mappings of a process that are kept after they are gone.
const MAX_GONE: usize = 1 << 14;

/// A file in which something was looked up since then keeps its names, whoever wants their room. One that lost them, or
/// found no room, waits so long before it is read again.
const IDLE: Duration = Duration::from_secs(60);
/// Mapped files that are kept open at most; each may have a debug file that is open too.
const MAX_FILES: usize = 1024;
/// Looking how many these are costs a system call a file: it is done for every so many new ones.
const FILES_PER_LOOK: u64 = 16;
/// Files that are known to be left out, so that each is counted once.
const MAX_LEFT_OUT: usize = 1 << 16;

/// Names user addresses.
pub struct UserSymbols {
    spaces: HashMap<AddressSpace, Space>,
    /// Open files by device and inode. A file that is open keeps its inode, so the key stays true.
    modules: HashMap<FileKey, Rc<Module>>,
    cache: HashMap<(AddressSpace, u64, bool), Rc<[Frame]>>,
    perf_maps: HashMap<AddressSpace, Generated>,
    budget: Budget,
    room: Room,
    /// See [`IDLE`].
    idle: Duration,
    files: u64,
    open: Files,
    left_out: HashSet<FileKey>,
}

/// What could not be kept to name addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Perf maps that were not read to their end, because all together were too large.
    pub perf_maps: u64,
    /// Files that were not kept open, because there were too many of them.
    pub files: u64,
    /// Files whose symbols or debug information were not copied, because all together were too large.
    pub symbols: u64,
    /// Files whose symbols or debug information are malformed, or made blazesym panic.
    pub given_up: u64,
}

/// What names a process's generated code.
#[derive(Debug)]
struct Generated {
    map: Option<PerfMap>,
    looked_at: Instant,
    /// Why there is none, logged once.
    refused: bool,
}

/// Device, inode and path: one file.
pub type FileKey = ((u32, u32), u64, OsString);

/// What is known of one process between two execs.
#[derive(Clone, Debug)]
struct Space {
    /// Sorted by address, not overlapping.
    mappings: Vec<(Mapped, Option<Rc<Module>>)>,
    read_at: Instant,
}

impl Default for UserSymbols {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for UserSymbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserSymbols")
            .field("spaces", &self.spaces.len())
            .field("modules", &self.modules.len())
            .field("cached", &self.cache.len())
            .finish_non_exhaustive()
    }
}

impl UserSymbols {
    /// Knows no process yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            spaces: HashMap::new(),
            modules: HashMap::new(),
            cache: HashMap::new(),
            perf_maps: HashMap::new(),
            budget: Budget::default(),
            room: Room::default(),
            idle: IDLE,
            files: 0,
            open: Files::default(),
            left_out: HashSet::new(),
        }
    }

    /// Opens files with others who want them.
    #[must_use]
    pub fn with_files(mut self, files: Files) -> Self {
        self.open = files;
        self
    }

    /// Copies of symbols and debug information take so many bytes at most: those of files in which nothing was looked
    /// up lately go first.
    #[must_use]
    pub fn within(mut self, bytes: u64) -> Self {
        self.room = Room::of(bytes);
        self
    }

    /// What could not be kept.
    #[must_use]
    pub fn left_out(&self) -> LeftOut {
        LeftOut {
            perf_maps: self.budget.cut(),
            files: self.left_out.len() as u64,
            symbols: self.room.cut(),
            given_up: self.room.given_up(),
        }
    }

    /// Reads the mappings of a process and opens the mapped files. To be called when it is first
    /// seen, after an exec, and when it has mapped something new. Returns false when the process
    /// has left or may not be read; what was known before is kept.
    pub fn remember(&mut self, space: AddressSpace) -> bool {
        match maps::executable(space.tgid) {
            Ok(mapped) if !mapped.is_empty() => {
                self.store(space, mapped);
                true
            }
            _ => false,
        }
    }

    /// A child begins with its parent's mappings.
    pub fn inherit(&mut self, child: AddressSpace, parent: AddressSpace) {
        // Another process may have had the child's number.
        self.spaces.remove(&child);
        if let Some(known) = self.spaces.get(&parent) {
            self.spaces.insert(child, known.clone());
        }
    }

    /// Frames of a user stack, innermost first. All but the innermost are return addresses: the
    /// call is before them.
    pub fn frames(&mut self, space: AddressSpace, addresses: &[u64]) -> Vec<Frame> {
        let mut frames = Vec::with_capacity(addresses.len());
        for (depth, &address) in addresses.iter().enumerate() {
            frames.extend(self.frame(space, address, depth > 0).iter().cloned());
        }
        frames
    }

    /// Functions at an address, the innermost first: the caller of one that was inlined comes after
    /// it.
    pub fn frame(&mut self, space: AddressSpace, address: u64, is_return: bool) -> Rc<[Frame]> {
        let key = (space, address, is_return);
        if let Some(known) = self.cache.get(&key) {
            return Rc::clone(known);
        }
        let back = u64::from(is_return);
        let looked_up = address.saturating_sub(back);
        if self.find(space, looked_up).is_none() {
            self.refresh(space);
        }
        let frames: Rc<[Frame]> = match self.find(space, looked_up) {
            None => Rc::new([Frame::new(UNKNOWN)]),
            Some((mapping, Some(module))) if module.is_elf() => {
                let offset = address - mapping.start + mapping.offset;
                let module = Rc::clone(module);
                self.read_names(&module);
                module.frames(offset, back, &mut self.room).into()
            }
            Some((mapping, _)) => {
                let (name, generated) = match mapping.behind() {
                    Behind::Special(name) => {
                        let offset = address - mapping.start;
                        (format!("[{name}+{offset:#x}]"), false)
                    }
                    Behind::Nothing => (ANONYMOUS.to_owned(), true),
                    Behind::File => {
                        let path = mapping.path();
                        let name = clean(path.rsplit('/').next().unwrap_or(&path));
                        // No ELF file, or one that could not be opened: all that is known is the
                        // offset in it.
                        let offset = address - mapping.start + mapping.offset;
                        (format!("[{name}@{offset:#x}]"), true)
                    }
                };
                if generated {
                    // Other code may be generated there by the next time.
                    let generated = self.generated(space, looked_up);
                    return Rc::new([Frame::new(generated.unwrap_or(name))]);
                }
                Rc::new([Frame::new(name)])
            }
        };
        // Something may be mapped there by the next time.
        if frames.iter().any(Frame::is_unknown) {
            return frames;
        }
        if self.cache.len() >= MAX_CACHED {
            self.cache.clear();
        }
        self.cache.insert(key, Rc::clone(&frames));
        frames
    }

    /// The name of generated code.
    fn generated(&mut self, space: AddressSpace, address: u64) -> Option<String> {
        self.look_for_perf_map(space);
        let map = self.perf_maps.get_mut(&space)?.map.as_mut()?;
        map.name(address, &mut self.budget).map(str::to_owned)
    }

    /// Opens the perf map of a process, unless it is open, or was looked for just now: it stays
    /// readable when the process has left.
    fn look_for_perf_map(&mut self, space: AddressSpace) {
        let known = self.perf_maps.get(&space);
        if known
            .is_some_and(|known| known.map.is_some() || known.looked_at.elapsed() < REFRESH_PAUSE)
        {
            return;
        }
        let is_logged = known.is_some_and(|known| known.refused);
        let mut entry = Generated {
            map: None,
            looked_at: Instant::now(),
            refused: is_logged,
        };
        match PerfMap::open(space.tgid) {
            Ok(map) => entry.map = Some(map),
            Err(NoMap::Missing) => {}
            Err(error @ NoMap::Refused(_)) => {
                if !is_logged {
                    log::warn!(
                        "the perf map of process {} is not read: {error}",
                        space.tgid
                    );
                }
                entry.refused = true;
            }
        }
        self.perf_maps.insert(space, entry);
    }

    fn find(&self, space: AddressSpace, address: u64) -> Option<&(Mapped, Option<Rc<Module>>)> {
        let mappings = &self.spaces.get(&space)?.mappings;
        let after = mappings.partition_point(|(mapping, _)| mapping.start <= address);
        let candidate = mappings.get(after.checked_sub(1)?)?;
        candidate.0.contains(address).then_some(candidate)
    }

    /// Reads the mappings again, unless that was done just now.
    fn refresh(&mut self, space: AddressSpace) {
        let known = self.spaces.get(&space);
        if known.is_some_and(|known| known.read_at.elapsed() >= REFRESH_PAUSE) {
            self.look_again(space);
        }
    }

    /// Reads the mappings again, unless the process is another one by now: after an exec, or when
    /// its id was given to another, nothing stays where it was. A process that is not known is
    /// remembered.
    pub fn look_again(&mut self, space: AddressSpace) {
        if let Some(known) = self.spaces.get_mut(&space) {
            known.read_at = Instant::now();
        }
        if let Ok(mapped) = maps::executable(space.tgid) {
            self.map(space, &mapped);
        }
    }

    /// A process has mapped this, executable, as somebody has read it just now. See
    /// [`UserSymbols::look_again`].
    pub fn map(&mut self, space: AddressSpace, mapped: &[Mapped]) {
        let Some(known) = self.spaces.get_mut(&space) else {
            if !mapped.is_empty() {
                self.store(space, mapped.to_vec());
            }
            return;
        };
        known.read_at = Instant::now();
        let is_anchor = |mapping: &&Mapped| mapping.name == "[vdso]";
        let old_anchor = known
            .mappings
            .iter()
            .map(|(mapping, _)| mapping)
            .find(is_anchor);
        let old_first = known.mappings.first().map(|(mapping, _)| mapping);
        let is_there = |first| mapped.contains(first);
        if old_anchor == mapped.iter().find(is_anchor) && old_first.is_some_and(is_there) {
            self.store(space, mapped.to_vec());
        }
    }

    /// Forgets processes, and files that no other one has mapped: nothing of them is named any more.
    pub fn forget(&mut self, pids: &BTreeSet<u32>) {
        let stays = |space: &AddressSpace| !pids.contains(&space.tgid);
        self.spaces.retain(|space, _| stays(space));
        self.cache.retain(|(space, ..), _| stays(space));
        self.perf_maps.retain(|space, _| stays(space));
        self.modules
            .retain(|_, module| Rc::strong_count(module) > 1);
    }

    /// Replaces the mappings; old ones that nothing new overlaps stay, for stacks taken before a
    /// library was unloaded.
    fn store(&mut self, space: AddressSpace, mapped: Vec<Mapped>) {
        let mut mappings: Vec<_> = mapped
            .into_iter()
            .map(|mapping| {
                // One whose file was closed keeps the names that were read from it.
                let known = self.find(space, mapping.start);
                let known = known.filter(|(known, _)| *known == mapping);
                let module = match known.and_then(|(_, module)| module.clone()) {
                    Some(module) => Some(module),
                    None => self.module(space.tgid, &mapping),
                };
                (mapping, module)
            })
            .collect();
        mappings.sort_by_key(|(mapping, _)| mapping.start);
        if let Some(old) = self.spaces.get(&space) {
            // The first new one that does not end before it: both are sorted, and there may be
            // 65,000 of each.
            let beside = |mapping: &Mapped| {
                let at = mappings.partition_point(|(new, _)| new.end <= mapping.start);
                mappings.get(at).map(|(new, _)| new)
            };
            let unchanged = |mapping: &Mapped| beside(mapping) == Some(mapping);
            let gone_or_changed = !old.mappings.iter().all(|(mapping, _)| unchanged(mapping));
            let free =
                |mapping: &Mapped| beside(mapping).is_none_or(|new| mapping.end <= new.start);
            let mut kept: Vec<_> = old
                .mappings
                .iter()
                .filter(|(mapping, _)| free(mapping))
                .cloned()
                .collect();
            // A process that maps and unmaps code for ever.
            kept.truncate(MAX_GONE);
            if self.modules.len() > MAX_FILES / 4 {
                for (_, module) in &mut kept {
                    module.take_if(|module| !module.is_named());
                }
            }
            mappings.extend(kept);
            if gone_or_changed {
                self.cache.retain(|(of, _, _), _| *of != space);
            }
        }
        mappings.sort_by_key(|(mapping, _)| mapping.start);
        if mappings
            .iter()
            .any(|(mapping, _)| mapping.behind() == Behind::Nothing)
        {
            self.look_for_perf_map(space);
        }
        let read_at = Instant::now();
        self.spaces.insert(space, Space { mappings, read_at });
    }

    fn module(&mut self, tgid: u32, mapping: &Mapped) -> Option<Rc<Module>> {
        if mapping.behind() != Behind::File {
            return None;
        }
        let key = (mapping.device, mapping.inode, mapping.name.clone());
        if let Some(known) = self.modules.get(&key) {
            return Some(Rc::clone(known));
        }
        if self.left_out.contains(&key) {
            return None;
        }
        self.files += 1;
        if self.modules.len() >= MAX_FILES || self.files.is_multiple_of(FILES_PER_LOOK) {
            self.make_room();
        }
        if self.modules.len() >= MAX_FILES {
            if self.left_out.len() < MAX_LEFT_OUT {
                self.left_out.insert(key);
            }
            return None;
        }
        // A file that was replaced since is another file: no names from it.
        let (file, _) = self.open.of_mapping(mapping, tgid).ok()?;
        let module = Rc::new(Module::new(&mapping.path(), file, &Root::of_process(tgid)));
        if module.lacks_symbols() {
            self.room.cuts();
        }
        self.modules.insert(key, Rc::clone(&module));
        Some(module)
    }
}

#[cfg(test)]
mod tests;
