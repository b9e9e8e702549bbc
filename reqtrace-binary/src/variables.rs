//! What data lies in: an address of a process in; the variable, the file or the kind of memory that it lies
//! in, in words, out.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use goblin::elf::program_header::PT_LOAD;

use crate::debuginfo::{self, Links, Root, variables};
use crate::demangle::signature;
use crate::elf::{DefinedSymbol, DefinedSymbols, FileHeader};
use crate::files::Files;
use crate::maps::{self, Behind, FileKey, Mapped};
use crate::symbolize::AddressSpace;

/// A process's mappings are not read again before, for an address that none of them has.
const PAUSE: Duration = Duration::from_millis(200);
/// So long they are believed: memory is given back, and something else is mapped there.
const MAX_AGE: Duration = Duration::from_secs(10);
/// Files whose variables are kept.
const MAX_FILES: usize = 256;
/// A variable is not looked for in what is mapped behind a file from so far on.
const PAGE: u64 = 4096;

/// Says what addresses of processes lie in.
#[derive(Debug, Default)]
pub struct Memory {
    files: Files,
    processes: HashMap<AddressSpace, Known>,
    variables: HashMap<FileKey, Option<Rc<Variables>>>,
}

#[derive(Debug)]
struct Known {
    /// By address.
    mapped: Vec<Mapped>,
    read_at: Instant,
}

impl Memory {
    /// Files are opened with others who want them.
    #[must_use]
    pub fn with_files(files: Files) -> Self {
        Self {
            files,
            ..Self::default()
        }
    }

    /// What an address lies in: `libc.so.6 main_arena`, `shop+0x4040`, `/dev/shm/cache@0x40`, `[heap]`,
    /// `anonymous memory`; `None` when nothing that is known is mapped there.
    pub fn lies_in(&mut self, space: AddressSpace, address: u64) -> Option<String> {
        let pid = space.tgid;
        let (known, index) = self.mapped(space, address)?;
        let mapping = known.mapped[index].clone();
        match mapping.behind() {
            Behind::Special(name) => Some(format!("[{name}]")),
            Behind::File => Some(self.in_file(pid, &mapping, address)),
            Behind::Nothing => {
                // Variables without contents go on behind the file's last mapping.
                let before = index
                    .checked_sub(1)
                    .map(|before| known.mapped[before].clone());
                let in_file = before
                    .filter(|before| before.end == mapping.start && before.behind() == Behind::File)
                    .and_then(|before| self.behind_file(pid, &before, address));
                Some(in_file.unwrap_or_else(|| "anonymous memory".to_owned()))
            }
        }
    }

    /// The variable of a file that an address lies in, wherever in it, as `vtable for Order`.
    pub fn variable(&mut self, space: AddressSpace, address: u64) -> Option<String> {
        let (known, index) = self.mapped(space, address)?;
        let mapping = known.mapped[index].clone();
        let offset = address - mapping.start + mapping.offset;
        let variables = self.variables(space.tgid, &mapping)?;
        let symbol = variables.symbol(variables.address_of(offset)?)?;
        let name = signature(variables.symbols.name(symbol)?);
        let class = name.strip_prefix("{vtable(");
        Some(match class.and_then(|class| class.strip_suffix(")}")) {
            // As binutils print it.
            Some(class) => format!("vtable for {class}"),
            None => name,
        })
    }

    /// The mappings of a process, and the index of the one that an address is in.
    fn mapped(&mut self, space: AddressSpace, address: u64) -> Option<(&Known, usize)> {
        let is_old = self.processes.get(&space).is_none_or(|known| {
            let is_there = known.find(address).is_some();
            known.read_at.elapsed() >= if is_there { MAX_AGE } else { PAUSE }
        });
        if is_old {
            self.read(space);
        }
        let known = self.processes.get(&space)?;
        Some((known, known.find(address)?))
    }

    /// Reads the mappings of a process; what is known of one that has left, or runs another program by now, stays.
    fn read(&mut self, space: AddressSpace) {
        let mapped = maps::all(space.tgid).unwrap_or_default();
        let read_at = Instant::now();
        if let Some(known) = self.processes.get_mut(&space)
            && !known.goes_on_as(&mapped)
        {
            known.read_at = read_at;
            return;
        }
        self.processes.retain(|other, _| {
            other.tgid != space.tgid || other.exec_generation >= space.exec_generation
        });
        self.processes.insert(space, Known { mapped, read_at });
    }

