//! ELF: a file in, an [`Object`] out: its functions, what it imports, where its bytes are loaded.
//!
//! Only what resolving needs is parsed, and every offset of the file is taken as hostile: a
//! truncated or malformed file is an error, never a panic.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::header::{EI_CLASS, ELFCLASS64, ELFMAG, EM_X86_64, ET_DYN, ET_EXEC};
use goblin::elf::program_header::{PF_X, PT_LOAD};
use goblin::elf::section_header::{SHT_DYNSYM, SHT_NOTE, SHT_PROGBITS, SHT_SYMTAB};
use goblin::elf::sym::{STT_FUNC, Symtab};
use goblin::elf::{Elf, Header, ProgramHeader, SectionHeader};
use memmap2::Mmap;

use super::frames::{Frames, FramesOf};
use crate::debuginfo::FunctionSymbols;
use crate::error::{Error, Result};

/// Sections that the Go linker makes, the first also in stripped programs.
const GO_SECTIONS: [&[u8]; 3] = [b".gopclntab", b".go.buildinfo", b".note.go.buildid"];

/// A parsed ELF file.
#[derive(Debug)]
pub struct Object {
    bytes: Bytes,
    shown: String,
    segments: Vec<Segment>,
    symbols: Vec<Symbol>,
    imported: Vec<Range<usize>>,
    has_symtab: bool,
    /// Names of symbols that a debug file has: their ranges begin where the file's bytes end.
    more_names: Vec<u8>,
    plt: Vec<Range<u64>>,
    frames: Frames,
    tables: Vec<SymbolTable>,
    usdt_notes: Vec<Range<usize>>,
    usdt_base: Option<u64>,
    is_go: bool,
}

/// Where a symbol table stands in the file.
#[derive(Debug)]
struct SymbolTable {
    offset: usize,
    count: usize,
    strings: Range<usize>,
}

#[derive(Debug)]
enum Bytes {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

/// A `PT_LOAD` with its bytes in the file.
#[derive(Clone, Debug)]
struct Segment {
    address: Range<u64>,
    offset: u64,
    executable: bool,
}

/// A defined function symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    name: Range<usize>,
    /// Virtual address as linked.
    pub address: u64,
    /// Size in bytes; 0 when the symbol table does not say.
    pub size: u64,
}

impl Object {
    /// Opens and parses a file. `shown` is its name in messages.
    ///
    /// # Errors
    ///
    /// Not readable; not ELF (a script is named as such, with its interpreter); malformed; for
    /// another machine ([`crate::error::Kind::Unsupported`]).
    pub fn open(path: &Path, shown: &str) -> Result<Self> {
        let file = File::open(path).map_err(|error| unreadable(shown, error))?;
        let metadata = file.metadata().map_err(|error| unreadable(shown, error))?;
        if !metadata.is_file() {
            return Err(Error::usage(format!("{shown} is not a regular file"))
                .next("name the program's ELF file"));
        }
        if metadata.len() == 0 {
            return Err(not_elf(shown, &[]));
        }
        // SAFETY: the map is read-only and private. Another process could truncate the file
        // meanwhile, as with any program that maps executables; that would end this one by SIGBUS
        // and can't corrupt it. Executables in use are replaced, not truncated (ETXTBSY).
        let map = unsafe { Mmap::map(&file) }.map_err(|error| unreadable(shown, error))?;
        Self::new(Bytes::Mapped(map), shown)
    }

    /// Parses bytes.
    ///
    /// # Errors
    ///
    /// As [`Object::open`].
    pub fn parse(bytes: Vec<u8>, shown: &str) -> Result<Self> {
        Self::new(Bytes::Owned(bytes), shown)
    }

    fn new(bytes: Bytes, shown: &str) -> Result<Self> {
        let mut object = Self {
            bytes,
            shown: shown.to_owned(),
            segments: Vec::new(),
            symbols: Vec::new(),
            imported: Vec::new(),
            has_symtab: false,
            more_names: Vec::new(),
            plt: Vec::new(),
            frames: Frames::default(),
            tables: Vec::new(),
            usdt_notes: Vec::new(),
            usdt_base: None,
            is_go: false,
        };
        object.load()?;
        Ok(object)
    }

