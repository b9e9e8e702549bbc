//! Sections of an ELF file: a file and a name in, headers and bytes out.

use std::ffi::OsString;
use std::io;
use std::ops::Range;

use goblin::elf::SectionHeader;
use goblin::elf::section_header::{SHT_DYNSYM, SHT_NOBITS, SHT_SYMTAB};
use goblin::elf::sym::{STT_FUNC, STT_OBJECT, Symtab};

use super::headers::{CONTEXT, FileHeader, HeaderError};
use super::notes;
use super::source::{self, ReadAt};

/// The largest table of section names, note or link that is read.
const MAX_SMALL_BYTES: u64 = 1 << 20;
/// The largest symbol table and table of its names that is read: millions of functions.
pub(crate) const MAX_SYMBOL_BYTES: u64 = 1 << 30;
const SYMBOL_BYTES: u64 = 24;
/// Bytes of a symbol's name, with the NUL, that are looked at: a table of names that has no NUL is not searched for each symbol
/// again. The longest real ones have some 10 KB.
pub(crate) const MAX_SYMBOL_NAME: usize = 64 << 10;
/// The longest name of a section that is read; those that are looked for have some 20 bytes.
const MAX_NAME: usize = 128;

/// The section headers of a 64-bit little-endian ELF file.
#[derive(Debug)]
pub(crate) struct Sections {
    headers: Vec<SectionHeader>,
    names: Vec<u8>,
}

/// A function or a variable that a symbol table defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefinedSymbol {
    /// Where its name begins in [`DefinedSymbols::strings`].
    pub name: usize,
    /// Virtual address as linked.
    pub address: u64,
    /// Size in bytes; 0 when the table does not say.
    pub size: u64,
}

/// The functions, or the variables, of a symbol table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefinedSymbols {
    /// In the table's order.
    pub symbols: Vec<DefinedSymbol>,
    /// Names, each ended by NUL.
    pub strings: Vec<u8>,
}

impl DefinedSymbols {
    /// Their names in UTF-8, and their addresses.
    pub fn named(&self) -> impl Iterator<Item = (&str, u64)> {
        let symbols = self.symbols.iter();
        symbols.filter_map(|symbol| Some((self.name(symbol)?, symbol.address)))
    }

    /// The name of the function that covers an address; they must be sorted by address.
    pub(crate) fn covering(&self, address: u64) -> Option<&str> {
        let next = self
            .symbols
            .partition_point(|symbol| symbol.address <= address);
        let symbol = self.symbols[..next].last()?;
        (address - symbol.address < symbol.size).then(|| self.name(symbol))?
    }

    /// The name of one of them; `None` when it has none in UTF-8, or a longer one than any real one.
    pub(crate) fn name(&self, symbol: &DefinedSymbol) -> Option<&str> {
        let from = self.strings.get(symbol.name..)?;
        let from = &from[..from.len().min(MAX_SYMBOL_NAME)];
        let end = from.iter().position(|&byte| byte == 0)?;
        let name = std::str::from_utf8(&from[..end]).ok()?;
        (!name.is_empty()).then_some(name)
    }
}

impl Sections {
    /// Reads the headers.
    pub(crate) fn read<S: ReadAt + ?Sized>(source: &S) -> Result<Self, HeaderError> {
        Self::of(&FileHeader::read(source)?, source)
    }

    /// Those of a file whose header was read. Without a table of their names they have none.
    pub(crate) fn of<S: ReadAt + ?Sized>(
        header: &FileHeader,
        source: &S,
    ) -> Result<Self, HeaderError> {
        let headers = header.sections(source)?;
        // From there on it is no index.
        const RESERVED: u16 = 0xff00;
        let index = header.fields().e_shstrndx;
        let names = headers
            .get(usize::from(index))
            .filter(|_| index < RESERVED)
            .and_then(|section| read_section(source, section, MAX_SMALL_BYTES).ok())
            .unwrap_or_default();
        Ok(Self { headers, names })
    }

    /// Whether the table of their names could be read.
    pub(crate) fn has_names(&self) -> bool {
        !self.names.is_empty()
    }

    /// All of them, in the file's order.
    pub(crate) fn headers(&self) -> &[SectionHeader] {
        &self.headers
    }

    /// The name of one; empty when it has none.
    pub(crate) fn name(&self, section: &SectionHeader) -> &[u8] {
        let from = self.names.get(section.sh_name..).unwrap_or_default();
        let from = &from[..from.len().min(MAX_NAME)];
        let end = from.iter().position(|&byte| byte == 0).unwrap_or(0);
        &from[..end]
    }

    /// The first of a name that has contents in the file: in a file of debug symbols others are there
    /// without them.
    pub(crate) fn find(&self, name: &str) -> Option<&SectionHeader> {
        self.headers
            .iter()
            .find(|section| section.sh_type != SHT_NOBITS && self.name(section) == name.as_bytes())
    }

