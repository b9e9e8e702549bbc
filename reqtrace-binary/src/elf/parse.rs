//! Reading an ELF file: its bytes in, the tables of an [`Object`] out. Every offset is looked at before
//! it is followed.

use std::ops::Range;

use goblin::elf::SectionHeader;
use goblin::elf::header::{EI_CLASS, ELFCLASS64, ELFMAG, EM_X86_64, ET_DYN, ET_EXEC};
use goblin::elf::program_header::{PF_X, PT_LOAD};
use goblin::elf::section_header::{SHT_DYNSYM, SHT_NOTE, SHT_PROGBITS, SHT_RELA, SHT_SYMTAB};
use goblin::elf::sym::{STT_FUNC, Symtab};

use super::headers::{CONTEXT, FileHeader};
use super::sections::{MAX_SYMBOL_NAME, Sections};
use super::{Bytes, Object, Segment, Symbol, SymbolTable};
use crate::error::{Error, Result};
use crate::frames::Frames;
use crate::go::{self, program};

/// Sections that the Go linker makes, the first also in stripped programs.
const GO_SECTIONS: [&[u8]; 3] = [b".gopclntab", BUILDINFO, b".note.go.buildid"];

/// How many times the bytes of the file all loaded parts together may have: those of real files share a page at most.
const MAX_LOADED: u64 = 2;

/// Which version of Go has built a program, and of what.
const BUILDINFO: &[u8] = b".go.buildinfo";

