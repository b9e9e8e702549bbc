//! Reading an ELF file: its bytes in, the tables of an [`Object`] out. Every offset is looked at before
//! it is followed.

use std::ops::Range;

use goblin::elf::SectionHeader;
use goblin::elf::header::{EI_CLASS, ELFCLASS64, ELFMAG, EM_X86_64, ET_DYN, ET_EXEC};
use goblin::elf::program_header::{PF_X, PT_LOAD};
use goblin::elf::section_header::{SHT_DYNSYM, SHT_NOTE, SHT_PROGBITS, SHT_RELA, SHT_SYMTAB};
use goblin::elf::sym::{STT_FUNC, Symtab};

use super::headers::{CONTEXT, FileHeader};
use super::sections::Sections;
use super::{Bytes, Object, Segment, Symbol, SymbolTable};
use crate::error::{Error, Result};
use crate::frames::Frames;
use crate::go::{self, program};

/// Sections that the Go linker makes, the first also in stripped programs.
const GO_SECTIONS: [&[u8]; 3] = [b".gopclntab", BUILDINFO, b".note.go.buildid"];

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
            let Some(strings) = sections
                .headers()
                .get(section.sh_link as usize)
                .and_then(section_range)
            else {
                continue;
            };
            self.has_symtab |= section.sh_type == SHT_SYMTAB;
            let count = (section.sh_size / 24) as usize;
            let table = Symtab::parse(bytes, section.sh_offset as usize, count, CONTEXT)
                .map_err(|error| Error::failed(malformed()).because(error))?;
            self.tables.push(SymbolTable {
                offset: section.sh_offset as usize,
                count,
                strings: strings.clone(),
                is_dynamic: section.sh_type == SHT_DYNSYM,
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

/// Where in the file the string at `index` of a string table stands, without its NUL.
pub(super) fn string_at(bytes: &[u8], table: &Range<usize>, index: usize) -> Option<Range<usize>> {
    let start = table.start.checked_add(index)?;
    let tail = bytes.get(start..table.end.min(bytes.len()))?;
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