    /// Whether there is a section of this name that has contents in the file.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Offset and size of a section in the file.
    pub(crate) fn place(&self, name: &str) -> Option<(u64, u64)> {
        self.find(name)
            .map(|section| (section.sh_offset, section.sh_size))
    }

    /// Where DWARF stands in the file, in order.
    pub(crate) fn debug_information(&self) -> Vec<Range<u64>> {
        let is_debug = |section: &&SectionHeader| {
            self.name(section).starts_with(b".debug_") && section.sh_type != SHT_NOBITS
        };
        let mut ranges: Vec<_> = self
            .headers
            .iter()
            .filter(is_debug)
            .map(|section| section.sh_offset..section.sh_offset.saturating_add(section.sh_size))
            .collect();
        ranges.sort_by_key(|range| range.start);
        ranges
    }

    /// A small section.
    pub(crate) fn contents<S: ReadAt + ?Sized>(&self, source: &S, name: &str) -> Option<Vec<u8>> {
        read_section(source, self.find(name)?, MAX_SMALL_BYTES).ok()
    }

    /// The GNU build id.
    pub(crate) fn build_id<S: ReadAt + ?Sized>(&self, source: &S) -> Option<Vec<u8>> {
        notes::build_id(&self.contents(source, ".note.gnu.build-id")?)
    }

    /// The name and CRC-32 of its debug file.
    pub(crate) fn debug_link<S: ReadAt + ?Sized>(&self, source: &S) -> Option<(OsString, u32)> {
        notes::debug_link(&self.contents(source, ".gnu_debuglink")?)
    }

    pub(crate) fn has_symtab(&self) -> bool {
        self.symtab().is_some()
    }

    fn symtab(&self) -> Option<&SectionHeader> {
        self.headers
            .iter()
            .find(|section| section.sh_type == SHT_SYMTAB && section.sh_size > 0)
    }

    /// The functions of `.symtab`.
    pub(crate) fn functions<S: ReadAt + ?Sized>(&self, source: &S) -> io::Result<DefinedSymbols> {
        match self.symtab() {
            Some(table) => self.defined(source, table, STT_FUNC),
            None => Ok(DefinedSymbols::default()),
        }
    }

    /// The variables of `.symtab`, or, in a file without one, of `.dynsym`.
    pub(crate) fn variables<S: ReadAt + ?Sized>(&self, source: &S) -> io::Result<DefinedSymbols> {
        let exported = || {
            let mut sections = self.headers.iter();
            sections.find(|section| section.sh_type == SHT_DYNSYM && section.sh_size > 0)
        };
        match self.symtab().or_else(exported) {
            Some(table) => self.defined(source, table, STT_OBJECT),
            None => Ok(DefinedSymbols::default()),
        }
    }

    fn defined<S: ReadAt + ?Sized>(
        &self,
        source: &S,
        table: &SectionHeader,
        kind: u8,
    ) -> io::Result<DefinedSymbols> {
        let strings = self
            .headers
            .get(table.sh_link as usize)
            .ok_or_else(|| io::Error::other("its symbol table has no names"))?;
        let strings = read_section(source, strings, MAX_SYMBOL_BYTES)?;
        let bytes = read_section(source, table, MAX_SYMBOL_BYTES)?;
        let count = (table.sh_size / SYMBOL_BYTES) as usize;
        let table = Symtab::parse(&bytes, 0, count, CONTEXT).map_err(io::Error::other)?;
        let symbols = table
            .iter()
            .filter(|symbol| symbol.st_type() == kind && symbol.st_shndx != 0)
            .map(|symbol| DefinedSymbol {
                name: symbol.st_name,
                address: symbol.st_value,
                size: symbol.st_size,
            })
            .collect();
        Ok(DefinedSymbols { symbols, strings })
    }
}

/// The contents of a section, if they are no more than so many bytes.
pub(crate) fn read_section<S: ReadAt + ?Sized>(
    source: &S,
    section: &SectionHeader,
    most: u64,
) -> io::Result<Vec<u8>> {
    if section.sh_type == SHT_NOBITS {
        return Ok(Vec::new());
    }
    source::read(source, section.sh_offset, section.sh_size, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_an_end_is_none() {
        let name = |length: usize| {
            let mut strings = vec![b'f'; length];
            strings.push(0);
            let symbol = DefinedSymbol {
                name: 0,
                address: 0x1000,
                size: 1,
            };
            let functions = DefinedSymbols {
                symbols: vec![symbol],
                strings,
            };
            functions.name(&symbol).map(str::len)
        };
        assert_eq!(name(0), None);
        assert_eq!(name(MAX_SYMBOL_NAME - 1), Some(MAX_SYMBOL_NAME - 1));
        assert_eq!(name(MAX_SYMBOL_NAME), None);
    }
}