    /// Forgets processes.
    pub fn forget(&mut self, is_gone: impl Fn(u32) -> bool) {
        self.processes.retain(|space, _| !is_gone(space.tgid));
    }

    fn in_file(&mut self, pid: u32, mapping: &Mapped, address: u64) -> String {
        let offset = address - mapping.start + mapping.offset;
        if let Some(variables) = self.variables(pid, mapping)
            && let Some(linked) = variables.address_of(offset)
        {
            return variables.name(&file_name(mapping), linked);
        }
        format!("{}@{offset:#x}", mapping.path())
    }

    fn behind_file(&mut self, pid: u32, before: &Mapped, address: u64) -> Option<String> {
        let variables = self.variables(pid, before)?;
        let last = variables.address_of(before.end - PAGE - before.start + before.offset)?;
        let linked = last + PAGE + (address - before.end);
        let has = variables.segments.iter().any(|segment| {
            (segment.address..segment.address.saturating_add(segment.size)).contains(&linked)
        });
        has.then(|| variables.name(&file_name(before), linked))
    }

    fn variables(&mut self, pid: u32, mapping: &Mapped) -> Option<Rc<Variables>> {
        let by_key = |key: &FileKey| self.variables.get(key).cloned();
        if let Some(known) = mapping.key(pid).and_then(|key| by_key(&key)) {
            return known;
        }
        // Where another process opens it is known only then which file it is.
        let (file, key) = self.files.of_mapping(mapping, pid).ok()?;
        if let Some(known) = by_key(&key) {
            return known;
        }
        let read = Variables::read(&file, &Root::of_process(pid), &mapping.path()).ok();
        if self.variables.len() >= MAX_FILES {
            self.variables.clear();
        }
        let read = read.map(Rc::new);
        self.variables.insert(key, read.clone());
        read
    }
}

impl Known {
    /// Whether these may be mappings of the same program later: an exec leaves none where it was.
    fn goes_on_as(&self, later: &[Mapped]) -> bool {
        let of_file = |one: &&Mapped| one.inode != 0;
        let is_same = |one: &Mapped, first: &Mapped| {
            (one.start, one.device, one.inode) == (first.start, first.device, first.inode)
        };
        match self.mapped.iter().find(of_file) {
            Some(first) => later.iter().any(|one| is_same(one, first)),
            None => !later.is_empty(),
        }
    }

    fn find(&self, address: u64) -> Option<usize> {
        let after = self
            .mapped
            .partition_point(|mapping| mapping.start <= address);
        let index = after.checked_sub(1)?;
        self.mapped[index].contains(address).then_some(index)
    }
}

fn file_name(mapping: &Mapped) -> String {
    let path = mapping.path();
    path.rsplit('/').next().unwrap_or(&path).to_owned()
}

/// A part of a file that is loaded, and the memory behind it.
#[derive(Clone, Copy, Debug)]
struct Segment {
    offset: u64,
    /// Bytes in the file.
    in_file: u64,
    address: u64,
    /// Bytes in memory.
    size: u64,
}

/// The variables of an ELF file, by address as linked.
#[derive(Debug)]
struct Variables {
    segments: Vec<Segment>,
    symbols: DefinedSymbols,
}

impl Variables {
    fn read(file: &File, roots: &[Root], path: &str) -> io::Result<Self> {
        let header = FileHeader::read(file).map_err(io::Error::other)?;
        let loads = header.programs(file).map_err(io::Error::other)?;
        let loads = loads.iter().filter(|load| load.p_type == PT_LOAD);
        let segments = loads.map(|load| Segment {
            offset: load.p_offset,
            in_file: load.p_filesz,
            address: load.p_vaddr,
            size: load.p_memsz,
        });
        let segments = segments.collect();
        let links = Links::read(file);
        let debug = match links.has_symtab() {
            true => None,
            false => debuginfo::find(file, &links, roots, path).found,
        };
        let mut symbols = match &debug {
            Some(debug) => variables(&debug.file).unwrap_or_default(),
            None => DefinedSymbols::default(),
        };
        if symbols.symbols.is_empty() {
            symbols = variables(file).unwrap_or_default();
        }
        symbols.symbols.retain(|symbol| symbol.size > 0);
        symbols.symbols.sort_by_key(|symbol| symbol.address);
        Ok(Self { segments, symbols })
    }

