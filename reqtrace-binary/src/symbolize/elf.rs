//! One mapped ELF file, kept open: file offsets in, frames out.

use std::cell::{Cell, OnceCell, RefCell};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use goblin::elf::program_header::PT_LOAD;

use super::Frame;
use super::copy::{self, Copy, Room};
use crate::debuginfo::{self, DebugFile, Links, Root};
use crate::demangle::signature;
use crate::elf::{DefinedSymbols, FileHeader};
use crate::go::Inlined;
use crate::maps::FileKey;
use crate::unwind::{Object, function_ranges};

/// A mapped file.
#[derive(Debug)]
pub(super) struct Module {
    /// File name, without folders.
    name: String,
    /// Which file it is; `None` when that is not known.
    key: Option<FileKey>,
    /// Kept open, so that a file that is replaced or whose process has left still has its names.
    file: RefCell<Option<Arc<File>>>,
    links: Links,
    /// Where the symbols are that were stripped from it; open as well.
    debug: RefCell<Option<DebugFile>>,
    /// Read when the first address in it is named. Copies of one file have one.
    names: RefCell<Option<Rc<Names>>>,
    /// When an address was looked up last.
    used: Cell<Option<Instant>>,
    /// When names were read last, or taken away.
    settled: Cell<Option<Instant>>,
    /// Not all names found room.
    is_cut: Cell<bool>,
    /// Symbols that are packed in it found no room.
    lacks_symbols: bool,
    /// Loaded segments: (file offset, size in the file, virtual address).
    segments: Vec<(u64, u64, u64)>,
    /// Functions by unwind information, read when the first nameless address is met.
    functions: OnceCell<Vec<Range<u64>>>,
}

/// Copies of what has the names.
#[derive(Debug)]
struct Names {
    own: Option<Copy>,
    debug: Option<Copy>,
    /// Whose DWARF is read: its own, that of its debug file, or none.
    dwarf: Option<Dwarf>,
    /// What the runtime of Go calls its functions, of a program that was stripped of their symbols.
    go: Option<DefinedSymbols>,
    /// What Go's compiler has inlined, where no DWARF is read.
    inlined_by_go: Option<Inlined>,
}

#[derive(Clone, std::marker::Copy, Debug, PartialEq, Eq)]
enum Dwarf {
    Own,
    Debug,
}

impl Names {
    /// Whether the other ones are those of a file with the same contents.
    fn are_like(&self, other: &Self) -> bool {
        let is_like = |one: &Option<Copy>, two: &Option<Copy>| match (one, two) {
            (None, None) => true,
            (Some(one), Some(two)) => one.is_like(two).unwrap_or(false),
            _ => false,
        };
        let are_of_go = |names: &Self| names.go.is_some() || names.inlined_by_go.is_some();
        // What Go's runtime knows is in no copy.
        !are_of_go(self)
            && !are_of_go(other)
            && is_like(&self.own, &other.own)
            && is_like(&self.debug, &other.debug)
    }

    fn inlined_at(&self, address: u64) -> Vec<&str> {
        let inlined = self.inlined_by_go.iter();
        inlined.flat_map(|inlined| inlined.at(address)).collect()
    }
}

impl Module {
    /// `roots` are where its debug file is looked for.
    pub(super) fn new(path: &str, file: Arc<File>, roots: &[Root]) -> Self {
        let name = path.rsplit('/').next().unwrap_or(path);
        let links = Links::read(&file);
        let search = debuginfo::find(&file, &links, roots, path);
        for refused in search.refused {
            log::info!("{refused}");
        }
        Self {
            links,
            debug: RefCell::new(search.found),
            names: RefCell::default(),
            used: Cell::default(),
            settled: Cell::default(),
            is_cut: Cell::new(false),
            lacks_symbols: search.no_room,
            name: super::names::clean(name),
            key: file.metadata().ok().map(|file| FileKey::of(&file)),
            segments: segments(&file).unwrap_or_default(),
            file: RefCell::new(Some(file)),
            functions: OnceCell::new(),
        }
    }

