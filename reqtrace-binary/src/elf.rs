//! ELF: a file in; an [`Object`] out, which has its functions, what it imports, and where its bytes are
//! loaded. For unwinding and naming, which need less, its headers, sections and notes.
//!
//! Only what is needed is parsed, and every offset of the file is taken as hostile: a
//! truncated or malformed file is an error, never a panic.

mod copied;
mod headers;
mod notes;
mod parse;
mod references;
mod sections;
mod source;

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use goblin::elf::sym::{STT_OBJECT, STT_TLS, Symtab};
use memmap2::MmapMut;

use crate::error::{Error, Result};
use crate::frames::{Frames, FramesOf};

use headers::CONTEXT;
use parse::{not_elf, string_at};
use references::References;

pub use headers::HeaderError;
pub(crate) use headers::{FileHeader, compression};
pub(crate) use notes::build_id;
pub use notes::notes;
pub use parse::unreadable;
pub use sections::{DefinedSymbol, DefinedSymbols};
pub(crate) use sections::{MAX_SYMBOL_BYTES, MAX_SYMBOL_NAME, Sections, read_section};
pub use source::ReadAt;

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
    /// As in its build information.
    go_version: Option<String>,
    references: References,
}

/// Where a symbol table stands in the file.
#[derive(Debug)]
struct SymbolTable {
    offset: usize,
    count: usize,
    strings: Range<usize>,
    /// `.dynsym`, which relocations name.
    is_dynamic: bool,
}

#[derive(Debug)]
enum Bytes {
    /// A copy in memory that nobody else can change.
    Copied(MmapMut),
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

/// Opens a file. `shown` is its name in messages.
///
/// # Errors
///
/// There is none, or it may not be read.
pub fn open(path: &Path, shown: &str) -> Result<File> {
    File::open(path).map_err(|error| unreadable(shown, error))
}

impl Object {
    /// Opens and parses a file. `shown` is its name in messages.
    ///
    /// # Errors
    ///
    /// Not readable; not ELF (a script is named as such, with its interpreter); malformed; for
    /// another machine ([`crate::error::Kind::Unsupported`]).
    pub fn open(path: &Path, shown: &str) -> Result<Self> {
        Self::read(&open(path, shown)?, shown)
    }

    /// Parses a file that is open.
    ///
    /// # Errors
    ///
    /// As [`Object::open`].
    pub fn read(file: &File, shown: &str) -> Result<Self> {
        let metadata = file.metadata().map_err(|error| unreadable(shown, error))?;
        if !metadata.is_file() {
            return Err(Error::usage(format!("{shown} is not a regular file"))
                .next("name the program's ELF file"));
        }
        if metadata.len() == 0 {
            return Err(not_elf(shown, &[]));
        }
        let copy = copied::copy(file, metadata.len()).map_err(|error| unreadable(shown, error))?;
        Self::new(Bytes::Copied(copy), shown)
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
            go_version: None,
            references: References::default(),
        };
        object.load()?;
        Ok(object)
    }

    fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Copied(copy) => copy,
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

    /// Which version of Go has linked it, such as `go1.26.6`; `None` where it does not say.
    #[must_use]
    pub fn go_version(&self) -> Option<&str> {
        self.go_version.as_deref()
    }

