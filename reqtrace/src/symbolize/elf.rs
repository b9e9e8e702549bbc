//! One mapped ELF file, kept open: file offsets in, frames out.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolizer as Blazesym};
use goblin::container::{Container, Ctx, Endian};
use goblin::elf::header::header64::{Header, SIZEOF_EHDR};
use goblin::elf::program_header::{PT_LOAD, ProgramHeader};

use super::Frame;

/// Program headers that are read at most; a real file has about a dozen.
const MAX_PROGRAM_HEADERS: usize = 256;

/// A mapped file.
#[derive(Debug)]
pub(super) struct Module {
    /// File name, without folders.
    name: String,
    /// Kept open, so that a file that is replaced or whose process has left still has its names.
    file: File,
    /// Loaded segments: (file offset, size in the file, virtual address).
    segments: Vec<(u64, u64, u64)>,
}

impl Module {
    pub(super) fn new(path: &str, file: File) -> Self {
        let name = path.rsplit('/').next().unwrap_or(path);
        Self {
            name: super::names::clean(name),
            segments: segments(&file).unwrap_or_default(),
            file,
        }
    }

    /// The ELF virtual address of a file offset; the offset itself when no segment has it.
    fn virtual_address(&self, offset: u64) -> u64 {
        self.segments
            .iter()
            .find(|(start, size, _)| (*start..start.saturating_add(*size)).contains(&offset))
            .map_or(offset, |(start, _, address)| offset - start + address)
    }

    /// Frames at a file offset, innermost first. The name is looked up `back` bytes before it.
    pub(super) fn frames(&self, blazesym: &Blazesym, offset: u64, back: u64) -> Vec<Frame> {
        let address = self.virtual_address(offset - back);
        let mut elf = Elf::new(PathBuf::from(format!(
            "/proc/self/fd/{}",
            self.file.as_raw_fd()
        )));
        elf.debug_syms = true;
        let found = blazesym.symbolize_single(&Source::Elf(elf), Input::VirtOffset(address));
        let symbol = found
            .ok()
            .and_then(blazesym::symbolize::Symbolized::into_sym);
        let Some(symbol) = symbol.filter(|symbol| {
            // A symbol without a size is trusted at its first byte only: behind it may be
            // anything.
            let size = symbol.size.map_or(1, |size| size as u64);
            let end = symbol.addr.saturating_add(size);
            !symbol.name.is_empty() && (symbol.addr..end).contains(&address)
        }) else {
            return vec![Frame::new(format!("[{}+{:#x}]", self.name, address + back))];
        };
        let inlined = symbol.inlined.iter().rev();
        inlined
            .map(|function| function.name.as_ref())
            .chain([symbol.name.as_ref()])
            .filter(|name| !name.is_empty())
            .map(Frame::new)
            .collect()
    }
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