    /// The address as linked of an offset in the file; its page may have been mapped beyond the segment.
    fn address_of(&self, offset: u64) -> Option<u64> {
        let has = |segment: &&Segment| {
            let first = segment.offset & !(PAGE - 1);
            let end = segment.offset.saturating_add(segment.in_file);
            (first..end.checked_next_multiple_of(PAGE).unwrap_or(end)).contains(&offset)
        };
        // Two segments may share a page of the file: the one that has the offset itself comes first.
        let exact = |segment: &&Segment| {
            (segment.offset..segment.offset.saturating_add(segment.in_file)).contains(&offset)
        };
        let mut segments = self.segments.iter();
        let segment = segments
            .find(exact)
            .or_else(|| self.segments.iter().rfind(has))?;
        Some(
            segment
                .address
                .wrapping_add(offset)
                .wrapping_sub(segment.offset),
        )
    }

    /// The one that covers an address.
    fn symbol(&self, linked: u64) -> Option<&DefinedSymbol> {
        let symbols = &self.symbols.symbols;
        let after = symbols.partition_point(|symbol| symbol.address <= linked);
        let last = &symbols[after.checked_sub(1)?];
        (linked < last.address.saturating_add(last.size)).then_some(last)
    }

    /// In words.
    fn name(&self, file: &str, linked: u64) -> String {
        let covers = self.symbol(linked);
        let named = covers.and_then(|symbol| Some((symbol, self.symbols.name(symbol)?)));
        match named {
            None => format!("{file}+{linked:#x}"),
            Some((symbol, name)) => match linked - symbol.address {
                0 => format!("{file} {}", signature(name)),
                inside => format!("{file} {}+{inside:#x}", signature(name)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    static OWN: Mutex<u64> = Mutex::new(7);
    static EMPTY: [u64; 4096] = [0; 4096];

    fn this() -> AddressSpace {
        AddressSpace {
            tgid: std::process::id(),
            exec_generation: 0,
        }
    }

    fn of<T>(memory: &mut Memory, place: &T) -> String {
        let address = std::ptr::from_ref(place) as u64;
        memory.lies_in(this(), address).unwrap()
    }

    /// Memory is given back and mapped for something else, and an exec gives back all of it.
    #[test]
    fn what_was_mapped_once_is_not_believed_for_ever() {
        let old = || Mapped {
            start: 0,
            end: u64::MAX,
            offset: 0,
            device: (0, 0),
            inode: 0,
            name: "[old]".into(),
            deleted: false,
        };
        let mut memory = Memory::default();
        let own = of(&mut memory, &OWN);
        let known = memory.processes.get_mut(&this()).unwrap();
        known.mapped = vec![old()];
        assert_eq!(of(&mut memory, &OWN), "[old]");
        let known = memory.processes.get_mut(&this()).unwrap();
        known.read_at = known.read_at.checked_sub(MAX_AGE).unwrap();
        assert_eq!(of(&mut memory, &OWN), own);

        // What another program had stays true of what that did.
        let mut others = old();
        (others.start, others.inode) = (1, 7);
        let known = memory.processes.get_mut(&this()).unwrap();
        known.mapped = vec![others];
        known.read_at = known.read_at.checked_sub(MAX_AGE).unwrap();
        assert_eq!(of(&mut memory, &OWN), "[old]");

        let known = memory.processes.get_mut(&this()).unwrap();
        known.mapped = vec![old()];
        let next = AddressSpace {
            exec_generation: 1,
            ..this()
        };
        let address = std::ptr::from_ref(&OWN) as u64;
        assert_eq!(memory.lies_in(next, address), Some(own));
        assert_eq!(memory.processes.len(), 1);
    }

    #[test]
    fn what_this_program_has_is_found() {
        // What is mapped is looked at once in a while: it is there before.
        let boxed = vec![0_u8; 4 << 20];
        let mut memory = Memory::default();
        let own = of(&mut memory, &OWN);
        assert!(
            own.contains(" reqtrace_binary") && own.ends_with("OWN"),
            "{own}"
        );
        let inside = of(&mut memory, &EMPTY[9]);
        assert!(inside.ends_with("EMPTY+0x48"), "{inside}");
        assert_eq!(of(&mut memory, &boxed[1 << 20]), "anonymous memory");
        let local = 5;
        // The test's thread has a stack that malloc's mmap gave it.
        assert!(["anonymous memory", "[stack]"].contains(&&*of(&mut memory, &local)));
        assert_eq!(memory.lies_in(this(), 8), None);
        let nobody = AddressSpace {
            tgid: u32::MAX,
            exec_generation: 0,
        };
        assert_eq!(memory.lies_in(nobody, 4096), None);
    }
}
