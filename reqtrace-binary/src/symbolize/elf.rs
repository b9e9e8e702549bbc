//! One mapped ELF file, kept open: file offsets in, frames out.

use std::cell::{OnceCell, RefCell};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use goblin::elf::program_header::PT_LOAD;

use super::Frame;
use super::copy::{Copy, Room};
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
    /// Which file it is; `None` when that cannot be told.
    key: Option<FileKey>,
    /// Kept open, so that a file that is replaced or whose process has left still has its names.
    file: RefCell<Option<Arc<File>>>,
    links: Links,
    /// Where the symbols are that were stripped from it; open as well.
    debug: RefCell<Option<DebugFile>>,
    /// Made when the first address in it is named.
    names: OnceCell<Names>,
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

#[derive(Clone, std::marker::Copy, Debug)]
enum Dwarf {
    Own,
    Debug,
}

impl Names {
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
            names: OnceCell::new(),
            name: super::names::clean(name),
            key: file.metadata().ok().map(|file| FileKey::of(&file)),
            segments: segments(&file).unwrap_or_default(),
            file: RefCell::new(Some(file)),
            functions: OnceCell::new(),
        }
    }

    /// Which file it is; `None` when that cannot be told.
    pub(super) fn key(&self) -> Option<FileKey> {
        self.key
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
        let names = self.names.get_or_init(|| self.copy(room));
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
            let start = self.function_start(address);
            let shown = if start == address {
                address + back
            } else {
                start
            };
            return vec![Frame::new(format!("[{}+{shown:#x}]", self.name))];
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

    fn copy(&self, room: &mut Room) -> Names {
        let (file, debug) = (self.file.borrow(), self.debug.borrow());
        let dwarf = if self.links.has_plain_dwarf() {
            Some(Dwarf::Own)
        } else if debug
            .as_ref()
            .is_some_and(|debug| debug.links.has_plain_dwarf())
        {
            Some(Dwarf::Debug)
        } else {
            None
        };
        let mut of = |file: &File, with_dwarf| {
            let copy = Copy::of(file, &self.name, with_dwarf, room);
            copy.inspect_err(|error| log::debug!("symbols of {}: {error}", self.name))
                .ok()
        };
        Names {
            own: file
                .as_ref()
                .and_then(|file| of(file, matches!(dwarf, Some(Dwarf::Own)))),
            debug: debug
                .as_ref()
                .and_then(|debug| of(&debug.file, matches!(dwarf, Some(Dwarf::Debug)))),
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
        self.names.get().is_some()
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
