//! One mapped ELF file, kept open: file offsets in, frames out.

use std::cell::OnceCell;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Sym, Symbolized, Symbolizer as Blazesym};
use goblin::container::{Container, Ctx, Endian};
use goblin::elf::header::header64::{Header, SIZEOF_EHDR};
use goblin::elf::program_header::{PT_LOAD, ProgramHeader};

use super::Frame;
use crate::debuginfo::{self, DebugFile, Links, Root};
use crate::demangle::signature;
use crate::unwind::{Object, function_ranges};

/// Program headers that are read at most; a real file has about a dozen.
const MAX_PROGRAM_HEADERS: usize = 256;

/// A mapped file.
#[derive(Debug)]
pub(super) struct Module {
    /// File name, without folders.
    name: String,
    /// Kept open, so that a file that is replaced or whose process has left still has its names.
    file: File,
    links: Links,
    /// Where the symbols are that were stripped from it; open as well.
    debug: Option<DebugFile>,
    /// Loaded segments: (file offset, size in the file, virtual address).
    segments: Vec<(u64, u64, u64)>,
    /// Functions by unwind information, read when the first nameless address is met.
    functions: OnceCell<Vec<Range<u64>>>,
}

impl Module {
    /// `roots` are where its debug file is looked for.
    pub(super) fn new(path: &str, file: File, roots: &[Root]) -> Self {
        let name = path.rsplit('/').next().unwrap_or(path);
        let links = Links::read(&file);
        let search = debuginfo::find(&file, &links, roots, path);
        for refused in search.refused {
            log::info!("{refused}");
        }
        Self {
            links,
            debug: search.found,
            name: super::names::clean(name),
            segments: segments(&file).unwrap_or_default(),
            file,
            functions: OnceCell::new(),
        }
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
            Object::read(&self.file).map_or_else(|_| Vec::new(), |object| function_ranges(&object))
        });
        let next = functions.partition_point(|function| function.start <= address);
        next.checked_sub(1)
            .map(|index| &functions[index])
            .filter(|function| function.contains(&address))
            .map_or(address, |function| function.start)
    }

    /// The ELF virtual address of a file offset; the offset itself when no segment has it.
    fn virtual_address(&self, offset: u64) -> u64 {
        self.segments
            .iter()
            .find(|(start, size, _)| (*start..start.saturating_add(*size)).contains(&offset))
            .map_or(offset, |(start, _, address)| offset - start + address)
    }

    /// Frames at a file offset, innermost first. The name is looked up `back` bytes before it.
    ///
    /// The function itself has the name of its ELF symbol: debug information leaves out namespaces
    /// and modules. What was inlined into it is known to debug information only.
    pub(super) fn frames(&self, blazesym: &Blazesym, offset: u64, back: u64) -> Vec<Frame> {
        let address = self.virtual_address(offset - back);
        let symbol = symbol(&self.file, blazesym, address, false).or_else(|| {
            let debug = self.debug.as_ref()?;
            symbol(&debug.file, blazesym, address, false)
        });
        let debug = self
            .dwarf()
            .and_then(|file| self::symbol(file, blazesym, address, true));
        let Some(outer) = symbol.as_ref().or(debug.as_ref()) else {
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
            .chain([outer.name.as_ref()])
            .filter(|name| !name.is_empty())
            .map(signature)
            .collect();
        // Debug information of glibc's cancellation points lists a function inside itself.
        names.dedup();
        names.into_iter().map(Frame::new).collect()
    }

    /// Whose DWARF is read.
    fn dwarf(&self) -> Option<&File> {
        let own = self.links.has_plain_dwarf().then_some(&self.file);
        own.or_else(|| {
            let debug = self.debug.as_ref()?;
            debug.links.has_plain_dwarf().then_some(&debug.file)
        })
    }
}

/// The symbol of a file that covers an address, from ELF symbols or from debug information.
fn symbol<'a>(file: &File, blazesym: &'a Blazesym, address: u64, debug: bool) -> Option<Sym<'a>> {
    let mut elf = Elf::new(PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())));
    elf.debug_syms = debug;
    blazesym
        .symbolize_single(&Source::Elf(elf), Input::VirtOffset(address))
        .ok()
        .and_then(Symbolized::into_sym)
        .filter(|symbol| {
            // A symbol without a size is trusted at its first byte only: behind it may be
            // anything.
            let size = symbol.size.map_or(1, |size| size as u64);
            let end = symbol.addr.saturating_add(size);
            !symbol.name.is_empty() && (symbol.addr..end).contains(&address)
        })
}

/// Reads the loaded segments of a 64-bit little-endian ELF file.
fn segments(file: &File) -> Option<Vec<(u64, u64, u64)>> {
    let mut bytes = [0; SIZEOF_EHDR];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let is_elf64 = bytes.starts_with(b"\x7fELF\x02\x01");
    if !is_elf64 {
        return None;
    }
    let header = Header::from_bytes(&bytes);
    let count = usize::from(header.e_phnum).min(MAX_PROGRAM_HEADERS);
    let context = Ctx::new(Container::Big, Endian::Little);
    let mut table = vec![0; count * ProgramHeader::size(context)];
    file.read_exact_at(&mut table, header.e_phoff).ok()?;
    let headers = ProgramHeader::parse(&table, 0, count, context).ok()?;
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
            let module = Module::new(path, File::open(path).unwrap(), &[]);
            let blazesym = Blazesym::builder().enable_demangling(false).build();
            let (mut named, mut unnamed) = (0, 0);
            for index in 0..400 {
                let offset = text.p_offset + text.p_filesz / 400 * index;
                let address = text.p_vaddr + (offset - text.p_offset);
                let name = module.frames(&blazesym, offset, 0).remove(0).name;
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