    fn load(&mut self) -> Result<()> {
        let shown = self.shown.clone();
        let bytes = match &self.bytes {
            Bytes::Mapped(map) => &map[..],
            Bytes::Owned(bytes) => &bytes[..],
        };
        let malformed = |error: goblin::error::Error| {
            Error::failed(format!("{shown} is a malformed or truncated ELF file")).because(error)
        };
        if !bytes.starts_with(ELFMAG) {
            return Err(not_elf(&shown, bytes));
        }
        let header = check_machine(bytes, &shown)?;
        if header.e_type != ET_EXEC && header.e_type != ET_DYN {
            return Err(Error::usage(format!(
                "{shown} is neither a program nor a shared library (ELF type {})",
                header.e_type
            )));
        }
        let context = Ctx::new(Container::Big, Endian::Little);
        let program_headers = ProgramHeader::parse(
            bytes,
            header.e_phoff as usize,
            header.e_phnum as usize,
            context,
        )
        .map_err(malformed)?;
        let file_length = bytes.len() as u64;
        for load in program_headers.iter().filter(|load| load.p_type == PT_LOAD) {
            let (Some(in_file), Some(end)) = (
                load.p_offset.checked_add(load.p_filesz),
                load.p_vaddr.checked_add(load.p_filesz),
            ) else {
                return Err(truncated(&shown));
            };
            if in_file > file_length {
                return Err(truncated(&shown));
            }
            self.segments.push(Segment {
                address: load.p_vaddr..end,
                offset: load.p_offset,
                executable: load.p_flags & PF_X != 0,
            });
        }
        let sections = SectionHeader::parse(
            bytes,
            header.e_shoff as usize,
            header.e_shnum as usize,
            context,
        )
        .map_err(malformed)?;
        let names = sections
            .get(header.e_shstrndx as usize)
            .and_then(section_range);
        for section in &sections {
            let name = names
                .as_ref()
                .and_then(|names| string_at(bytes, names, section.sh_name))
                .and_then(|range| bytes.get(range))
                .unwrap_or_default();
            self.is_go |= GO_SECTIONS.contains(&name);
            if section.sh_type == SHT_PROGBITS && name.starts_with(b".plt") {
                let end = section.sh_addr.saturating_add(section.sh_size);
                self.plt.push(section.sh_addr..end);
            }
            if name == b".eh_frame"
                && let Some(range) = section_range(section)
                && range.end <= bytes.len()
            {
                self.frames = Frames::parse(bytes, range, section.sh_addr);
            }
            if section.sh_type == SHT_NOTE && name == b".note.stapsdt" {
                self.usdt_notes.extend(section_range(section));
            }
            if name == b".stapsdt.base" {
                self.usdt_base = Some(section.sh_addr);
            }
            if section.sh_type != SHT_SYMTAB && section.sh_type != SHT_DYNSYM {
                continue;
            }
            let Some(strings) = sections
                .get(section.sh_link as usize)
                .and_then(section_range)
            else {
                continue;
            };
            self.has_symtab |= section.sh_type == SHT_SYMTAB;
            let count = (section.sh_size / 24) as usize;
            let table = Symtab::parse(bytes, section.sh_offset as usize, count, context)
                .map_err(malformed)?;
            self.tables.push(SymbolTable {
                offset: section.sh_offset as usize,
                count,
                strings: strings.clone(),
            });
            for symbol in &table {
                if symbol.st_type() != STT_FUNC {
                    continue;
                }
                let Some(name) = string_at(bytes, &strings, symbol.st_name) else {
                    continue;
                };
                if name.is_empty() {
                    continue;
                }
                if symbol.st_shndx == 0 {
                    self.imported.push(name);
                } else if self
                    .segments
                    .iter()
                    .any(|segment| segment.executable && segment.address.contains(&symbol.st_value))
                {
                    self.symbols.push(Symbol {
                        name,
                        address: symbol.st_value,
                        size: symbol.st_size,
                    });
                }
            }
        }
        self.sort_symbols();
        Ok(())
    }

    fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(map) => map,
            Bytes::Owned(bytes) => bytes,
        }
    }

    /// Its name in messages.
    #[must_use]
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Defined functions, by address.
    #[must_use]
    pub fn symbols(&self) -> &[Symbol] {
        &self.symbols
    }

    /// The name of a symbol as it stands in the symbol table; empty when it is not UTF-8.
    #[must_use]
    pub fn name(&self, symbol: &Symbol) -> &str {
        self.text(&symbol.name)
    }

    fn text(&self, range: &Range<usize>) -> &str {
        std::str::from_utf8(self.raw(range)).unwrap_or_default()
    }

    fn raw(&self, range: &Range<usize>) -> &[u8] {
        let own = self.bytes();
        let name = match range.start.checked_sub(own.len()) {
            Some(start) => self.more_names.get(start..start + range.len()),
            None => own.get(range.clone()),
        };
        name.unwrap_or_default()
    }

    /// Names of functions that another object must provide, without their version.
    pub fn imported(&self) -> impl Iterator<Item = &str> {
        self.imported.iter().map(|range| {
            let name = self.text(range);
            name.split('@').next().unwrap_or(name)
        })
    }

    /// Whether it was linked by Go.
    #[must_use]
    pub fn is_go(&self) -> bool {
        self.is_go
    }

    /// Adds the functions of its debug file, which must be of the same build.
    pub fn add(&mut self, functions: FunctionSymbols) {
        let FunctionSymbols { symbols, strings } = functions;
        let length = self.bytes().len();
        for symbol in symbols {
            let Some(name) = string_at(&strings, &(0..strings.len()), symbol.name) else {
                continue;
            };
            if !name.is_empty() && self.code_segment(symbol.address).is_some() {
                self.symbols.push(Symbol {
                    name: name.start + length..name.end + length,
                    address: symbol.address,
                    size: symbol.size,
                });
            }
        }
        self.more_names = strings;
        self.has_symtab = true;
        self.sort_symbols();
    }

    /// By address and name, each once: `.dynsym` repeats what `.symtab` has.
    fn sort_symbols(&mut self) {
        let mut symbols = std::mem::take(&mut self.symbols);
        let key = |symbol: &Symbol| (symbol.address, self.raw(&symbol.name));
        symbols.sort_by(|a, b| key(a).cmp(&key(b)));
        symbols.dedup_by(|a, b| key(a) == key(b));
        self.symbols = symbols;
    }

    /// Whether it has a full symbol table, so that static functions can be found too.
    #[must_use]
    pub fn has_symtab(&self) -> bool {
        self.has_symtab
    }

    /// Its call frame information.
    #[must_use]
    pub fn frames(&self) -> FramesOf<'_> {
        FramesOf::new(&self.frames, self.bytes())
    }

    /// Whether an address is in a procedure linkage table.
    #[must_use]
    pub fn in_plt(&self, address: u64) -> bool {
        self.plt.iter().any(|plt| plt.contains(&address))
    }

    /// The offset in the file of a virtual address of code.
    #[must_use]
    pub fn file_offset(&self, address: u64) -> Option<u64> {
        let segment = self.code_segment(address)?;
        Some(address - segment.address.start + segment.offset)
    }

    /// The offset in the file of a virtual address of code or data; `None` for what has no bytes
    /// in the file, such as `.bss`.
    #[must_use]
    pub fn data_offset(&self, address: u64) -> Option<u64> {
        let segment = self
            .segments
            .iter()
            .find(|segment| segment.address.contains(&address))?;
        (address - segment.address.start).checked_add(segment.offset)
    }

    /// The virtual address of a symbol of any kind, by its name as it stands in the file.
    #[must_use]
    pub fn address_of_symbol(&self, wanted: &str) -> Option<u64> {
        let context = Ctx::new(Container::Big, Endian::Little);
        let bytes = self.bytes();
        self.tables.iter().find_map(|table| {
            let symbols = Symtab::parse(bytes, table.offset, table.count, context).ok()?;
            let found = symbols.iter().find(|symbol| {
                symbol.st_shndx != 0
                    && string_at(bytes, &table.strings, symbol.st_name)
                        .is_some_and(|name| bytes.get(name) == Some(wanted.as_bytes()))
            });
            found.map(|symbol| symbol.st_value)
        })
    }

    /// The bytes of its `.note.stapsdt` sections, as far as the file has them.
    pub(super) fn usdt_notes(&self) -> impl Iterator<Item = &[u8]> {
        self.usdt_notes.iter().map(|range| {
            let end = range.end.min(self.bytes().len());
            self.bytes().get(range.start..end).unwrap_or_default()
        })
    }

    /// The address of its `.stapsdt.base`.
    pub(super) fn usdt_base(&self) -> Option<u64> {
        self.usdt_base
    }

    /// The virtual address of code at an offset of the file.
    #[must_use]
    pub fn address_of(&self, file_offset: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let length = segment.address.end - segment.address.start;
            let distance = file_offset.checked_sub(segment.offset)?;
            (segment.executable && distance < length).then(|| segment.address.start + distance)
        })
    }

    /// Bytes of code from an address to the end of its segment; empty when it is not code.
    #[must_use]
    pub fn code(&self, address: u64) -> &[u8] {
        let Some(segment) = self.code_segment(address) else {
            return &[];
        };
        self.read(segment, address)
    }

    /// The eight bytes at an address of code or data, as linked (before relocation).
    #[must_use]
    pub fn word(&self, address: u64) -> Option<u64> {
        let segment = self
            .segments
            .iter()
            .find(|segment| segment.address.contains(&address))?;
        let bytes = self.read(segment, address).first_chunk::<8>()?;
        Some(u64::from_le_bytes(*bytes))
    }

    /// Where the code may hold a direct call of, or jump to, an address: what looks like one, at
    /// any byte, so that nothing is missed.
    pub fn references(&self, target: u64) -> impl Iterator<Item = u64> {
        self.segments
            .iter()
            .filter(|segment| segment.executable)
            .flat_map(move |segment| {
                let start = segment.address.start;
                self.read(segment, start)
                    .windows(5)
                    .enumerate()
                    .filter(move |(at, bytes)| {
                        // call, jmp, and the second byte of jcc.
                        matches!(bytes[0], 0xe8 | 0xe9 | 0x80..=0x8f)
                            && start
                                .wrapping_add(*at as u64 + 5)
                                .wrapping_add_signed(i64::from(i32::from_le_bytes([
                                    bytes[1], bytes[2], bytes[3], bytes[4],
                                ])))
                                == target
                    })
                    .map(move |(at, _)| start + at as u64)
            })
    }

    fn code_segment(&self, address: u64) -> Option<&Segment> {
        self.segments
            .iter()
            .find(|segment| segment.executable && segment.address.contains(&address))
    }

    fn read(&self, segment: &Segment, address: u64) -> &[u8] {
        let length = segment.address.end - segment.address.start;
        let start = segment.offset + (address - segment.address.start);
        self.bytes()
            .get(start as usize..(segment.offset + length) as usize)
            .unwrap_or_default()
    }
}