impl Object {
    /// Fills the tables from the bytes.
    pub(super) fn load(&mut self) -> Result<()> {
        let shown = self.shown.clone();
        let bytes = match &self.bytes {
            Bytes::Copied(copy) => &copy[..],
            Bytes::Owned(bytes) => &bytes[..],
        };
        let malformed = || format!("{shown} is a malformed or truncated ELF file");
        if !bytes.starts_with(ELFMAG) {
            return Err(not_elf(&shown, bytes));
        }
        let header = check_machine(bytes, &shown)?;
        let kind = header.fields().e_type;
        if kind != ET_EXEC && kind != ET_DYN {
            return Err(Error::usage(format!(
                "{shown} is neither a program nor a shared library (ELF type {kind})"
            )));
        }
        let program_headers = header
            .programs(bytes)
            .map_err(|error| Error::failed(malformed()).because(error))?;
        let file_length = bytes.len() as u64;
        let mut loaded = 0_u64;
        for load in program_headers.iter().filter(|load| load.p_type == PT_LOAD) {
            let (Some(in_file), Some(end)) = (
                load.p_offset.checked_add(load.p_filesz),
                load.p_vaddr.checked_add(load.p_filesz),
            ) else {
                return Err(truncated(&shown));
            };
            loaded = loaded.saturating_add(load.p_filesz);
            if in_file > file_length || loaded > file_length.saturating_mul(MAX_LOADED) {
                return Err(truncated(&shown));
            }
            self.segments.push(Segment {
                address: load.p_vaddr..end,
                offset: load.p_offset,
                executable: load.p_flags & PF_X != 0,
            });
        }
        let sections = Sections::of(&header, bytes)
            .map_err(|error| Error::failed(malformed()).because(error))?;
        for section in sections.headers() {
            let name = sections.name(section);
            self.is_go |= GO_SECTIONS.contains(&name);
            if name == BUILDINFO
                && let Some(range) = section_range(section)
            {
                self.go_version = bytes.get(range).and_then(go::version);
            }
            if section.sh_type == SHT_PROGBITS && name.starts_with(b".plt") {
                let end = section.sh_addr.saturating_add(section.sh_size);
                self.plt.push(section.sh_addr..end);
            }
            if section.sh_type == SHT_PROGBITS && name.starts_with(b".got") {
                let end = section.sh_addr.saturating_add(section.sh_size);
                self.references.offsets.push(section.sh_addr..end);
            }
            if name == b".eh_frame"
                && let Some(range) = section_range(section)
                && range.end <= bytes.len()
            {
                self.frames = Frames::parse(bytes, range, section.sh_addr);
            }
            if section.sh_type == SHT_RELA {
                self.references.relocations.extend(section_range(section));
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
            // There is one of each.
            let is_dynamic = section.sh_type == SHT_DYNSYM;
            if self
                .tables
                .iter()
                .any(|table| table.is_dynamic == is_dynamic)
            {
                continue;
            }
            let Some(strings) = sections
                .headers()
                .get(section.sh_link as usize)
                .and_then(section_range)
            else {
                continue;
            };
            self.has_symtab |= !is_dynamic;
            let count = (section.sh_size / 24) as usize;
            let table = Symtab::parse(bytes, section.sh_offset as usize, count, CONTEXT)
                .map_err(|error| Error::failed(malformed()).because(error))?;
            self.tables.push(SymbolTable {
                offset: section.sh_offset as usize,
                count,
                strings: strings.clone(),
                is_dynamic,
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
        let of_go = program::functions_of(&sections, bytes);
        match of_go {
            Some(functions) => self.add(functions),
            None => self.sort_symbols(),
        }
        Ok(())
    }
}

fn check_machine(bytes: &[u8], shown: &str) -> Result<FileHeader> {
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
    FileHeader::read(bytes).map_err(|error| {
        Error::failed(format!("{shown} is a malformed or truncated ELF file")).because(error)
    })
}

fn section_range(section: &SectionHeader) -> Option<Range<usize>> {
    let start = usize::try_from(section.sh_offset).ok()?;
    let end = start.checked_add(usize::try_from(section.sh_size).ok()?)?;
    Some(start..end)
}

/// Where in the file the string at `index` of a string table stands, without its NUL; `None` when it has no end, or is longer
/// than any name.
pub(super) fn string_at(bytes: &[u8], table: &Range<usize>, index: usize) -> Option<Range<usize>> {
    let start = table.start.checked_add(index)?;
    let tail = bytes.get(start..table.end.min(bytes.len()))?;
    let tail = &tail[..tail.len().min(MAX_SYMBOL_NAME)];
    let length = tail.iter().position(|&byte| byte == 0)?;
    Some(start..start + length)
}

/// The error of a file that could not be opened or read.
#[must_use]
pub fn unreadable(shown: &str, error: std::io::Error) -> Error {
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

/// The error of a file that is something else.
pub(super) fn not_elf(shown: &str, bytes: &[u8]) -> Error {
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
mod tests {
    use super::*;
    use crate::fuzz::Program;

    /// Where the header of the file has the place and the number of program headers, and of section headers.
    const PROGRAMS: (usize, usize) = (32, 56);
    const SECTIONS: (usize, usize) = (40, 60);

    /// A program with so many of these headers, which stand at its end.
    fn program(place: (usize, usize), headers: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Program::default().image().unwrap();
        let at = bytes.len() as u64;
        bytes[place.0..place.0 + 8].copy_from_slice(&at.to_le_bytes());
        let count = headers.len() as u16;
        bytes[place.1..place.1 + 2].copy_from_slice(&count.to_le_bytes());
        bytes.extend(headers.concat());
        bytes
    }

    /// What code refers to was kept for each of them.
    #[test]
    fn the_whole_file_is_not_loaded_again_and_again() {
        let length = Program::default().image().unwrap().len() as u64;
        let loads = |count: u64| {
            let load = |index: u64| {
                let address = index << 20;
                let kind = u64::from(PT_LOAD) | (u64::from(PF_X) << 32);
                let fields = [kind, 0, address, 0, length, length, 0x1000];
                let bytes = fields.iter().flat_map(|field| field.to_le_bytes());
                bytes.collect::<Vec<u8>>()
            };
            let headers: Vec<_> = (0..count).map(load).collect();
            Object::parse(program(PROGRAMS, &headers), "loads")
        };
        assert_eq!(loads(2).unwrap().segments.len(), 2);
        assert!(loads(3).is_err());
    }

    /// Each would have all its symbols.
    #[test]
    fn one_table_of_symbols_is_read_once() {
        let bytes = Program::default().image().unwrap();
        let headers = bytes[64 + 56..].chunks_exact(64).take(8);
        let mut headers: Vec<_> = headers.map(<[u8]>::to_vec).collect();
        // The second section has the symbols, the third one their names.
        headers[2][40] = 3;
        let symtab = headers[2].clone();
        headers.extend(std::iter::repeat_n(symtab, 100));
        let object = Object::parse(program(SECTIONS, &headers), "tables").unwrap();
        assert_eq!((object.tables.len(), object.symbols.len()), (1, 1));
    }

    #[test]
    fn a_string_without_an_end_is_none() {
        let found = |length: usize| {
            let bytes = [vec![b'f'; 1 + length], vec![0]].concat();
            string_at(&bytes, &(0..bytes.len()), 1)
        };
        assert_eq!(found(0), Some(1..1));
        assert_eq!(found(MAX_SYMBOL_NAME - 1), Some(1..MAX_SYMBOL_NAME));
        assert_eq!(found(MAX_SYMBOL_NAME), None);
        assert_eq!(string_at(b"f", &(0..1), 0), None);
    }
}