    /// Which file it is; `None` when that is not known.
    pub(super) fn key(&self) -> Option<FileKey> {
        self.key
    }

    /// Whether symbols that are packed in it found no room.
    pub(super) fn lacks_symbols(&self) -> bool {
        self.lacks_symbols
    }

    /// Its build id; empty when it has none.
    pub(super) fn build_id(&self) -> &[u8] {
        self.links.build_id()
    }

    /// Whether it is an ELF file with code: memory for generated code can have a file as well.
    pub(super) fn is_elf(&self) -> bool {
        !self.segments.is_empty()
    }

    /// The first address of the function that an address lies in, so that one function without a
    /// name is one frame and not one per call site; the address itself where that is not known.
    fn function_start(&self, address: u64) -> u64 {
        let functions = self.functions.get_or_init(|| {
            let file = self.file.borrow();
            let object = file.as_deref().and_then(|file| Object::read(file).ok());
            object.map_or_else(Vec::new, |object| function_ranges(&object))
        });
        let next = functions.partition_point(|function| function.start <= address);
        next.checked_sub(1)
            .map(|index| &functions[index])
            .filter(|function| function.contains(&address))
            .map_or(address, |function| function.start)
    }

    /// The ELF virtual address of a file offset; the offset itself when no segment has it.
    pub(super) fn virtual_address(&self, offset: u64) -> u64 {
        self.segments
            .iter()
            .find(|(start, size, _)| (*start..start.saturating_add(*size)).contains(&offset))
            .map_or(offset, |(start, _, address)| offset - start + address)
    }

    /// Frames at a file offset, innermost first. The name is looked up `back` bytes before it.
    ///
    /// The function itself has the name of its ELF symbol: debug information leaves out namespaces
    /// and modules. What was inlined into it is known to debug information only.
    pub(super) fn frames(&self, offset: u64, back: u64, room: &mut Room) -> Vec<Frame> {
        let address = self.virtual_address(offset - back);
        self.used.set(Some(Instant::now()));
        let Some(names) = self.names.borrow().clone() else {
            return vec![self.nameless(address, back)];
        };
        let mut symbol = |copy: &Option<Copy>, debug| {
            let copy = copy.as_ref()?;
            Some(copy.symbol(address, debug, room)?.into_owned())
        };
        let (own, separate) = (&names.own, &names.debug);
        let debug = match names.dwarf {
            Some(Dwarf::Own) => symbol(own, true),
            Some(Dwarf::Debug) => symbol(separate, true),
            None => None,
        };
        let symbol = symbol(own, false).or_else(|| symbol(separate, false));
        let Some(outer) = symbol.as_ref().or(debug.as_ref()) else {
            if let Some(name) = names.go.as_ref().and_then(|go| go.covering(address)) {
                let all = names.inlined_at(address).into_iter().chain([name]);
                return all.map(Frame::new).collect();
            }
            return vec![self.nameless(address, back)];
        };
        let inlined = debug.iter().flat_map(|debug| debug.inlined.iter().rev());
        let mut names: Vec<String> = inlined
            .map(|function| function.name.as_ref())
            .chain(names.inlined_at(address))
            .chain([outer.name.as_ref()])
            .filter(|name| !name.is_empty())
            .map(signature)
            .collect();
        // Debug information of glibc's cancellation points lists a function inside itself.
        names.dedup();
        names.into_iter().map(Frame::new).collect()
    }

    /// The frame of an address without a name, which was looked up `back` bytes before its own.
    fn nameless(&self, address: u64, back: u64) -> Frame {
        let start = self.function_start(address);
        let shown = if start == address {
            address + back
        } else {
            start
        };
        Frame::new(format!("[{}+{shown:#x}]", self.name))
    }