fn check_machine(bytes: &[u8], shown: &str) -> Result<Header> {
    let class = bytes.get(EI_CLASS).copied().unwrap_or_default();
    let machine = match bytes.get(18..20) {
        // Big-endian machines store it the other way round; the byte before says which.
        Some(&[low, high]) if bytes.get(5) == Some(&2) => u16::from_be_bytes([low, high]),
        Some(&[low, high]) => u16::from_le_bytes([low, high]),
        _ => return Err(truncated(shown)),
    };
    if class != ELFCLASS64 || machine != EM_X86_64 {
        let bits = if class == ELFCLASS64 { "" } else { "32-bit " };
        let name = goblin::elf::header::machine_to_str(machine).trim_start_matches("EM_");
        return Err(
            Error::unsupported(format!("{shown} is for another machine: {bits}{name}"))
                .next("reqtrace traces 64-bit x86-64 programs only"),
        );
    }
    Elf::parse_header(bytes).map_err(|error| {
        Error::failed(format!("{shown} is a malformed or truncated ELF file")).because(error)
    })
}

fn section_range(section: &SectionHeader) -> Option<Range<usize>> {
    let start = usize::try_from(section.sh_offset).ok()?;
    let end = start.checked_add(usize::try_from(section.sh_size).ok()?)?;
    Some(start..end)
}

/// Where in the file the string at `index` of a string table stands, without its NUL.
fn string_at(bytes: &[u8], table: &Range<usize>, index: usize) -> Option<Range<usize>> {
    let start = table.start.checked_add(index)?;
    let tail = bytes.get(start..table.end.min(bytes.len()))?;
    let length = tail.iter().position(|&byte| byte == 0)?;
    Some(start..start + length)
}

fn unreadable(shown: &str, error: std::io::Error) -> Error {
    let failure = match error.kind() {
        std::io::ErrorKind::NotFound => Error::usage(format!("there is no file {shown}"))
            .next("give the program's path, such as \"$(command -v NAME)\""),
        std::io::ErrorKind::PermissionDenied => {
            Error::unsupported(format!("not permitted to read {shown}")).next("run it as root")
        }
        _ => Error::failed(format!("cannot read {shown}")),
    };
    failure.because(error)
}

fn truncated(shown: &str) -> Error {
    Error::failed(format!("{shown} is a malformed or truncated ELF file"))
}

fn not_elf(shown: &str, bytes: &[u8]) -> Error {
    if let Some(line) = bytes.strip_prefix(b"#!") {
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(&line[..line.len().min(128)]);
        return Error::usage(format!(
            "{shown} is a script for the interpreter {}, not an ELF program",
            line.trim()
        ))
        .next("name the program that runs it, or the PID of its process");
    }
    Error::usage(format!("{shown} is not an ELF program")).next("name the program's ELF file")
}

#[cfg(test)]
mod tests;
