//! Sections of an ELF file: a file and a name in, bytes out, read piece by piece, so that a file that
//! shrinks meanwhile is an error and no signal.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::SectionHeader;
use goblin::elf::header::header64::{Header, SIZEOF_EHDR};
use goblin::elf::section_header::{SHT_NOBITS, SHT_SYMTAB};
use goblin::elf::sym::{STT_FUNC, Symtab};

/// Section headers that are read at most.
const MAX_SECTIONS: usize = 1 << 16;
/// The largest table of section names, note or link that is read.
const MAX_SMALL_BYTES: u64 = 1 << 20;
/// The largest symbol table and table of its names that is read: millions of functions.
const MAX_SYMBOL_BYTES: u64 = 1 << 30;
const SYMBOL_BYTES: u64 = 24;
const NT_GNU_BUILD_ID: u32 = 3;
const CONTEXT: Ctx = Ctx {
    container: Container::Big,
    le: Endian::Little,
};

/// The section headers of a 64-bit little-endian ELF file.
#[derive(Debug)]
pub(super) struct Sections {
    headers: Vec<SectionHeader>,
    names: Vec<u8>,
}

/// A function that a symbol table defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionSymbol {
    /// Where its name begins in [`FunctionSymbols::strings`].
    pub name: usize,
    /// Virtual address as linked.
    pub address: u64,
    /// Size in bytes; 0 when the table does not say.
    pub size: u64,
}

/// The functions of a symbol table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionSymbols {
    /// In the table's order.
    pub symbols: Vec<FunctionSymbol>,
    /// Names, each ended by NUL.
    pub strings: Vec<u8>,
}

impl Sections {
    pub(super) fn read(file: &File) -> io::Result<Self> {
        let mut bytes = [0; SIZEOF_EHDR];
        file.read_exact_at(&mut bytes, 0)?;
        if !bytes.starts_with(b"\x7fELF\x02\x01") {
            return Err(io::Error::other("it is no 64-bit ELF file"));
        }
        let header = Header::from_bytes(&bytes);
        let count = usize::from(header.e_shnum).min(MAX_SECTIONS);
        // The parser takes a table at offset 0 for none: it gets the file's header before it.
        let mut table = vec![0; SIZEOF_EHDR + count * SectionHeader::size(CONTEXT)];
        file.read_exact_at(&mut table[SIZEOF_EHDR..], header.e_shoff)?;
        let headers =
            SectionHeader::parse(&table, SIZEOF_EHDR, count, CONTEXT).map_err(io::Error::other)?;
        let names = headers
            .get(usize::from(header.e_shstrndx))
            .and_then(|section| read(file, section, MAX_SMALL_BYTES).ok())
            .unwrap_or_default();
        Ok(Self { headers, names })
    }

    fn find(&self, name: &str) -> Option<&SectionHeader> {
        self.headers.iter().find(|section| {
            self.names
                .get(section.sh_name..)
                .and_then(|rest| rest.strip_prefix(name.as_bytes()))
                .is_some_and(|rest| rest.first() == Some(&0))
                && section.sh_type != SHT_NOBITS
        })
    }

    /// Whether there is a section of this name that has contents in the file.
    pub(super) fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Offset and size of a section in the file.
    pub(super) fn place(&self, name: &str) -> Option<(u64, u64)> {
        self.find(name)
            .map(|section| (section.sh_offset, section.sh_size))
    }

    /// Where DWARF stands in the file, in order.
    pub(super) fn debug_information(&self) -> Vec<Range<u64>> {
        let is_debug = |section: &&SectionHeader| {
            let name = self.names.get(section.sh_name..);
            name.is_some_and(|name| name.starts_with(b".debug_")) && section.sh_type != SHT_NOBITS
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
    pub(super) fn contents(&self, file: &File, name: &str) -> Option<Vec<u8>> {
        read(file, self.find(name)?, MAX_SMALL_BYTES).ok()
    }

    pub(super) fn has_symtab(&self) -> bool {
        self.symtab().is_some()
    }

    fn symtab(&self) -> Option<&SectionHeader> {
        self.headers
            .iter()
            .find(|section| section.sh_type == SHT_SYMTAB && section.sh_size > 0)
    }

    pub(super) fn build_id(&self, file: &File) -> Option<Vec<u8>> {
        const HEADER: usize = 16;
        let note = self.contents(file, ".note.gnu.build-id")?;
        let word = |at: usize| {
            let bytes = note.get(at..at + 4)?;
            Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        };
        let size = word(4)? as usize;
        let is_build_id =
            word(0)? == 4 && word(8)? == NT_GNU_BUILD_ID && note.get(12..HEADER)? == b"GNU\0";
        let id = note.get(HEADER..HEADER.checked_add(size)?)?;
        (is_build_id && !id.is_empty()).then(|| id.to_vec())
    }

    /// The functions of `.symtab`.
    pub(super) fn functions(&self, file: &File) -> io::Result<FunctionSymbols> {
        let Some(table) = self.symtab() else {
            return Ok(FunctionSymbols::default());
        };
        let strings = self
            .headers
            .get(table.sh_link as usize)
            .ok_or_else(|| io::Error::other("its symbol table has no names"))?;
        let strings = read(file, strings, MAX_SYMBOL_BYTES)?;
        let bytes = read(file, table, MAX_SYMBOL_BYTES)?;
        let count = (table.sh_size / SYMBOL_BYTES) as usize;
        let table = Symtab::parse(&bytes, 0, count, CONTEXT).map_err(io::Error::other)?;
        let symbols = table
            .iter()
            .filter(|symbol| symbol.st_type() == STT_FUNC && symbol.st_shndx != 0)
            .map(|symbol| FunctionSymbol {
                name: symbol.st_name,
                address: symbol.st_value,
                size: symbol.st_size,
            })
            .collect();
        Ok(FunctionSymbols { symbols, strings })
    }
}

fn read(file: &File, section: &SectionHeader, most: u64) -> io::Result<Vec<u8>> {
    if section.sh_type == SHT_NOBITS {
        return Ok(Vec::new());
    }
    if section.sh_size > most || section.sh_size > file.metadata()?.len() {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = vec![0; section.sh_size as usize];
    file.read_exact_at(&mut bytes, section.sh_offset)?;
    Ok(bytes)
}