    /// Which names are to be read: bytes of all, and of those without debug information. `None` when they are read, or
    /// were taken away, or found no room, less than `pause` ago.
    pub(super) fn wants_names(&self, pause: Duration) -> Option<[u64; 2]> {
        let is_whole = self.is_named() && !self.is_cut.get();
        let is_settled = |at: Instant| at.elapsed() < pause;
        if is_whole || self.settled.get().is_some_and(is_settled) {
            return None;
        }
        let (file, debug) = (self.file.borrow(), self.debug.borrow());
        let of = |file: Option<&File>, with_dwarf| {
            let size = file.map(|file| copy::size(file, with_dwarf));
            // What cannot be read takes no room.
            size.and_then(Result::ok).unwrap_or(0)
        };
        // A file that was closed is not read again.
        let file = file.as_deref()?;
        let dwarf = self.dwarf(debug.as_ref());
        let [own, separate] = [Dwarf::Own, Dwarf::Debug].map(|which| dwarf == Some(which));
        let debug = debug.as_ref().map(|debug| &debug.file);
        let without = of(Some(file), false).saturating_add(of(debug, false));
        let all = of(Some(file), own).saturating_add(of(debug, separate));
        Some([all, without])
    }

    /// Reads its names; without debug information if there is no room for it. Returns whether an address may have got
    /// another name before.
    pub(super) fn read_names(&self, [all, without]: [u64; 2], room: &mut Room) -> bool {
        let is_first = self.settled.replace(Some(Instant::now())).is_none();
        let has_some = self.is_named();
        // The room of those before is given back.
        let left = room.left() + if has_some { without } else { 0 };
        let is_cut = all > left;
        if has_some && is_cut {
            return false;
        }
        if is_cut && !self.is_cut.get() {
            let part = if without > left { "most" } else { "some" };
            log::info!("{}: no memory for {part} of its names", self.name);
            room.cuts();
        }
        self.is_cut.set(is_cut);
        self.names.take();
        let names = self.copy(!is_cut, room);
        self.names.replace(Some(Rc::new(names)));
        !is_first
    }

    /// Has the names of another file with the same contents.
    pub(super) fn share(&self, other: &Self) -> bool {
        let (own, others) = (self.names.borrow().clone(), other.names.borrow().clone());
        let (Some(own), Some(others)) = (own, others) else {
            return false;
        };
        let is_same = !other.is_cut.get() && !Rc::ptr_eq(&own, &others) && own.are_like(&others);
        if is_same {
            self.names.replace(Some(others));
        }
        is_same
    }

    /// When an address was looked up last, if there are names that can be read again.
    pub(super) fn used(&self) -> Option<Instant> {
        let can_be_read = self.is_named() && self.file.borrow().is_some();
        self.used.get().filter(|_| can_be_read)
    }

    /// Takes its names away: they are read again when they are wanted, after a while.
    pub(super) fn forget_names(&self) {
        self.settled.set(Some(Instant::now()));
        self.names.take();
    }

    fn dwarf(&self, debug: Option<&DebugFile>) -> Option<Dwarf> {
        let is_there = |links: &Links| links.has_plain_dwarf();
        match debug {
            _ if is_there(&self.links) => Some(Dwarf::Own),
            Some(debug) if is_there(&debug.links) => Some(Dwarf::Debug),
            _ => None,
        }
    }

    fn copy(&self, with_dwarf: bool, room: &mut Room) -> Names {
        let (file, debug) = (self.file.borrow(), self.debug.borrow());
        let dwarf = self.dwarf(debug.as_ref()).filter(|_| with_dwarf);
        let mut of = |file: &File, with_dwarf| {
            let copy = Copy::of(file, &self.name, with_dwarf, room);
            copy.inspect_err(|error| log::debug!("symbols of {}: {error}", self.name))
                .ok()
        };
        Names {
            own: file
                .as_ref()
                .and_then(|file| of(file, dwarf == Some(Dwarf::Own))),
            debug: debug
                .as_ref()
                .and_then(|debug| of(&debug.file, dwarf == Some(Dwarf::Debug))),
            dwarf,
            go: file.as_deref().and_then(debuginfo::functions_of_go),
            inlined_by_go: file
                .as_deref()
                .filter(|_| dwarf.is_none())
                .and_then(debuginfo::inlined_by_go),
        }
    }

