//! A program of Go: its sections in, what the runtime knows of its functions out.

use goblin::elf::SectionHeader;
use goblin::elf::section_header::SHT_NOBITS;

use super::{Inlined, functions, inlined, tables, version};
use crate::elf::{DefinedSymbols, MAX_SYMBOL_BYTES, ReadAt, Sections, read_section};

/// Where the runtime has what it knows of the program, from 1.26 on in the first one.
const MODULES: [&str; 4] = [".go.module", ".noptrdata", ".data.rel.ro", ".data"];

/// The functions that the linker names for the runtime, of a program without `.symtab`.
pub(crate) fn functions_of<S: ReadAt + ?Sized>(
    sections: &Sections,
    source: &S,
) -> Option<DefinedSymbols> {
    if sections.has_symtab() {
        return None;
    }
    let table = read_section(source, table_of(sections)?, MAX_SYMBOL_BYTES).ok()?;
    let module = sections.contents(source, ".go.module");
    functions(&table, module.as_deref(), sections.find(".text")?.sh_addr)
}

fn table_of(sections: &Sections) -> Option<&SectionHeader> {
    sections
        .find(".gopclntab")
        .or_else(|| sections.find(".data.rel.ro.gopclntab"))
}

/// The calls that the compiler has inlined, as the runtime knows them.
pub(crate) fn inlined_in<S: ReadAt + ?Sized>(sections: &Sections, source: &S) -> Option<Inlined> {
    let table = table_of(sections)?;
    let version = version(&sections.contents(source, ".go.buildinfo")?)?;
    let tables = MODULES.iter().find_map(|name| {
        let bytes = read_section(source, sections.find(name)?, MAX_SYMBOL_BYTES).ok()?;
        tables(&bytes, table.sh_addr, &version)
    })?;
    let within = sections.headers().iter().find(|section| {
        let size = section.sh_size;
        section.sh_type != SHT_NOBITS
            && (section.sh_addr..section.sh_addr.saturating_add(size)).contains(&tables)
    })?;
    let bytes = read_section(source, within, MAX_SYMBOL_BYTES).ok()?;
    let bytes = bytes.get(usize::try_from(tables - within.sh_addr).ok()?..)?;
    let table = read_section(source, table, MAX_SYMBOL_BYTES).ok()?;
    let module = sections.contents(source, ".go.module");
    let text = sections.find(".text")?.sh_addr;
    inlined(&table, module.as_deref(), text, bytes, &version)
}