    /// Adds the functions of its debug file, which must be of the same build.
    pub fn add(&mut self, functions: DefinedSymbols) {
        let DefinedSymbols { symbols, strings } = functions;
        let length = self.bytes().len() + self.more_names.len();
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
        self.more_names.extend(strings);
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

    /// The virtual address of a symbol of any kind, by its name as it stands in the file; `None` also where
    /// several of that name have different ones.
    #[must_use]
    pub fn address_of_symbol(&self, wanted: &str) -> Option<u64> {
        let bytes = self.bytes();
        let tables = self.tables.iter().filter_map(|table| {
            let symbols = Symtab::parse(bytes, table.offset, table.count, CONTEXT).ok()?;
            Some((table, symbols))
        });
        let mut addresses = tables.flat_map(|(table, symbols)| {
            let is_wanted = |name: usize| {
                string_at(bytes, &table.strings, name)
                    .is_some_and(|name| bytes.get(name) == Some(wanted.as_bytes()))
            };
            let found: Vec<u64> = symbols
                .iter()
                .filter(|symbol| symbol.st_shndx != 0 && is_wanted(symbol.st_name))
                .map(|symbol| symbol.st_value)
                .collect();
            found
        });
        let first = addresses.next()?;
        addresses.all(|address| address == first).then_some(first)
    }

    /// The variables that its symbol tables define: the name as it stands in the file, and the virtual
    /// address; `None` for one of which each thread has its own.
    pub fn variables(&self) -> impl Iterator<Item = (&str, Option<u64>)> {
        let bytes = self.bytes();
        let tables = self.tables.iter().filter_map(move |table| {
            let symbols = Symtab::parse(bytes, table.offset, table.count, CONTEXT).ok()?;
            Some((table, symbols))
        });
        tables.flat_map(move |(table, symbols)| {
            let all: Vec<_> = symbols
                .iter()
                .filter(|symbol| symbol.st_shndx != 0)
                .filter_map(|symbol| {
                    let address = match symbol.st_type() {
                        STT_OBJECT => Some(symbol.st_value),
                        STT_TLS => None,
                        _ => return None,
                    };
                    let name = string_at(bytes, &table.strings, symbol.st_name)?;
                    Some((std::str::from_utf8(bytes.get(name)?).ok()?, address))
                })
                .collect();
            all
        })
    }

    /// The bytes of its `.note.stapsdt` sections, as far as the file has them.
    pub fn usdt_notes(&self) -> impl Iterator<Item = &[u8]> {
        self.usdt_notes.iter().map(|range| {
            let end = range.end.min(self.bytes().len());
            self.bytes().get(range.start..end).unwrap_or_default()
        })
    }

    /// The address of its `.stapsdt.base`.
    pub fn usdt_base(&self) -> Option<u64> {
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

    /// The first bytes of the instruction at an offset of the file; 0 where there is no code.
    #[must_use]
    pub fn instruction_at(&self, file_offset: u64) -> [u8; 2] {
        let address = self.address_of(file_offset);
        let code = address.and_then(|address| self.code(address).first_chunk());
        code.copied().unwrap_or_default()
    }

    /// Bytes of code from an address to the end of its segment; empty when it is not code.
    #[must_use]
    pub fn code(&self, address: u64) -> &[u8] {
        let Some(segment) = self.code_segment(address) else {
            return &[];
        };
        self.bytes_of(segment, address)
    }

    /// The eight bytes at an address of code or data, as linked (before relocation).
    #[must_use]
    pub fn word(&self, address: u64) -> Option<u64> {
        let segment = self
            .segments
            .iter()
            .find(|segment| segment.address.contains(&address))?;
        let bytes = self.bytes_of(segment, address).first_chunk::<8>()?;
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
                self.bytes_of(segment, start)
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

    fn bytes_of(&self, segment: &Segment, address: u64) -> &[u8] {
        let length = segment.address.end - segment.address.start;
        let start = segment.offset + (address - segment.address.start);
        self.bytes()
            .get(start as usize..(segment.offset + length) as usize)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_file_that_is_cut_short_stays_readable() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let program = std::fs::read("/bin/true").unwrap();
        file.write_all(&program).unwrap();
        let object = Object::open(file.path(), "true").unwrap();
        file.as_file().set_len(0).unwrap();
        let whole = Object::parse(program, "true").unwrap();
        assert_eq!(object.symbols(), whole.symbols());
        let start = whole.segments.iter().find(|segment| segment.executable);
        let start = start.unwrap().address.start;
        assert_eq!(object.code(start), whole.code(start));
    }
}