    /// Bytes of disk that are taken only because it is kept open: its file is deleted.
    pub(super) fn pinned(&self) -> u64 {
        const UNIT: u64 = 512;
        let file = self.file.borrow();
        let metadata = file.as_ref().and_then(|file| file.metadata().ok());
        metadata
            .filter(|metadata| metadata.nlink() == 0)
            .map_or(0, |metadata| metadata.blocks() * UNIT)
    }

    /// Whether its names were read, which are kept then.
    pub(super) fn is_named(&self) -> bool {
        self.names.borrow().is_some()
    }

    /// Closes its files. Names that were read stay.
    pub(super) fn close(&self) {
        self.file.take();
        self.debug.take();
    }
}

/// Reads the loaded segments of a 64-bit little-endian ELF file.
fn segments(file: &File) -> Option<Vec<(u64, u64, u64)>> {
    let headers = FileHeader::read(file).ok()?.programs(file).ok()?;
    let loaded = headers.iter().filter(|header| header.p_type == PT_LOAD);
    Some(
        loaded
            .map(|h| (h.p_offset, h.p_filesz, h.p_vaddr))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use goblin::elf::Elf as ElfFile;
    use goblin::elf::program_header::PF_X;

    /// Stripped binaries have exported names only. Between them lies code without a name, which
    /// must not get its neighbour's.
    #[test]
    fn code_between_exported_functions_has_no_name() {
        let stripped = ["/usr/sbin/mariadbd", "/lib/x86_64-linux-gnu/libc.so.6"];
        let has_debug_file = |elf: &ElfFile<'_>, bytes: &[u8]| {
            let notes = elf.iter_note_headers(bytes).into_iter().flatten().flatten();
            notes
                .filter(|note| note.name == "GNU" && note.n_type == 3)
                .any(|note| {
                    let id: String = note.desc.iter().map(|byte| format!("{byte:02x}")).collect();
                    let path = format!("/usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]);
                    std::path::Path::new(&path).exists()
                })
        };
        for path in stripped {
            let Ok(bytes) = std::fs::read(path) else {
                continue;
            };
            let elf = ElfFile::parse(&bytes).unwrap();
            if has_debug_file(&elf, &bytes) || !elf.syms.is_empty() {
                continue;
            }
            let covering = |address: u64| {
                let covers = move |s: &goblin::elf::Sym| {
                    s.st_value <= address && address < s.st_value + s.st_size.max(1)
                };
                let found = elf
                    .dynsyms
                    .iter()
                    .filter(move |s| s.st_shndx != 0 && covers(s));
                found.filter_map(|s| elf.dynstrtab.get_at(s.st_name))
            };
            let text = elf
                .program_headers
                .iter()
                .find(|header| header.p_flags & PF_X != 0);
            let text = text.unwrap();
            let module = Module::new(path, Arc::new(File::open(path).unwrap()), &[]);
            let mut room = Room::default();
            let sizes = module.wants_names(Duration::ZERO).unwrap();
            assert!(!module.read_names(sizes, &mut room));
            let (mut named, mut unnamed) = (0, 0);
            for index in 0..400 {
                let offset = text.p_offset + text.p_filesz / 400 * index;
                let address = text.p_vaddr + (offset - text.p_offset);
                let name = module.frames(offset, 0, &mut room).remove(0).name;
                if name.starts_with('[') {
                    let file = path.rsplit('/').next().unwrap();
                    let start = name.strip_prefix(&format!("[{file}+0x")).unwrap();
                    let start = u64::from_str_radix(start.trim_end_matches(']'), 16).unwrap();
                    assert!(start <= address, "{name} for {address:#x}");
                    assert!(covering(start).next().is_none(), "{name} has a name");
                    unnamed += 1;
                } else {
                    assert!(
                        covering(address).any(|known| signature(known) == *name),
                        "{address:#x} {name}"
                    );
                    named += 1;
                }
            }
            println!("{path}: {named} named, {unnamed} without a name");
            assert!(named > 0 && unnamed > 0);
        }
    }
}
